"""The core of all comparisons: problems, in the cells of tables, and what a method makes of them.

A problem is one image and what was measured of it. The problems of a cell are averaged. Methods are called with
batches of problems that have one shape, as many as fill the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.tables import Section
from torchdeal.benchmark.results import Results, Values
from torchdeal.memory import is_out_of_memory
from torchdeal.metrics import psnr
from torchdeal.operators import Fourier, MultiCoilFourier, Operator
from torchdeal.solvers import Solution

Say = Callable[[str], None]
Save = Callable[[], None]
Method = Any  # a frozen dataclass that is called as a denoiser or as a solver; its parameters are `tunable` fields

DENOISING = "denoising"
# More make nothing quicker, and a batch is done when its slowest image is. A CPU has enough to do with one image.
PIXELS_AT_ONCE = {"cuda": 2**18, "cpu": 0}


@dataclass(frozen=True)
class PosedProblem:
    """One image and what was measured of it, `(1, ...)` each."""

    image: str
    clean: Tensor
    y: Tensor
    operator: Operator
    noise: float  # standard deviation in the units of y, of the real and of the imaginary part
    variant: str = ""  # where an image occurs several times in a cell


@dataclass(frozen=True)
class Cell:
    """Problems whose mean is one number of a table."""

    name: str
    table: str
    column: str
    kind: str  # of "denoising", "deblur", "superres", "mri", "ct"
    channels: int
    problems: Callable[[], list[PosedProblem]]
    tuning: Callable[[], list[PosedProblem]] | None = None  # other images, to choose parameters on
    tuned_as: str = ""  # cells of one name share their parameters; by default the name of the cell
    paper: tuple[float, float] | None = None  # sigma on the 0..255 scale and lam, where the paper states them
    eight_bit: bool = False  # PSNR is taken of 8-bit images
    centre: int | None = None  # side of the square at the centre, of which PSNR is taken

    def score(self, x: Tensor, clean: Tensor) -> float:
        """PSNR in dB of one image."""
        if self.centre:
            x, clean = middle(x, self.centre), middle(clean, self.centre)
        return psnr(x, clean, eight_bit=self.eight_bit)


class Experiment(Protocol):
    """What `deal benchmark` can measure."""

    about: str

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol: what must be equal for all rows."""
        ...

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing in the results; `save` after each step that should not be lost."""
        ...

    def sections(self, results: Results) -> Iterator[Section]:
        """What the results say, for the report and the terminal. The results may come from a file."""
        ...


def answers(method: Method, batch: Sequence[PosedProblem], cell: Cell, device: str) -> list[tuple[Tensor, Values]]:
    """Of each problem the image `(1, C, H, W)` on the CPU, and how the run went. Too large a batch is halved."""
    y, operator = joined(batch)
    started = time.perf_counter()
    try:
        found = _solved(method, cell, y.to(device), operator.to(device), batch[0].noise)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        found = None  # the error is left first: it holds all that fills the memory
    if found is None:
        if len(batch) == 1:
            raise Unavailable(f"there is not enough memory on {device} for this image")
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return [*answers(method, batch[:half], cell, device), *answers(method, batch[half:], cell, device)]
    images = (found.x if isinstance(found, Solution) else found).cpu()  # a GPU has finished then
    seconds = (time.perf_counter() - started) / len(batch)
    runs = run_values(found) if isinstance(found, Solution) else [{}] * len(batch)
    values = [{"seconds": seconds, "batch": len(batch), **run} for run in runs]
    return list(zip(images.split(1), values, strict=True))


def _solved(method: Method, cell: Cell, y: Tensor, operator: Operator, noise: float) -> Tensor | Solution:
    """A denoiser is told the noise level on the 0..255 scale, a solver the operator and the noise."""
    return method(y, noise * 255) if cell.kind == DENOISING else method(y, operator, noise)


def run_values(solution: Solution) -> list[Values]:
    """How the run of each sample went."""
    columns = zip(solution.statuses, solution.iterations, solution.cg_iterations, solution.distance, strict=True)
    return [
        {"status": status.name, "iterations": int(outer), "cg_iterations": int(inner), "distance": float(distance)}
        for status, outer, inner, distance in columns
    ]


def batches(problems: Sequence[PosedProblem], device: str) -> Iterator[list[PosedProblem]]:
    """Problems of one shape, noise and kind of operator together, at most as many as fill the device."""
    groups: dict[Any, list[PosedProblem]] = {}
    for problem in problems:
        operator = problem.operator
        same = _way_of_joining(operator) or id(operator)
        groups.setdefault((same, problem.noise, problem.clean.shape, problem.y.shape), []).append(problem)
    for group in groups.values():
        size = max(1, PIXELS_AT_ONCE[device] // group[0].clean[0, 0].numel())
        for first in range(0, len(group), size):
            yield group[first : first + size]


def joined(batch: Sequence[PosedProblem]) -> tuple[Tensor, Operator]:
    """The measurements of a batch and their operator."""
    y, first = torch.cat([problem.y for problem in batch]), batch[0].operator
    operators = [problem.operator for problem in batch]
    if all(operator is first for operator in operators):
        return y, first
    if isinstance(first, Fourier):
        masks = torch.cat([_four_dimensions(operator.mask) for operator in operators])  # pyright: ignore
        return y, Fourier(masks, centered=first.centered, real=first.real)
    assert isinstance(first, MultiCoilFourier)
    masks = torch.cat([_four_dimensions(operator.fourier.mask) for operator in operators])  # pyright: ignore
    maps = torch.cat([operator.maps.reshape(1, *operator.maps.shape[-3:]) for operator in operators])  # pyright: ignore
    return y, MultiCoilFourier(maps, masks, centered=first.fourier.centered, real=first.real)


def middle(image: Tensor, side: int) -> Tensor:
    """The square at the centre of images `(..., H, W)`; all of a side that is shorter."""
    height, width = image.shape[-2:]
    top, left = max(0, (height - side) // 2), max(0, (width - side) // 2)
    return image[..., top : top + side, left : left + side]


def _way_of_joining(operator: Operator) -> tuple[Any, ...] | None:
    """Operators for which it is the same can be joined; None for those that cannot."""
    fourier = operator.fourier if isinstance(operator, MultiCoilFourier) else operator
    if not isinstance(fourier, Fourier) or fourier.mask is None:
        return None
    return type(operator), fourier.centered, operator.real  # pyright: ignore


def _four_dimensions(mask: Tensor) -> Tensor:
    return mask.reshape(1, 1, *mask.shape[-2:])
