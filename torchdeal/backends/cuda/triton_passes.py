"""Triton kernels of the packed backend: the passes between the convolutions, each one read and one write of memory.

Packed images are `(B, h, w, rows, columns, C)` in memory: a pixel of the packed image holds `rows x columns` pixels of
the image, the channels of each one together. All tensors are dense; where a layout is not said it is `(B, C, H, W)`.
"""

# Triton is not there where there is no CUDA, and its decorator makes things that pyright does not see.
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchdeal.model.attention import MASK_FLOOR
from torchdeal.model.spline import PHI_END

BLOCK = 1024
PIXELS = 16  # of all features: 2048 numbers a program
FREQUENCIES, FILTERS = 128, 4  # what a program of `contract` works on at a time

LOW = 2048.0  # a float32 number is held as two float16 ones, `high + low / 2048`: 22 of its 24 digits
MIX_PIXELS, MIX_FEATURES = 128, 128  # outputs of a program of `_split_convolution`

# Sizes of images: Triton would compile a kernel again for those that are multiples of 16, and for 1.
SIZES = {
    *("pixels", "cells", "feature_count", "frequencies"),
    *("top", "rows", "columns", "height", "width", "packed_height", "packed_width"),
    *("sample_stride", "feature_stride", "row_stride"),
}


def _kernel(function):
    """A Triton kernel that is compiled once for images of all sizes."""
    names = [name for name in inspect.signature(function).parameters if name in SIZES]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def _mirrored(position, size):
    """The pixel that stands at `position` after mirroring at both ends."""
    return size - 1 - tl.abs(size - 1 - tl.abs(position))


@triton.jit
def _spline(x, coefficients, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr):
    """`phi(|x|)`, knots on 0, 1 / PER_UNIT, ..., linearly extended beyond the last."""
    position = tl.abs(x) * PER_UNIT
    piece = tl.minimum(position, KNOTS - 2.0).to(tl.int32)
    left = tl.load(coefficients + piece)
    right = tl.load(coefficients + piece + 1)
    return left + (position - piece.to(tl.float32)) * (right - left)


