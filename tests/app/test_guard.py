"""Requests that a page of somebody else could send."""

import pytest
from app.visitors import Visitor
from starlette.testclient import TestClient

from torchdeal.app import guard
from torchdeal.app.server import create


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.168.0.7:8765", "", "["])
def test_other_names_are_refused(host, client):
    """A name that leads here is not yet ours: DNS rebinding."""
    assert client.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:1"])
def test_names_of_this_machine_are_known(host, client):
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_sites_cannot_send_anything(headers, client, person):
    assert client.post(f"{person.visit}/sample/camera", headers=headers).status_code == 403


def test_this_page_can(client, person):
    headers = {"origin": "http://localhost:8765", "sec-fetch-site": "same-origin"}
    assert client.post(f"{person.visit}/sample/camera", headers=headers).status_code == 200


def test_nothing_is_loaded_from_elsewhere(client):
    headers = client.get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.fixture
def guarded(monkeypatch):
    monkeypatch.setattr(guard, "WRONG_PASSWORD_SECONDS", 0.01)
    with TestClient(create(host="0.0.0.0", password="grüße"), base_url="http://machine.lan") as client:
        yield client


def test_the_password_is_asked_for(guarded):
    refused = guarded.get("/")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    assert guarded.get("/", auth=("me", "wrong")).status_code == 401
    assert guarded.get("/", headers={"authorization": "Basic %"}).status_code == 401
    assert Visitor(guarded).sample("camera").status_code == 401
    assert guarded.get("/", auth=(b"me", "grüße".encode())).status_code == 200


def test_a_program_sends_it_as_a_token(guarded):
    assert guarded.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert guarded.get("/", headers={"authorization": "Bearer grüße".encode()}).status_code == 200


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.2", False)],
)
def test_which_hosts_are_this_machine_alone(host, alone):
    assert guard.is_loopback(host) == alone
