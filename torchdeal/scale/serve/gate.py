"""Who may ask, how much, and how slowly: what is refused is refused before it is read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchdeal.app.guard import Guard, refused, with_headers
from torchdeal.scale.serve.counters import Counters

OPEN = ("/health",)  # needs no token: it is for those who start and stop programs
ADDRESSES, GOALS = "/v1/", ("denoise", "deblur", "upscale", "inpaint")
LEFT = 499  # as proxies call it: who asked is gone, and there is no answer
CLOSE = {"Connection": "close"}

log = logging.getLogger("torchdeal.serve")


class Doorkeeper(Protocol):
    """What the gate must know of the service."""

    counters: Counters
    in_flight: int
    draining: bool

    def refusal(self) -> tuple[int, str, int] | None:
        """Status, words, and seconds after which to try again, where nothing more is taken."""
        ...


class Gate(Guard):
    """The guard of the page, with a token for programs, limits in bytes and seconds, and a count of what happened."""

    _stranger = "Without a token only localhost is answered: set one, or have your proxy send Host: localhost."

    def __init__(
        self, app: ASGIApp, *, service: Doorkeeper, host: str, token: str | None, most_bytes: int, upload_seconds: float
    ):
        super().__init__(app, host=host, password=token, most_bytes=most_bytes)
        self._service, self._upload_seconds = service, upload_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith(ADDRESSES) and scope["method"] == "POST":
            await self._counted(scope, receive, send)
        elif scope["path"] in OPEN:
            await self._app(scope, receive, with_headers(send))
        else:
            await super().__call__(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A picture: in flight from here to the end of its answer."""
        started, service = time.monotonic(), self._service
        status = LEFT

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers = Headers(scope=scope)
        refusal = await self._refusal(scope["method"], headers) or self._refused_now(headers)
        service.in_flight += 1
        service.counters.in_flight.set(service.in_flight)
        try:
            handler: Callable[[Scope, Receive, Send], Awaitable[None]] = refusal or self._app
            await handler(scope, self._limited(receive), with_headers(sending))
        finally:
            service.in_flight -= 1
            service.counters.in_flight.set(service.in_flight)
            self._tell(scope, status, time.monotonic() - started)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        goal = scope["path"].removeprefix(ADDRESSES)
        goal = goal if goal in GOALS else "none"
        about = scope.get("state", {}).get("told", {})
        status = about.get("status", status)
        self._service.counters.ended(goal, status, seconds)
        log.info("%s %d, %.2f s%s", goal, status, seconds, about.get("words", ""))

    def _refused_now(self, headers: Headers) -> Response | None:
        kind = headers.get("content-type", "")
        if not kind.lower().startswith("multipart/form-data"):
            words = "Send a form with the file as image, as curl -F image=@photo.png does (multipart/form-data)."
            return refused(415, words)
        refusal = self._service.refusal()
        if refusal is None:
            return None
        status, words, seconds = refusal
        return refused(status, words, {"Retry-After": str(seconds)})

    def _limited(self, receive: Receive) -> Receive:
        """The same, with an end to how long a body may take, and how long it may be."""
        until, size, complete = time.monotonic() + self._upload_seconds, 0, False

        async def receiving() -> Message:
            nonlocal size, complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(until - time.monotonic(), 0.001))
            except asyncio.TimeoutError:
                words = f"The request did not arrive within {self._upload_seconds:g} seconds."
                raise HTTPException(408, words, CLOSE) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self._most:
                words = f"The request is larger than the {self._most / 2**20:.0f} MiB that are taken."
                raise HTTPException(413, words, CLOSE)
            return message

        return receiving

    def _asks_for_password(self) -> Response:
        return refused(401, "A token is needed: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
