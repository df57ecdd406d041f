"""The model as it is written: convolutions of the image, layer by layer. Works everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.backends.base import Backend
from torchdeal.model import Weights


@dataclass(frozen=True)
class DirectBackend(Backend):
    """Direct convolutions, for any device, dtype and boundary."""

    weights: Weights

    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> Tensor:
        """`M(x)^2`, `(B, N, H, W)`."""
        return self.weights.mask(x, alpha).square_()

    def penalty(self, x: Tensor, squared_mask: Tensor, *, precise: bool = True) -> Tensor:
        return self.weights.penalty(x, squared_mask)

    def mask_sums(self, squared_mask: Tensor, energy: Tensor) -> tuple[Tensor, Tensor]:
        return squared_mask.mean((2, 3)), torch.einsum("bnhw,nc->bchw", squared_mask, energy)
