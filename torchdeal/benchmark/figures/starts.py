"""Super-resolution from several starts: do all of them end at the same picture?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdeal.benchmark.figures.study import TIGHTER, Study, batch_of, distances, picture_of, shrunk
from torchdeal.benchmark.figures.style import (
    BLACK,
    BLUE,
    FULL,
    GAP,
    GREEN,
    LINE,
    ORANGE,
    PURPLE,
    VERMILION,
    caption,
    page,
    place,
    show,
    styled,
)
from torchdeal.benchmark.images import draw_noise, read_picture
from torchdeal.metrics import psnr
from torchdeal.operators import Downsample
from torchdeal.reconstruct import reconstruct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE, NOISE, SIGMA, LAM, STD = 2, 2.55, 15.0, 0.28, 1.2  # of the paper; noise and sigma on the 0..255 scale
KERNEL_REACH = 12  # 25 x 25 pixels
STYLES = {
    "zero": (r"$\mathbf{x}_0 = \mathbf{0}$", BLUE, "o"),
    "uniform": (r"$\mathbf{x}_0 \sim \mathcal{U}([0, 1])$", VERMILION, "s"),
    "normal": (r"$\mathbf{x}_0 \sim \mathcal{N}(0, \mathbf{I})$", GREEN, "^"),
    "adjoint": (r"$\mathbf{x}_0 = \mathbf{H}^\top\mathbf{y}$", PURPLE, "D"),
    "truth": (r"$\mathbf{x}_0 = \mathbf{x}$", ORANGE, "v"),
}


@dataclass(frozen=True)
class SuperResolution:
    """A picture of low resolution to enlarge."""

    clean: Tensor  # (1, 3, H, W)
    operator: Downsample
    measured: Tensor


@dataclass(frozen=True)
class FromStart:
    """A run; index k is that of `x_k`."""

    start: Tensor
    psnr: list[float]
    distance: list[float]  # to the fixed point that is reached from zero, found more precisely; relative


def pose(study: Study) -> SuperResolution:
    """The paper's problem, with scikit-image's astronaut."""
    clean = batch_of(shrunk(read_picture("color", None), study.size), study.device)
    profile = torch.exp(-(torch.arange(-KERNEL_REACH, KERNEL_REACH + 1.0, dtype=clean.dtype) ** 2) / (2 * STD**2))
    kernel = torch.outer(profile, profile) / profile.sum() ** 2
    operator = Downsample(SCALE, kernel.to(clean.device))
    measured = operator.forward(clean)
    return SuperResolution(clean, operator, measured + draw_noise(measured, NOISE).to(measured))


def draw_starts_of(problem: SuperResolution) -> dict[str, Tensor]:
    """The five starts; the random ones are the same each time."""
    generator = torch.Generator().manual_seed(0)
    shape, like = problem.clean.shape, problem.clean
    return {
        "zero": torch.zeros_like(like),
        "uniform": torch.rand(shape, generator=generator, dtype=torch.float64).to(like),
        "normal": torch.randn(shape, generator=generator, dtype=torch.float64).to(like),
        "adjoint": problem.operator.adjoint(problem.measured),
        "truth": like,
    }


def from_starts(problem: SuperResolution, study: Study) -> tuple[dict[str, FromStart], Tensor]:
    """The runs, and the fixed point that they are compared with."""
    model = study.model("color")

    def solve(start: Tensor, tolerance: float, max_iterations: int, keep_path: bool):
        return reconstruct(
            problem.measured,
            problem.operator,
            model=model,
            sigma=SIGMA / 255,
            lam=LAM,
            start=start,
            tolerance=tolerance,
            max_iterations=max_iterations,
            keep_path=keep_path,
            data_range=1.0,  # a normal start goes far beyond 0..1
        )

    starts = draw_starts_of(problem)
    target = solve(starts["zero"], study.tolerance * TIGHTER, 500, keep_path=False).x
    runs = {}
    for name, start in starts.items():
        path = solve(start, study.tolerance, study.max_iterations, keep_path=True).path
        runs[name] = FromStart(start, [psnr(x, problem.clean) for x in path], distances(path, target))
    return runs, target


@styled
def draw_starts(study: Study) -> Figure:
    """The starts and the common end above; PSNR and distance to the fixed point below."""
    problem = pose(study)
    runs, target = from_starts(problem, study)
    tile = (FULL - 5 * GAP) / 6
    plots = tile + 2 * LINE + 0.1
    figure = page(FULL, plots + 1.95)
    thumbnails = [(STYLES[name][0], run.start, STYLES[name][1], run.psnr[0]) for name, run in runs.items()]
    thumbnails.append(("fixed point", target, BLACK, psnr(target, problem.clean)))
    for index, (name, picture, color, value) in enumerate(thumbnails):
        left = index * (tile + GAP)
        axes = place(figure, left, 0, tile, tile)
        show(axes, picture_of(picture).clip(0, 1))
        caption(figure, name, left + tile / 2, tile + 0.02 + LINE / 2, color=color)
        text = "" if value == float("inf") else f"{value:.2f} dB"
        caption(figure, text, left + tile / 2, tile + 0.02 + 1.5 * LINE, fontsize=7)
    width = (FULL - 0.9) / 2
    left, right = (place(figure, 0.36 + index * (width + 0.5), plots, width, 1.6) for index in range(2))
    for name, run in runs.items():
        label, color, marker = STYLES[name]
        options = {"color": color, "marker": marker, "label": label, "markevery": 2, "markersize": 2.5}
        left.plot(run.psnr, **options)
        right.semilogy(run.distance, **options)
    longest = max(len(run.psnr) for run in runs.values()) - 1
    left.set(xlabel="outer iteration $k$", ylabel="PSNR (dB)", xlim=(0, longest))
    right.set(xlabel="outer iteration $k$", ylabel="distance to the fixed point", xlim=(0, longest))
    left.legend(loc="lower right")
    return figure
