"""The pictures of `deal explain`: arrays in, RGB pictures out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchdeal.explain import FilterBank, Pixel
from torchdeal.io.images import LUMA

# From dark blue to yellow, equally spaced: viridis, which is as clear in gray and to the colour-blind.
STOPS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
MORE, LESS, MARK = "#1f9ce8", "#e8590c", "#ff8c00"  # weights above and below 0, the pixel that is explained
DECADES = 2.5  # of weights that are shown
ENERGY_DECADES = 4  # of squared responses
LEAST_SIDE = 480  # pixels to which a small picture is enlarged
MOST_IN_WINDOW = 0.95  # of the weight that a window should hold
REACHES = range(8, 41, 4)  # pixels on each side that a window shows


@dataclass(frozen=True)
class Window:
    """The part of a picture around a pixel in which most of its weight lies."""

    rows: slice
    columns: slice
    holds: float  # share of the absolute weights

    @property
    def area(self) -> tuple[slice, slice]:
        return self.rows, self.columns

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


def window_of(weights: np.ndarray, pixel: Pixel) -> Window:
    """The smallest window around a pixel that holds most of the weights `(H, W)`; else the largest."""
    windows = [_window(weights, pixel, reach) for reach in REACHES]
    return next((window for window in windows if window.holds >= MOST_IN_WINDOW), windows[-1])


def _window(weights: np.ndarray, pixel: Pixel, reach: int) -> Window:
    rows, columns = (
        slice(max(place - reach, 0), min(place + reach + 1, length))
        for place, length in zip(pixel, weights.shape, strict=True)
    )
    magnitudes = np.abs(weights)
    return Window(rows, columns, float(magnitudes[rows, columns].sum() / max(magnitudes.sum(), 1e-30)))


def in_gray(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """A picture `(H, W)` or `(H, W, 3)` as RGB in 0..1, from black at `low` to white at `high`."""
    shown = ((values - low) / max(high - low, 1e-12)).clip(0, 1)
    return shown if shown.ndim == 3 else np.repeat(shown[..., None], 3, 2)


def in_colours(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Numbers `(H, W)` as colours, RGB in 0..1."""
    places = ((values - low) / max(high - low, 1e-12)).clip(0, 1) * (len(STOPS) - 1)
    table = np.array([rgb(stop) for stop in STOPS])
    below = places.astype(int).clip(0, len(STOPS) - 2)
    share = (places - below)[..., None]
    return table[below] * (1 - share) + table[below + 1] * share


def of_energies(*energies: np.ndarray) -> tuple[list[np.ndarray], float, float]:
    """Squared responses on one logarithmic scale, with its lowest and highest value."""
    high = max(float(np.quantile(energies[0], 0.995)), 1e-30)
    low = high / 10**ENERGY_DECADES
    return [in_colours(np.log(values.clip(low)), np.log(low), np.log(high)) for values in energies], low, high


def with_weights(picture: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights `(H, W)` over an RGB picture, on a logarithmic scale: blue above 0, orange below."""
    most = max(float(np.abs(weights).max()), 1e-30)
    shown = np.log10((np.abs(weights) / most).clip(10**-DECADES)) / DECADES + 1  # from 0 to 1
    veil = np.where(weights[..., None] >= 0, rgb(MORE), rgb(LESS))
    opacity = 0.9 * shown[..., None]
    gray = (picture @ np.array(LUMA))[..., None]
    return gray * (1 - opacity) + veil * opacity


def enlarged(picture: np.ndarray) -> np.ndarray:
    """With whole pixels as squares, to be seen without a magnifier."""
    factor = max(-(-LEAST_SIDE // max(picture.shape[:2])), 1)
    return picture.repeat(factor, 0).repeat(factor, 1)


def marked(picture: np.ndarray, places: Sequence[tuple[float, float, float]], numbered: bool = False) -> np.ndarray:
    """Enlarged, with a square around each place: its row, its column, and how far the square reaches."""
    from PIL import Image, ImageDraw, ImageFont

    large = enlarged(picture)
    factor, line = large.shape[0] // picture.shape[0], max(max(large.shape) // 160, 1)
    image = Image.fromarray(as_bytes(large))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(max(large.shape[:2]) // 24)
    for number, (row, column, reach) in enumerate(places, 1):
        left, top = (factor * (place - reach) - line for place in (column, row))
        right, bottom = (factor * (place + reach + 1) + line - 1 for place in (column, row))
        pen.rectangle((left, top, right, bottom), outline=MARK, width=line)
        if numbered:
            at_right = right < 0.9 * large.shape[1]
            pen.text(
                (right + 2 * line if at_right else left - 2 * line, (top + bottom) / 2),
                str(number),
                fill="white",
                font=font,
                anchor="lm" if at_right else "rm",
                stroke_width=line,
                stroke_fill="black",
            )
    return np.asarray(image) / 255


def mosaic(kernels: FilterBank, across: int = 16, gap: int = 2) -> np.ndarray:
    """The filters side by side, the strongest first; gray is 0. Each has a scale of its own."""
    values = np.moveaxis(kernels.values, 1, -1)
    values = values / np.abs(values).max((1, 2, 3), keepdims=True).clip(1e-30) / 2 + 0.5
    count, height, width, channels = values.shape
    rows = -(-count // across)
    sheet = np.ones((rows * (height + gap) - gap, across * (width + gap) - gap, channels))
    for index, value in enumerate(values):
        top, left = index // across * (height + gap), index % across * (width + gap)
        sheet[top : top + height, left : left + width] = value
    return np.broadcast_to(sheet, (*sheet.shape[:2], 3)) if channels == 1 else sheet[..., :3]


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255


def as_bytes(picture: np.ndarray) -> np.ndarray:
    return (picture.clip(0, 1) * 255).round().astype(np.uint8)


def png(picture: np.ndarray, longest: int | None = None) -> bytes:
    """A file's bytes, of a picture that is made smaller where it is longer than that."""
    from PIL import Image

    image, buffer = Image.fromarray(as_bytes(picture)), io.BytesIO()
    if longest is not None:
        image.thumbnail((longest, longest))
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
