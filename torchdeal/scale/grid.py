"""How an image is cut: cores that fill it without a gap, each with a halo around it that is read and thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle of pixels: rows from `top` to before `bottom`, columns from `left` to before `right`."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def slices(self) -> tuple[slice, slice]:
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def scaled(self, factor: int) -> Box:
        """The same place in an image with so many times the pixels each way."""
        return Box(*(factor * edge for edge in self))

    def grown(self, by: int, size: tuple[int, int]) -> Box:
        """With so many pixels around it, as far as the image goes."""
        return Box(
            max(self.top - by, 0), min(self.bottom + by, size[0]), max(self.left - by, 0), min(self.right + by, size[1])
        )

    def within(self, outer: Box) -> Box:
        """Where it is, counted from the corner of a box around it."""
        return Box(self.top - outer.top, self.bottom - outer.top, self.left - outer.left, self.right - outer.left)


@dataclass(frozen=True)
class Tile:
    """A part of an image: `core` is kept of it, `read` is core and halo. In pixels of the input."""

    place: tuple[int, int]  # row and column in the grid, which are those of the chunk of the output
    core: Box
    read: Box


def grid(size: tuple[int, int], core: int, overlap: int) -> list[Tile]:
    """Tiles that cover an image, row by row. Halos end at its border; the last cores of a row may be smaller.

    Args:
        size: height and width of the image.
        core: side of a core: the chunks of the output.
        overlap: width of the halo around each core.
    """
    if core < 1 or overlap < 0:
        raise ValueError(f"a tile has at least 1 pixel and an overlap of at least 0, got {core} and {overlap}")
    places = [(row, column) for row in range(-(-size[0] // core)) for column in range(-(-size[1] // core))]
    return [_tile(place, size, core, overlap) for place in places]


def whole(size: tuple[int, int]) -> Box:
    """All of an image."""
    return Box(0, size[0], 0, size[1])


def _tile(place: tuple[int, int], size: tuple[int, int], core: int, overlap: int) -> Tile:
    top, left = place[0] * core, place[1] * core
    box = Box(top, min(top + core, size[0]), left, min(left + core, size[1]))
    return Tile(place, box, box.grown(overlap, size))
