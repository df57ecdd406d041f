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
    """Tiles that cover an image, row by row. The last cores of a row may be smaller.

    All tiles are read in one size: a halo that would reach beyond the border of the image reaches further to the other
    side instead. A narrow core at the border sees as much of the image as any other then.

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
    rows, columns = (_spans(index * core, length, core, overlap) for index, length in zip(place, size, strict=True))
    return Tile(place, Box(*rows[0], *columns[0]), Box(*rows[1], *columns[1]))


def _spans(start: int, length: int, core: int, overlap: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """From where to where a core goes, and what is read for it."""
    read = min(core + 2 * overlap, length)
    first = min(max(start - overlap, 0), length - read)
    return (start, min(start + core, length)), (first, first + read)
