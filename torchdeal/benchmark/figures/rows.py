"""Rows of the inverse of A: of which pixels of the noisy picture a pixel of the result is the weighted mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchdeal.benchmark.figures.study import SIGMA, Study, picture_of
from torchdeal.benchmark.figures.style import (
    GAP,
    LINE,
    MAGNITUDES,
    ORANGE,
    SKY,
    caption,
    page,
    place,
    scale_bar,
    show,
    styled,
)
from torchdeal.explain import Pixel, WeightedMean, telling_pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

REACH = 12  # pixels around a pixel that are shown
DECADES = 2.5  # of weights that are shown
RED_GREEN_BLUE = [int(SKY[place : place + 2], 16) / 255 for place in (1, 3, 5)]


@styled
def draw_rows(study: Study) -> Figure:
    """Where the pixels are; then, around each, the noisy picture, the result, and the weights."""
    denoising = study.denoising
    noisy, result = picture_of(denoising.noisy), picture_of(denoising.x)
    pixels = telling_pixels(result, REACH)
    means = denoising.explanation.rows(list(pixels.values()))
    tile, side, bar, top = 0.81, 0.36, 0.33, LINE + 0.04
    whole = 3 * tile + 2 * GAP
    figure = page(whole + side + 4 * (tile + GAP) + bar, top + whole + 0.04)
    _draw_overview(place(figure, 0, top, whole, whole), result, pixels)
    caption(figure, r"Result $\mathbf{x} = \mathbf{A}^{-1}\mathbf{y}$", whole / 2, LINE / 2 + 0.01)
    heads = (r"$\mathbf{y}$", r"$\mathbf{x}$", r"weights over $\mathbf{x}$", r"$\mathbf{A}^{-1}\mathbf{e}_n$")
    lefts = [whole + side + index * (tile + GAP) for index in range(len(heads))]
    for left, head in zip(lefts, heads, strict=True):
        caption(figure, head, left + tile / 2, LINE / 2 + 0.01)
    for number, (name, mean) in enumerate(zip(pixels, means, strict=True)):
        down = top + number * (tile + GAP)
        text = f"{name}\n" + rf"$\approx {float(mean.averaged):.0f}$ pixels"
        caption(figure, text, whole + side / 2, down + tile / 2, rotation=90, fontsize=7)
        image = _draw_around([place(figure, left, down, tile, tile) for left in lefts], mean, noisy, result)
        scale_bar(place(figure, lefts[-1] + tile + GAP, down, 0.06, tile), image)
    return figure


def _draw_overview(axes: Axes, picture: np.ndarray, pixels: dict[str, Pixel]) -> None:
    show(axes, picture)
    for name, (row, column) in pixels.items():
        _frame(axes, row, column, REACH + 0.5)
        above = row - REACH > len(picture) / 10  # there is room
        row_of_name, side = (row - REACH - 2, "bottom") if above else (row + REACH + 2, "top")
        axes.text(column, row_of_name, name, color=ORANGE, ha="center", va=side, fontweight="bold")


def _draw_around(axes: list[Axes], mean: WeightedMean, noisy: np.ndarray, result: np.ndarray) -> AxesImage:
    row, column = mean.pixel
    around = slice(row - REACH, row + REACH + 1), slice(column - REACH, column + REACH + 1)
    margin = 2 * SIGMA / 255
    low, high = max(result[around].min() - margin, 0), min(result[around].max() + margin, 1)
    for panel, picture in zip(axes, (noisy, result, result), strict=False):
        show(panel, picture[around], vmin=low, vmax=high)
    weights = picture_of(mean.weights)[around]
    least = weights.max() / 10**DECADES
    shown = np.log10(weights.clip(least) / least) / DECADES  # from 0 to 1
    veil = np.zeros((*weights.shape, 4))
    veil[..., :3], veil[..., 3] = RED_GREEN_BLUE, 0.9 * shown
    show(axes[2], veil)
    image = show(axes[3], weights.clip(least), cmap=MAGNITUDES, norm="log", clim=(least, weights.max()))
    for panel in axes:
        _frame(panel, REACH, REACH, 0.5)
    return image


def _frame(axes: Axes, row: float, column: float, reach: float) -> None:
    """A square around a pixel."""
    around = np.array([-reach, reach, reach, -reach])
    axes.fill(column + around, row + np.sort(around), edgecolor=ORANGE, facecolor="none", linewidth=0.8)
