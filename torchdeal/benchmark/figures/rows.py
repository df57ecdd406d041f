"""Rows of the inverse of A: of which pixels of the noisy picture a pixel of the result is the weighted mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchdeal.benchmark.figures.study import SIGMA, DenoisedPicture, Study, picture_of
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
from torchdeal.operators import Identity
from torchdeal.solvers import conjugate_gradient
from torchdeal.system import AttentiveSystem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

PRECISION = 1e-8  # of the linear solves, relative
REACH = 12  # pixels around a pixel that are shown
DECADES = 2.5  # of weights that are shown
RED_GREEN_BLUE = [int(SKY[place : place + 2], 16) / 255 for place in (1, 3, 5)]
Pixel = tuple[int, int]


@dataclass(frozen=True)
class WeightedMean:
    """A pixel of the result, and its row of the inverse."""

    pixel: Pixel
    weights: np.ndarray  # (H, W); they add up to 1

    @property
    def averaged(self) -> float:
        """Of how many pixels with equal weights the mean would have as little noise."""
        return float(1 / np.square(self.weights).sum())


def inverse_rows(denoising: DenoisedPicture, pixels: list[Pixel]) -> list[WeightedMean]:
    """`A(x)^-1 e_n` at the solution x, for each pixel n: `x[n] = <A(x)^-1 e_n, y>`, since A is symmetric."""
    height, width = denoising.x.shape[2:]
    units = denoising.x.new_zeros(len(pixels), 1, height, width)
    for unit, (row, column) in zip(units, pixels, strict=True):
        unit[0, row, column] = 1
    with torch.no_grad():
        weights, level = denoising.weights, denoising.level
        system = AttentiveSystem.of(weights, Identity(), units, weights.lam(level), weights.alpha(level))
        apply = system.precise(denoising.x.expand_as(units).contiguous()).apply
        found = conjugate_gradient(apply, units, tolerance=PRECISION, max_iterations=2000).x
    return [WeightedMean(pixel, row[0].cpu().numpy()) for pixel, row in zip(pixels, found, strict=True)]


def telling_pixels(picture: np.ndarray) -> dict[str, Pixel]:
    """A pixel on an edge, in texture, and in a flat place, by the structure tensor of the picture around it."""
    rows, columns = np.gradient(picture)
    across, down, mixed = (_smoothed(product) for product in (rows * rows, columns * columns, rows * columns))
    energy = across + down
    coherence = np.hypot(across - down, 2 * mixed) / np.maximum(energy, 1e-12)
    scores = {"Edge": energy * coherence**4, "Texture": energy * (1 - coherence) ** 2, "Flat": -energy}
    inside = slice(REACH, -REACH)
    places = {}
    for name, score in scores.items():
        row, column = np.unravel_index(int(score[inside, inside].argmax()), score[inside, inside].shape)
        places[name] = (int(row) + REACH, int(column) + REACH)
    return places


@styled
def draw_rows(study: Study) -> Figure:
    """Where the pixels are; then, around each, the noisy picture, the result, and the weights."""
    denoising = study.denoising
    noisy, result = picture_of(denoising.noisy), picture_of(denoising.x)
    pixels = telling_pixels(result)
    means = inverse_rows(denoising, list(pixels.values()))
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
        text = f"{name}\n" + rf"$\approx {mean.averaged:.0f}$ pixels"
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
    weights = mean.weights[around]
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


def _smoothed(values: np.ndarray, reach: int = 3) -> np.ndarray:
    """Means over a square window, mirrored at the border."""
    table = np.pad(values, reach, mode="symmetric").cumsum(0).cumsum(1)
    table = np.pad(table, ((1, 0), (1, 0)))
    size = 2 * reach + 1
    return (table[size:, size:] - table[:-size, size:] - table[size:, :-size] + table[:-size, :-size]) / size**2
