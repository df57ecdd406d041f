"""Operators that a user brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchdeal.operators.base import Operator, adjoint_gap

ADJOINT_TOLERANCE = 1e-3  # relative; float32 operators stay far below, wrong adjoints far above


class Adapted(Operator):
    """Two functions as an operator."""

    def __init__(self, forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], name: str):
        self.forward_function, self.adjoint_function, self.name = forward, adjoint, name

    def _forward(self, x: Tensor) -> Tensor:
        return _finite(self.forward_function(x), f"{self.name}: the forward operator")

    def _adjoint(self, y: Tensor) -> Tensor:
        return _finite(self.adjoint_function(y), f"{self.name}: the adjoint")


def as_operator(obj: Any) -> Operator:
    """`obj` as an `Operator`.

    Takes an `Operator`, an object with methods `forward` and `adjoint`, one with `A` and `A_adjoint` (DeepInverse),
    or a pair of functions `(forward, adjoint)` of torch tensors `(B, ...)`.
    """
    if isinstance(obj, Operator):
        return obj
    name = type(obj).__name__
    for forward, adjoint in (("A", "A_adjoint"), ("forward", "adjoint")):
        if callable(getattr(obj, forward, None)) and callable(getattr(obj, adjoint, None)):
            return Adapted(getattr(obj, forward), getattr(obj, adjoint), name)
    if isinstance(obj, tuple) and len(obj) == 2 and all(map(callable, obj)):
        return Adapted(obj[0], obj[1], "operator")
    raise TypeError(
        f"cannot use {name} as an operator: pass an object with forward and adjoint (or A and A_adjoint), "
        "or a pair of functions (forward, adjoint)"
    )


def check_adjoint(operator: Operator, x: Tensor) -> None:
    """Raise ValueError if the adjoint of `operator` is wrong for images like `x`."""
    gap, left, right = adjoint_gap(operator, x)
    if gap > ADJOINT_TOLERANCE:
        raise ValueError(
            f"the adjoint does not belong to the forward operator: <H u, v> = {left:.6g} but <u, H^T v> = {right:.6g} "
            f"for random u and v (relative gap {gap:.1e}). The adjoint must be the exact (conjugate) transpose."
        )


def _finite(tensor: Any, what: str) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{what} returned {type(tensor).__name__}, not a torch tensor")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{what} returned NaN or infinite values")
    return tensor
