"""3 x 3 convolutions with a quarter of the multiplications: Winograd's F(4 x 4, 3 x 3), on the CPU.

Each 4 x 4 tile of the result comes from 6 x 6 pixels: they are transformed by B, multiplied with the transformed
kernels, which is one matrix product over the channels for each of the 36 positions, and transformed back by A.

So that nothing has to be gathered pixel by pixel, an image is kept as its 16 phases: pixel `(4 r + i, 4 c + j)` is
`phases[i, j, channel, r * columns + c]`. A pixel of the tile to the right is then one place further in memory, one of
the tile below is `columns` places further, and several rows of tiles are one run of memory. The price is that the last
column of tiles of a result is meaningless.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEP = 4  # pixels per side of a tile of the result
SIDE = 6  # and of the patch that it comes from
PATCH = SIDE * SIDE

# The polynomials are evaluated at 0, 1, -1, 2, -2 and infinity (Lavin and Gray 2016).
_INPUT = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
_KERNEL = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]  # in units of 1/24
_OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def transformed_kernels(kernel: Tensor) -> Tensor:
    """Kernels `(N, C, 3, 3)` as one matrix for each position of a patch, `(36, N, C)`."""
    transform = torch.tensor(_KERNEL, dtype=torch.float64, device=kernel.device) / 24
    positions = torch.einsum("ik,jl,nckl->ijnc", transform, transform, kernel.double())
    return positions.flatten(0, 1).to(kernel.dtype).contiguous()


def as_phases(image: Tensor) -> Tensor:
    """A view `(4, 4, ..., rows, columns)` of an image `(..., 4 rows, 4 columns)`."""
    tiles = image.unflatten(-1, (-1, STEP)).unflatten(-3, (-1, STEP))
    return tiles.movedim((-3, -1), (0, 1))


class TileConvolution:
    """Valid 3 x 3 convolutions of phases, a few rows of tiles at a time. Holds the memory they work in."""

    def __init__(self, like: Tensor, channels: int, most_tiles: int):
        self.channels, self.most_tiles = channels, most_tiles
        self.vertical, output = like.new_tensor(_INPUT), like.new_tensor(_OUTPUT)
        self.horizontal = self.vertical.expand(SIDE, SIDE, SIDE)  # the same for each row of a patch
        self.output = torch.kron(output, output)
        self.buffers = [like.new_empty(PATCH * channels * most_tiles) for _ in range(2)]

    def __call__(self, phases: Tensor, kernels: Tensor, tiles: slice, columns: int) -> Tensor:
        """These tiles of the result, `(4, 4, C, count)`. Use them before the next call, which overwrites them.

        Args:
            phases: `(4, 4, C, rows columns + 1)`; the last number of each is read, but does not matter.
            kernels: from `transformed_kernels`.
            tiles: whole rows of tiles, above the last row of the phases.
            columns: how many tiles there are in a row.
        """
        count = tiles.stop - tiles.start
        first, second = (buffer[: PATCH * self.channels * count] for buffer in self.buffers)
        _gather(phases, tiles, columns, first.view(SIDE, SIDE, self.channels, count))
        torch.mm(self.vertical, first.view(SIDE, -1), out=second.view(SIDE, -1))
        torch.bmm(self.horizontal, second.view(SIDE, SIDE, -1), out=first.view(SIDE, SIDE, -1))
        torch.bmm(kernels, first.view(PATCH, self.channels, -1), out=second.view(PATCH, self.channels, -1))
        result = first[: STEP * STEP * self.channels * count]
        torch.mm(self.output, second.view(PATCH, -1), out=result.view(STEP * STEP, -1))
        return result.view(STEP, STEP, self.channels, count)


def _gather(phases: Tensor, tiles: slice, columns: int, patches: Tensor) -> None:
    """The 6 x 6 pixels of each tile: its own 4 x 4, two more from the tile below, to the right, or both."""
    for rows, below in ((slice(0, STEP), 0), (slice(STEP, SIDE), columns)):
        for across, right in ((slice(0, STEP), 0), (slice(STEP, SIDE), 1)):
            part, shift = patches[rows, across], below + right
            part.copy_(phases[: part.shape[0], : part.shape[1], :, tiles.start + shift : tiles.stop + shift])
