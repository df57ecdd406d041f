"""A server without sockets, and people who use it."""

import pytest

pytest.importorskip("starlette", reason="the page needs pip install 'torchdeal[app]'")
pytest.importorskip("httpx", reason="tests of the page need httpx")

from app.visitors import Visitor
from starlette.testclient import TestClient

from torchdeal.app.server import create


@pytest.fixture(scope="module")
def client():
    with TestClient(create(), base_url="http://localhost:8765") as client:
        yield client


@pytest.fixture
def person(client):
    person = Visitor(client)
    yield person
    client.post(f"{person.visit}/leave")
