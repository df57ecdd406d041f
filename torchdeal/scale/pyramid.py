"""Smaller copies of an image, for viewers: means of blocks of pixels, computed part by part."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def block_means(array: np.ndarray, factors: Sequence[int]) -> np.ndarray:
    """The mean of each block of so many elements each way, in the same dtype; blocks at the end may be smaller."""
    if all(factor == 1 for factor in factors):
        return array
    missing = [(0, -length % factor) for length, factor in zip(array.shape, factors, strict=True)]
    padded = np.pad(array, missing, mode="edge")
    blocks = [size for length, factor in zip(padded.shape, factors, strict=True) for size in (length // factor, factor)]
    means = padded.reshape(blocks).mean(tuple(range(1, 2 * array.ndim, 2)), dtype=np.float64)
    return (np.rint(means) if np.issubdtype(array.dtype, np.integer) else means).astype(array.dtype)


def reduced_shape(shape: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-length // factor) for length, factor in zip(shape, factors, strict=True))


def factors_between(large: Sequence[int], small: Sequence[int]) -> tuple[int, ...]:
    """How many times smaller the second is, in whole numbers."""
    return tuple(max(round(have / want), 1) for have, want in zip(large, small, strict=True))


def reduce_into(target: Any, source: Any, factors: Sequence[int], chunks: Sequence[int]) -> None:
    """Fill an array with the block means of another, chunk by chunk; both are read and written by slices."""
    for region in regions(target.shape, chunks):
        wider = tuple(
            slice(part.start * factor, min(part.stop * factor, length))
            for part, factor, length in zip(region, factors, source.shape, strict=True)
        )
        target[region] = block_means(np.asarray(source[wider]), factors)


def regions(shape: Sequence[int], chunks: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """The chunks of an array, the last dimension first."""
    starts = (range(0, length, chunk) for length, chunk in zip(shape, chunks, strict=True))
    for corner in itertools.product(*starts):
        ends = zip(corner, chunks, shape, strict=True)
        yield tuple(slice(start, min(start + chunk, length)) for start, chunk, length in ends)
