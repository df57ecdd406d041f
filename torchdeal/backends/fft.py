"""The model on the CPU by FFT: the bank as one layer of 25 x 25 filters, tile by tile, a few filters at a time.

With one padding at the input (`boundary="reflect"`) the three layers of a bank are one convolution. A tile of the
image is transformed once; then a few filters at a time are multiplied, transformed back, weighted by the mask and
transformed again, while they are still in the cache. Tiles bound the memory and make time linear in the pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.filters import REACH, Bank, impulse_responses
from torchdeal.model.spline import even_spline

TILE = 264  # filter responses per side of a tile: with 12 pixels on each side 288 = 2^5 3^2, good for an FFT
BLOCK_PIXELS = 640_000  # pixels of all filters that are worked on at a time: they should fit into the cache

Window = tuple[slice, slice]


class FFTBackend:
    """`M(x)^2` as a list of tiles `(N, h, w)` for each sample, and `W^T M^2 W`."""

    def __init__(self, weights: Weights, height: int, width: int):
        if weights.boundary is not Boundary.REFLECT:
            raise ValueError("the FFT backend is for boundary='reflect'; use the direct backend")
        self.weights = weights
        self.rows, self.columns = _tiles(height), _tiles(width)
        tallest, widest = (max(size for _, size in tiles) for tiles in (self.rows, self.columns))
        self.size = fast_size(tallest + 2 * REACH), fast_size(widest + 2 * REACH)
        self.mask_size = fast_size(tallest + 2 * MASK_REACH), fast_size(widest + 2 * MASK_REACH)
        self.convolve = _spectra(weights.filters, self.size)
        self.correlate = self.convolve.conj().resolve_conj()
        self.mask_correlate = _spectra(weights.mask_filters, self.mask_size).conj().resolve_conj()

    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> list[list[Tensor]]:
        """`M(x)^2`."""
        padded = reflect(x, MASK_REACH)
        return [
            [self._mask_tile(image[:, rows, columns], scale) for rows, columns in self._windows(MASK_REACH)]
            for image, scale in zip(padded, alpha, strict=True)
        ]

    def penalty(self, x: Tensor, squared_mask: list[list[Tensor]], *, precise: bool = True) -> Tensor:
        """`W^T M^2 W x`."""
        padded = reflect(x, REACH)
        out = torch.zeros_like(padded)
        for image, result, tiles in zip(padded, out, squared_mask, strict=True):
            for (rows, columns), mask in zip(self._windows(REACH), tiles, strict=True):
                result[:, rows, columns] += self._penalty_tile(image[:, rows, columns], mask)
        return fold(out, REACH)

    def _windows(self, reach: int) -> Iterator[Window]:
        """Where each tile, with `reach` pixels around it, lies in the image padded by as much."""
        for (top, height), (left, width) in itertools.product(self.rows, self.columns):
            yield slice(top, top + height + 2 * reach), slice(left, left + width + 2 * reach)

    def _penalty_tile(self, patch: Tensor, mask: Tensor) -> Tensor:
        """`W^T M^2 W` of a patch `(C, h + 24, w + 24)`, for the responses inside it."""
        height, width = mask.shape[-2:]
        image = torch.fft.rfft2(patch, self.size)
        total = torch.zeros_like(image)
        for block in _blocks(len(mask), self.size):
            responses = torch.fft.irfft2(_filtered(image, self.correlate[block]), self.size)
            responses[:, :height, :width] *= mask[block]
            responses[:, height:] = 0  # what the circular convolution wrapped around
            responses[:, :height, width:] = 0
            weighted = torch.fft.rfft2(responses)
            for channel, filters in zip(total, self.convolve[block].unbind(1), strict=True):
                channel += (weighted * filters).sum(0)
        return torch.fft.irfft2(total, self.size)[:, : patch.shape[-2], : patch.shape[-1]]

    def _mask_tile(self, patch: Tensor, alpha: Tensor) -> Tensor:
        """`M^2` of a patch `(C, h + 28, w + 28)`, `(N, h, w)`. Splines work in place, block by block."""
        height, width = (size - 2 * REACH for size in patch.shape[-2:])
        phi1, phi2, phi3 = self.weights.phi
        image = torch.fft.rfft2(patch, self.mask_size)
        features = patch.new_empty(len(alpha), height, width)
        for block in _blocks(len(features), self.mask_size):
            responses = torch.fft.irfft2(_filtered(image, self.mask_correlate[block]), self.mask_size)
            features[block] = even_spline(responses[:, :height, :width], phi1)
        features = F.conv2d(features[None], self.weights.mix[0])[0]
        for block in _blocks(len(features), self.mask_size):
            features[block] = even_spline(features[block], phi2)
        features = F.conv2d(features[None], self.weights.mix[1])[0]
        for block in _blocks(len(features), self.mask_size):
            masks = even_spline(features[block] * alpha[block], phi3)
            features[block] = masks.clamp_(MASK_FLOOR, 1).square_()
        return features


def fast_size(size: int) -> int:
    """The next even size with no prime factor above 5."""
    while size % 2 or _without(size, (2, 3, 5)) != 1:
        size += 1
    return size


def _without(number: int, primes: tuple[int, ...]) -> int:
    for prime in primes:
        while number % prime == 0:
            number //= prime
    return number


def _spectra(bank: Bank, size: tuple[int, int]) -> Tensor:
    """The transforms of the 25 x 25 filters of a bank, `(N, C, h, w // 2 + 1)`."""
    return torch.fft.rfft2(impulse_responses(bank), size)


def _filtered(image: Tensor, filters: Tensor) -> Tensor:
    """`sum_c image_c filters_nc` in the Fourier domain: `(C, h, w)` and `(n, C, h, w)` to `(n, h, w)`."""
    total = image[0] * filters[:, 0]
    for channel, spectrum in zip(image[1:], filters.unbind(1)[1:], strict=True):
        total += channel * spectrum
    return total


def _blocks(count: int, size: tuple[int, int]) -> Iterator[slice]:
    step = max(2, BLOCK_PIXELS // (size[0] * size[1]))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def _tiles(size: int) -> list[tuple[int, int]]:
    """First pixel and length of nearly equal parts of at most TILE pixels."""
    count = -(-size // TILE)
    edges = [index * size // count for index in range(count + 1)]
    return [(start, end - start) for start, end in itertools.pairwise(edges)]