@_kernel
def _pack_image(
    x, mean, variance, out, total, height, width, top, packed_height, packed_width,
    REACH: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, rest = offset % CHANNELS, offset // CHANNELS
    j, rest = rest % COLUMNS, rest // COLUMNS
    i, rest = rest % ROWS, rest // ROWS
    column, rest = rest % packed_width * COLUMNS + j - REACH, rest // packed_width
    row, sample = rest % packed_height * ROWS + i + top - REACH, rest // packed_height
    exists = (offset < total) & (row < height + REACH) & (column < width + REACH)
    source = ((sample * CHANNELS + channel) * height + _mirrored(row, height)) * width + _mirrored(column, width)
    scale = tl.rsqrt(tl.load(variance + sample, mask=exists, other=1.0))
    value = (tl.load(x + source, mask=exists, other=0.0) - tl.load(mean + sample, mask=exists, other=0.0)) * scale
    tl.store(out + offset, tl.where(exists, value, 0.0).to(out.dtype.element_ty), mask=offset < total)


@_kernel
def _fold_packed(
    packed, variance, out, total, height, width, packed_height, packed_width,
    REACH: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
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
            place = (sample * packed_height + r // ROWS) * packed_width + c // COLUMNS
            place = (place * ROWS + r % ROWS) * COLUMNS + c % COLUMNS
            value += tl.load(packed + place * CHANNELS + channel, mask=seen, other=0.0).to(tl.float32)
    scale = tl.sqrt(tl.load(variance + sample, mask=inside, other=1.0))
    tl.store(out + offset, value * scale, mask=inside)


@_kernel
def _overlap_add(
    columns, out, pixels, rows, width, height,
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
        value += tl.load(columns + place * CHANNELS + channel, mask=seen, other=0.0).to(tl.float32)
    tl.store(out + pixel.to(tl.int64) * CHANNELS + channel, value.to(out.dtype.element_ty), mask=inside)


@_kernel
def _unpacked_spline(
    packed, coefficients, out, pixels, height, width, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    feature = tl.arange(0, WIDE)[None, :]
    column, rest = pixel % width, pixel // width
    row, sample = rest % height, rest // height
    place = (sample * packed_height + row // ROWS) * packed_width + column // COLUMNS
    place = (place * ROWS + row % ROWS) * COLUMNS + column % COLUMNS
    inside = (pixel < pixels) & (feature < FEATURES)
    value = tl.load(packed + place.to(tl.int64) * FEATURES + feature, mask=inside, other=0.0).to(tl.float32)
    value = _spline(value, coefficients, KNOTS, PER_UNIT)
    tl.store(out + pixel.to(tl.int64) * FEATURES + feature, value.to(out.dtype.element_ty), mask=inside)


@_kernel
def _packed_squared_mask(
    features, alpha, coefficients, out, cells, height, width, top, rows, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, FLOOR: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    cell = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]  # of the packed rows of this strip
    feature = tl.arange(0, WIDE)[None, :]
    j, rest = cell % COLUMNS, cell // COLUMNS
    i, rest = rest % ROWS, rest // ROWS
    packed_column, rest = rest % packed_width, rest // packed_width
    packed_row, sample = rest % (rows // ROWS), rest // (rows // ROWS)
    row, column = packed_row * ROWS + i, packed_column * COLUMNS + j
    stored = (cell < cells) & (feature < FEATURES)
    exists = stored & (top + row < height) & (column < width)
    strip_height = tl.minimum(height - top, rows)
    source = (sample * strip_height + row) * width + column
    value = tl.load(features + source.to(tl.int64) * FEATURES + feature, mask=exists, other=0.0).to(tl.float32)
    value *= tl.load(alpha + sample * FEATURES + feature, mask=stored, other=0.0)
    value = _spline(value, coefficients, KNOTS, PER_UNIT)
    value = tl.minimum(tl.maximum(value, FLOOR), 1.0)
    place = (sample * packed_height + top // ROWS + packed_row) * packed_width + packed_column
    place = (place * ROWS + i) * COLUMNS + j
    value = tl.where(exists, value * value, 0.0)  # what lies beyond the image does not count
    tl.store(out + place.to(tl.int64) * FEATURES + feature, value.to(out.dtype.element_ty), mask=stored)


@_kernel
def _spline_in_place(
    values, coefficients, total, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + offset, mask=offset < total, other=0.0).to(tl.float32)
    value = _spline(value, coefficients, KNOTS, PER_UNIT)
    tl.store(values + offset, value.to(values.dtype.element_ty), mask=offset < total)


@triton.jit
def _store_split(high, low, offset, value, mask, LOW: tl.constexpr):
    """`value` as the sum of two numbers of half precision."""
    leading = value.to(tl.float16)
    tl.store(high + offset, leading, mask=mask)
    tl.store(low + offset, ((value - leading.to(tl.float32)) * LOW).to(tl.float16), mask=mask)


@_kernel
def _split_responses(
    responses, coefficients, high, low, height, width, sample_stride, feature_stride, row_stride,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, LOW: tl.constexpr,
    PIXELS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    row, sample = tl.program_id(1), tl.program_id(2).to(tl.int64)
    feature = tl.arange(0, WIDE)[None, :].to(tl.int64)
    inside = (column < width) & (feature < FEATURES)
    source = sample * sample_stride + feature * feature_stride + row * row_stride + column
    value = _spline(tl.load(responses + source, mask=inside, other=0.0), coefficients, KNOTS, PER_UNIT)
    place = ((sample * height + row) * width + column) * FEATURES + feature
    _store_split(high, low, place, value, inside, LOW)


@_kernel
def _split_spline(
    values, coefficients, high, low, total,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = _spline(tl.load(values + offset, mask=offset < total, other=0.0), coefficients, KNOTS, PER_UNIT)
    _store_split(high, low, offset, value, offset < total, LOW)


@_kernel
def _split_convolution(
    high, low, weight_high, weight_low, out, pixels, height, width,
    FEATURES: tl.constexpr, LOW: tl.constexpr, PIXELS: tl.constexpr, WIDE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    x, rest = pixel % width, pixel // width
    source = (rest // height * (height + 2) + rest % height) * (width + 2) + x
    feature = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    depth = tl.arange(0, DEPTH)
    inside = (pixel < pixels)[:, None]
    total = tl.zeros([PIXELS, WIDE], tl.float32)
    correction = tl.zeros([PIXELS, WIDE], tl.float32)
    for step in range(9 * FEATURES // DEPTH):
        tap, channel = step // (FEATURES // DEPTH), step % (FEATURES // DEPTH) * DEPTH + depth
        place = (source + tap // 3 * (width + 2) + tap % 3).to(tl.int64)[:, None] * FEATURES + channel[None, :]
        weight = (tap * FEATURES + channel)[:, None] * FEATURES + feature[None, :]
        a_high = tl.load(high + place, mask=inside, other=0.0)
        a_low = tl.load(low + place, mask=inside, other=0.0)
        b_high = tl.load(weight_high + weight)
        b_low = tl.load(weight_low + weight)
        # Tensor cores cut off what they add instead of rounding it, and must not hold the long sum. The last argument
        # is there to keep Triton from adding to `total` in them.
        total += tl.dot(a_high, b_high, max_num_imprecise_acc=DEPTH)
        correction = tl.dot(a_high, b_low, correction)
        correction = tl.dot(a_low, b_high, correction)
    place = pixel.to(tl.int64)[:, None] * FEATURES + feature[None, :]
    tl.store(out + place, total + correction / LOW, mask=inside)


@_kernel
def _squared_mask_planes(
    features, alpha, coefficients, out, height, width, sample_stride, feature_stride, row_stride,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, FLOOR: tl.constexpr,
    PIXELS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    row, sample = tl.program_id(1), tl.program_id(2).to(tl.int64)
    feature = tl.arange(0, WIDE)[None, :].to(tl.int64)
    inside = (column < width) & (feature < FEATURES)
    source = ((sample * height + row) * width + column) * FEATURES + feature
    value = tl.load(features + source, mask=inside, other=0.0)
    value *= tl.load(alpha + sample * FEATURES + feature, mask=feature < FEATURES, other=0.0)
    value = _spline(value, coefficients, KNOTS, PER_UNIT)
    value = tl.minimum(tl.maximum(value, FLOOR), 1.0)
    place = sample * sample_stride + feature * feature_stride + row * row_stride + column
    tl.store(out + place, value * value, mask=inside)


@_kernel
def _pack_mask(
    mask, out, height, width, packed_height, packed_width,
    FEATURES: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[:, None]
    row = tl.program_id(1)
    sample = tl.program_id(2).to(tl.int64)
    feature = tl.arange(0, WIDE)[None, :]
    stored = (column < packed_width * COLUMNS) & (feature < FEATURES)
    source = ((sample * FEATURES + feature) * height + row) * width + column
    value = tl.load(mask + source, mask=stored & (column < width) & (row < height), other=0.0)
    place = (sample * packed_height + row // ROWS) * packed_width + column // COLUMNS
    place = (place * ROWS + row % ROWS) * COLUMNS + column % COLUMNS
    tl.store(out + place * FEATURES + feature, value.to(out.dtype.element_ty), mask=stored)


@_kernel
def _weigh(
    responses, mask, rows, columns, feature_count, height, width, sample_stride, feature_stride, row_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    plane = tl.program_id(0).to(tl.int64)
    offset = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, column = offset // columns, offset % columns
    inside = (row < height) & (column < width)
    weights = mask + plane // feature_count * sample_stride + plane % feature_count * feature_stride
    place = responses + plane * rows * columns + offset
    weight = tl.load(weights + row.to(tl.int64) * row_stride + column, mask=inside, other=0.0)
    tl.store(place, tl.load(place, mask=inside, other=0.0) * weight, mask=offset < rows * columns)


@triton.jit
def _load_complex(pointer, index, mask):
    """Real and imaginary parts, read together."""
    place = pointer + 2 * tl.expand_dims(index, -1) + tl.arange(0, 2)
    return tl.split(tl.load(place, mask=tl.expand_dims(mask, -1), other=0.0))


@triton.jit
def _store_complex(pointer, index, real, imaginary, mask):
    place = pointer + 2 * tl.expand_dims(index, -1) + tl.arange(0, 2)
    tl.store(place, tl.join(real, imaginary), mask=tl.expand_dims(mask, -1))


@_kernel
def _expand(
    image, filters, out, frequencies, feature_count,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    frequency = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature, sample = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    inside = frequency < frequencies
    real = tl.zeros([BLOCK], tl.float32)
    imaginary = tl.zeros([BLOCK], tl.float32)
    for channel in tl.static_range(CHANNELS):
        a_real, a_imaginary = _load_complex(image, (sample * CHANNELS + channel) * frequencies + frequency, inside)
        b_real, b_imaginary = _load_complex(filters, (feature * CHANNELS + channel) * frequencies + frequency, inside)
        real += a_real * b_real + a_imaginary * b_imaginary
        imaginary += a_imaginary * b_real - a_real * b_imaginary
    _store_complex(out, (sample * feature_count + feature) * frequencies + frequency, real, imaginary, inside)


@_kernel
def _contract(
    spectra, filters, out, frequencies,
    FEATURES: tl.constexpr, CHANNELS: tl.constexpr, FILTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    frequency = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel, sample = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = frequency < frequencies
    real = tl.zeros([FILTERS, BLOCK], tl.float32)
    imaginary = tl.zeros([FILTERS, BLOCK], tl.float32)
    for first in range(0, FEATURES, FILTERS):
        feature = (first + tl.arange(0, FILTERS)).to(tl.int64)[:, None]
        seen = (feature < FEATURES) & inside[None, :]
        place = (sample * FEATURES + feature) * frequencies + frequency[None, :]
        a_real, a_imaginary = _load_complex(spectra, place, seen)
        place = (feature * CHANNELS + channel) * frequencies + frequency[None, :]
        b_real, b_imaginary = _load_complex(filters, place, seen)
        real += a_real * b_real - a_imaginary * b_imaginary
        imaginary += a_real * b_imaginary + a_imaginary * b_real
    place = (sample * CHANNELS + channel) * frequencies + frequency
    _store_complex(out, place, tl.sum(real, 0), tl.sum(imaginary, 0), inside)


def pack_image(x: Tensor, mean: Tensor, variance: Tensor, out: Tensor, top: int, reach: int, packing: tuple[int, int]):
    """`(x - mean) / sqrt(variance)`, mirrored by `reach`, from row `top` on, packed into `out`; 0 beyond."""
    _, channels, height, width = x.shape
    _, _, packed_height, packed_width = out.shape
    _pack_image[_blocks(out.numel(), BLOCK)](
        x, mean, variance, out, out.numel(), height, width, top, packed_height, packed_width,
        REACH=reach, CHANNELS=channels, ROWS=packing[0], COLUMNS=packing[1], BLOCK=BLOCK,
    )  # fmt: skip


def fold_packed(packed: Tensor, variance: Tensor, out: Tensor, reach: int, packing: tuple[int, int]):
    """The adjoint of `pack_image` (with mean 0), times the variance: what was divided out before."""
    _, channels, height, width = out.shape
    _, _, packed_height, packed_width = packed.shape
    _fold_packed[_blocks(out.numel(), 256)](
        packed, variance, out, out.numel(), height, width, packed_height, packed_width,
        REACH=reach, CHANNELS=channels, ROWS=packing[0], COLUMNS=packing[1], BLOCK=256,
    )  # fmt: skip


def overlap_add(columns: Tensor, out: Tensor, taps: tuple[int, int]):
    """The sum of `columns`, `(B, h, w, *taps, C)`, each shifted by its tap, into `out`, channels-last."""
    batch, channels, height, width = out.shape
    wide = triton.next_power_of_2(channels)
    block = max(8, 1024 // wide)
    _overlap_add[_blocks(batch * height * width, block)](
        columns, out, batch * height * width, height - taps[0] + 1, width, height,
        CHANNELS=channels, WIDE=wide, TAPS=taps[0] * taps[1], TAPS_ACROSS=taps[1], PIXELS=block,
    )  # fmt: skip


def unpacked_spline(packed: Tensor, coefficients: Tensor, out: Tensor, packing: tuple[int, int]):
    """`phi` of packed responses, into `out`, channels-last and cropped to its size."""
    batch, features, height, width = out.shape
    pixels = batch * height * width
    _unpacked_spline[_blocks(pixels, 2 * PIXELS)](
        packed, coefficients, out, pixels, height, width, *packed.shape[-2:],
        FEATURES=features, WIDE=triton.next_power_of_2(features), ROWS=packing[0], COLUMNS=packing[1],
        **_knots(coefficients), PIXELS=2 * PIXELS,
    )  # fmt: skip


def packed_squared_mask(
    features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor, top: int, height: int, packing: tuple[int, int]
):
    """`clip(phi(alpha features), floor, 1)^2` of a channels-last strip that begins at row `top`, into packed `out`."""
    batch, channels, strip_height, width = features.shape
    rows = -(-strip_height // packing[0]) * packing[0]
    cells = batch * rows * out.shape[-1] * packing[1]
    _packed_squared_mask[_blocks(cells, PIXELS)](
        features, alpha, coefficients, out, cells, height, width, top, rows, *out.shape[-2:],
        FEATURES=channels, WIDE=triton.next_power_of_2(channels), ROWS=packing[0], COLUMNS=packing[1],
        **_knots(coefficients), FLOOR=MASK_FLOOR, PIXELS=PIXELS,
    )  # fmt: skip


def spline_in_place(values: Tensor, coefficients: Tensor):
    """`phi(|values|)`, any dense layout, float16 or float32."""
    _spline_in_place[_blocks(values.numel(), BLOCK)](
        values, coefficients, values.numel(), **_knots(coefficients), BLOCK=BLOCK
    )


def mixing_weights(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """A 3 x 3 kernel `(O, I, 3, 3)` as `(9 I, O)`, split into two of half precision."""
    weights = kernel.permute(2, 3, 1, 0).reshape(-1, len(kernel))
    high = weights.half()
    return high, ((weights - high) * LOW).half()


def mixing(
    responses: Tensor,
    alpha: Tensor,
    mix: list[tuple[Tensor, Tensor]],
    phi: tuple[Tensor, Tensor, Tensor],
    out: Tensor,
):
    """`clip(phi3(alpha mix2 phi2(mix1 phi1(responses))), floor, 1)^2`, all in float32 accuracy.

    `responses` is as large as the transform, `out` may be part of a larger tensor.
    """
    batch, features, height, width = out.shape
    shape = batch, height + 4, width + 4, features
    high, low = (torch.empty(shape, dtype=torch.float16, device=out.device) for _ in range(2))
    layout = {"FEATURES": features, "WIDE": triton.next_power_of_2(features), "PIXELS": 32}
    _split_responses[(triton.cdiv(width + 4, 32), height + 4, batch)](
        responses, phi[0], high, low, height + 4, width + 4, *responses.stride()[:3],
        **layout, **_knots(phi[0]), LOW=LOW,
    )  # fmt: skip
    mixed = _split_convolution_of(high, low, *mix[0])
    high, low = (torch.empty(mixed.shape, dtype=torch.float16, device=out.device) for _ in range(2))
    _split_spline[_blocks(mixed.numel(), BLOCK)](
        mixed, phi[1], high, low, mixed.numel(), **_knots(phi[1]), LOW=LOW, BLOCK=BLOCK
    )
    mixed = _split_convolution_of(high, low, *mix[1])
    _squared_mask_planes[(triton.cdiv(width, 32), height, batch)](
        mixed, alpha, phi[2], out, height, width, *out.stride()[:3], **layout, **_knots(phi[2]), FLOOR=MASK_FLOOR
    )


def _split_convolution_of(high: Tensor, low: Tensor, weight_high: Tensor, weight_low: Tensor) -> Tensor:
    """A 3 x 3 convolution without padding of `high + low / 2048`, `(B, H, W, N)`, in float32."""
    batch, height, width, features = high.shape
    height, width = height - 2, width - 2
    out = torch.empty(batch, height, width, features, device=high.device)
    _split_convolution[(triton.cdiv(batch * height * width, MIX_PIXELS), triton.cdiv(features, MIX_FEATURES))](
        high, low, weight_high, weight_low, out, batch * height * width, height, width,
        FEATURES=features, LOW=LOW, PIXELS=MIX_PIXELS, WIDE=min(features, MIX_FEATURES), **_pipeline(high, features),
    )  # fmt: skip
    return out


def _pipeline(like: Tensor, features: int) -> dict[str, int]:
    """How many channels `_split_convolution` adds at a time, and how many such steps it loads ahead.

    A channel takes 1 KiB of the shared memory: two numbers of two bytes for each of 128 pixels and 128 features.
    """
    properties = torch.cuda.get_device_properties(like.device) if like.is_cuda else None
    room = getattr(properties, "shared_memory_per_block_optin", 64 * 1024) // 1024
    depth = min(64 if room >= 128 else 32, features)
    return {"DEPTH": depth, "num_warps": 8, "num_stages": min(3, room // depth)}


def supports(features: int) -> bool:
    """Whether the kernels work for so many filters."""
    return features % MIX_FEATURES == 0


def pack_mask(mask: Tensor, out: Tensor, packing: tuple[int, int]):
    """A mask `(B, N, H, W)` in the packed layout, 0 beyond the image."""
    batch, features, height, width = mask.shape
    packed_height, packed_width = out.shape[-2:]
    columns, rows = packed_width * packing[1], packed_height * packing[0]
    _pack_mask[(triton.cdiv(columns, 32), rows, batch)](
        mask, out, height, width, packed_height, packed_width,
        FEATURES=features, WIDE=triton.next_power_of_2(features), ROWS=packing[0], COLUMNS=packing[1], PIXELS=32,
    )  # fmt: skip


def weigh(responses: Tensor, mask: Tensor):
    """`responses *= mask` in place, where there is a mask, at the top left; 0 elsewhere."""
    rows, columns = responses.shape[-2:]
    features, height, width = mask.shape[1:]
    _weigh[(len(mask) * features, triton.cdiv(rows * columns, BLOCK))](
        responses, mask, rows, columns, features, height, width, *mask.stride()[:3], BLOCK=BLOCK
    )


def expand(image: Tensor, filters: Tensor) -> Tensor:
    """`sum_c image_c conj(filters_nc)`, `(B, C, h, w)` and `(N, C, h, w)` to `(B, N, h, w)`, complex64."""
    batch, channels, rows, columns = image.shape
    out = image.new_empty(batch, len(filters), rows, columns)
    _expand[(triton.cdiv(rows * columns, 512), len(filters), batch)](
        torch.view_as_real(image), torch.view_as_real(filters), torch.view_as_real(out), rows * columns, len(filters),
        CHANNELS=channels, BLOCK=512,
    )  # fmt: skip
    return out


def contract(spectra: Tensor, filters: Tensor) -> Tensor:
    """`sum_n spectra_n filters_nc`, `(B, N, h, w)` and `(N, C, h, w)` to `(B, C, h, w)`, complex64."""
    batch, features, rows, columns = spectra.shape
    channels = filters.shape[1]
    out = spectra.new_empty(batch, channels, rows, columns)
    _contract[(triton.cdiv(rows * columns, FREQUENCIES), channels, batch)](
        torch.view_as_real(spectra), torch.view_as_real(filters), torch.view_as_real(out), rows * columns,
        FEATURES=features, CHANNELS=channels, FILTERS=FILTERS, BLOCK=FREQUENCIES,
    )  # fmt: skip
    return out


def _blocks(total: int, block: int) -> tuple[int]:
    return (triton.cdiv(total, block),)


def _knots(coefficients: Tensor) -> dict[str, float]:
    return {"KNOTS": coefficients.numel(), "PER_UNIT": (coefficients.numel() - 1) / PHI_END}
