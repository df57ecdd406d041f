"""What lies beyond the border of the image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.choice import Choice


class Boundary(Choice):
    """How the filters of the model see the world outside the image."""

    REFLECT = "reflect"  # padded once at the input, then valid convolutions: constants stay in the kernel of W
    ZERO = "zero"  # zeros around the input of every layer, as in the public code of the paper


def reflect(x: Tensor, width: int) -> Tensor:
    """`x` with a mirror image of `width` pixels on each side; the border pixel is not repeated.

    An image too small for that stands between two mirrors: it is seen again and again.
    """
    height, breadth = x.shape[-2:]
    if min(height, breadth) > width:
        return F.pad(x, (width, width, width, width), mode="reflect")
    x = _mirrors(height, width, x) @ x if height <= width else F.pad(x, (0, 0, width, width), mode="reflect")
    return x @ _mirrors(breadth, width, x).mT if breadth <= width else F.pad(x, (width, width, 0, 0), mode="reflect")


def fold(padded: Tensor, width: int) -> Tensor:
    """The adjoint of `reflect`: what lies beyond the border is added to the pixels it mirrors.

    (torch's own backward does the same, but with atomic additions on CUDA, in no fixed order.)
    """
    for dim in (-2, -1):
        size = padded.shape[dim] - 2 * width
        if size <= width:
            mirrors = _mirrors(size, width, padded)
            padded = mirrors.mT @ padded if dim == -2 else padded @ mirrors
            continue
        inside = padded.narrow(dim, width, size).clone()
        inside.narrow(dim, 1, width).add_(padded.narrow(dim, 0, width).flip(dim))
        inside.narrow(dim, size - 1 - width, width).add_(padded.narrow(dim, width + size, width).flip(dim))
        padded = inside
    return padded


def _mirrors(size: int, width: int, like: Tensor) -> Tensor:
    """The matrix, `(size + 2 width, size)`, that mirrors a row of pixels as often as it takes."""
    period = max(2 * (size - 1), 1)
    place = torch.arange(-width, size + width, device=like.device).remainder(period)
    return F.one_hot(torch.minimum(place, period - place), size).to(like.dtype)
