"""Triton kernels between transforms: products of spectra, and responses weighted by masks."""

# Triton is not there where there is no CUDA, and its decorator makes things that pyright does not see.
# pyright: reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchdeal.backends.cuda.triton_common import BLOCK, kernel

FREQUENCIES, FILTERS = 128, 4  # what a program of `contract` works on at a time


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
