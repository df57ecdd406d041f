"""Super-resolution from several starts: do all of them end at the same picture?"""

from __future__ import annotations

import math
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
from torchdeal.model import DEAL
from torchdeal.operators import Downsample
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import conjugate_gradient
from torchdeal.system import AttentiveSystem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALE, NOISE, SIGMA, LAM, STD = 2, 2.55, 15.0, 0.28, 1.2  # of the paper; noise and sigma on the 0..255 scale
ACCURACY = 0.03  # of a correction, relative; a small residual alone would not tell: the problem is ill-posed
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
    target = reconstruct(
        problem.measured,
        problem.operator,
        model=model,
        sigma=SIGMA / 255,
        lam=LAM,
        tolerance=study.tolerance * TIGHTER,
    ).x
    runs = {}
    for name, start in draw_starts_of(problem).items():
        path = iterates(problem, model, start, study.steps)
        runs[name] = FromStart(start, [psnr(x, problem.clean) for x in path], distances(path, target))
    return runs, target


@torch.no_grad()
def iterates(problem: SuperResolution, model: DEAL, start: Tensor, steps: int) -> list[Tensor]:
    """`x_{k+1} = A(x_k)^-1 H^T y`, each system solved accurately, as in the paper.

    (The solver of `reconstruct` makes more and cheaper steps: its k counts something else.)
    """
    weights, b = model.weights(), problem.operator.adjoint(problem.measured)
    alpha = weights.alpha(b.new_tensor([SIGMA]))
    attentive = AttentiveSystem.of(weights, problem.operator, b, b.new_tensor(LAM).view(1, 1, 1, 1), alpha)
    path = [start]
    for _ in range(steps):
        x, system = path[-1], attentive.precise(path[-1])
        residual = b - system.apply(x)
        correction = conjugate_gradient(
            system.apply,
            residual,
            tolerance=ACCURACY,
            error_tolerance=ACCURACY,
            max_iterations=1000,
            preconditioner=system.preconditioner,
        ).x
        path.append(x + correction)
    return path


@styled
def draw_starts(study: Study) -> Figure:
    """The starts and the end from zero above; below PSNR, and the relative distance to that end."""
    problem = pose(study)
    runs, target = from_starts(problem, study)
    tile = (FULL - 5 * GAP) / 6
    plots = tile + 2 * LINE + 0.1
    figure = page(FULL, plots + 1.95)
    thumbnails = [(STYLES[name][0], run.start, STYLES[name][1], run.psnr[0]) for name, run in runs.items()]
    thumbnails.append((r"Fixed point from $\mathbf{0}$", target, BLACK, psnr(target, problem.clean)))
    for index, (name, picture, color, value) in enumerate(thumbnails):
        left = index * (tile + GAP)
        show(place(figure, left, 0, tile, tile), picture_of(picture).clip(0, 1))
        caption(figure, name, left + tile / 2, tile + 0.02 + LINE / 2, color=color)
        text = r"$\infty$ dB" if value == math.inf else f"{value:.2f} dB"
        caption(figure, text, left + tile / 2, tile + 0.02 + 1.5 * LINE, fontsize=7)
    width = (FULL - 0.9) / 2
    left, right = (place(figure, 0.36 + index * (width + 0.5), plots, width, 1.6) for index in range(2))
    for name, run in runs.items():
        label, color, marker = STYLES[name]
        left.plot(run.psnr, color=color, marker=marker, label=label)
        right.semilogy(run.distance, color=color, marker=marker)
    ticks = range(0, study.steps + 1, 5 if study.steps > 10 else 1)
    for axes, quantity in ((left, "PSNR (dB)"), (right, "distance to the fixed point")):
        axes.set(xlabel="iteration $k$", ylabel=quantity, xlim=(-0.2, study.steps + 0.2), xticks=ticks)
    left.legend(loc="lower right")
    return figure
