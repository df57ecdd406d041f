"""What the plugin does with the pixels of a layer, plane by plane. It knows nothing of Qt, nor of napari."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchdeal.app.wishes import TASKS, Goal, Wish
from torchdeal.cancelling import Interruptible
from torchdeal.cli.deblur import Deblurring
from torchdeal.cli.inpaint import Inpainting
from torchdeal.cli.memory import memory_for
from torchdeal.cli.options import Settings
from torchdeal.cli.pictures import WHITE, PictureTask
from torchdeal.cli.report import FileReport, in_a_sentence, summarise
from torchdeal.cli.run import Solved, check_finite, solve
from torchdeal.cli.shared import Device, device_name
from torchdeal.display.progress import Advance
from torchdeal.io.checkpoint import load
from torchdeal.io.files import ImageFile
from torchdeal.io.images import INTEGER_RANGES
from torchdeal.model import DEAL
from torchdeal.operators import Blur
from torchdeal.operators.blur_kernels import parse_kernel
from torchdeal.solvers import Progress

RESULTS = {
    Goal.DENOISE: "denoised",
    Goal.DEBLUR: "sharp",
    Goal.UPSCALE: "enlarged",
    Goal.INPAINT: "filled in",
}
WORDS = {"--sigma": "the noise", "--lam": "the strength", "--kernel": "the blur", "--model-sigma": "the noise"}
UNIT = (-2.0, 3.0)  # floats within are taken for 0..1 and noise
RGBA = 4  # channels
Index = tuple[int, ...]
Told = Callable[[str, float], None]  # which plane it is at, and how far all of it is, from 0 to 1


@dataclass(frozen=True, eq=False)
class Pixels:
    """What a layer holds.

    Attributes:
        data: an array `(..., H, W)`, or `(..., H, W, 3 or 4)` if rgb; one that is read plane by plane will do.
        rgb: whether the last axis is colours.
        name: of the layer.
    """

    data: Any
    rgb: bool = False
    name: str = "image"

    def __post_init__(self) -> None:
        if len(self.data.shape) < 2 + self.rgb:
            raise ValueError(f"{self.name} has no rows and columns: choose a layer with at least two axes")

    @property
    def stacked(self) -> Index:
        """The lengths of the axes before rows and columns."""
        return tuple(self.data.shape[: -3 if self.rgb else -2])

    @property
    def size(self) -> Index:
        """Rows and columns."""
        return tuple(self.data.shape[-3:-1] if self.rgb else self.data.shape[-2:])

    @property
    def colours(self) -> int:
        return 3 if self.rgb else 1

    def plane(self, index: Index) -> ImageFile:
        pixels = np.asarray(self.data[index])
        return ImageFile(pixels, alpha=self.rgb and pixels.shape[-1] == RGBA)

    def white(self, planes: list[Index]) -> float | None:
        """The value of white where the type of the numbers does not say it: how far they span, in these planes."""
        dtype = np.dtype(self.data.dtype)
        if dtype.name in INTEGER_RANGES or dtype.kind not in "iuf":
            return None
        lows, highs = zip(*(_span(self.plane(index).pixels) for index in planes), strict=True)
        low, high = min(lows), max(highs)
        if dtype.kind == "f" and UNIT[0] <= low and high <= UNIT[1]:
            return None
        return max(high - low, 1.0 if dtype.kind in "iu" else np.finfo(np.float32).tiny)


@dataclass(frozen=True, eq=False)
class LayerOrder:
    """What is to be done.

    Attributes:
        wish: the choices, as on the page of `deal app`; its sigma and its kernel are not used, but those below.
        noise: standard deviation of the noise, in the values of the layer; None: estimated.
        kernel: of a blur: a formula such as gaussian:1.6, or the name of a file.
        missing: a bool array `(H, W)`, or one that has the axes of the layer: what is to be filled in.
        plane: the only one that is wanted; None: all.
    """

    wish: Wish
    noise: float | None = None
    kernel: str = "gaussian:1.6"
    missing: Any = None
    plane: Index | None = None

    def planes(self, pixels: Pixels) -> list[Index]:
        return list(np.ndindex(pixels.stacked)) if self.plane is None else [self.plane]

    @property
    def magnification(self) -> int:
        return self.wish.scale if self.wish.goal is Goal.UPSCALE else 1


@dataclass(frozen=True, eq=False)
class Result:
    """What became of a layer.

    Attributes:
        data: with the axes that the layer has; of one plane they are 1 long.
        name: for the new layer.
        start: where the first pixel of the result lies, in pixels of the layer.
        magnification: how many times more pixels there are, each way.
        report: how the run went. Its noise is on the 0..255 scale.
        noise: in the values of the layer.
        unit: what 1 on the 0..255 scale is in them.
    """

    data: np.ndarray
    name: str
    start: tuple[float, ...]
    magnification: int
    report: FileReport
    noise: float
    unit: float

    def words(self) -> list[str]:
        """For a person."""
        report = self.report
        how = "given"
        if report.estimated and report.sigma_low is not None and report.sigma_high is not None:
            low, high = (_number(sigma * self.unit) for sigma in (report.sigma_low, report.sigma_high))
            how = f"estimated, between {low} and {high}"
        several = f"{report.frames} planes. " if report.frames > 1 else ""
        bad = len(report.not_converged)
        some = f"{bad} of {report.frames} planes did not converge. " if bad and report.frames > 1 else ""
        return [
            f"{several}{some}{in_a_sentence(report)}",
            f"Noise: {_number(self.noise)} in the values of the layer ({how}).",
            *(f"{in_words_of_the_widget(note)}." for note in report.notes),
            f"{report.iterations} iterations, {report.seconds:.1f} s, weights {report.model}, {report.device}.",
        ]

    def facts(self) -> dict[str, Any]:
        """For programs: what `--json` of the commands reports, and the noise in the values of the layer."""
        return asdict(self.report) | {"noise": self.noise, "words": self.words()}


def work(pixels: Pixels, order: LayerOrder, told: Told, stop: threading.Event) -> Result:
    """Reconstruct the planes one by one.

    Raises `cancelling.CancelledError` soon after `stop` is set, ValueError and the like for what cannot be.
    """
    started = time.perf_counter()
    planes, device = order.planes(pixels), device_name(Device.auto)
    white = pixels.white(planes)
    unit = (white or INTEGER_RANGES.get(np.dtype(pixels.data.dtype).name, 1.0)) / WHITE
    noise = None if order.noise is None else order.noise / unit
    settings = replace(replace(order.wish, sigma=noise).settings_for(pixels.colours, device), data_range=white)
    make, solved = _making(pixels, order, settings), []
    data = None
    for number, index in enumerate(planes):
        title = f"plane {number + 1} of {len(planes)}" if len(planes) > 1 else ""
        advance = _advance(told, title, number, len(planes), settings.tolerance)
        with Interruptible(stop), torch.no_grad(), memory_for(f"to reconstruct {pixels.name}"):
            made, frame = make(index, advance)
        solved.append(frame.without_images())
        if data is None:
            data = np.empty((len(planes), *made.shape), made.dtype)
        data[number] = made
    assert data is not None
    name = f"{pixels.name} {RESULTS[order.wish.goal]}"
    seconds = time.perf_counter() - started
    report = summarise((Path(pixels.name), Path(name)), solved, device, seconds)
    stacked = pixels.stacked if order.plane is None else (1,) * len(pixels.stacked)
    edge = 0.5 / order.magnification - 0.5  # napari counts from the middle of a pixel; their outer edges stay in place
    start = (*map(float, order.plane or (0,) * len(pixels.stacked)), edge, edge)
    data = data.reshape(*stacked, *data.shape[1:])
    return Result(data, name, start, order.magnification, report, report.sigma * unit, unit)


def _making(
    pixels: Pixels, order: LayerOrder, settings: Settings
) -> Callable[[Index, Callable[[Progress], None]], tuple[np.ndarray, Solved]]:
    """A plane, from its pixels to those of the result."""

    def make(index: Index, callback: Callable[[Progress], None]) -> tuple[np.ndarray, Solved]:
        task = task_of(pixels, order, settings, index)
        frames, kind = task.frames_of(pixels.plane(index))
        solved = solve(task.pose(frames[0]), settings, lambda name: _model(name, settings.torch_device), callback)
        check_finite(solved, pixels.name)
        return task.result_of([solved.x], kind).pixels, solved

    return make


def task_of(pixels: Pixels, order: LayerOrder, settings: Settings, index: Index) -> PictureTask:
    """What the command of this name would do with a plane."""
    if order.wish.goal is Goal.INPAINT:
        known = torch.from_numpy(~_missing(pixels, order, index))
        if not bool(known.any()):
            raise ValueError("all of the picture is painted over: leave some of it")
        return Inpainting(settings, "what is missing", lambda picture: known)
    if order.wish.goal is Goal.DEBLUR:
        return Deblurring(settings, Blur(parse_kernel(order.kernel), order.wish.boundary))
    task = TASKS[order.wish.goal](order.wish, settings, {})
    assert isinstance(task, PictureTask)
    return task


def _missing(pixels: Pixels, order: LayerOrder, index: Index) -> np.ndarray:
    if order.missing is None:
        raise ValueError("paint over what is missing in a layer of labels, and choose it")
    shape = tuple(order.missing.shape)
    if shape not in (pixels.size, (*pixels.stacked, *pixels.size)):
        sizes = [" x ".join(map(str, lengths)) for lengths in (shape, (*pixels.stacked, *pixels.size))]
        raise ValueError(f"the labels are {sizes[0]} and {pixels.name} is {sizes[1]}: make them equal")
    missing = order.missing if shape == pixels.size else order.missing[index]
    return np.asarray(missing) != 0


def _span(pixels: np.ndarray) -> tuple[float, float]:
    return float(pixels.min()), float(pixels.max())


def _advance(told: Told, title: str, number: int, planes: int, tolerance: float) -> Callable[[Progress], None]:
    advance = Advance(tolerance)
    told(title, number / planes)
    return lambda state: told(title, (number + advance(state)[0]) / planes)


def in_words_of_the_widget(text: str) -> str:
    """What the command line says, which speaks of its options, for somebody who sees the widget."""
    for option, word in WORDS.items():
        text = text.replace(option, word)
    return text


def _number(value: float) -> str:
    """Three digits, and no power of ten where values are those of 16 bits."""
    return f"{float(f'{value:.3g}'):g}"


@cache
def _model(name: str, device: str) -> DEAL:
    """Loaded once; it stays for the next layer."""
    return load(name, device=device)
