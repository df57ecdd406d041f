"""Pictures side by side, with the same place of each enlarged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchdeal.benchmark.figures.study import SIGMA, Study, picture_of
from torchdeal.benchmark.figures.style import FULL, GAP, LINE, ORANGE, caption, page, place, show, styled
from torchdeal.metrics import psnr
from torchdeal.reconstruct import reconstruct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLEAN = "Ground truth"
MAGNIFICATION = 4
WIDEST = 2.2  # inches, of a picture
EDGE = 0.01  # inches, for the frames of the outer pictures


class Zoom(NamedTuple):
    """A part of a picture, in pixels of the clean one, or of the first."""

    top: int
    left: int
    height: int
    width: int


@styled
def compare_pictures(
    pictures: Mapping[str, np.ndarray],
    *,
    clean: np.ndarray | None = None,
    zoom: tuple[int, int, int, int] | None = None,
    values: Mapping[str, float | str] | None = None,
    columns: int = 6,
) -> Figure:
    """The pictures beside each other, the same place of each enlarged below it, then its name and value.

    Args:
        pictures: `(H, W)` or `(H, W, 3)` in 0..1, by name. One of another size, such as a measurement of low
            resolution, is shown in the same frame.
        clean: the truth, shown first.
        zoom: top, left, height and width of what is enlarged, in pixels. By default `interesting_place`.
        values: what stands under a name: a PSNR in dB, or any text. By default the PSNR, where `clean` is known.
        columns: pictures in a row, at most.
    """
    if not pictures:
        raise ValueError("there are no pictures to compare")
    tiles = ({} if clean is None else {CLEAN: clean}) | dict(pictures)
    height, width = next(iter(tiles.values())).shape[:2]
    place_of_interest = Zoom(*zoom) if zoom else interesting_place(list(pictures.values()), clean)
    _check_inside(place_of_interest, height, width)
    texts = _texts(pictures, clean, values)
    rows = math.ceil(len(tiles) / columns)
    across = math.ceil(len(tiles) / rows)  # no row is much shorter than the others
    tile = min((FULL - 2 * EDGE - (across - 1) * GAP) / across, WIDEST)
    sizes = tile * height / width, tile * place_of_interest.height / place_of_interest.width
    step = sum(sizes) + GAP / 2 + 2 * LINE + 2 * GAP
    figure = page(across * (tile + GAP) - GAP + 2 * EDGE, rows * step)
    for index, (name, picture) in enumerate(tiles.items()):
        left, top = EDGE + index % across * (tile + GAP), index // across * step
        whole = place(figure, left, top, tile, sizes[0])
        part = place(figure, left, top + sizes[0] + GAP / 2, tile, sizes[1])
        _draw_picture(whole, part, picture, (height, width), place_of_interest)
        below = top + sizes[0] + sizes[1] + GAP
        for line, text in enumerate((name, texts.get(name, ""))):
            caption(figure, text, left + tile / 2, below + (line + 0.5) * LINE, widest=tile)
    return figure


def interesting_place(pictures: list[np.ndarray], clean: np.ndarray | None) -> Zoom:
    """Where the results differ most, or where there is most texture if there are no two results to compare.

    Results are the pictures of the size of the clean one, without the least accurate: that is the measurement, which
    differs from the others everywhere.
    """
    like = pictures[0] if clean is None else clean
    results = [picture for picture in pictures if picture.shape == like.shape]
    if clean is not None:
        results = sorted(results, key=lambda picture: psnr(picture, clean))[1:]
    spread = np.var(results, axis=0) if len(results) > 1 else _texture(like)
    height, width = like.shape[:2]
    across = min(max(width // MAGNIFICATION, 8), width)
    down = min(max(across * 3 // 4, 6), height)
    sums = _window_sums(spread if spread.ndim == 2 else spread.sum(2), down, across)
    top, left = np.unravel_index(int(sums.argmax()), sums.shape)
    return Zoom(int(top), int(left), down, across)


@styled
def draw_comparison(study: Study) -> Figure:
    """The picture, the same with noise, and as the gray models denoise it."""
    denoising = study.denoising
    light = reconstruct(denoising.noisy, model=study.model("gray-light"), sigma=SIGMA / 255)
    pictures = {"Noisy": denoising.noisy, "DEAL, light": light.x, "DEAL": denoising.x}
    clean = picture_of(denoising.clean)
    return compare_pictures({name: picture_of(x) for name, x in pictures.items()}, clean=clean)


def _texts(
    pictures: Mapping[str, np.ndarray], clean: np.ndarray | None, values: Mapping[str, float | str] | None
) -> dict[str, str]:
    if values is None:
        same = {name: p for name, p in pictures.items() if clean is not None and p.shape == clean.shape}
        values = {name: psnr(picture, clean) for name, picture in same.items() if clean is not None}
    return {name: value if isinstance(value, str) else f"{value:.2f} dB" for name, value in values.items()}


def _check_inside(zoom: Zoom, height: int, width: int) -> None:
    inside = 0 <= zoom.top <= zoom.top + zoom.height <= height and 0 <= zoom.left <= zoom.left + zoom.width <= width
    if not inside or min(zoom.height, zoom.width) < 1:
        raise ValueError(f"the zoom {tuple(zoom)} is not inside the picture, which has {height} x {width} pixels")


def _draw_picture(whole: Axes, part: Axes, picture: np.ndarray, size: tuple[int, int], zoom: Zoom) -> None:
    extent = (0, size[1], size[0], 0)
    for axes in (whole, part):
        show(axes, np.asarray(picture, dtype=float).clip(0, 1), extent=extent)
    part.set(xlim=(zoom.left, zoom.left + zoom.width), ylim=(zoom.top + zoom.height, zoom.top))
    right, bottom = zoom.left + zoom.width, zoom.top + zoom.height
    corners = [zoom.left, right, right, zoom.left], [zoom.top, zoom.top, bottom, bottom]
    whole.fill(*corners, edgecolor=ORANGE, facecolor="none", linewidth=0.8)
    part.patch.set(zorder=3, edgecolor=ORANGE, facecolor="none", linewidth=1.2)


def _texture(picture: np.ndarray) -> np.ndarray:
    """The squared gradient."""
    rows, columns = np.gradient(np.asarray(picture, dtype=float), axis=(0, 1))
    return rows**2 + columns**2


def _window_sums(values: np.ndarray, height: int, width: int) -> np.ndarray:
    """The sum over each window of that size."""
    table = np.pad(values.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return table[height:, width:] - table[:-height, width:] - table[height:, :-width] + table[:-height, :-width]
