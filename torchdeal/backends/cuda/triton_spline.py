"""Triton kernels of `even_spline`: one pass forward, one pass backward."""

# Triton is not there where there is no CUDA, and its decorator makes things that pyright does not see.
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
LANES = 128  # numbers that a program of the backward pass works on at a time
STEPS = 128  # and how many times
BINS = 32  # at least as many as there are pieces, a power of 2


@triton.jit
def _piece(x, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr):
    """Position on the axis of the knots, and the piece it lies on; the last one goes on to infinity."""
    position = tl.abs(x) * PER_UNIT
    return position, tl.minimum(position, KNOTS - 2.0).to(tl.int32)


@triton.jit
def _forward(x, coefficients, out, total, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, BLOCK: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    position, piece = _piece(tl.load(x + offset, mask=offset < total, other=0.0).to(tl.float32), KNOTS, PER_UNIT)
    left, right = tl.load(coefficients + piece), tl.load(coefficients + piece + 1)
    value = left + (position - piece.to(tl.float32)) * (right - left)
    tl.store(out + offset, value.to(out.dtype.element_ty), mask=offset < total)


@triton.jit
def _backward(
    x, grad, coefficients, grad_x, histograms, total,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, LANES: tl.constexpr, STEPS: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    bins = tl.arange(0, BINS)
    # Each lane has a histogram of its own, in registers: they are added up once, at the end.
    to_left, to_right = tl.zeros([BINS, LANES], tl.float32), tl.zeros([BINS, LANES], tl.float32)
    for step in range(STEPS):
        offset = (program * STEPS + step) * LANES + tl.arange(0, LANES)
        inside = offset < total
        value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
        incoming = tl.load(grad + offset, mask=inside, other=0.0).to(tl.float32)
        position, piece = _piece(value, KNOTS, PER_UNIT)
        slope = (tl.load(coefficients + piece + 1) - tl.load(coefficients + piece)) * PER_UNIT
        sign = tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))
        tl.store(grad_x + offset, (slope * incoming * sign).to(grad_x.dtype.element_ty), mask=inside)
        right = (position - piece.to(tl.float32)) * incoming
        here = piece[None, :] == bins[:, None]
        to_left += tl.where(here, (incoming - right)[None, :], 0.0)
        to_right += tl.where(here, right[None, :], 0.0)
    tl.store(histograms + program * 2 * BINS + bins, tl.sum(to_left, 1))
    tl.store(histograms + program * 2 * BINS + BINS + bins, tl.sum(to_right, 1))


def supports(x: Tensor, coefficients: Tensor) -> bool:
    """Whether the kernels can take these."""
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return x.dtype in kinds and coefficients.dtype is torch.float32 and coefficients.numel() <= BINS


def forward(x: Tensor, coefficients: Tensor, end: float) -> Tensor:
    """`phi(|x|)`, in the dtype and layout of x, which is dense."""
    out = torch.empty_like(x)
    _forward[(triton.cdiv(x.numel(), BLOCK),)](
        x, coefficients, out, x.numel(), **_knots(coefficients, end), BLOCK=BLOCK
    )  # fmt: skip
    return out


def backward(x: Tensor, coefficients: Tensor, grad: Tensor, end: float) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the coefficients; `grad` has the layout of x. The same bits each time."""
    grad_x = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), LANES * STEPS)
    histograms = x.new_empty(programs, 2, BINS, dtype=torch.float32)
    _backward[(programs,)](
        x, grad, coefficients, grad_x, histograms, x.numel(),
        **_knots(coefficients, end), LANES=LANES, STEPS=STEPS, BINS=BINS,
    )  # fmt: skip
    to_left, to_right = histograms.sum(0)[:, : coefficients.numel()]
    return grad_x, to_left + torch.cat([to_right.new_zeros(1), to_right[:-1]])


def _knots(coefficients: Tensor, end: float) -> dict[str, float]:
    return {"KNOTS": coefficients.numel(), "PER_UNIT": (coefficients.numel() - 1) / end}
