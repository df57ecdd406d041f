"""Triton kernels of `even_spline`: one pass forward, one pass backward."""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchdeal.backends.cuda.triton_common import BLOCK, blocks, kernel, knots, piece_of, spline

LANES = 128  # numbers that a program of the backward pass works on at a time
STEPS = 128  # and how many times
BINS = 32  # at least as many as there are pieces, a power of 2


@kernel
def _forward(x, coefficients, out, total, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, BLOCK: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offset, mask=offset < total, other=0.0).to(tl.float32)
    value = spline(value, coefficients, KNOTS, PER_UNIT)
    tl.store(out + offset, value.to(out.dtype.element_ty), mask=offset < total)


@kernel
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
        position, piece = piece_of(value, KNOTS, PER_UNIT)
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


def spline_in_place(values: Tensor, coefficients: Tensor) -> None:
    _apply(values, coefficients, values)


class TritonSpline(torch.autograd.Function):
    """`phi(|x|)`, in the dtype and layout of x, and its gradients, the same bits each time."""

    @staticmethod
    def forward(ctx, x: Tensor, coefficients: Tensor) -> Tensor:
        x, coefficients = _dense(x), coefficients.contiguous()
        ctx.save_for_backward(x, coefficients)
        return _apply(x, coefficients, torch.empty_like(x))

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        x, coefficients = ctx.saved_tensors
        grad, grad_x = _like(grad, x), torch.empty_like(x)
        programs = triton.cdiv(x.numel(), LANES * STEPS)
        histograms = x.new_empty(programs, 2, BINS, dtype=torch.float32)
        _backward[(programs,)](
            x, grad, coefficients, grad_x, histograms, x.numel(),
            **knots(coefficients), LANES=LANES, STEPS=STEPS, BINS=BINS,
        )  # fmt: skip
        to_left, to_right = histograms.sum(0)[:, : coefficients.numel()]
        return grad_x, to_left + torch.cat([to_right.new_zeros(1), to_right[:-1]])


def _apply(x: Tensor, coefficients: Tensor, out: Tensor) -> Tensor:
    _forward[blocks(x.numel())](x, coefficients, out, x.numel(), **knots(coefficients), BLOCK=BLOCK)
    return out


def _dense(x: Tensor) -> Tensor:
    """x, or a copy, without gaps in memory."""
    return x if x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last) else x.contiguous()


def _like(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient in the layout of x."""
    return grad.contiguous() if x.is_contiguous() else grad.contiguous(memory_format=torch.channels_last)
