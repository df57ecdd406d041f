"""What a user's operator returns, checked at every call."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.base import Operator, restricted

FORWARD, ADJOINT, NORMAL = "forward operator", "adjoint", "normal"


class Checked(Operator):
    """Another operator, whose results are checked: they must be tensors, in the precision of what it was given.

    Whether they are finite is only noted at each call, since a GPU would have to wait for the answer:
    `refuse_nonfinite` tells it.

    Args:
        operator: what is checked.
        like: an image, or measurements, on the device where it is applied.
    """

    of_some = False  # whether `of_samples` has returned it

    def __init__(self, operator: Operator, like: Tensor):
        self.operator = operator
        self.is_identity, self.replayable = operator.is_identity, operator.replayable
        self.measures_images, self.complex_channels = operator.measures_images, operator.complex_channels
        self.image_shape, self.measurement_shape = operator.image_shape, operator.measurement_shape
        self.batch, self.noise, self.data_range = operator.batch, operator.noise, operator.data_range
        self.nonfinite = {what: like.new_zeros((), dtype=torch.bool) for what in (FORWARD, ADJOINT, NORMAL)}

    def known_as(self) -> str:
        return self.operator.known_as()

    def _forward(self, x: Tensor) -> Tensor:
        return self._checked(FORWARD, self.operator.forward(x), x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._checked(ADJOINT, self.operator.adjoint(y), y)

    def normal(self, x: Tensor) -> Tensor:
        if type(self.operator).normal is Operator.normal:
            return self._adjoint(self._forward(x))
        return self._checked(NORMAL, self.operator.normal(x), x)

    def of_samples(self, samples: Tensor) -> Operator | None:
        operator = restricted(self.operator, samples)
        if operator is None:
            return None
        some = copy.copy(self)  # what was nonfinite is noted in the same place
        some.operator, some.batch, some.of_some = operator, operator.batch, True
        return some

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        symbol = self.operator.normal_symbol(like)
        if symbol is not None and not bool((torch.isfinite(symbol) & (symbol.real >= 0)).all()):
            raise ValueError(f"{self.known_as()}: normal_symbol must be finite and at least 0")
        return symbol

    def normal_diagonal(self, like: Tensor) -> Tensor:
        return self.operator.normal_diagonal(like)

    def normal_aliasing(self, like: Tensor) -> tuple[Tensor, int] | None:
        return self.operator.normal_aliasing(like)

    def _checked(self, what: str, result: Any, given: Tensor) -> Tensor:
        wrong = _what_is_wrong(result, given)
        if wrong:
            raise TypeError(f"{self.known_as()}: the {what} returned {wrong}")
        if self.of_some and len(result) != len(given):
            raise ValueError(
                f"{self.known_as()}: the {what} returned a batch of {len(result)} for one of {len(given)}: if it has "
                "tensors for each sample, of_samples must return a copy that has those of the samples alone"
            )
        self.nonfinite[what].logical_or_(~torch.isfinite(result).all() & torch.isfinite(given).all())
        return result


def is_trusted(operator: Operator) -> bool:
    """Whether the operator is one of the package's own, whose adjoints are tested, all the way down."""
    own = vars(type(operator)).get("trusted", False)  # not what is inherited: a subclass may change the adjoint
    return own and all(map(is_trusted, operator.parts()))


def checked(operator: Operator, like: Tensor) -> Operator:
    """The operator, checked at every call if it is not one of the package's own."""
    return operator if isinstance(operator, Checked) or is_trusted(operator) else Checked(operator, like)


def refuse_nonfinite(operator: Operator) -> None:
    """Raise ValueError if a call of a checked operator returned NaN or infinite values for finite ones."""
    for what, found in operator.nonfinite.items() if isinstance(operator, Checked) else ():
        if bool(found):
            raise ValueError(
                f"{operator.known_as()}: the {what} returned NaN or infinite values for finite ones: "
                "look for a division by 0 or an overflow in it"
            )


def _what_is_wrong(result: Any, given: Tensor) -> str | None:
    """And what to do about it."""
    if result is None:
        return "None: it lacks a `return`"
    if isinstance(result, np.ndarray):
        return (
            "a numpy array, not a torch tensor: use torch.from_numpy, "
            "or make it a scipy.sparse.linalg.LinearOperator, which is one of numpy arrays"
        )
    if not isinstance(result, Tensor):
        return f"{type(result).__name__}, not a torch tensor"
    if not (result.is_floating_point() or result.is_complex()) or result.dtype.to_real() != given.dtype.to_real():
        remedy = "convert its result, or its own tensors, to the dtype of what it is given"
        if result.dtype.to_real() == torch.float64:
            remedy += "; or compute in float64, by model=td.load(...).double()"
        return f"{result.dtype} for {given.dtype}: {remedy}"
    if result.device != given.device:
        return f"a tensor on {result.device} for one on {given.device}: move its own tensors there, or use device="
    return None
