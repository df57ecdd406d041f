"""Triton kernels between transforms: the mixing layers in full precision, weighted responses, products of spectra.

Tensor cores multiply in half precision: a float32 number is held as two float16 ones, `high + low / 2048`, 22 of its 24
digits.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchdeal.backends.cuda.triton_common import BLOCK, blocks, kernel, knots, spline, squared_mask
from torchdeal.model.attention import MASK_FLOOR

LOW = 2048.0
MIX_PIXELS, MIX_FEATURES = 128, 128  # outputs of a program of `_split_convolution`
ROW = 32  # pixels of a row, of all features, that a program of the kernels around it works on
FREQUENCIES, FILTERS = 128, 4  # what a program of `contract` works on at a time


@triton.jit
def _store_split(high, low, offset, value, mask, LOW: tl.constexpr):
    """`value` as the sum of two numbers of half precision."""
    leading = value.to(tl.float16)
    tl.store(high + offset, leading, mask=mask)
    tl.store(low + offset, ((value - leading.to(tl.float32)) * LOW).to(tl.float16), mask=mask)


@kernel
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
    value = spline(tl.load(responses + source, mask=inside, other=0.0), coefficients, KNOTS, PER_UNIT)
    place = ((sample * height + row) * width + column) * FEATURES + feature
    _store_split(high, low, place, value, inside, LOW)


@kernel
def _split_spline(
    values, coefficients, high, low, total,
    KNOTS: tl.constexpr, PER_UNIT: tl.constexpr, LOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = spline(tl.load(values + offset, mask=offset < total, other=0.0), coefficients, KNOTS, PER_UNIT)
    _store_split(high, low, offset, value, offset < total, LOW)


@kernel
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
        b_high = tl.load(weight_high + weight, mask=(feature < FEATURES)[None, :], other=0.0)
        b_low = tl.load(weight_low + weight, mask=(feature < FEATURES)[None, :], other=0.0)
        # Tensor cores cut off what they add instead of rounding it, and must not hold the long sum. The last argument
        # is there to keep Triton from adding to `total` in them.
        total += tl.dot(a_high, b_high, max_num_imprecise_acc=DEPTH)
        correction = tl.dot(a_high, b_low, correction)
        correction = tl.dot(a_low, b_high, correction)
    place = pixel.to(tl.int64)[:, None] * FEATURES + feature[None, :]
    tl.store(out + place, total + correction / LOW, mask=inside & (feature < FEATURES)[None, :])


@kernel
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
    value = squared_mask(value, coefficients, KNOTS, PER_UNIT, FLOOR)
    place = sample * sample_stride + feature * feature_stride + row * row_stride + column
    tl.store(out + place, value, mask=inside)


def mixing_weights(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """A 3 x 3 kernel `(O, I, 3, 3)` as `(9 I, O)`, split into two of half precision."""
    weights = kernel.permute(2, 3, 1, 0).reshape(-1, len(kernel))
    high = weights.half()
    return high, ((weights - high) * LOW).half()


def mixing(
    responses: Tensor, alpha: Tensor, mix: list[tuple[Tensor, Tensor]], phi: tuple[Tensor, ...], out: Tensor
) -> None:
    batch, features, height, width = out.shape
    high, low = _halves(batch, height + 4, width + 4, features, like=out)
    layout = {"FEATURES": features, "WIDE": triton.next_power_of_2(features), "PIXELS": ROW}
    _split_responses[(triton.cdiv(width + 4, ROW), height + 4, batch)](
        responses, phi[0], high, low, height + 4, width + 4, *responses.stride()[:3],
        **layout, **knots(phi[0]), LOW=LOW,
    )  # fmt: skip
    mixed = split_convolution(high, low, *mix[0])
    high, low = _halves(*mixed.shape, like=out)
    _split_spline[blocks(mixed.numel())](mixed, phi[1], high, low, mixed.numel(), **knots(phi[1]), LOW=LOW, BLOCK=BLOCK)
    mixed = split_convolution(high, low, *mix[1])
    _squared_mask_planes[(triton.cdiv(width, ROW), height, batch)](
        mixed, alpha, phi[2], out, height, width, *out.stride()[:3], **layout, **knots(phi[2]), FLOOR=MASK_FLOOR
    )


def split_convolution(high: Tensor, low: Tensor, weight_high: Tensor, weight_low: Tensor) -> Tensor:
    """A 3 x 3 convolution without padding of `high + low / 2048`, `(B, H, W, N)`, in float32."""
    batch, height, width, features = high.shape
    height, width = height - 2, width - 2
    out = torch.empty(batch, height, width, features, device=high.device)
    pixels = batch * height * width
    _split_convolution[(triton.cdiv(pixels, MIX_PIXELS), triton.cdiv(features, MIX_FEATURES))](
        high, low, weight_high, weight_low, out, pixels, height, width, FEATURES=features, LOW=LOW,
        PIXELS=MIX_PIXELS, WIDE=min(triton.next_power_of_2(features), MIX_FEATURES), **_pipeline(high, features),
    )  # fmt: skip
    return out


def _pipeline(like: Tensor, features: int) -> dict[str, int]:
    """How many channels `_split_convolution` adds at a time, and how many such steps it loads ahead.

    A channel takes 1 KiB of the shared memory: two numbers of two bytes for each of 128 pixels and 128 features.
    """
    properties = torch.cuda.get_device_properties(like.device) if like.is_cuda else None
    room = getattr(properties, "shared_memory_per_block_optin", 64 * 1024) // 1024
    depth = math.gcd(64 if room >= 128 else 32, features)
    return {"DEPTH": depth, "num_warps": 8, "num_stages": min(3, room // depth)}


def _halves(*shape: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the two numbers of half precision."""
    high, low = (torch.empty(shape, dtype=torch.float16, device=like.device) for _ in range(2))
    return high, low


