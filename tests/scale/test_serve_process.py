"""`deal serve` as a process with sockets: how it begins, slow and broken clients, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("prometheus_client", reason="deal serve needs pip install 'torchdeal[serve]'")
pytest.importorskip("httpx", reason="tests of deal serve need httpx")

import httpx
from app.visitors import noisy_pixels
from documents import ROOT
from scale.servers import NOISY

import torchdeal as td
from torchdeal.scale.client import Client

SECONDS = 60
HEAD = "POST /v1/denoise HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"


@pytest.fixture(scope="module")
def server():
    command = [sys.executable, "-m", "torchdeal", "serve", "--port", "0", "--weights", "light", "--upload-seconds", "1"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            process.address = re.search(r"http://\S+", process.stdout.readline()).group().rstrip("/")
            end = time.monotonic() + SECONDS
            while not is_ready(process.address):
                assert time.monotonic() < end
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


def is_ready(address):
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.ConnectError:  # it says its address before it listens
        return False


def connected(server):
    place = urlsplit(server.address)
    connection = socket.create_connection((place.hostname, place.port), timeout=SECONDS)
    return connection


def said(connection):
    """All that comes until the other side closes, or has said enough."""
    text = b""
    while piece := connection.recv(65536):
        text += piece
        if b'{"error"' in text and text.endswith(b"}"):
            break
    return text.decode()


def test_an_array_there_and_back(server):
    with Client(server.address) as client:
        found, report = client.denoise(NOISY, sigma=20, tolerance=0.05)
    expected = td.denoise(NOISY, sigma=20, tolerance=0.05, model="gray-light")
    assert np.array_equal(found, expected)
    assert report["converged"]


def test_slow_and_broken_clients(server):
    """A body that stops, one that is cut off, sizes that are lies, and what is no HTTP; then all is well."""
    with connected(server) as slow, connected(server) as huge, connected(server) as odd, connected(server) as dropped:
        slow.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n--x\r\n".encode())
        dropped.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n--x\r\n".encode())
        dropped.close()
        huge.sendall(f"{HEAD}Content-Length: 99999999999999\r\n\r\n".encode())
        assert said(huge).startswith("HTTP/1.1 413")
        odd.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert said(odd).startswith("HTTP/1.1 400")
        answer = said(slow)
        assert answer.startswith("HTTP/1.1 408")
        assert "did not arrive within 1 seconds" in answer
    assert httpx.get(f"{server.address}/health").json()["ready"]
    metrics = httpx.get(f"{server.address}/metrics").text
    assert 'deal_requests_total{goal="denoise",outcome="slow"} 1.0' in metrics
    assert "deal_in_flight 0.0" in metrics


def test_the_examples_of_the_page(server, tmp_path, monkeypatch):
    """With the address of this server in place of the usual one."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "serve.md").read_text(), re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:
        assert "http://localhost:8750" in block
        exec(block.replace("http://localhost:8750", server.address), names)
    assert names["report"]["converged"]
    assert names["clean"].shape == names["noisy"].shape


def test_it_answers_what_it_accepted_and_ends(server):
    """The last test: after SIGTERM a new request is refused, the one that runs is answered, and the exit code is 0."""
    answers = []

    def ask():
        with Client(server.address) as client:
            answers.append(client.denoise(noisy_pixels(size=32), sigma=20, tolerance=1e-4))

    person = threading.Thread(target=ask)
    with httpx.Client(base_url=server.address) as other:  # connected before the end begins
        person.start()
        end = time.monotonic() + SECONDS
        while "deal_in_flight 1.0" not in other.get("/metrics").text:
            assert time.monotonic() < end
            time.sleep(0.02)
        server.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        refused = other.post("/v1/denoise", files={"image": ("a.png", b"")})
        assert refused.status_code == 503
        assert "about to end" in refused.json()["error"]
        assert other.get("/health").json()["draining"]
    person.join(SECONDS)
    assert [answer.report["status"] for answer in answers] == ["CONVERGED"]
    assert server.wait(SECONDS) == 0
    log = server.stderr.read()
    assert "Traceback" not in log
    assert re.search(r"denoise 200, [\d.]+ s, 16 x 16, CONVERGED, \d+ iterations, waited [\d.]+ s, batch of 1", log)


def test_other_machines_need_a_token(deal, tmp_path):
    code, _, err = deal("serve", "--host", "0.0.0.0")
    assert (code, "set TORCHDEAL_TOKEN, or give --token-file" in err) == (1, True)
    (tmp_path / "token").write_text("two words\n")
    code, _, err = deal("serve", "--token-file", tmp_path / "token")
    assert (code, "a token is one word" in err) == (1, True)
