"""Triton kernels between packed convolutions.

A packed image is `(B, h, w, 4, 4, C)` in memory: a pixel of it holds 4 x 4 pixels of the image, the channels of each
one together. All tensors are dense.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from torchdeal.backends.cuda.packing import PACK, packed_size
from torchdeal.backends.cuda.triton_common import BLOCK, blocks, kernel, knots, spline, squared_mask
from torchdeal.model.attention import MASK_FLOOR

PIXELS = 16  # of all features: 2048 numbers a program


@triton.jit
def _mirrored(position, size):
    """The pixel that stands at `position` after mirroring at both ends."""
    return size - 1 - tl.abs(size - 1 - tl.abs(position))


@triton.jit
def _packed_place(sample, row, column, packed_height, packed_width, PACK: tl.constexpr):
    """Which pixel of the packed image, counted as they lie in memory, this pixel of the image is."""
    place = (sample * packed_height + row // PACK) * packed_width + column // PACK
    return (place * PACK + row % PACK) * PACK + column % PACK


@kernel
def _pack_image(
    x, mean, variance, out, total, height, width, top, packed_height, packed_width,
    REACH: tl.constexpr, CHANNELS: tl.constexpr, PACK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, rest = offset % CHANNELS, offset // CHANNELS
    j, rest = rest % PACK, rest // PACK
    i, rest = rest % PACK, rest // PACK
    column, rest = rest % packed_width * PACK + j - REACH, rest // packed_width
    row, sample = rest % packed_height * PACK + i + top - REACH, rest // packed_height
    exists = (offset < total) & (row < height + REACH) & (column < width + REACH)
    source = ((sample * CHANNELS + channel) * height + _mirrored(row, height)) * width + _mirrored(column, width)
    scale = tl.rsqrt(tl.load(variance + sample, mask=exists, other=1.0))
    value = (tl.load(x + source, mask=exists, other=0.0) - tl.load(mean + sample, mask=exists, other=0.0)) * scale
    tl.store(out + offset, tl.where(exists, value, 0.0).to(out.dtype.element_ty), mask=offset < total)


def pack_image(x: Tensor, mean: Tensor, variance: Tensor, out: Tensor, top: int, reach: int) -> None:
    _, channels, height, width = x.shape
    _pack_image[blocks(out.numel())](
        x, mean, variance, out, out.numel(), height, width, top, *out.shape[-2:],
        REACH=reach, CHANNELS=channels, PACK=PACK, BLOCK=BLOCK,
    )  # fmt: skip


@kernel
def _fold_packed(
    packed, variance, out, total, height, width, packed_height, packed_width,
    REACH: tl.constexpr, CHANNELS: tl.constexpr, PACK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column, rest = offset % width, offset // width
    row, rest = rest % height, rest // height
    channel, sample = rest % CHANNELS, rest // CHANNELS
    inside = offset < total
    value = tl.zeros([BLOCK], tl.float32)
    # A pixel stands in the padded image at its own place, and once more for each border it is mirrored at.
    for vertical in tl.static_range(3):
        if vertical == 0:
            r, seen_down = row + REACH, inside
        elif vertical == 1:
            r, seen_down = REACH - row, inside & (row >= 1) & (row <= REACH)
        else:
            r, seen_down = REACH + 2 * (height - 1) - row, inside & (row >= height - 1 - REACH) & (row <= height - 2)
        for horizontal in tl.static_range(3):
            if horizontal == 0:
                c, seen = column + REACH, seen_down
            elif horizontal == 1:
                c, seen = REACH - column, seen_down & (column >= 1) & (column <= REACH)
            else:
                c = REACH + 2 * (width - 1) - column
                seen = seen_down & (column >= width - 1 - REACH) & (column <= width - 2)
            place = _packed_place(sample, r, c, packed_height, packed_width, PACK)
            value += tl.load(packed + place * CHANNELS + channel, mask=seen, other=0.0).to(tl.float32)
    scale = tl.sqrt(tl.load(variance + sample, mask=inside, other=1.0))
    tl.store(out + offset, value * scale, mask=inside)


def fold_packed(packed: Tensor, variance: Tensor, out: Tensor, reach: int) -> None:
    _, channels, height, width = out.shape
    _fold_packed[blocks(out.numel(), 256)](
        packed, variance, out, out.numel(), height, width, *packed.shape[-2:],
        REACH=reach, CHANNELS=channels, PACK=PACK, BLOCK=256,
    )  # fmt: skip


@kernel
def _overlap_add(
    products, out, pixels, rows, width, height,
    CHANNELS: tl.constexpr, WIDE: tl.constexpr, TAPS: tl.constexpr, TAPS_ACROSS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    channel = tl.arange(0, WIDE)[None, :]
    x, rest = pixel % width, pixel // width
    y, sample = rest % height, rest // height
    across = width - TAPS_ACROSS + 1
    inside = (pixel < pixels) & (channel < CHANNELS)
    value = tl.zeros([PIXELS, WIDE], tl.float32)
    for tap in tl.static_range(TAPS):
        row, column = y - tap // TAPS_ACROSS, x - tap % TAPS_ACROSS
        seen = inside & (row >= 0) & (row < rows) & (column >= 0) & (column < across)
        place = ((sample * rows + row) * across + column).to(tl.int64) * TAPS + tap
        value += tl.load(products + place * CHANNELS + channel, mask=seen, other=0.0).to(tl.float32)
    tl.store(out + pixel.to(tl.int64) * CHANNELS + channel, value.to(out.dtype.element_ty), mask=inside)


def overlap_add(columns: Tensor, out: Tensor, taps: int) -> None:
    batch, channels, height, width = out.shape
    wide = triton.next_power_of_2(channels)
    block = max(8, 1024 // wide)
    _overlap_add[blocks(batch * height * width, block)](
        columns, out, batch * height * width, height - taps + 1, width, height,
        CHANNELS=channels, WIDE=wide, TAPS=taps * taps, TAPS_ACROSS=taps, PIXELS=block,
    )  # fmt: skip


@kernel
def _unpacked_spline(
    packed, coefficients, out, pixels, height, width, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, PACK: tl.constexpr,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    feature = tl.arange(0, WIDE)[None, :]
    column, rest = pixel % width, pixel // width
    row, sample = rest % height, rest // height
    place = _packed_place(sample, row, column, packed_height, packed_width, PACK)
    inside = (pixel < pixels) & (feature < FEATURES)
    value = tl.load(packed + place.to(tl.int64) * FEATURES + feature, mask=inside, other=0.0).to(tl.float32)
    value = spline(value, coefficients, KNOTS, PER_UNIT)
    tl.store(out + pixel.to(tl.int64) * FEATURES + feature, value.to(out.dtype.element_ty), mask=inside)


def unpacked_spline(packed: Tensor, coefficients: Tensor, out: Tensor) -> None:
    batch, features, height, width = out.shape
    pixels = batch * height * width
    _unpacked_spline[blocks(pixels, 2 * PIXELS)](
        packed, coefficients, out, pixels, height, width, *packed.shape[-2:],
        FEATURES=features, WIDE=triton.next_power_of_2(features), PACK=PACK, **knots(coefficients), PIXELS=2 * PIXELS,
    )  # fmt: skip


@kernel
def _packed_squared_mask(
    features, alpha, coefficients, out, cells, height, width, top, rows, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, PACK: tl.constexpr,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, FLOOR: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]  # of the packed rows of this strip
    feature = tl.arange(0, WIDE)[None, :]
    j, rest = cell % PACK, cell // PACK
    i, rest = rest % PACK, rest // PACK
    column, rest = rest % packed_width * PACK + j, rest // packed_width
    row, sample = rest % rows * PACK + i, rest // rows
    stored = (cell < cells) & (feature < FEATURES)
    exists = stored & (row < height) & (column < width)
    source = (sample * height + row) * width + column
    value = tl.load(features + source.to(tl.int64) * FEATURES + feature, mask=exists, other=0.0).to(tl.float32)
    value *= tl.load(alpha + sample * FEATURES + feature, mask=stored, other=0.0)
    value = squared_mask(value, coefficients, KNOTS, PER_UNIT, FLOOR)
    value = tl.where(exists, value, 0.0)  # what lies beyond the image does not count
    place = _packed_place(sample, top + row, column, packed_height, packed_width, PACK)
    tl.store(out + place.to(tl.int64) * FEATURES + feature, value.to(out.dtype.element_ty), mask=stored)


def packed_squared_mask(features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor, top: int) -> None:
    batch, channels, height, width = features.shape
    rows = packed_size(height)
    cells = batch * rows * PACK * out.shape[-1] * PACK
    _packed_squared_mask[blocks(cells, PIXELS)](
        features, alpha, coefficients, out, cells, height, width, top, rows, *out.shape[-2:],
        FEATURES=channels, WIDE=triton.next_power_of_2(channels), PACK=PACK,
        **knots(coefficients), FLOOR=MASK_FLOOR, PIXELS=PIXELS,
    )  # fmt: skip


@kernel
def _pack_mask(
    mask, out, height, width, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, PACK: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    row = tl.program_id(1)
    sample = tl.program_id(2).to(tl.int64)
    feature = tl.arange(0, WIDE)[None, :]
    stored = (column < packed_width * PACK) & (feature < FEATURES)
    source = ((sample * FEATURES + feature) * height + row) * width + column
    visible = tl.where(row < height, width, 0)  # how many pixels of this row the image has
    value = tl.load(mask + source, mask=stored & (column < visible), other=0.0)
    place = _packed_place(sample, row, column, packed_height, packed_width, PACK)
    tl.store(out + place * FEATURES + feature, value.to(out.dtype.element_ty), mask=stored)


def pack_mask(mask: Tensor, out: Tensor) -> None:
    batch, features, height, width = mask.shape
    packed_height, packed_width = out.shape[-2:]
    _pack_mask[(triton.cdiv(packed_width * PACK, 32), packed_height * PACK, batch)](
        mask, out, height, width, packed_height, packed_width,
        FEATURES=features, WIDE=triton.next_power_of_2(features), PACK=PACK, PIXELS=32,
    )  # fmt: skip
