"""What lies beyond the border of the image."""

from __future__ import annotations

from enum import Enum

import torch.nn.functional as F
from torch import Tensor


class Boundary(str, Enum):
    """How the filters of the model see the world outside the image."""

    REFLECT = "reflect"  # padded once at the input, then valid convolutions: constants stay in the kernel of W
    ZERO = "zero"  # zeros around the input of every layer, as in the public code of the paper


def reflect(x: Tensor, width: int) -> Tensor:
    """`x` with a mirror image of `width` pixels on each side; the border pixel is not repeated."""
    return F.pad(x, (width, width, width, width), mode="reflect")


def fold(padded: Tensor, width: int) -> Tensor:
    """The adjoint of `reflect`: what lies beyond the border is added to the pixels it mirrors.

    (torch's own backward does the same, but with atomic additions on CUDA, in no fixed order.)
    """
    for dim in (-2, -1):
        size = padded.shape[dim] - 2 * width
        inside = padded.narrow(dim, width, size).clone()
        inside.narrow(dim, 1, width).add_(padded.narrow(dim, 0, width).flip(dim))
        inside.narrow(dim, size - 1 - width, width).add_(padded.narrow(dim, width + size, width).flip(dim))
        padded = inside
    return padded
