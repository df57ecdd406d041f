"""A server in a process of its own, and clients of all kinds: those that wait for an answer, and those that do harm."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.extras import optional

START_SECONDS, END_SECONDS = 120.0, 120.0
UPLOAD_SECONDS = 1.0  # that a request may take to arrive
HEAD = "POST /v1/denoise HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'


@dataclass
class ServerProcess:
    """One that is running."""

    url: str
    process: subprocess.Popen[str]
    http: Any  # a client of httpx

    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.http.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    @property
    def mebibytes(self) -> float:
        """That it has in memory."""
        return self.metrics().get("process_resident_memory_bytes", float("nan")) / 2**20

    def connect(self) -> socket.socket:
        place = urlsplit(self.url)
        return socket.create_connection((place.hostname or "", place.port or 80), timeout=30)


@contextmanager
def server(*options: str) -> Iterator[ServerProcess]:
    """`deal serve` with the light weights, until the end of the block. Raises if it does not begin or end in order."""
    try:
        httpx = optional("httpx", "this", "serve")
        optional("fastapi", "this", "serve")
    except ImportError as error:
        raise Unavailable(str(error)) from None
    command = [sys.executable, "-m", "torchdeal", "serve", "--port", "0", "--weights", "light", "--quiet", *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+?(?=/\s)", process.stdout.readline())
            if address is None:
                raise Unavailable("deal serve did not begin")
            with httpx.Client(base_url=address.group(), timeout=30) as http:
                _wait_for(lambda: _is_ready(http, httpx.TransportError), "deal serve was not ready")
                yield ServerProcess(address.group(), process, http)
            process.send_signal(signal.SIGTERM)
            if process.wait(END_SECONDS) != 0:
                raise ValueError(f"deal serve ended with code {process.returncode}")
        finally:
            process.kill()


def _is_ready(http: Any, refused: type[Exception]) -> bool:
    """It names its address a moment before it listens there."""
    try:
        return http.get("/health").status_code == 200
    except refused:
        return False


def _wait_for(condition: Callable[[], bool], words: str) -> None:
    until = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise Unavailable(f"{words} after {START_SECONDS:g} s")
        time.sleep(0.1)


def png(width: int, height: int, packed: bytes) -> bytes:
    """A gray PNG that says to be so large, whatever is in it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def good_png(side: int = 16) -> bytes:
    """A small picture with some noise."""
    pixels = np.random.default_rng(0).integers(90, 160, (side, side), dtype=np.uint8)
    return png(side, side, zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels)))


def bomb(side: int) -> bytes:
    """A black PNG, a thousand times smaller than what it unpacks to."""
    packer = zlib.compressobj(9)
    rows = [packer.compress(bytes(side + 1)) for _ in range(side)]
    return png(side, side, b"".join(rows) + packer.flush())


def pickled() -> bytes:
    """An npy that would execute code where it is trusted."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([[print]], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _sent(
    content: bytes | Callable[[], bytes], name: str = "photo.png", **parameters: str
) -> Callable[[ServerProcess], str]:
    """A file as a form; what is large is made when it is sent."""

    def ask(server: ServerProcess) -> str:
        asked = {"sigma": "20", "tolerance": "0.05", **parameters}
        file = name, content() if callable(content) else content
        return str(server.http.post("/v1/denoise", params=asked, files={"image": file}).status_code)

    return ask


def _raw(*pieces: bytes, then: str = "listen") -> Callable[[ServerProcess], str]:
    """Bytes through a socket; then it listens for the status, or leaves, and the server counts that as some outcome."""

    def ask(server: ServerProcess) -> str:
        before = server.metrics()
        with server.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
            if then == "leave":
                time.sleep(0.3)
                connection.close()
                return _outcome_after(server, before)
            return connection.recv(4096).decode("latin-1").split(" ", 2)[1]

    return ask


def _outcome_after(server: ServerProcess, before: dict[str, float]) -> str:
    """What the server counted since, as the first thing."""
    for _ in range(100):
        now = server.metrics()
        grown = [name for name, value in now.items() if "requests_total" in name and value > before.get(name, 0)]
        if grown:
            return grown[0].partition('outcome="')[2].partition('"')[0]
        time.sleep(0.1)
    return "nothing"


def _typed(kind: str, content: bytes) -> Callable[[ServerProcess], str]:
    def ask(server: ServerProcess) -> str:
        return str(server.http.post("/v1/denoise", content=content, headers={"content-type": kind}).status_code)

    return ask


def _endless(server: ServerProcess) -> str:
    """Without a length, in pieces, until the server closes the connection."""
    before = server.metrics()
    with server.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = bytes(2**16)
        try:
            connection.sendall(b"%x\r\n%b\r\n" % (len(PART), PART))
            for _ in range(4096):
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        except OSError:
            return _outcome_after(server, before)  # closed: the status was on its way
        return "taken"


def _form(content: bytes) -> bytes:
    return PART + content + b"\r\n--x--\r\n"


def _head(body: bytes) -> bytes:
    return f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode()


_SMALL, _LARGE = _form(good_png()), _form(good_png(96))
_LONG = f"{HEAD}Content-Length: 1000\r\n\r\n".encode()
HARMFUL: dict[str, tuple[str, Callable[[ServerProcess], str]]] = {  # what is expected, and who does it
    "a body that stops in the middle": ("408", _raw(_LONG + b"--x\r\n")),
    "a connection that is dropped in the middle of the body": ("broken", _raw(_LONG + b"--x\r\n", then="leave")),
    "a connection that is dropped while the picture is computed": ("left", _raw(_head(_LARGE) + _LARGE, then="leave")),
    "a declared length of 100 TB": ("413", _raw(f"{HEAD}Content-Length: 99999999999999\r\n\r\n".encode())),
    "a length of 5000 digits": ("400", _raw(f"{HEAD}Content-Length: {'9' * 5000}\r\n\r\n".encode())),
    "a body without a length and without an end": ("too_large", _endless),
    "bytes that are not HTTP": ("400", _raw(b"\x16\x03\x01\x02\x00 hello\r\n\r\n")),
    "a PNG of 30000 x 30000 pixels in 0.9 MB": ("413", _sent(partial(bomb, 30000))),
    "a PNG that says 2 billion pixels": ("413", _sent(png(50000, 40000, zlib.compress(b"0")))),
    "a PNG that is cut off": ("422", _sent(good_png()[:60])),
    "text as PNG": ("422", _sent(b"Dear server")),
    "an npy with Python objects": ("422", _sent(pickled(), "a.npy")),
    "a text file": ("415", _sent(b"Dear server", "letter.txt")),
    "no form": ("415", _typed("image/png", good_png())),
    "JSON, 100000 levels deep": ("415", _typed("application/json", b"[" * 100000)),
    "a form that is none": ("400", _typed("multipart/form-data", b"hello")),
    "weights that are a path": ("422", _sent(good_png(), model="/etc/passwd")),
    "a file name that is a path": ("200", _sent(good_png(), "../../../etc/passwd.png")),
    "a host that is another one": (
        "403",
        _raw(_head(_SMALL).replace(b"localhost", b"evil.example") + _SMALL),
    ),
}
