"""Packed images: 4 x 4 pixels become one pixel with 16 times the channels, and kernels likewise.

Tensor cores want many channels, and the layers of `W` have 1 to 8. On a packed image a 9 x 9 convolution is exactly a
3 x 3 one with 16 times the channels on either side: most of the weights are now shifted copies, 44 % are zeros, and it
still runs many times faster.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model.filters import KERNEL_SIZE, Bank

PACK = 4  # rows and columns of the image that become one


def pack(image: Tensor) -> Tensor:
    """`(B, C, H, W) -> (B, 16 C, H / 4, W / 4)`; the channels of a pixel stay together."""
    batch, channels, height, width = image.shape
    cells = image.reshape(batch, channels, height // PACK, PACK, width // PACK, PACK)
    return cells.permute(0, 3, 5, 1, 2, 4).reshape(batch, -1, height // PACK, width // PACK)


def unpack(packed: Tensor) -> Tensor:
    """The inverse of `pack`."""
    batch, _, height, width = packed.shape
    cells = packed.reshape(batch, PACK, PACK, -1, height, width).permute(0, 3, 4, 1, 5, 2)
    return cells.reshape(batch, -1, height * PACK, width * PACK)


def packed_size(size: int) -> int:
    """How many packed pixels hold so many pixels."""
    return -(-size // PACK)


def packed_bank(bank: Bank) -> list[Tensor]:
    """The bank for packed images, in two layers: its first two have so few channels that one is as fast as either."""
    first, second, third = bank
    return [pack_kernel(kernel) for kernel in balanced([merged(first, second), third])]


def merged(first: Tensor, second: Tensor) -> Tensor:
    """Two 9 x 9 kernels in a row as one, `(M, I, 9, 9)` and `(O, M, 9, 9)` to `(O, I, 17, 17)`."""
    return F.conv2d(first.transpose(0, 1), second.flip(-2, -1), padding=KERNEL_SIZE - 1).transpose(0, 1)


def balanced(bank: Bank) -> list[Tensor]:
    """The bank with layers of nearly the same gain, by powers of 2 whose product is 1: the most room in float16."""
    gains = torch.stack([kernel.square().sum((1, 2, 3)).mean().sqrt() for kernel in bank]).log2()
    exponents = (gains.mean() - gains).nan_to_num(0, 0, 0).round()
    exponents[-1] = -exponents[:-1].sum()
    return [kernel * scale for kernel, scale in zip(bank, exponents.exp2(), strict=True)]


def pack_kernel(kernel: Tensor) -> Tensor:
    """A kernel as one for packed images: `(O, I, K, K) -> (16 O, 16 I, k, k)`, `k = ceil((K + 3) / 4)`.

    The output pixel `4 Y + i` sees the input pixels `4 Y + i + d`, `d = 0..K - 1`; with `4 (Y + k) + j` for the latter,
    `i + d = 4 k + j`: the kernel of output pixel i is the given one, moved by i.
    """
    outputs, inputs, size, _ = kernel.shape
    seen = packed_size(size + PACK - 1)
    room = seen * PACK - size
    moved = [F.pad(kernel, (j, room - j, i, room - i)) for i, j in itertools.product(range(PACK), repeat=2)]
    weights = torch.stack(moved).view(PACK * PACK, outputs, inputs, seen, PACK, seen, PACK).permute(0, 1, 4, 6, 2, 3, 5)
    return weights.reshape(PACK * PACK * outputs, PACK * PACK * inputs, seen, seen)
