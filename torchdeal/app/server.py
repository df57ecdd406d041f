"""The page and what it asks for, over HTTP. Errors are one sentence, as JSON: `{"error": ...}`."""

from __future__ import annotations

import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import torchdeal
from torchdeal.app import answers, samples
from torchdeal.app.answers import Answer, Maker
from torchdeal.app.errands import UNFORESEEN, BusyError, Errand, Errands, State
from torchdeal.app.guard import Guard
from torchdeal.app.uploads import ROLES, TooLargeError, Upload, opened, receive, suffix_of
from torchdeal.app.visits import TOKEN, Guest, Visits
from torchdeal.app.wishes import Wish
from torchdeal.cli.shared import complain
from torchdeal.io import files

ASSETS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_JSON = 2**14
GONE = "What was here has been removed, as nothing was heard of this page for a while. Bring the picture again."

Handler = Callable[[Request], Awaitable[Response]]


class NotThereError(Exception):
    """What is asked for does not exist."""


@dataclass(frozen=True)
class Limits:
    """What is taken: bytes of a file, pixels of a result, minutes for which a page may be silent."""

    megabytes: int = 64
    pixels: int = 2**20
    minutes: float = 15


def create(*, host: str = "127.0.0.1", password: str | None = None, device: str = "cpu", limits: Limits | None = None):
    """The application that a server such as uvicorn runs."""
    limits = limits or Limits()
    desk = Desk(device, limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(desk.close)

    guard = Middleware(Guard, host=host, password=password, most_bytes=limits.megabytes * 2**20)
    app = Starlette(routes=desk.routes(), middleware=[guard], lifespan=lifespan)
    app.state.desk = desk
    return app


class Desk:
    """Where requests arrive."""

    def __init__(self, device: str, limits: Limits):
        self._device, self._limits = device, limits
        self.visits = Visits(limits.minutes)
        self.errands = Errands(tidy=self.visits.tidy)
        self._maker = Maker.on(device, limits.pixels)
        # All that the page consists of is read now: no path of a request is one of a file.
        folder = resources.files("torchdeal.app") / "page"
        self._assets = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}

    def close(self) -> None:
        """Nothing of anybody stays."""
        self.errands.close()
        self.visits.close()

    def routes(self) -> list[Route]:
        visit = "/api/visits/{token}"
        return [
            Route("/", _answered(self.page)),
            Route("/page/{name}", _answered(self.page)),
            Route("/api/about", _answered(self.about)),
            Route(visit, _answered(self.state)),
            Route(f"{visit}/leave", _answered(self.leave), methods=["POST"]),
            Route(f"{visit}/uploads/{{role}}", _answered(self.upload), methods=["PUT"]),
            Route(f"{visit}/uploads/{{role}}/remove", _answered(self.remove), methods=["POST"]),
            Route(f"{visit}/sample/{{name}}", _answered(self.sample), methods=["POST"]),
            Route(f"{visit}/look", _answered(self.look)),
            Route(f"{visit}/order", _answered(self.order), methods=["POST"]),
            Route(f"{visit}/cancel", _answered(self.cancel), methods=["POST"]),
            Route(f"{visit}/questions/{{kind}}", _answered(self.ask), methods=["POST"]),
            Route(f"{visit}/pictures/{{name}}", _answered(self.picture)),
            Route(f"{visit}/download", _answered(self.download)),
        ]

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._assets:
            raise NotThereError("There is no such page.")
        return Response(self._assets[name], media_type=ASSETS[PurePath(name).suffix])

    async def about(self, request: Request) -> Response:
        """What the page must know before anything is done."""
        known = {"version": torchdeal.__version__, "device": self._device, "suffixes": list(files.SUFFIXES)}
        known |= {"megabytes": self._limits.megabytes, "pixels": self._limits.pixels, "samples": samples.offered()}
        return JSONResponse(known | {"minutes": self._limits.minutes})

    async def state(self, request: Request) -> Response:
        return JSONResponse(self._told(self._visit(request)))

    async def leave(self, request: Request) -> Response:
        """The page was closed: what belongs to it is removed."""
        await run_in_threadpool(self.visits.end, _token(request))
        return JSONResponse({})

    async def upload(self, request: Request) -> Response:
        role = _role(request)
        visit = self.visits.begin(_token(request))
        name = request.query_params.get("name", "")
        path = await receive(request.stream(), visit.folder, suffix_of(name, role), self._limits.megabytes * 2**20)
        try:
            upload = await run_in_threadpool(opened, path, name, role)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        visit.keep(role, upload)
        return JSONResponse(upload.about())

    async def remove(self, request: Request) -> Response:
        """A kernel or a mask is not wanted any more."""
        upload = self._visit(request).uploads.pop(_role(request), None)
        if upload is not None:
            upload.path.unlink(missing_ok=True)
        return JSONResponse({})

    async def sample(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in samples.SAMPLES:
            raise NotThereError("There is no such sample.")
        visit = self.visits.begin(_token(request))
        upload = await run_in_threadpool(samples.brought, name, visit.folder)
        visit.keep("picture", upload)
        return JSONResponse(upload.about())

    async def look(self, request: Request) -> Response:
        """The picture as it was brought, or the middle of it."""
        side = request.query_params.get("part", "")
        part = min(int(side), 2**14) if side.isdecimal() and len(side) < 6 else None
        picture = _picture(self._visit(request))
        return Response(await run_in_threadpool(lambda: picture.middle(part).preview()), media_type="image/png")

    async def order(self, request: Request) -> Response:
        """Begin with the picture; what was done before is cancelled and forgotten."""
        visit = self._visit(request)
        wish = Wish.of(await _json(request))
        picture = _picture(visit)
        uploads = dict(visit.uploads)
        visit.forget_order()
        visit.order = Errand(lambda errand: self._maker.make(wish, uploads, visit.folder, errand), picture.in_words)
        self.errands.put(visit.order)
        return JSONResponse(self._told(visit))

    async def cancel(self, request: Request) -> Response:
        """All that is under way for this page."""
        visit = self._visit(request)
        for errand in filter(None, [visit.order, *visit.questions.values()]):
            errand.cancel()
        return JSONResponse(self._told(visit))

    async def ask(self, request: Request) -> Response:
        """Something about the result. The same question again takes the place of the one before."""
        visit, kind = self._visit(request), request.path_params["kind"]
        answer, values = _answer(visit), await _json(request)
        simple = {"mask": answers.mask_of, "error_bars": answers.error_bars_of, "certificate": answers.certificate_of}
        if kind == "pixel":
            work = answers.pixel_of(answer, *(_whole(values, name) for name in ("row", "column")))
        elif kind in simple:
            work = simple[kind](answer)
        else:
            raise NotThereError("There is no such question.")
        if kind in visit.questions:
            visit.questions[kind].cancel()
        visit.questions[kind] = self.errands.put(Errand(work, _picture(visit).in_words))
        return JSONResponse(self._told(visit))

    async def picture(self, request: Request) -> Response:
        visit, name = self._visit(request), request.path_params["name"]
        if visit.order is None:
            raise NotThereError("There is no result yet.")
        held = visit.order.result.pictures if isinstance(visit.order.result, Answer) else {}
        png = visit.order.progress.get("picture") if name == "preview" else held.get(name)
        if png is None:
            raise NotThereError("There is no such picture.")
        return Response(png, media_type="image/png")

    async def download(self, request: Request) -> Response:
        """The result, in the format and the bit depth of the input."""
        answer = _answer(self._visit(request))
        stem = PurePath(answer.recipe.picture.name).stem
        name = f"{stem}-{answer.recipe.result}"
        return FileResponse(answer.file, filename=name, content_disposition_type="attachment")

    def _visit(self, request: Request) -> Guest:
        visit = self.visits.find(_token(request))
        if visit is None:
            raise NotThereError(GONE)
        return visit

    def _told(self, visit: Guest) -> dict[str, Any]:
        picture = visit.uploads.get("picture")
        return {
            "picture": picture and picture.about(),
            "order": visit.order and self._errand(visit.order),
            "questions": {kind: self._errand(errand) for kind, errand in visit.questions.items()},
        }

    def _errand(self, errand: Errand) -> dict[str, Any]:
        progress = {name: value for name, value in errand.progress.items() if name != "picture"}
        result = errand.result.about() if isinstance(errand.result, Answer) else errand.result
        return {
            "number": errand.number,
            "state": errand.state.value,
            "ahead": self.errands.ahead(errand),
            "error": errand.error,
            "seconds": round(errand.seconds, 2),
            "progress": progress,
            "result": result if errand.state is State.DONE else None,
        }


def _answered(handler: Handler) -> Handler:
    """With errors as one sentence. What nobody foresaw is told in the terminal alone."""

    async def answering(request: Request) -> Response:
        try:
            return await handler(request)
        except (TooLargeError, BusyError, NotThereError, ValueError, TypeError, ImportError) as error:
            statuses = {TooLargeError: 413, BusyError: 503, NotThereError: 404, ImportError: 501}
            return JSONResponse({"error": str(error)}, statuses.get(type(error), 422))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            complain("Error", f"{type(error).__name__}: {error}")
            traceback.print_exc()
            return JSONResponse({"error": UNFORESEEN}, 500)

    return answering


def _token(request: Request) -> str:
    token = request.path_params["token"]
    if not TOKEN.fullmatch(token):
        raise NotThereError("There is no such page.")
    return token


def _role(request: Request) -> str:
    role = request.path_params["role"]
    if role not in ROLES:
        raise NotThereError("There is no such kind of file.")
    return role


async def _json(request: Request) -> Any:
    """Of a small body."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_JSON:
            raise TooLargeError("The choices are longer than any could be.")
    try:
        return json.loads(bytes(body) or b"{}")
    except (ValueError, RecursionError):
        raise ValueError("The choices are not JSON.") from None


def _whole(values: Any, name: str) -> int:
    value = values.get(name) if isinstance(values, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number.")
    return value


def _picture(visit: Guest) -> Upload:
    if "picture" not in visit.uploads:
        raise NotThereError("There is no picture yet: choose one first.")
    return visit.uploads["picture"]


def _answer(visit: Guest) -> Answer:
    if visit.order is None or visit.order.state is not State.DONE:
        raise NotThereError("There is no result yet.")
    return visit.order.result
