"""From files to a problem, and from its solution to a file."""

from __future__ import annotations

import base64
import json
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from torchdeal.app.recipes import RESULTS
from torchdeal.app.uploads import TooManyPixelsError, Upload, UploadError
from torchdeal.app.wishes import Goal
from torchdeal.cli.pictures import PictureKind, PictureTask
from torchdeal.cli.report import FileReport, summarise
from torchdeal.cli.run import Problem, Solved
from torchdeal.io import files
from torchdeal.scale.serve.asked import AnswerFormat, Asked

MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".npy": "application/x-npy",
}
REPORTED = (  # of a `FileReport`; the others are about files
    "status",
    "converged",
    "distance",
    "iterations",
    "cg_iterations",
    "sigma",
    "estimated",
    "sigma_low",
    "sigma_high",
    "unchanged",
    "model",
    "device",
    "movement",
    "notes",
)
MOST_NOTES, LONGEST_NOTE = 4, 200  # a report travels in a header


@dataclass(frozen=True, eq=False)
class Finished:
    """A solution, and how it came about."""

    solved: Solved
    batch: int  # how many were solved together
    waited: float  # seconds
    seconds: float  # of the solve


@dataclass(eq=False)
class Order:
    """One picture, and what is to be done with it.

    Attributes:
        stop: set when nobody waits for it any more.
        done: its outcome, or the error.
        problem: found when it is its turn, or that of one that it could join.
    """

    asked: Asked
    task: PictureTask
    frame: Tensor
    kind: PictureKind
    suffix: str  # of the answer
    placed: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    done: Future[Finished] = field(default_factory=Future)
    problem: Problem | None = None

    @property
    def alike(self) -> tuple[Any, ...] | None:
        """Orders for which it is the same may be solved together; None: this one is solved alone."""
        if self.asked.goal != Goal.DENOISE.value:
            return None
        return replace(self.task.settings, sigma=None), self.frame.shape


def prepared(asked: Asked, uploads: dict[str, Upload], weights: str, device: str, most_pixels: int) -> Order:
    """Read the picture and what comes with it. Raises ValueError, in words, for what cannot be done."""
    picture = uploads["image"]
    if picture.image is None:
        raise UploadError(f"{picture.name} holds complex numbers, and is no picture.")
    pixels = picture.image.size[0] * picture.image.size[1] * asked.magnification**2
    if pixels > most_pixels:
        raise TooManyPixelsError(
            f"The result would have {pixels:,} pixels, more than the {most_pixels:,} that are taken: send a part of it."
        )
    task = asked.task(asked.settings(picture.image.colours, weights, device), uploads)
    (frame,), kind = task.read(picture.path)
    return Order(asked, task, frame, kind, _suffix(asked.format, picture.suffix, task, frame, kind))


def _suffix(wanted: AnswerFormat, given: str, task: PictureTask, frame: Tensor, kind: PictureKind) -> str:
    """As wanted, or an error; of the input where that holds the result, else TIFF, which holds all."""
    suffix = given if wanted is AnswerFormat.SAME else f".{wanted.value}"
    try:
        task.check_target(Path(f"result{suffix}"), [frame], kind)
    except files.ImageFileError:
        if wanted is not AnswerFormat.SAME:
            raise
        return ".tif"
    return suffix


@dataclass(frozen=True)
class Reply:
    """What goes back."""

    content: bytes
    media: str
    name: str
    report: dict[str, Any]

    def headers(self) -> dict[str, str]:
        """The report: what matters most by name, and all of it as JSON."""
        return {
            "Deal-Status": self.report["status"],
            "Deal-Distance": "unknown" if self.report["distance"] is None else f"{self.report['distance']:.3g}",
            "Deal-Iterations": str(self.report["iterations"]),
            "Deal-Sigma": f"{self.report['sigma']:g}",
            "Deal-Report": json.dumps(self.report),
            "Content-Disposition": f'attachment; filename="{self.name}"',
        }

    def json(self) -> dict[str, Any]:
        image = base64.b64encode(self.content).decode("ascii")
        return {"report": self.report, "image": {"media_type": self.media, "base64": image}}


def reply(order: Order, outcome: Finished, folder: Path) -> Reply:
    """The result as a file, and how it came about."""
    name = f"{RESULTS[Goal(order.asked.goal)]}{order.suffix}"
    path, solved = folder / f"result{order.suffix}", outcome.solved
    notes = order.task.write(path, [solved.x], order.kind)
    found = summarise((Path("image"), Path(name)), [solved], order.task.settings.torch_device, outcome.seconds, notes)
    about = {"seconds": round(outcome.seconds, 3), "waited": round(outcome.waited, 3), "batch": outcome.batch}
    return Reply(path.read_bytes(), MEDIA[order.suffix], name, {**_reported(found), **about})


def _reported(found: FileReport) -> dict[str, Any]:
    report = {name: getattr(found, name) for name in REPORTED}
    return {**report, "notes": [note.replace("--", "")[:LONGEST_NOTE] for note in found.notes[:MOST_NOTES]]}
