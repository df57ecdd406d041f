"""What happens to a request: its files are kept and read, it waits, it is solved, and answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import UploadFile
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

import torchdeal
from torchdeal.app.errands import BusyError
from torchdeal.app.guard import refused
from torchdeal.app.uploads import TooLargeError, TooManyPixelsError, Upload, UploadError, opened, receive, suffix_of
from torchdeal.cli.shared import WeightsSize, in_words, is_foreseeable
from torchdeal.io.checkpoint import load
from torchdeal.memory import is_out_of_memory
from torchdeal.scale.serve.asked import AnswerKind, Asked
from torchdeal.scale.serve.counters import Counters
from torchdeal.scale.serve.gate import LEFT
from torchdeal.scale.serve.orders import MEDIA, Finished, Order, prepared, reply
from torchdeal.scale.serve.worker import Worker

PIECE = 2**16  # bytes of a file, at a time
UPLOADS = 4  # requests that arrive for each that may wait: files of those are on the disk
TOGETHER = {"cuda": 8}  # elsewhere 1: `deal benchmark serve` measures what a batch gains
SUFFIXES = {media: suffix for suffix, media in reversed(MEDIA.items())}
UNFORESEEN = "Something went wrong that should not. The log of the server has the details."
CLOSING = "The server is about to end, and takes nothing more."

log = logging.getLogger("torchdeal.serve")


class WrongTypeError(UploadError):
    """A file of a kind that is not taken."""


class LateError(Exception):
    """It took longer than it may."""


class LeftError(Exception):
    """Whoever asked is gone."""


class ClosingError(Exception):
    """The server ends before the work does."""


@dataclass(frozen=True)
class ServeSettings:
    """How the service runs, and what it takes.

    Attributes:
        host: where it listens.
        token: what a request must bring; None: nothing.
        device: where to compute.
        weights: which are used where a request names none.
        megabytes: of a request.
        pixels: of a result.
        queue: pictures that may wait.
        batch: pictures that are solved together; None: as many as help on the device.
        upload_seconds: in which a request must have arrived.
        answer_seconds: in which it must be answered, from then on.
    """

    host: str = "127.0.0.1"
    token: str | None = None
    device: str = "cpu"
    weights: WeightsSize = WeightsSize.FULL
    megabytes: int = 32
    pixels: int = 2**20
    queue: int = 32
    batch: int | None = None
    upload_seconds: float = 30.0
    answer_seconds: float = 300.0

    @property
    def together(self) -> int:
        return self.batch or TOGETHER.get(self.device, 1)


class Service:
    """Where requests arrive, when they are through the gate."""

    def __init__(self, settings: ServeSettings):
        self.settings, self.counters = settings, Counters()
        self.in_flight, self.draining = 0, False
        light = "-light" if settings.weights is WeightsSize.LIGHT else ""
        models = cache(partial(load, device=settings.device))
        self._names = [f"gray{light}", f"color{light}"]
        self.worker = Worker(models, self._names, settings.queue, settings.together, self.counters)
        self._folder: Path | None = None

    @property
    def idle(self) -> bool:
        return self.in_flight == 0

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="deal-serve-"))
        self.worker.start()

    def close(self) -> None:
        """Nothing of anybody stays."""
        self.worker.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def health(self) -> dict[str, Any]:
        alive = self.worker.alive
        ready = alive and self.worker.ready and not self.draining
        known = {"alive": alive, "ready": ready, "draining": self.draining, "models": self._names}
        return {**known, "device": self.settings.device, "version": torchdeal.__version__}

    def refusal(self) -> tuple[int, str, int] | None:
        """For the gate."""
        if self.draining:
            return 503, CLOSING, 5
        if not self.worker.alive:
            return 503, "The server cannot compute any more: its log has the details.", 60
        if self.worker.full or self.in_flight >= UPLOADS * self.settings.queue:
            return 429, "Too many pictures are waiting already.", self.worker.retry_after
        return None

    async def answer(self, request: Request, asked: Asked, files: Mapping[str, UploadFile | None]) -> Response:
        """The picture that was asked for, or one sentence that says why not."""
        told = request.state.told = {}
        try:
            with self._place() as folder:
                return await self._answer(request, asked, files, folder)
        except LeftError:
            told["status"] = LEFT
            return Response(status_code=400)
        except (BusyError, LateError, ClosingError) as error:
            statuses = {BusyError: 429, LateError: 504, ClosingError: 503}
            again = {} if isinstance(error, LateError) else {"Retry-After": str(self.worker.retry_after)}
            return refused(statuses[type(error)], str(error), again)
        except Exception as error:
            return self._told(error)

    async def _answer(
        self, request: Request, asked: Asked, files: Mapping[str, UploadFile | None], folder: Path
    ) -> Response:
        uploads = {role: await self._kept(file, role, folder) for role, file in files.items() if file is not None}
        settings = self.settings
        order = await run_in_threadpool(
            _in_words, uploads["image"], prepared, asked, uploads, settings.weights, settings.device, settings.pixels
        )
        outcome = await self._outcome(order, request, uploads["image"])
        made = await run_in_threadpool(reply, order, outcome, folder)
        size, report = " x ".join(map(str, order.frame.shape[-2:])), made.report
        run = f"{report['status']}, {report['iterations']} iterations"
        request.state.told["words"] = f", {size}, {run}, waited {outcome.waited:.2f} s, batch of {outcome.batch}"
        if asked.answer is AnswerKind.JSON:
            return JSONResponse(made.json())
        return Response(made.content, media_type=made.media, headers=made.headers())

    async def _outcome(self, order: Order, request: Request, picture: Upload) -> Finished:
        """When it is there. Raises if it takes too long, or nobody waits for it any more."""
        self.worker.put(order)
        done, gone = asyncio.wrap_future(order.done), asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((done, gone), timeout=self.settings.answer_seconds, return_when=asyncio.FIRST_COMPLETED)
            if done.done() and not done.cancelled():
                return _in_words(picture, done.result)
            if done.cancelled():
                raise ClosingError(CLOSING)
            if gone.done():
                raise LeftError
            raise LateError(f"It is not done after {self.settings.answer_seconds:g} seconds: send a smaller picture.")
        finally:
            order.stop.set()  # it has ended, or is not wanted any more
            gone.cancel()
            done.cancel()

    async def _kept(self, file: UploadFile, role: str, folder: Path) -> Upload:
        """The file under a name of ours, decoded."""
        name, most = file.filename or role, self.settings.megabytes * 2**20
        path = await receive(_pieces(file), folder, _suffix(file, name), most)
        try:
            return await run_in_threadpool(opened, path, name, "picture" if role == "image" else role)
        except TooManyPixelsError:
            raise TooManyPixelsError(
                f"The file has more pixels than the {self.settings.pixels:,} that are taken: send a part of it."
            ) from None

    @contextmanager
    def _place(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _told(self, error: Exception) -> Response:
        """What is foreseen, in one sentence; the rest in the log alone."""
        if isinstance(error, (TooLargeError, TooManyPixelsError)) or is_out_of_memory(error):
            return refused(413, in_words(error))
        if isinstance(error, (WrongTypeError, ImportError)):
            return refused(415, in_words(error))
        if is_foreseeable(error) and not isinstance(error, OSError):
            return refused(422, in_words(error))
        log.error("a request failed", exc_info=error)
        return refused(500, UNFORESEEN)


def _in_words(picture: Upload, call: Any, *arguments: Any) -> Any:
    """What the call returns; its errors name the file as its owner does."""
    try:
        return call(*arguments)
    except UploadError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or not is_foreseeable(error) or isinstance(error, (OSError, ImportError)):
            raise
        raise UploadError(picture.in_words(in_words(error))) from None


def _suffix(file: UploadFile, name: str) -> str:
    """Of the name, or of the content type where the name has none that is known."""
    media = (file.content_type or "").partition(";")[0].strip().lower()
    try:
        return suffix_of(name, "image")
    except UploadError as error:
        if media in SUFFIXES:
            return SUFFIXES[media]
        raise WrongTypeError(str(error)) from None


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(PIECE):
        yield piece


async def _gone(request: Request) -> None:
    """Returns when the connection is closed by the other side."""
    with contextlib.suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass
