"""The model in full precision by FFT, all samples at once: the precise half of the packed backend.

Without TF32 a GPU has no fast convolution of 9 x 9 filters. With one padding at the input a bank is one layer of
25 x 25 filters, and its transform costs little more than reading and writing the responses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from torchdeal.backends.cuda.passes import Passes
from torchdeal.backends.tiles import cut, fast_size, longest, widened
from torchdeal.model import Weights
from torchdeal.model.attention import MASK_REACH
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.filters import REACH, Bank

TILE = 516  # responses per side of a tile at most: with 12 pixels on each side 540 = 2^2 3^3 5
BLOCK_PIXELS = 2**26  # pixels of all filters that are worked on at a time, which bounds the memory

Tile = tuple[slice, slice]


class SpectralModel:
    """`M(x)^2` and `W^T M^2 W` for images of one size; the masks are tensors `(B, N, H, W)`.

    Args:
        weights: with `boundary="reflect"`.
        height: of the images.
        width: of the images.
        passes: what is done between the transforms.
    """

    def __init__(self, weights: Weights, height: int, width: int, passes: Passes):
        self.weights, self.passes = weights, passes
        rows, columns = cut(height, TILE), cut(width, TILE)
        self.tiles: list[Tile] = list(itertools.product(rows, columns))
        tallest, widest = longest(rows), longest(columns)
        self.size = fast_size(tallest + 2 * REACH), fast_size(widest + 2 * REACH)
        self.mask_size = fast_size(tallest + 2 * MASK_REACH), fast_size(widest + 2 * MASK_REACH)
        self.filters = _spectra(weights.filters, self.size)
        self.mask_filters = _spectra(weights.mask_filters, self.mask_size)
        self.mix = [passes.mixing_weights(kernel) for kernel in weights.mix]

    def squared_mask(self, x: Tensor, alpha: Tensor, out: Tensor) -> None:
        """`M(x)^2`, into `out`."""
        padded = reflect(_centred(x), MASK_REACH)
        for samples, (rows, columns) in self._work(len(x), self.mask_size):
            patches = padded[samples, :, widened(rows, MASK_REACH), widened(columns, MASK_REACH)]
            self._mask_tile(patches, alpha[samples], out[samples, :, rows, columns])

    def penalty(self, x: Tensor, mask: Tensor) -> Tensor:
        """`W^T M^2 W x`."""
        padded = reflect(_centred(x), REACH)
        out = torch.zeros_like(padded)
        for samples, (rows, columns) in self._work(len(x), self.size):
            seen = samples, slice(None), widened(rows, REACH), widened(columns, REACH)
            out[seen] += self._penalty_tile(padded[seen], mask[samples, :, rows, columns])
        return fold(out, REACH)

    def _work(self, batch: int, size: tuple[int, int]) -> Iterator[tuple[slice, Tile]]:
        """Tiles of a few samples at a time."""
        step = max(1, BLOCK_PIXELS // (len(self.filters) * size[0] * size[1]))
        for first, tile in itertools.product(range(0, batch, step), self.tiles):
            yield slice(first, first + step), tile

    def _penalty_tile(self, patches: Tensor, mask: Tensor) -> Tensor:
        """`W^T M^2 W` of patches `(B, C, h + 24, w + 24)`, for the responses inside them."""
        responses = self._responses(patches, self.filters, self.size)
        self.passes.weigh(responses, mask)  # and no response where the circular convolution wrapped around
        total = self.passes.contract(torch.fft.rfft2(responses), self.filters)
        return _inverse(total, self.size)[..., : patches.shape[-2], : patches.shape[-1]]

    def _mask_tile(self, patches: Tensor, alpha: Tensor, out: Tensor) -> None:
        """`M^2` of patches `(B, C, h + 28, w + 28)`, into `out`, `(B, N, h, w)`."""
        responses = self._responses(patches, self.mask_filters, self.mask_size)
        self.passes.mixing(responses, alpha.contiguous(), self.mix, self.weights.phi, out)

    def _responses(self, patches: Tensor, filters: Tensor, size: tuple[int, int]) -> Tensor:
        return _inverse(self.passes.expand(torch.fft.rfft2(patches, size), filters), size)


def _centred(x: Tensor) -> Tensor:
    """`x` without its mean, which both banks map to 0: its rounding errors would spread over all frequencies."""
    return x - x.mean((1, 2, 3), keepdim=True)


def _spectra(bank: Bank, size: tuple[int, int]) -> Tensor:
    """The transforms of the filters of a bank, divided by the pixels for `_inverse`, `(N, C, h, w // 2 + 1)`.

    They are computed in double precision: their rounding errors would be those of every response.
    """
    spectra = torch.fft.rfft2(filters_of(bank), size, norm="forward")
    return spectra.to(bank[0].dtype.to_complex())


def filters_of(bank: Bank) -> Tensor:
    """The bank as one layer of 25 x 25 filters, `(N, C, 25, 25)`, in double precision."""
    size = 2 * REACH + 1
    period = size + size % 2
    first, *others = (torch.fft.rfft2(kernel.double(), (period, period)) for kernel in bank)
    for layer in others:
        first = torch.einsum("omhw,mihw->oihw", layer, first)
    return torch.fft.irfft2(first, (period, period))[..., :size, :size]


def _inverse(spectra: Tensor, size: tuple[int, int]) -> Tensor:
    """The inverse transform without the division by the number of pixels, one pass over all responses."""
    return torch.fft.irfft2(spectra, size, norm="forward")
