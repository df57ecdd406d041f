"""What a backend does: `M(x)^2`, and `W^T M^2 W` with it."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Backend(Protocol):
    """How the model is applied to images `(B, C, H, W)` of one size.

    Far from the fixed point a rough answer will do. A backend that can save time that way does so where `precise` is
    False; the others ignore it.
    """

    def squared_mask(self, x: Tensor, alpha: Tensor, *, precise: bool = True) -> Any:
        """`M(x)^2`, in whatever form `penalty` takes it; alpha is `(B, N, 1, 1)`, or `(B, N, H, W)` for noise
        that is not the same everywhere (not in the packed backend).
        """

    def penalty(self, x: Tensor, squared_mask: Any, *, precise: bool = True) -> Tensor:
        """`W^T M^2 W x`. The precise one needs a precise mask."""
        ...

    def replayable(self, batch: int) -> bool:
        """Whether a CUDA graph of `penalty` for so many images pays: all masks are then in the same place."""
        return False

    def mask_sums(self, squared_mask: Any, energy: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of `M^2` over the pixels, `(B, N)`, and its sum over the filters, each with its `energy`.

        The latter is `(N, C)`, so that the sums are images `(B, C, H, W)`.
        """
        ...
