"""How large images are cut into tiles that a transform likes."""

from __future__ import annotations

import itertools


def cut(size: int, largest: int) -> list[slice]:
    """Nearly equal parts of at most `largest` pixels."""
    return parts(size, -(-size // largest))


def parts(size: int, count: int) -> list[slice]:
    """As many nearly equal parts; fewer where there would be empty ones."""
    count = min(count, size)
    edges = [index * size // count for index in range(count + 1)]
    return list(itertools.starmap(slice, itertools.pairwise(edges)))


def longest(parts: list[slice]) -> int:
    return max(part.stop - part.start for part in parts)


def widened(part: slice, reach: int) -> slice:
    """Where a part of the image, with `reach` pixels on each side, lies in the image padded by as much."""
    return slice(part.start, part.stop + 2 * reach)


def fast_size(size: int) -> int:
    """The next even size with no prime factor above 5: one that divides a power of 30."""
    while size % 2 or pow(30, size, size):
        size += 1
    return size


def grouped(count: int, size: int) -> list[slice]:
    """Groups of `size`, the last of which may be smaller."""
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def shares(work: int, least: int, most: int) -> int:
    """Into how many equal parts to cut so much work: about `most` at most, unless that is less than `least` each.

    A multiple of eight, or a half or quarter of it: fair to two, four or eight workers.
    """
    count = 8 * max(1, -(-work // (8 * most)))
    while count > 1 and work < count * least:
        count //= 2
    return count
