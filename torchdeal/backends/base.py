"""What a backend does: `M(x)^2`, and `W^T M^2 W` with it."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor


class Backend(Protocol):
    """How the model is applied to images `(B, C, H, W)` of one size."""

    def squared_mask(self, x: Tensor, alpha: Tensor) -> Any:
        """`M(x)^2`, in whatever form `penalty` takes it; alpha is `(B, N, 1, 1)`."""
        ...

    def penalty(self, x: Tensor, squared_mask: Any) -> Tensor:
        """`W^T M^2 W x`."""
        ...
