"""The sockets and the server of the page."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp


@contextmanager
def listening(host: str, port: int) -> Iterator[tuple[list[socket.socket], str]]:
    """A socket, and the address of the page. Raises OSError with a remedy where the port is taken."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
        except OSError as error:
            raise ValueError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose another --port"
            ) from None
        name = f"[{host}]" if family == socket.AF_INET6 else host
        yield [listener], f"http://{name}:{listener.getsockname()[1]}/"


def serve(app: ASGIApp, sockets: list[socket.socket]) -> None:
    """Until Ctrl-C or SIGTERM."""
    # A large file that comes slowly is cut off by its size, not by time; pages that are open do not hold up the end.
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, server_header=False)
    uvicorn.Server(config).run(sockets)
