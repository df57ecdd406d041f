"""What the Triton kernels have in common."""

# Triton is not there where there is no CUDA, and its decorator makes things that pyright does not see.
# pyright: reportMissingImports=false

from __future__ import annotations

import inspect

import triton
import triton.language as tl
from torch import Tensor

from torchdeal.model.spline import PHI_END

BLOCK = 1024  # numbers that a program works on, where nothing else is said

# Sizes of images: Triton would compile a kernel again for those that are multiples of 16, and for 1.
SIZES = {
    *("pixels", "cells", "feature_count", "frequencies"),
    *("top", "rows", "columns", "height", "width", "packed_height", "packed_width"),
    *("sample_stride", "feature_stride", "row_stride"),
}


def kernel(function):
    """A Triton kernel that is compiled once for images of all sizes."""
    names = [name for name in inspect.signature(function).parameters if name in SIZES]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def piece_of(x, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr):
    """Position on the axis of the knots, and the linear piece it lies on; the last one goes on to infinity."""
    position = tl.abs(x) * PER_UNIT
    return position, tl.minimum(position, KNOTS - 2.0).to(tl.int32)


@triton.jit
def spline(x, coefficients, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr):
    """`phi(|x|)`, knots on 0, 1 / PER_UNIT, ..., linearly extended beyond the last."""
    position, piece = piece_of(x, KNOTS, PER_UNIT)
    left = tl.load(coefficients + piece)
    right = tl.load(coefficients + piece + 1)
    return left + (position - piece.to(tl.float32)) * (right - left)


@triton.jit
def squared_mask(x, coefficients, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, FLOOR: tl.constexpr):
    """`clip(phi(|x|), FLOOR, 1)^2`."""
    value = tl.minimum(tl.maximum(spline(x, coefficients, KNOTS, PER_UNIT), FLOOR), 1.0)
    return value * value


def knots(coefficients: Tensor) -> dict[str, float]:
    """The arguments of a kernel with a spline."""
    return {"KNOTS": coefficients.numel(), "PER_UNIT": (coefficients.numel() - 1) / PHI_END}


def blocks(total: int, block: int = BLOCK) -> tuple[int]:
    """The grid of programs that work on so many numbers each."""
    return (triton.cdiv(total, block),)
