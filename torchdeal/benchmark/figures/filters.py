"""The filters of W and W_mask as single convolutions, and what W^T W does to an impulse and to each frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torchdeal.benchmark.figures.study import Study
from torchdeal.benchmark.figures.style import (
    BLACK,
    FULL,
    MAGNITUDES,
    SIGNED,
    SMALL,
    VERMILION,
    page,
    place,
    scale_bar,
    show,
    styled,
)
from torchdeal.explain import effective_kernels
from torchdeal.model.filters import REACH, Bank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 16  # filters in a row
GAP_ACROSS, GAP_DOWN = 2, 7  # pixels between filters; the number of a filter stands above it
TORUS = 128  # pixels: W^T W is shown on a periodic picture of this size


@dataclass(frozen=True)
class Spectrum:
    """`W^T W` on a periodic picture of n x n pixels, on which it is a convolution."""

    impulse: np.ndarray  # what it makes of an impulse, in the middle, (49, 49)
    eigenvalues: np.ndarray  # one for each frequency, 0 in the middle, (n, n)


def spectrum(bank: Bank, size: int = TORUS) -> Spectrum:
    """The eigenvalue at a frequency is `sum_c |f_c|^2`, with f_c the transfer function of filter c."""
    transfer = np.fft.fft2(effective_kernels(bank).values[:, 0], (size, size))
    eigenvalues = np.square(np.abs(transfer)).sum(0)
    impulse = np.fft.fftshift(np.fft.ifft2(eigenvalues).real)
    middle = slice(max(size // 2 - 2 * REACH, 0), size // 2 + 2 * REACH + 1)
    return Spectrum(impulse[middle, middle], np.fft.fftshift(eigenvalues))


@styled
def draw_filters(study: Study) -> Figure:
    """All filters of W."""
    return _draw_bank(study.weights.filters)


@styled
def draw_mask_filters(study: Study) -> Figure:
    """All filters of W_mask."""
    return _draw_bank(study.weights.mask_filters)


@styled
def draw_spectrum(study: Study) -> Figure:
    """The response to an impulse, the eigenvalues by frequency, and in order."""
    found = spectrum(study.weights.filters)
    size, gap, top = 1.75, 0.62, 0.22
    figure = page(FULL, top + size + 0.34)
    axes = [place(figure, 0.02 + index * (size + gap), top, size, size) for index in range(2)]
    bars = [place(figure, 0.02 + index * (size + gap) + size + 0.04, top, 0.06, size) for index in range(2)]
    _draw_impulse(axes[0], bars[0], found)
    _draw_eigenvalues(axes[1], bars[1], found)
    left = 2 * (size + gap) + 0.2
    _draw_sorted(place(figure, left, top, FULL - left - 0.06, size), found)
    return figure


def _draw_bank(bank: Bank) -> Figure:
    kernels = effective_kernels(bank)
    values = kernels.values[:, 0]
    mosaic, corners = _mosaic(values)
    bottom = 0.26  # inches
    height = FULL * mosaic.shape[0] / mosaic.shape[1]
    figure = page(FULL, height + bottom)
    axes = place(figure, 0, 0, FULL, height)
    limit = signed_root(np.abs(values).max())
    image = show(axes, signed_root(mosaic), cmap=SIGNED, vmin=-limit, vmax=limit)
    for channel, (row, column) in zip(kernels.channels, corners, strict=True):
        middle = column + values.shape[2] / 2 - 0.5
        axes.text(middle, row - 1.2, str(channel), ha="center", va="baseline", fontsize=4.5, color="#444444")
    bar = place(figure, FULL / 2 - 1, height + 0.05, 2, 0.06)
    decade = 10.0 ** np.floor(np.log10(limit**2))
    ticks = np.array([-decade, -decade / 10, 0, decade / 10, decade])
    scale_bar(bar, image, orientation="horizontal", ticks=signed_root(ticks))
    bar.set_xticklabels([f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in ticks])
    return figure


def signed_root(values: np.ndarray) -> np.ndarray:
    """What is drawn, so that weak filters are seen beside strong ones."""
    return np.sign(values) * np.sqrt(np.abs(values))


def _mosaic(values: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """One picture of all filters, with nothing between them; and where the first pixel of each is."""
    count, height, width = values.shape
    down, across = height + GAP_DOWN, width + GAP_ACROSS
    rows = -(-count // ACROSS)
    mosaic = np.full((rows * down, ACROSS * across - GAP_ACROSS), np.nan)
    corners = [(index // ACROSS * down + GAP_DOWN, index % ACROSS * across) for index in range(count)]
    for value, (row, column) in zip(values, corners, strict=True):
        mosaic[row : row + height, column : column + width] = value
    return mosaic, corners


def _draw_impulse(axes: Axes, bar: Axes, found: Spectrum) -> None:
    reach = len(found.impulse) // 2
    around = found.impulse.copy()
    around[reach, reach] = 0
    limit = np.abs(around).max()
    image = show(axes, found.impulse, cmap=SIGNED, vmin=-limit, vmax=limit, extent=_edges(-reach, reach, 1))
    axes.set(title="Response to an impulse", xlabel="pixels", xticks=[-20, 0, 20])
    scale_bar(bar, image, extend="max", extendfrac=0.05)
    # The middle is far brighter than the rest.
    bar.set_title(f"{found.impulse[reach, reach]:.2f}", fontsize=SMALL, pad=2)


def _draw_eigenvalues(axes: Axes, bar: Axes, found: Spectrum) -> None:
    size = len(found.eigenvalues)
    lowest = 10.0 ** np.floor(np.log10(np.sort(found.eigenvalues.ravel())[1]))
    extent = _edges(-1, 1 - 2 / size, 2 / size)
    eigenvalues = found.eigenvalues.clip(lowest)
    image = show(axes, eigenvalues, norm="log", clim=(lowest, 1), cmap=MAGNITUDES, extent=extent)
    axes.set(title="Eigenvalues by frequency", xlabel="frequency")
    axes.set_xticks([-1, 0, 1 - 2 / size], [r"$-\pi$", "0", r"$\pi$"])
    scale_bar(bar, image, extend="min", extendfrac=0.05)


def _edges(first: float, last: float, step: float) -> tuple[float, float, float, float]:
    """The extent of a picture whose pixels are centred from `first` to `last`."""
    return first - step / 2, last + step / 2, last + step / 2, first - step / 2


def _draw_sorted(axes: Axes, found: Spectrum) -> None:
    values = np.sort(found.eigenvalues.ravel())
    floor = values[1] / 10
    axes.loglog(np.arange(2, len(values) + 1), values[1:], color=BLACK)
    axes.loglog([1], [floor], "v", color=VERMILION, clip_on=False)
    text = f"one eigenvalue is 0\n({_in_powers(values[0])} by rounding)"
    axes.annotate(
        text, (1, floor), (8, 0), textcoords="offset points", va="center", fontsize=SMALL + 1, color=VERMILION
    )
    axes.set(xlim=(0.8, len(values) * 1.1), ylim=(floor / 2, 1.5))
    axes.set(xlabel="rank, from the smallest", title="Eigenvalues in order")


def _in_powers(value: float) -> str:
    return rf"$10^{{{np.log10(abs(value)):.0f}}}$" if value else "0"


def show_kernel(axes: Axes, kernel: np.ndarray) -> None:
    """A single filter, on a scale of its own, where 0 is gray."""
    limit = np.abs(kernel).max()
    show(axes, kernel, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="equal")
