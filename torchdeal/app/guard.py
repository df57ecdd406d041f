"""Who may ask: requests from this page alone, to this machine alone, with the password where there is one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "localhost.localdomain")
SAFE = ("GET", "HEAD")
LONGEST_NUMBER = 15  # of digits in a header: no file is so large
WRONG_PASSWORD_SECONDS = 1.0  # before the answer: guessing takes long
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses what a page of somebody else could send through the browser of a user.

    A site can point a name of its own at this machine (DNS rebinding): then the Host header has that name. It can
    send forms here: then the Origin header has its own name.
    """

    _stranger = "This page answers to localhost alone. Start deal app with --host to change that."

    def __init__(self, app: ASGIApp, *, host: str, password: str | None, most_bytes: int):
        self._app, self._password, self._most = app, password, most_bytes
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, with_headers(send))

    async def _refusal(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._knows(host):
            return refused(403, self._stranger)
        if method not in SAFE and not _same_origin(headers, host):
            return refused(403, "This request comes from another site.")
        if self._password is not None and not _has_password(headers, self._password):
            if "authorization" in headers:
                await asyncio.sleep(WRONG_PASSWORD_SECONDS)
            return self._asks_for_password()
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > LONGEST_NUMBER or int(length) > self._most:
            return refused(413, f"The file is larger than the {self._most / 2**20:.0f} MiB that are taken.")
        return None

    def _asks_for_password(self) -> Response:
        asked = {"WWW-Authenticate": 'Basic realm="deal app", charset="UTF-8"'}
        return PlainTextResponse("This page has a password; any user name will do.", 401, headers=asked)

    def _knows(self, host: str) -> bool:
        """With a password any name will do: a site that borrows this address has not been told it."""
        name = _place(f"//{host}").hostname or ""
        return self._password is not None or name == self._host or is_loopback(name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can ask."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in LOOPBACK_NAMES


def _same_origin(headers: Headers, host: str) -> bool:
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or _place(origin).netloc.lower() == host.lower()


def _place(address: str) -> SplitResult:
    """The parts of an address; of one that is none, nothing."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _has_password(headers: Headers, password: str) -> bool:
    """As a browser sends it (Basic), or as programs do (Bearer)."""
    scheme, _, code = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return hmac.compare_digest(code.strip().encode("latin-1"), password.encode())
    try:
        given = base64.b64decode(code, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(given, password.encode())


def refused(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """One sentence, as JSON."""
    return JSONResponse({"error": error}, status, headers)


def with_headers(send: Send) -> Send:
    """What a browser must know to be careful with any answer of ours; an answer may have its own."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
