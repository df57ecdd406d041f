"""The dimensions of an image file: rows and columns, colours, and all others, which are looped over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchdeal.io.images import MOST_COLOURS
from torchdeal.scale.grid import Box

ROWS, COLUMNS, SAMPLES = "y", "x", "s"


@dataclass(frozen=True)
class PictureLayout:
    """How an array holds pictures.

    Attributes:
        axes: a letter for each dimension: y rows, x columns, s red, green and blue; all others count pictures.
        shape: of the array.
    """

    axes: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if ROWS not in self.axes or COLUMNS not in self.axes or len(self.axes) != len(self.shape):
            raise ValueError(f"axes {self.axes or 'unknown'} of {self.shape}: rows y and columns x are needed")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.length(ROWS), self.length(COLUMNS)

    @property
    def colours(self) -> int:
        """Of a picture: 3, or 1 where each channel is a picture of its own."""
        return 3 if SAMPLES in self.axes and self.length(SAMPLES) == 3 else 1

    @property
    def planes(self) -> int:
        """How many pictures there are."""
        return math.prod(self.length(axis) for axis in self._looped)

    @property
    def _looped(self) -> list[str]:
        inner = ROWS + COLUMNS + (SAMPLES if self.colours == 3 else "")
        return [axis for axis in self.axes if axis not in inner]

    def length(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)]

    def index(self, plane: int, box: Box) -> tuple[slice, ...]:
        """Where a part of a picture is in the array; all dimensions stay."""
        places = np.unravel_index(plane, [self.length(axis) for axis in self._looped] or [1])
        found = dict(zip(self._looped, (slice(int(place), int(place) + 1) for place in places), strict=False))
        found |= dict(zip((ROWS, COLUMNS), box.slices, strict=True))
        return tuple(found.get(axis, slice(None)) for axis in self.axes)

    def picture(self, part: np.ndarray) -> np.ndarray:
        """What was read at an `index` as `(h, w)` or `(h, w, 3)`."""
        order = [ROWS, COLUMNS] + [SAMPLES] * (self.colours == 3)
        part = np.asarray(part).transpose([self.axes.index(axis) for axis in self._looped + order])
        return part.reshape(part.shape[len(self._looped) :])

    def part(self, picture: np.ndarray) -> np.ndarray:
        """The other way round."""
        order = self._looped + [ROWS, COLUMNS] + [SAMPLES] * (self.colours == 3)
        picture = picture.reshape(*[1] * len(self._looped), *picture.shape)
        return picture.transpose([order.index(axis) for axis in self.axes])

    def enlarged(self, scale: int) -> PictureLayout:
        """With so many times the rows and columns."""
        lengths = zip(self.axes, self.shape, strict=True)
        return replace(self, shape=tuple(scale * length if axis in "yx" else length for axis, length in lengths))

    def chunks(self, side: int) -> tuple[int, ...]:
        """One picture, so many rows and columns of it."""
        inner = {ROWS: side, COLUMNS: side} | ({SAMPLES: 3} if self.colours == 3 else {})
        return tuple(min(inner.get(axis, 1), length) for axis, length in zip(self.axes, self.shape, strict=True))


def guessed_layout(shape: Sequence[int]) -> PictureLayout:
    """Of a plain array, as files of numpy are read: a last dimension of at most 4, of three or more, is channels."""
    shape = tuple(shape)
    if len(shape) < 2 or 0 in shape:
        raise ValueError(f"an array of shape {shape} holds no picture: (..., H, W) or (..., H, W, C) is needed")
    samples = len(shape) > 2 and shape[-1] <= MOST_COLOURS
    inner = "yxs" if samples else "yx"
    outer = "abcdefghijklmnopqr"[: len(shape) - len(inner)]
    return PictureLayout(outer + inner, shape)