@kernel
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


def weigh(responses: Tensor, mask: Tensor) -> None:
    rows, columns = responses.shape[-2:]
    features, height, width = mask.shape[1:]
    _weigh[(len(mask) * features, triton.cdiv(rows * columns, BLOCK))](
        responses, mask, rows, columns, features, height, width, *mask.stride()[:3], BLOCK=BLOCK
    )


@triton.jit
def _load_complex(pointer, index, mask):
    """Real and imaginary parts, read together."""
    place = pointer + 2 * tl.expand_dims(index, -1) + tl.arange(0, 2)
    return tl.split(tl.load(place, mask=tl.expand_dims(mask, -1), other=0.0))


@triton.jit
def _store_complex(pointer, index, real, imaginary, mask):
    place = pointer + 2 * tl.expand_dims(index, -1) + tl.arange(0, 2)
    tl.store(place, tl.join(real, imaginary), mask=tl.expand_dims(mask, -1))


@kernel
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


def expand(image: Tensor, filters: Tensor) -> Tensor:
    batch, channels, rows, columns = image.shape
    out = image.new_empty(batch, len(filters), rows, columns)
    _expand[(triton.cdiv(rows * columns, 512), len(filters), batch)](
        torch.view_as_real(image), torch.view_as_real(filters), torch.view_as_real(out), rows * columns, len(filters),
        CHANNELS=channels, BLOCK=512,
    )  # fmt: skip
    return out


@kernel
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


def contract(spectra: Tensor, filters: Tensor) -> Tensor:
    batch, features, rows, columns = spectra.shape
    channels = filters.shape[1]
    out = spectra.new_empty(batch, channels, rows, columns)
    _contract[(triton.cdiv(rows * columns, FREQUENCIES), channels, batch)](
        torch.view_as_real(spectra), torch.view_as_real(filters), torch.view_as_real(out), rows * columns,
        FEATURES=features, CHANNELS=channels, FILTERS=FILTERS, BLOCK=FREQUENCIES,
    )  # fmt: skip
    return out
