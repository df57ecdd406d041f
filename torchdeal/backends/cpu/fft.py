"""The model on the CPU by FFT, tile by tile, a few filters at a time.

With one padding at the input (`boundary="reflect"`) the three layers of a bank are one convolution with 25 x 25
filters. With zeros around the input of each layer they are not: the first two, which are cheap, are then done directly,
and the last one, 9 x 9, by FFT.

A tile of the image is transformed once; then a few filters at a time are multiplied, transformed back, weighted by the
mask and transformed again, while they are still in the cache. Two filters share a complex transform: the response of
the first is the real part, that of the second the imaginary part. Masks are kept in that order, `(pairs, h, w, 2)`, the
second with a minus: what they weigh is then conjugated, and the adjoint of the filters takes the spectra of the filters
themselves. Tiles bound the memory and make time linear in the pixels. Groups of filters are pieces that workers share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends.base import Backend
from torchdeal.backends.cpu.mask import MIXING_REACH, TileMasks
from torchdeal.backends.cpu.spectra import filtered, paired_spectra
from torchdeal.backends.cpu.winograd import STEP
from torchdeal.backends.cpu.workers import alone, share
from torchdeal.backends.tiles import cut, fast_size, grouped, longest, shares, widened
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.filters import KERNEL_SIZE, REACH, Bank, impulse_responses
from torchdeal.model.spline import even_values

TILE = 264  # filter responses per side of a tile: with 12 pixels on each side 288 = 2^5 3^2, good for an FFT
ZERO_TILE = 88  # the last layer has 8 C channels and spectra for each, so tiles must be smaller: 96 with margins
# Complex pixels of filters that are worked on at a time: half a millisecond at least, and what fits into the cache
LEAST_PIXELS, MOST_PIXELS = 60_000, 350_000
AT_ONCE = 4  # tiles that workers share, so that they meet less often; more would need more memory

LAST_REACH = KERNEL_SIZE // 2  # how far the last layer of a bank sees

Window = tuple[slice, slice]
Masks = list[list[list[Tensor]]]  # of each sample, tile and group of filters


class FFTBackend(Backend):
    """`M(x)^2` as groups of masks `(pairs, h, w, 2)` for each tile of each sample, and `W^T M^2 W`."""

    def __init__(self, weights: Weights, height: int, width: int):
        self.weights = weights
        self.shape = height, width
        self.reflecting = weights.boundary is Boundary.REFLECT
        self.reach = REACH if self.reflecting else LAST_REACH
        tile = TILE if self.reflecting else min(TILE, ZERO_TILE)
        self.rows, self.columns = cut(height, tile), cut(width, tile)
        largest = longest(self.rows), longest(self.columns)
        self.size = [fast_size(size + 2 * self.reach) for size in largest]
        mask_size = [fast_size(size + 2 * self.reach + 2 * MIXING_REACH) for size in largest]
        _keep_freed_memory()
        with alone():
            self.correlate = paired_spectra(self._filters(weights.filters), self.size)
            self.correlate /= math.prod(self.size)  # no transform is normalised
            pairs = len(self.correlate)
            group = -(-pairs // shares(pairs * math.prod(self.size), LEAST_PIXELS, MOST_PIXELS))
            self.groups = grouped(pairs, group)
            self.tile_masks = TileMasks(weights, self._filters(weights.mask_filters), mask_size, largest, group)

    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> Masks:
        with alone():
            if self.reflecting and alpha.shape[2:] == (1, 1) and not x.any():
                return self._masks_of_nothing(alpha)
            padded = self._padded(x, self.weights.mask_filters, MIXING_REACH)
            alpha = F.pad(alpha, (0, 0, 0, 0, 0, alpha.shape[1] % 2))
            return [
                [self._mask(image, window, scale) for window in self._windows()]
                for image, scale in zip(padded, alpha, strict=True)
            ]

    def _masks_of_nothing(self, alpha: Tensor) -> Masks:
        """Those of images of zeros, with which most runs begin. They are the same in each pixel."""
        phi1, phi2, phi3 = self.weights.phi
        first, second = (kernel.sum((2, 3)) for kernel in self.weights.mix)  # what mixing does to equal pixels
        features = second @ even_values(first.sum(1) * phi1[0], phi2)
        masks = even_values(features * alpha.flatten(1), phi3).clamp(MASK_FLOOR, 1).square()
        pairs = F.pad(masks, (0, masks.shape[1] % 2)).unflatten(1, (-1, 1, 1, 2)) * masks.new_tensor([1, -1])
        # Rows that are written out: numbers that go with each other are multiplied several at a time.
        rows = pairs.repeat(1, 1, 1, longest(self.columns), 1).expand(-1, -1, longest(self.rows), -1, -1)
        return [
            [
                [sample[group, : longest([down]), : longest([across])] for group in self.groups]
                for down, across in self._windows()
            ]
            for sample in rows
        ]

    def penalty(self, x: Tensor, squared_mask: Masks, *, precise: bool = True) -> Tensor:
        with alone():
            padded = self._padded(x, self.weights.filters)
            out = torch.zeros_like(padded)
            tiles = [
                (image[place], result[place], masks)
                for image, result, tiles in zip(padded, out, squared_mask, strict=True)
                for place, masks in zip(self._places(self.reach), tiles, strict=True)
            ]
            for some in grouped(len(tiles), AT_ONCE):
                patches, results, masks = zip(*tiles[some], strict=True)
                # In order, since tiles overlap.
                for result, found in zip(results, self._penalties(patches, masks), strict=True):
                    result += found
            return self._unpadded(out, self.weights.filters)

    def mask_sums(self, squared_mask: Masks, energy: Tensor) -> tuple[Tensor, Tensor]:
        features, channels = energy.shape
        signs = energy.new_tensor([1, -1])
        pairs = F.pad(energy, (0, 0, 0, features % 2)).view(-1, 2, channels) * signs[:, None]
        means = energy.new_zeros(len(squared_mask), features)
        images = energy.new_empty(len(squared_mask), channels, *self.shape)
        for mean, image, tiles in zip(means, images, squared_mask, strict=True):
            for (rows, columns), masks in zip(self._windows(), tiles, strict=True):
                sums = torch.cat([mask.sum((1, 2)) for mask in masks]) * signs
                mean += sums.flatten()[:features] / math.prod(self.shape)
                weighed = (
                    torch.einsum("phwi,pic->chw", mask, pairs[group])
                    for mask, group in zip(masks, self.groups, strict=True)
                )
                image[:, rows, columns] = sum(weighed)
        return means, images

    def _filters(self, bank: Bank) -> Tensor:
        """What is done by FFT, `(N, C', k, k)`: the whole bank, or its last layer."""
        return impulse_responses(bank) if self.reflecting else bank[-1]

    def _padded(self, x: Tensor, bank: Bank, margin: int = 0) -> Tensor:
        """What the filters are correlated with, with as much around it as they see, and `margin` pixels more."""
        if self.reflecting:
            return reflect(x, self.reach + margin)
        for kernel in bank[:-1]:
            x = F.conv2d(x, kernel, padding=LAST_REACH)
        return F.pad(x, 4 * [self.reach + margin])

    def _unpadded(self, z: Tensor, bank: Bank) -> Tensor:
        """The adjoint of `_padded`."""
        if self.reflecting:
            return fold(z, self.reach)
        z = F.pad(z, 4 * [-self.reach])
        for kernel in reversed(bank[:-1]):
            # conv_transpose2d is the same, several times slower
            z = F.conv2d(z, kernel.flip(-2, -1).transpose(0, 1), padding=LAST_REACH)
        return z

    def _windows(self) -> Iterator[Window]:
        """Where each tile lies in the image."""
        return itertools.product(self.rows, self.columns)

    def _places(self, reach: int) -> Iterator[tuple[slice, slice, slice]]:
        """Where each tile, with `reach` pixels around it, lies in the image padded by as much."""
        for rows, columns in self._windows():
            yield slice(None), widened(rows, reach), widened(columns, reach)

    def _penalties(self, patches: tuple[Tensor, ...], masks: tuple[list[Tensor], ...]) -> list[Tensor]:
        """`W^T M^2 W` of patches `(C', h + 2 reach, w + 2 reach)`, for the responses inside them."""
        spectra = share(lambda patch, _: torch.fft.fft2(patch, self.size), patches)
        pieces = [
            (spectrum, self.correlate[group], mask)
            for spectrum, tile in zip(spectra, masks, strict=True)
            for group, mask in zip(self.groups, tile, strict=True)
        ]
        totals = share(lambda piece, _: _weighed(*piece), pieces)
        by_tile = [totals[some] for some in grouped(len(totals), len(self.groups))]

        def finish(piece: tuple[Tensor, list[Tensor]], _: int) -> Tensor:
            patch, (total, *others) = piece
            for other in others:
                total += other
            return torch.fft.fft2(total).real[:, : patch.shape[-2], : patch.shape[-1]]

        return share(finish, list(zip(patches, by_tile, strict=True)))

    def _mask(self, image: Tensor, window: Window, alpha: Tensor) -> list[Tensor]:
        """`M^2` of a tile."""
        top, left = (along.start for along in window)
        patch = image[(slice(None), *(widened(along, self.reach + MIXING_REACH) for along in window))]
        if alpha.shape[1:] != (1, 1):
            alpha = alpha[:, top:, left:]

        def blank(features: Tensor, margin: int) -> None:
            """With zeros outside the image, as this boundary wants it."""
            rows, columns = features.shape[-2:]
            for row in range(STEP * rows):
                if not 0 <= top - margin + row < self.shape[0]:
                    features[row % STEP, :, :, row // STEP] = 0
            for column in range(STEP * columns):
                if not 0 <= left - margin + column < self.shape[1]:
                    features[:, column % STEP, :, :, column // STEP] = 0

        tile = longest([window[0]]), longest([window[1]])
        return self.tile_masks(patch, tile, alpha, None if self.reflecting else blank)


def _keep_freed_memory() -> None:
    """Some 60 MB of it stay with the process, to be used again: new pages cost more than what is done with them.

    This is a rule of glibc: after a block of at most 32 MB was returned to the system, such blocks are taken from the
    heap, and of its end twice as much is kept. The block itself is never touched. Elsewhere nothing happens.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _weighed(image: Tensor, filters: Tensor, mask: Tensor) -> Tensor:
    """`W^T M^2 W` for some of the filters, in the Fourier domain, conjugated: `(C', h, w)`, as the image is."""
    height, width = mask.shape[1:3]
    responses = torch.fft.ifft2(filtered(image, filters), norm="forward")
    parts = torch.view_as_real(responses)
    parts[:, :height, :width] *= mask
    parts[:, height:] = 0  # what the circular convolution wrapped around
    parts[:, :height, width:] = 0
    first, *others = torch.fft.ifft2(responses, norm="forward")
    total = first * filters[0]
    for weighted, spectra in zip(others, filters[1:], strict=True):
        total.addcmul_(weighted, spectra)
    return total
