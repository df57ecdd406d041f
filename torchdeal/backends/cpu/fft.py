"""The model on the CPU by FFT, tile by tile, a few filters at a time.

With one padding at the input (`boundary="reflect"`) the three layers of a bank are one convolution with 25 x 25
filters. With zeros around the input of each layer they are not: the first two, which are cheap, are then done directly,
and the last one, 9 x 9, by FFT.

A tile of the image is transformed once; then a few filters at a time are multiplied, transformed back, weighted by the
mask and transformed again, while they are still in the cache. Two filters share a complex transform: the response of
the first is the real part, that of the second the imaginary part. Masks are kept in that order, `(N / 2, h, w, 2)`.
Tiles bound the memory and make time linear in the pixels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends.base import Backend
from torchdeal.backends.cpu.winograd import STEP, TileConvolution, as_phases, transformed_kernels
from torchdeal.backends.tiles import cut, fast_size, longest, widened
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.filters import KERNEL_SIZE, REACH, Bank, impulse_responses
from torchdeal.model.spline import PHI_END

TILE = 264  # filter responses per side of a tile: with 12 pixels on each side 288 = 2^5 3^2, good for an FFT
ZERO_TILE = 88  # the last layer has 8 C channels and spectra for each, so tiles must be smaller: 96 with margins
BLOCK_PIXELS = 320_000  # complex pixels that are worked on at a time: they should fit into the cache
MIXED_TILES = 264  # 4 x 4 tiles of all channels that are mixed at a time, likewise

MIXING_REACH = MASK_REACH - REACH
LAST_REACH = KERNEL_SIZE // 2  # how far the last layer of a bank sees

Window = tuple[slice, slice]


class FFTBackend(Backend):
    """`M(x)^2` as a list of tiles `(N / 2, h, w, 2)` for each sample, and `W^T M^2 W`."""

    def __init__(self, weights: Weights, height: int, width: int):
        self.weights = weights
        self.shape = height, width
        self.reflecting = weights.boundary is Boundary.REFLECT
        self.reach = REACH if self.reflecting else LAST_REACH
        tile = TILE if self.reflecting else min(TILE, ZERO_TILE)
        self.rows, self.columns = cut(height, tile), cut(width, tile)
        largest = longest(self.rows), longest(self.columns)
        self.size = [fast_size(size + 2 * self.reach) for size in largest]
        self.mask_size = [fast_size(size + 2 * self.reach + 2 * MIXING_REACH) for size in largest]
        correlate = _paired_spectra(self._filters(weights.filters), self.size)
        self.convolve = correlate.conj().resolve_conj()
        self.correlate = correlate.div_(correlate[0, 0].numel())  # the inverse transforms are not normalised
        self._prepare_mask()

    def _prepare_mask(self) -> None:
        """The attention in units of the spacing of the knots, so that the whole part of a feature is its piece."""
        knots = self.weights.phi[0].numel()
        per_unit = (knots - 1) / PHI_END
        self.mask_correlate = _paired_spectra(self._filters(self.weights.mask_filters), self.mask_size)
        self.mask_correlate *= per_unit / self.mask_correlate[0, 0].numel()
        odd = len(self.weights.filters[-1]) % 2
        kernels = [F.pad(kernel * per_unit, (0, 0, 0, 0, 0, odd, 0, odd)) for kernel in self.weights.mix]
        self.mix = [transformed_kernels(kernel) for kernel in kernels]
        self.pieces = [_pieces(phi) for phi in self.weights.phi]
        rows, columns = _grid(longest(self.rows)), _grid(longest(self.columns))
        channels = 2 * len(self.mask_correlate)
        # Kept from call to call, since new memory costs more than what is done with it.
        self.features = self.mask_correlate.real.new_empty(STEP * STEP * channels * (rows * columns + 1))
        self.convolution = TileConvolution(self.features, channels, max(columns, MIXED_TILES))

    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> list[list[Tensor]]:
        padded = self._padded(x, self.weights.mask_filters, MIXING_REACH)
        alpha = F.pad(alpha, (0, 0, 0, 0, 0, alpha.shape[1] % 2))
        return [
            [self._mask_tile(image, window, scale) for window in self._windows(self.reach + MIXING_REACH)]
            for image, scale in zip(padded, alpha, strict=True)
        ]

    def penalty(self, x: Tensor, squared_mask: list[list[Tensor]], *, precise: bool = True) -> Tensor:
        padded = self._padded(x, self.weights.filters)
        out = torch.zeros_like(padded)
        for image, result, masks in zip(padded, out, squared_mask, strict=True):
            for (rows, columns), mask in zip(self._windows(self.reach), masks, strict=True):
                result[:, rows, columns] += self._penalty_tile(image[:, rows, columns], mask)
        return self._unpadded(out, self.weights.filters)

    def mask_sums(self, squared_mask: list[list[Tensor]], energy: Tensor) -> tuple[Tensor, Tensor]:
        features, channels = energy.shape
        pairs = F.pad(energy, (0, 0, 0, features % 2)).view(-1, 2, channels)
        means = energy.new_zeros(len(squared_mask), features)
        images = energy.new_empty(len(squared_mask), channels, *self.shape)
        for mean, image, masks in zip(means, images, squared_mask, strict=True):
            for (rows, columns), mask in zip(self._windows(0), masks, strict=True):
                mean += mask.sum((1, 2)).flatten()[:features] / math.prod(self.shape)
                image[:, rows, columns] = torch.einsum("phwi,pic->chw", mask, pairs)
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

    def _windows(self, reach: int) -> Iterator[Window]:
        """Where each tile, with `reach` pixels around it, lies in the image padded by as much."""
        for rows, columns in itertools.product(self.rows, self.columns):
            yield widened(rows, reach), widened(columns, reach)

    def _penalty_tile(self, patch: Tensor, mask: Tensor) -> Tensor:
        """`W^T M^2 W` of a patch `(C', h + 2 reach, w + 2 reach)`, for the responses inside it."""
        height, width = mask.shape[1:3]
        image = torch.fft.fft2(patch, self.size)
        total = torch.zeros_like(image)
        for block in _blocks(len(mask), self.size):
            responses = torch.fft.ifft2(_filtered(image, self.correlate[block]), norm="forward")
            parts = torch.view_as_real(responses)
            parts[:, :height, :width] *= mask[block]
            parts[:, height:] = 0  # what the circular convolution wrapped around
            parts[:, :height, width:] = 0
            weighted = torch.fft.fft2(responses)
            for pair, filters in zip(weighted, self.convolve[block], strict=True):
                total.addcmul_(pair, filters)
        return torch.fft.ifft2(total).real[:, : patch.shape[-2], : patch.shape[-1]]

    def _mask_tile(self, image: Tensor, window: Window, alpha: Tensor) -> Tensor:
        """`M^2` of a tile, `(N / 2, h, w, 2)`, from features as phases, see `winograd`."""
        patch = image[(slice(None), *window)]
        height, width = (size - 2 * (self.reach + MIXING_REACH) for size in patch.shape[-2:])
        rows, columns = _grid(height), _grid(width)
        top, left = (along.start - MIXING_REACH for along in window)
        features = self._responses(patch, rows, columns)
        self._blank(features, columns, top, left)
        for tiles, mixed in self._mixed(features, self.mix[0], rows - 1, columns):
            features[..., tiles] = _spline(mixed.abs_(), self.pieces[1])  # in place: tiles to come do not need these
        self._blank(features, columns, top + 1, left + 1)
        result = patch.new_empty(len(alpha) // 2, STEP * (rows - 2), STEP * (columns - 2), 2)
        everywhere = alpha.shape[1:] == (1, 1)
        kernels = self.mix[1] * alpha[:, 0] if everywhere else self.mix[1]
        for tiles, mixed in self._mixed(features, kernels, rows - 2, columns):
            if not everywhere:
                mixed *= _tile_of(alpha, top + MIXING_REACH, left + MIXING_REACH, tiles, columns)
            squared = _spline(mixed.abs_(), self.pieces[2]).clamp_(MASK_FLOOR, 1).square_()
            done = slice(STEP * tiles.start // columns, STEP * tiles.stop // columns)
            _interleave(squared.unflatten(-1, (-1, columns))[..., :-2], result[:, done])
        return result[:, :height, :width]

    def _mixed(self, features: Tensor, kernels: Tensor, rows: int, columns: int) -> Iterator[tuple[slice, Tensor]]:
        """A 3 x 3 convolution of the features, a few rows of tiles at a time, and which tiles these are."""
        step = max(1, MIXED_TILES // columns) * columns
        for tiles in _slices(rows * columns, step):
            yield tiles, self.convolution(features, kernels, tiles, columns)

    def _responses(self, patch: Tensor, rows: int, columns: int) -> Tensor:
        """`phi1(W_mask x)`, `(4, 4, N, rows columns + 1)`; the last number is there to be read, but does not matter."""
        image = torch.fft.fft2(patch, self.mask_size)
        pairs = len(self.mask_correlate)
        shape = STEP, STEP, 2 * pairs, rows * columns + 1
        features = self.features[: math.prod(shape)].view(shape)
        features[..., -1] = 0
        for block in _blocks(pairs, self.mask_size):
            responses = torch.fft.ifft2(_filtered(image, self.mask_correlate[block]), norm="forward")
            parts = torch.view_as_real(responses)[:, : STEP * rows, : STEP * columns].movedim(-1, 1)
            phases = as_phases(parts)
            magnitude = torch.abs(phases, out=patch.new_empty(phases.shape))
            channels = slice(2 * block.start, 2 * block.stop)
            features[:, :, channels, :-1] = _spline(magnitude, self.pieces[0]).flatten(2, 3).flatten(-2)
        return features

    def _blank(self, features: Tensor, columns: int, top: int, left: int) -> None:
        """Zeros outside the image, where the boundary wants them; the features begin at its pixel `(top, left)`."""
        if self.reflecting:
            return
        phases = features[..., :-1].unflatten(-1, (-1, columns))
        for row in range(STEP * phases.shape[-2]):
            if not 0 <= top + row < self.shape[0]:
                phases[row % STEP, :, :, row // STEP] = 0
        for column in range(STEP * columns):
            if not 0 <= left + column < self.shape[1]:
                phases[:, column % STEP, :, :, column // STEP] = 0


def _paired_spectra(filters: Tensor, size: list[int]) -> Tensor:
    """Transforms that correlate with two filters at once, `(N / 2, C, *size)` for `(N, C, k, k)`.

    For an odd N the last one has a filter of zeros beside it.
    """
    filters = F.pad(filters, (0, 0, 0, 0, 0, 0, 0, len(filters) % 2))
    return torch.fft.fft2(torch.complex(filters[::2], -filters[1::2]), size).conj().resolve_conj()


def _filtered(image: Tensor, filters: Tensor) -> Tensor:
    """`sum_c image_c filters_nc` in the Fourier domain: `(C, h, w)` and `(n, C, h, w)` to `(n, h, w)`."""
    total = image[0] * filters[:, 0]
    for channel, spectrum in zip(image[1:], filters.unbind(1)[1:], strict=True):
        total.addcmul_(channel, spectrum)
    return total


def _pieces(phi: Tensor) -> Tensor:
    """The linear pieces of a spline over the whole numbers: intercept + i slope, so that one lookup finds both."""
    slope = phi.diff()
    return torch.complex(phi[:-1] - slope * torch.arange(len(slope), dtype=phi.dtype, device=phi.device), slope)


def _spline(magnitude: Tensor, pieces: Tensor) -> Tensor:
    """The spline at contiguous numbers from 0 on, in place; `even_spline` without gradient."""
    numbers = magnitude.view(-1)
    index = numbers.clamp(max=len(pieces) - 1).int().clamp_(min=0)  # NaN counts as the first piece
    found = torch.view_as_real(_lookup(pieces, index))
    torch.addcmul(found[:, 0], found[:, 1], numbers, out=numbers)
    return magnitude


def _lookup(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]`. Selecting is three times faster than taking, but it uses one thread only."""
    if torch.get_num_threads() <= 2:
        return torch.index_select(table, 0, index)
    return torch.take(table, index.long())


