"""The masks of a tile on the CPU: `M^2`, from features that are kept as phases (see `winograd`).

Three passes, in each of which workers share the tile: the filters, a few at a time, by FFT; then the two mixings, a
band of rows at a time. Features are in units of the spacing of the knots, so that their whole part is their piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends.cpu.spectra import filtered, paired_spectra
from torchdeal.backends.cpu.winograd import STEP, TileConvolution, as_phases, transformed_kernels
from torchdeal.backends.cpu.workers import share
from torchdeal.backends.tiles import grouped, parts, shares
from torchdeal.model import Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.filters import REACH
from torchdeal.model.spline import PHI_END

# 4 x 4 tiles of all channels that are mixed at a time: fewer are slower, each; more do not fit into the cache
LEAST_TILES, MOST_TILES = 128, 320
BLOCKS = 8  # groups of filters whose masks are one block of memory, small enough to be used again (32 MB in glibc)

MIXING_REACH = MASK_REACH - REACH

Shape = tuple[int, int]
Blank = Callable[[Tensor, int], None]


class TileMasks:
    """The attention of tiles of at most `largest` pixels.

    Args:
        weights: of the model.
        filters: what is done by FFT, `(N, C', k, k)`.
        size: of the transforms.
        largest: height and width of a tile.
        group: pairs of filters that are worked on at a time.
    """

    def __init__(self, weights: Weights, filters: Tensor, size: list[int], largest: Shape, group: int):
        per_unit = (weights.phi[0].numel() - 1) / PHI_END
        self.size, self.group = size, group
        self.correlate = paired_spectra(filters, size).mul_(per_unit / math.prod(size))
        odd = len(filters) % 2
        kernels = [F.pad(kernel * per_unit, (0, 0, 0, 0, 0, odd, 0, odd)) for kernel in weights.mix]
        self.mix = [transformed_kernels(kernel) for kernel in kernels]
        self.pieces = [linear_pieces(phi) for phi in weights.phi]
        self.channels = 2 * len(self.correlate)
        rows, columns = map(_grid, largest)
        # Kept from call to call, since new memory costs more than what is done with it.
        self._places = [filters.new_empty(STEP * STEP * self.channels * (rows * columns + 1)) for _ in range(2)]
        self._convolutions: dict[int, TileConvolution] = {}  # of each worker

    def __call__(self, patch: Tensor, tile: Shape, alpha: Tensor, blank: Blank | None = None) -> list[Tensor]:
        """`M^2` of a tile by groups of pairs of filters, `(pairs, h, w, 2)`, the second of each pair with a minus.

        Args:
            patch: the tile and what its filters see around it, `(C', h + ..., w + ...)`.
            tile: height and width.
            alpha: `(N, 1, 1)`, or `(N, h, w)`, which begins at the first pixel of the tile.
            blank: makes features zero outside the image. It is given them as `(4, 4, N, rows, columns)`, and how many
                pixels the first of them is above and to the left of the tile.
        """
        columns = _grid(tile[1])
        features = self._features(patch, tile)
        if blank:
            blank(features[..., :-1].unflatten(-1, (-1, columns)), MIXING_REACH)
        features = self._mixed(features, tile)
        if blank:
            blank(features[..., :-1].unflatten(-1, (-1, columns)), MIXING_REACH - 1)
        return self._squared(features, tile, alpha)

    def _features(self, patch: Tensor, tile: Shape) -> Tensor:
        """`phi1(W_mask x)`, `(4, 4, N, rows columns + 1)`; the last number is there to be read, but does not matter."""
        rows, columns = map(_grid, tile)
        image = torch.fft.fft2(patch, self.size)
        features = self._place(0, rows, columns)

        def respond(group: slice, _: int) -> None:
            responses = torch.fft.ifft2(filtered(image, self.correlate[group]), norm="forward")
            parts = torch.view_as_real(responses)[:, : STEP * rows, : STEP * columns].movedim(-1, 1)
            phases = as_phases(parts)
            magnitude = torch.abs(phases, out=patch.new_empty(phases.shape))
            channels = slice(2 * group.start, 2 * group.stop)
            features[:, :, channels, :-1] = spline(magnitude, self.pieces[0]).flatten(2, 3).flatten(-2)

        share(respond, grouped(len(self.correlate), self.group))
        return features

    def _mixed(self, features: Tensor, tile: Shape) -> Tensor:
        """`phi2(mix1 features)`, likewise, but for the last row of tiles."""
        rows, columns = map(_grid, tile)
        result = self._place(1, rows, columns)

        def mix(band: slice, worker: int) -> None:
            tiles = slice(band.start * columns, band.stop * columns)
            mixed = self._convolution(worker, tiles)(features, self.mix[0], tiles, columns)
            result[..., tiles] = spline(mixed.abs_(), self.pieces[1])

        share(mix, _bands(rows - 1, columns))
        return result

    def _squared(self, features: Tensor, tile: Shape, alpha: Tensor) -> list[Tensor]:
        """`M^2` from what `_mixed` returned."""
        rows, columns = map(_grid, tile)
        pairs = self.channels // 2
        shape = STEP * (rows - 2), STEP * (columns - 2), 2
        blocks = grouped(pairs, BLOCKS * self.group)
        results = [features.new_empty(block.stop - block.start, *shape) for block in blocks]
        everywhere = alpha.shape[1:] == (1, 1)
        kernels = self.mix[1] * alpha[:, 0] if everywhere else self.mix[1]

        def weigh(band: slice, worker: int) -> None:
            tiles = slice(band.start * columns, band.stop * columns)
            mixed = self._convolution(worker, tiles)(features, kernels, tiles, columns)
            if not everywhere:
                mixed *= _tile_of(alpha, band, columns)
            squared = spline(mixed.abs_(), self.pieces[2]).clamp_(MASK_FLOOR, 1).square_()
            paired = squared.unflatten(-1, (-1, columns))[..., :-2].unflatten(2, (-1, 2))
            paired[:, :, :, 1].neg_()
            for block, result in zip(blocks, results, strict=True):
                _interleave(paired[:, :, block], result[:, STEP * band.start : STEP * band.stop])

        share(weigh, _bands(rows - 2, columns))
        return [group[:, : tile[0], : tile[1]] for result in results for group in result.split(self.group)]

    def _place(self, index: int, rows: int, columns: int) -> Tensor:
        shape = STEP, STEP, self.channels, rows * columns + 1
        features = self._places[index][: math.prod(shape)].view(shape)
        features[..., -1] = 0
        return features

    def _convolution(self, worker: int, tiles: slice) -> TileConvolution:
        """With room for so many tiles. (Fewer rows may be cut into fewer bands, so that the bands are larger.)"""
        count, known = tiles.stop - tiles.start, self._convolutions.get(worker)
        if known is None or known.most_tiles < count:
            known = self._convolutions[worker] = TileConvolution(self._places[0], self.channels, count)
        return known


def linear_pieces(phi: Tensor) -> Tensor:
    """The linear pieces of a spline over the whole numbers: intercept + i slope, so that one lookup finds both."""
    slope = phi.diff()
    return torch.complex(phi[:-1] - slope * torch.arange(len(slope), dtype=phi.dtype, device=phi.device), slope)


def spline(magnitude: Tensor, pieces: Tensor) -> Tensor:
    """The spline at contiguous numbers from 0 on, in place; `even_spline` without gradient."""
    numbers = magnitude.view(-1)
    index = numbers.clamp(max=len(pieces) - 1).int().clamp_(min=0)  # NaN counts as the first piece
    found = torch.view_as_real(torch.index_select(pieces, 0, index))  # (taking would be three times slower)
    torch.addcmul(found[:, 0], found[:, 1], numbers, out=numbers)
    return magnitude


def _tile_of(alpha: Tensor, band: slice, columns: int) -> Tensor:
    """The phases `(4, 4, N, count)` of a map `(N, h, w)` in a band of tiles."""
    part = alpha[:, STEP * band.start : STEP * band.stop, : STEP * columns]
    missing = STEP * (band.stop - band.start) - part.shape[-2]
    return as_phases(F.pad(part, (0, STEP * columns - part.shape[-1], 0, missing))).flatten(-2)


def _interleave(pairs: Tensor, result: Tensor) -> None:
    """Phases `(4, 4, pairs, 2, rows, columns)` to the pixels of masks `(pairs, 4 rows, 4 columns, 2)`."""
    target = as_phases(torch.view_as_complex(result))
    for phase in range(STEP):  # a single copy would run along its shortest dimension
        torch.complex(pairs[:, phase, :, 0], pairs[:, phase, :, 1], out=target[:, phase])


def _bands(rows: int, columns: int) -> list[slice]:
    """Of rows of tiles."""
    return parts(rows, shares(rows * columns, LEAST_TILES, MOST_TILES))


def _grid(size: int) -> int:
    """How many 4 x 4 tiles features need along `size` pixels of the mask: each mixing uses up one."""
    return -(-size // STEP) + MIXING_REACH
