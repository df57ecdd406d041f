"""Triton kernels of conjugate gradients: an iteration in three passes over the vectors, and a program that decides.

Vectors are `(B, n)`. What belongs to a sample is a row of a small table, so that nothing has to wait for the host.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

PARTS = 128  # programs that share a sample, a power of 2; each leaves its part of the sums
BLOCK = 1024  # numbers that a program works on at a time

# The columns of the table
LIVE, DONE, RZ, RESIDUAL, TARGET, ERROR, ERROR_TOLERANCE, ITERATIONS, COUNT, BOUND = range(10)
COLUMNS = 10


@dataclass(frozen=True)
class Room:
    """Where the solves of one shape take place."""

    b: Tensor
    x: Tensor
    r: Tensor
    p: Tensor
    tolerances: Tensor  # (2, B): on residuals, relative to b, and on errors, relative to x
    table: Tensor  # (B, COLUMNS)
    curvature: Tensor  # (B, PARTS), as the others
    length: Tensor
    squared_residual: Tensor
    squared_size: Tensor
    decreases: Tensor  # (B, iterations at most)
    lengths: Tensor
    going_on: Tensor  # whether any sample is

    @classmethod
    def like(cls, b: Tensor, iterations: int) -> Room:
        batch, options = len(b), {"dtype": torch.float32, "device": b.device}
        return cls(
            **{name: torch.empty_like(b) for name in ("b", "x", "r", "p")},
            tolerances=torch.empty(2, batch, **options),
            table=torch.empty(batch, COLUMNS, **options),
            **{
                name: torch.empty(batch, PARTS, **options)
                for name in ("curvature", "length", "squared_residual", "squared_size")
            },
            **{name: torch.empty(batch, iterations, **options) for name in ("decreases", "lengths")},
            going_on=torch.empty((), dtype=torch.bool, device=b.device),
        )

    @property
    def grid(self) -> tuple[int, int]:
        return PARTS, len(self.b)

    @property
    def size(self) -> int:
        return self.b[0].numel()


def begin(room: Room) -> None:
    """`x = 0`, `r = p = b`."""
    _start[room.grid](
        room.b, room.x, room.r, room.p, room.squared_residual, room.size, PARTS=PARTS, BLOCK=BLOCK
    )  # fmt: skip
    _first_judgement[(len(room.b),)](
        room.table, room.tolerances, room.squared_residual, len(room.b),
        PARTS=PARTS, COLUMNS=COLUMNS, LIVE=LIVE, DONE=DONE, RZ=RZ, RESIDUAL=RESIDUAL, TARGET=TARGET, ERROR=ERROR,
        ERROR_TOLERANCE=ERROR_TOLERANCE, ITERATIONS=ITERATIONS, COUNT=COUNT, BOUND=BOUND,
    )  # fmt: skip


def iterate(room: Room, Ap: Tensor, smallest: float, window: int) -> None:
    """One iteration, given `A p`. No eigenvalue of A is below `smallest`; an error takes `window` iterations."""
    layout = {"PARTS": PARTS, "BLOCK": BLOCK}
    table = {"COLUMNS": COLUMNS, "LIVE": LIVE, "RZ": RZ}
    _curvature[room.grid](room.p, Ap, room.curvature, room.length, room.size, **layout)
    _move[room.grid](
        room.x, room.r, room.p, Ap, room.table, room.curvature, room.squared_residual, room.squared_size, room.size,
        **layout, **table,
    )  # fmt: skip
    _turn[room.grid](room.r, room.p, room.table, room.curvature, room.squared_residual, room.size, **layout, **table)
    _judge[(len(room.b),)](
        room.table, room.curvature, room.length, room.squared_residual, room.squared_size,
        room.decreases, room.lengths, room.decreases.shape[1],
        SMALLEST=smallest, PARTS=PARTS, WINDOW=window, **table, DONE=DONE, RESIDUAL=RESIDUAL, TARGET=TARGET,
        ERROR=ERROR, ERROR_TOLERANCE=ERROR_TOLERANCE, ITERATIONS=ITERATIONS, COUNT=COUNT, BOUND=BOUND,
    )  # fmt: skip


def _kernel(function):
    """Compiled once for all sizes."""
    return triton.jit(function, do_not_specialize=["size", "samples", "capacity"])


@triton.jit
def _total(parts, sample, PARTS: tl.constexpr):
    """The sum of what the programs of a sample have left."""
    return tl.sum(tl.load(parts + sample * PARTS + tl.arange(0, PARTS)))


@_kernel
def _start(b, x, r, p, squared_residual, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    part, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(part * BLOCK, size, PARTS * BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside, place = offset < size, sample * size + offset
        value = tl.load(b + place, mask=inside, other=0.0)
        tl.store(x + place, tl.zeros([BLOCK], tl.float32), mask=inside)
        tl.store(r + place, value, mask=inside)
        tl.store(p + place, value, mask=inside)
        total += value * value
    tl.store(squared_residual + sample * PARTS + part, tl.sum(total))


@_kernel
def _first_judgement(
    table, tolerances, squared_residual, samples,
    PARTS: tl.constexpr, COLUMNS: tl.constexpr, LIVE: tl.constexpr, DONE: tl.constexpr, RZ: tl.constexpr,
    RESIDUAL: tl.constexpr, TARGET: tl.constexpr, ERROR: tl.constexpr, ERROR_TOLERANCE: tl.constexpr,
    ITERATIONS: tl.constexpr, COUNT: tl.constexpr, BOUND: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0)
    row = table + sample * COLUMNS
    rz = _total(squared_residual, sample, PARTS)
    residual = tl.sqrt(rz)
    target = tl.load(tolerances + sample) * residual
    tolerance = tl.load(tolerances + samples + sample)
    # x is 0: only where b is, too, is that an accurate answer. Elsewhere the error is not known yet.
    done = (residual <= target) & ((tolerance == float("inf")) | (residual == 0))
    tl.store(row + LIVE, tl.where(done, 0.0, 1.0))
    tl.store(row + DONE, tl.where(done, 1.0, 0.0))
    tl.store(row + RZ, rz)
    tl.store(row + RESIDUAL, residual)
    tl.store(row + TARGET, target)
    tl.store(row + ERROR, tl.where(residual == 0, 0.0, float("inf")))
    tl.store(row + ERROR_TOLERANCE, tolerance)
    tl.store(row + ITERATIONS, 0.0)
    tl.store(row + COUNT, 0.0)
    tl.store(row + BOUND, 1.0)


@_kernel
def _curvature(p, Ap, curvature, length, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """`<p, A p>` and `<p, p>`."""
    part, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    products, squares = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(part * BLOCK, size, PARTS * BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside, place = offset < size, sample * size + offset
        direction = tl.load(p + place, mask=inside, other=0.0)
        products += direction * tl.load(Ap + place, mask=inside, other=0.0)
        squares += direction * direction
    tl.store(curvature + sample * PARTS + part, tl.sum(products))
    tl.store(length + sample * PARTS + part, tl.sum(squares))


@_kernel
def _move(
    x, r, p, Ap, table, curvature, squared_residual, squared_size, size,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, LIVE: tl.constexpr, RZ: tl.constexpr,
):  # fmt: skip
    """`alpha = <r, r> / <p, A p>;  x += alpha p;  r -= alpha A p`."""
    part, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = table + sample * COLUMNS
    curved = _total(curvature, sample, PARTS)
    # Rounding, or an operator that is not positive definite: no step along p makes sense.
    alpha = tl.where((tl.load(row + LIVE) > 0) & (curved > 0), tl.load(row + RZ) / curved, 0.0)
    residuals, sizes = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for first in range(part * BLOCK, size, PARTS * BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside, place = offset < size, sample * size + offset
        moved = tl.load(x + place, mask=inside, other=0.0) + alpha * tl.load(p + place, mask=inside, other=0.0)
        left = tl.load(r + place, mask=inside, other=0.0) - alpha * tl.load(Ap + place, mask=inside, other=0.0)
        tl.store(x + place, moved, mask=inside)
        tl.store(r + place, left, mask=inside)
        residuals += left * left
        sizes += moved * moved
    tl.store(squared_residual + sample * PARTS + part, tl.sum(residuals))
    tl.store(squared_size + sample * PARTS + part, tl.sum(sizes))


@_kernel
def _turn(
    r, p, table, curvature, squared_residual, size,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr, LIVE: tl.constexpr, RZ: tl.constexpr,
):  # fmt: skip
    """`beta = <r', r'> / <r, r>;  p = r' + beta p`."""
    part, sample = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = table + sample * COLUMNS
    moving = (tl.load(row + LIVE) > 0) & (_total(curvature, sample, PARTS) > 0)
    beta = tl.where(moving, _total(squared_residual, sample, PARTS) / tl.load(row + RZ), 0.0)
    for first in range(part * BLOCK, size, PARTS * BLOCK):
        offset = first + tl.arange(0, BLOCK)
        inside, place = offset < size, sample * size + offset
        direction = tl.load(r + place, mask=inside, other=0.0) + beta * tl.load(p + place, mask=inside, other=0.0)
        tl.store(p + place, direction, mask=inside)


@_kernel
def _judge(
    table, curvature, length, squared_residual, squared_size, decreases, lengths, capacity,
    SMALLEST: tl.constexpr, PARTS: tl.constexpr, WINDOW: tl.constexpr, COLUMNS: tl.constexpr, LIVE: tl.constexpr,
    RZ: tl.constexpr, DONE: tl.constexpr, RESIDUAL: tl.constexpr, TARGET: tl.constexpr, ERROR: tl.constexpr,
    ERROR_TOLERANCE: tl.constexpr, ITERATIONS: tl.constexpr, COUNT: tl.constexpr, BOUND: tl.constexpr,
):  # fmt: skip
    """The error by the estimate or the bound of `conjugate_gradient`, and whether a sample is done."""
    sample = tl.program_id(0)
    row = table + sample * COLUMNS
    curved = _total(curvature, sample, PARTS)
    squared = _total(squared_residual, sample, PARTS)
    moving = (tl.load(row + LIVE) > 0) & (curved > 0)
    before, residual, rz = tl.load(row + COUNT).to(tl.int32), tl.sqrt(squared), tl.load(row + RZ)
    decrease = tl.where(moving, rz / curved * rz, 0.0)
    step = tl.where(moving, _total(length, sample, PARTS) / curved, 0.0)
    tl.store(decreases + sample * capacity + before, decrease)
    tl.store(lengths + sample * capacity + before, step)
    # E_i = sum_{j >= i} decrease_j, from the last iteration backwards; the error is sum_i step_i (E_i + E_{i + 1}).
    energy, total = decrease, step * decrease
    window = tl.maximum((before + 1) // 3, WINDOW)
    for back in range(1, tl.minimum(window, before + 1)):
        earlier = tl.load(decreases + sample * capacity + before - back)
        energy += earlier
        total += tl.load(lengths + sample * capacity + before - back) * (2 * energy - earlier)
    error = tl.where(before + 1 >= window, tl.sqrt(total), float("inf"))
    if SMALLEST > 0:
        rest = tl.load(row + BOUND) - SMALLEST * rz / curved
        bound = tl.where(rest > 0, rest / (rest + squared / rz), 1.0)
        tl.store(row + BOUND, bound)
        error = tl.minimum(error, tl.sqrt(bound) * residual / SMALLEST)
    error = tl.where(moving, error, tl.load(row + ERROR))
    error = tl.where(residual == 0, 0.0, error)
    tolerance = tl.load(row + ERROR_TOLERANCE)
    accurate = (tolerance == float("inf")) | (error <= tolerance * tl.sqrt(_total(squared_size, sample, PARTS)))
    done = (tl.load(row + DONE) > 0) | ((residual <= tl.load(row + TARGET)) & accurate)
    tl.store(row + LIVE, tl.where(moving & (done == 0), 1.0, 0.0))
    tl.store(row + DONE, tl.where(done, 1.0, 0.0))
    tl.store(row + RZ, squared)
    tl.store(row + RESIDUAL, residual)
    tl.store(row + ERROR, error)
    tl.store(row + ITERATIONS, tl.load(row + ITERATIONS) + tl.where(moving, 1.0, 0.0))
    tl.store(row + COUNT, before + 1.0)
