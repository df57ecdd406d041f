"""The process: it listens, and ends in order."""

from __future__ import annotations

import logging
import os
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from torchdeal.scale.serve.service import Service

MOST_CONNECTIONS = 512  # more are answered 503: each takes a file descriptor, and a slow one takes it for long
LAST_SECONDS = 5  # for answers that are on their way to slow readers

log = logging.getLogger("torchdeal.serve")


class OrderlyServer(uvicorn.Server):
    """On SIGTERM or Ctrl-C: new requests are refused, those that were accepted are answered, then it ends.

    On a second one, what is still computed is stopped.
    """

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service, self._hurry = service, False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Within a signal handler: only flags."""
        self._hurry = self._service.draining
        self._service.draining = True

    async def on_tick(self, counter: int) -> bool:
        if self._hurry:
            self._service.worker.stop_all()
        if self._service.draining and self._service.idle:
            self.should_exit = True
        return await super().on_tick(counter)


def serve(app: FastAPI, sockets: list[socket.socket]) -> None:
    """Until it is told to end."""
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=LAST_SECONDS,
    )
    service: Service = app.state.service
    OrderlyServer(config, service).run(sockets)
    if service.worker.alive:  # in the middle of an operation of torch, which Python cannot end without a crash
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def log_to_stderr(quiet: bool) -> None:
    """A line for each request, or for errors alone."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.ERROR if quiet else logging.INFO)
    log.propagate = False