def _tile_of(alpha: Tensor, top: int, left: int, tiles: slice, columns: int) -> Tensor:
    """The phases `(4, 4, N, count)` of a map `(N, H, W)` in these tiles, of which the first is at `(top, left)`."""
    top, bottom = (top + STEP * tile // columns for tile in (tiles.start, tiles.stop))
    part = alpha[:, top:bottom, left : left + STEP * columns]
    return as_phases(F.pad(part, (0, STEP * columns - part.shape[-1], 0, bottom - top - part.shape[-2]))).flatten(-2)


def _interleave(squared: Tensor, result: Tensor) -> None:
    """Phases `(4, 4, N, rows, columns)` to the pixels of masks `(N / 2, 4 rows, 4 columns, 2)`."""
    source = squared.unflatten(2, (-1, 2))
    target = as_phases(torch.view_as_complex(result))
    for phase in range(STEP):  # a single copy would run along its shortest dimension
        torch.complex(source[:, phase, :, 0], source[:, phase, :, 1], out=target[:, phase])


def _blocks(count: int, size: list[int]) -> Iterator[slice]:
    return _slices(count, max(1, BLOCK_PIXELS // (size[0] * size[1])))


def _slices(count: int, step: int) -> Iterator[slice]:
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def _grid(size: int) -> int:
    """How many 4 x 4 tiles features need along `size` pixels of the mask: each mixing uses up one."""
    return -(-size // STEP) + MIXING_REACH
