"""The way from zero to the result: iterates, the mean of their masks, and how fast they settle."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torchdeal.benchmark.figures.study import SIGMA, TIGHTER, DenoisedPicture, Study, distances, picture_of
from torchdeal.benchmark.figures.style import (
    BLACK,
    BLUE,
    FULL,
    GAP,
    LINE,
    MAGNITUDES,
    ORANGE,
    SMALL,
    caption,
    page,
    place,
    scale_bar,
    show,
    styled,
)
from torchdeal.metrics import psnr
from torchdeal.reconstruct import reconstruct

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (0, 1, 2, 4, 8)  # and the last


@dataclass(frozen=True)
class SolutionPath:
    """What the iterates are like; index k is that of `x_k`."""

    psnr: list[float]
    change: list[float]  # ||x_{k+1} - x_k|| / ||x_k||, from k = 1 on: x_0 is 0
    distance: list[float]  # to a fixed point that was found more precisely, relative
    shown: list[int]  # of the iterates in the figure
    mean_masks: list[np.ndarray]  # of these


def solution_path(denoising: DenoisedPicture, tolerance: float) -> SolutionPath:
    """Measure the path of a run that ended at this tolerance."""
    path = denoising.run.path
    # From where the run ended: the same fixed point, should there be two.
    target = reconstruct(
        denoising.noisy, model=denoising.model, sigma=SIGMA / 255, start=path[-1], tolerance=tolerance * TIGHTER
    ).x
    shown = sorted({*(k for k in SHOWN if k < len(path)), len(path) - 1})
    return SolutionPath(
        psnr=[psnr(x, denoising.clean) for x in path],
        change=[float((after - x).norm() / x.norm()) for x, after in itertools.pairwise(path[1:])],
        distance=distances(path, target),
        shown=shown,
        mean_masks=[denoising.explanation.at(path[k]).mean_mask[0].cpu().numpy() for k in shown],
    )


@styled
def draw_path(study: Study) -> Figure:
    """Iterates and their masks on the left; on the right how they converge."""
    denoising = study.denoising
    path = solution_path(denoising, study.tolerance)
    plots, bar = 2.0, 0.2  # inches
    tile = (FULL - plots - bar) / len(path.shown) - GAP
    figure = page(FULL, 2 * tile + GAP + 2 * LINE + 0.08)
    for index, (k, mask) in enumerate(zip(path.shown, path.mean_masks, strict=True)):
        left = index * (tile + GAP)
        caption(
            figure, rf"$\mathbf{{x}}_{{{k}}}$   {path.psnr[k]:.2f} dB", left + tile / 2, LINE / 2 + 0.02, fontsize=7
        )
        show(place(figure, left, LINE + 0.04, tile, tile), picture_of(denoising.run.path[k]))
        top = LINE + 0.04 + tile + GAP
        masks = show(place(figure, left, top, tile, tile), mask, cmap=MAGNITUDES)
        if index == len(path.shown) - 1:
            scale_bar(place(figure, left + tile + GAP, top, 0.06, tile), masks, ticks=[0, 0.5, 1])
        name = rf"$\overline{{\mathbf{{M}}}}(\mathbf{{x}}_{{{k}}})$"
        caption(figure, name, left + tile / 2, top + tile + LINE / 2 + 0.02, fontsize=7)
    _draw_convergence(figure, path, FULL - plots + 0.42, plots - 0.5)
    return figure


def _draw_convergence(figure: Figure, path: SolutionPath, left: float, width: float) -> None:
    height = (figure.get_size_inches()[1] - 0.5) / 2
    above, below = (place(figure, left, 0.06 + index * (height + 0.12), width, height) for index in range(2))
    above.semilogy(range(len(path.distance)), path.distance, color=BLUE, label="distance to fixed point")
    above.semilogy(range(1, 1 + len(path.change)), path.change, color=ORANGE, label="change")
    above.tick_params(labelbottom=False)
    above.legend(loc="upper right", fontsize=SMALL, borderaxespad=0, labelspacing=0.2)
    above.set_ylabel("relative")
    below.plot(path.psnr, color=BLACK)
    below.set(xlabel="outer iteration $k$", ylabel="PSNR (dB)", ylim=(path.psnr[-1] - 15, path.psnr[-1] + 1))
    for axes in (above, below):
        axes.set_xlim(0, len(path.psnr) - 1)
    figure.align_ylabels([above, below])
