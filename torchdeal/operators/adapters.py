"""Operators that a user brings."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.base import Operator
from torchdeal.operators.checked import checked, refuse_nonfinite
from torchdeal.operators.matrix import Matrix, is_matrix

ADJOINT_TOLERANCE = 1e-3  # relative; float32 operators stay far below, wrong adjoints far above

Shape = tuple[int, ...]
ArrayMap = Callable[[np.ndarray], np.ndarray]


class Adapted(Operator):
    """Two functions as an operator."""

    one_by_one = False  # whether they take the samples of a batch one after the other, and so all alike

    def __init__(self, forward: Callable[[Tensor], Tensor], adjoint: Callable[[Tensor], Tensor], name: str):
        self.forward_function, self.adjoint_function, self.name = forward, adjoint, name

    def known_as(self) -> str:
        return self.name

    def _forward(self, x: Tensor) -> Tensor:
        return self.forward_function(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.adjoint_function(y)

    def of_samples(self, samples: Tensor) -> Operator | None:
        return self if self.one_by_one else None


def as_operator(obj: Any, *, image_shape: tuple[int, ...] | None = None) -> Operator:
    """`obj` as an `Operator`.

    Takes an `Operator`; a DeepInverse `LinearPhysics`; an object with methods `A` and `A_adjoint`, or `forward` and
    `adjoint`; a pair of functions or modules `(forward, adjoint)` of torch tensors `(B, ...)`; a SigPy `Linop`; a
    PyLops or SciPy `LinearOperator`; a matrix, dense or sparse, of numpy, torch or SciPy.

    Args:
        obj: the operator.
        image_shape: `(C, H, W)`, for matrices and operators of numpy arrays, which do not say it. By default a gray
            image.
    """
    if isinstance(obj, Operator):
        return obj
    if is_matrix(obj):
        if image_shape is None:
            raise ValueError(
                f"a matrix does not say the shape of its images: use td.operators.Matrix(matrix, (C, H, W)), with "
                f"C * H * W = {obj.shape[-1]}, its number of columns"
            )
        return Matrix(obj, image_shape)
    physics = sys.modules.get("deepinv.physics")  # what was not imported did not make the object
    if physics is not None and isinstance(obj, physics.Physics):
        from torchdeal.integrations.deepinv import from_physics

        return from_physics(obj)
    name = type(obj).__name__
    if all(hasattr(obj, attribute) for attribute in ("ishape", "oshape", "H")):  # SigPy
        inner, measured = tuple(obj.ishape), tuple(obj.oshape)
        shape = _image_shape(inner, image_shape, name)
        return _of_arrays(lambda x: obj(x.reshape(inner)), obj.H, shape, measured, name)
    if all(hasattr(obj, attribute) for attribute in ("matvec", "rmatvec", "shape")):  # SciPy and PyLops
        shape = _image_shape(tuple(getattr(obj, "dims", ())) or None, image_shape, name, obj.shape[1])
        measured = tuple(getattr(obj, "dimsd", ())) or (obj.shape[0],)
        return _of_arrays(lambda x: obj.matvec(x.ravel()), lambda y: obj.rmatvec(y.ravel()), shape, measured, name)
    for forward, adjoint in (("A", "A_adjoint"), ("forward", "adjoint")):
        if callable(getattr(obj, forward, None)) and callable(getattr(obj, adjoint, None)):
            return Adapted(getattr(obj, forward), getattr(obj, adjoint), name)
    if isinstance(obj, tuple) and len(obj) == 2 and all(map(callable, obj)):
        return Adapted(obj[0], obj[1], "operator")
    raise TypeError(
        f"cannot use {name} as an operator: pass an object with forward and adjoint (or A and A_adjoint), a pair of "
        "functions (forward, adjoint), an operator of SigPy, PyLops or SciPy, or td.operators.Matrix(matrix, (C, H, W))"
    )


def _of_arrays(forward: ArrayMap, adjoint: ArrayMap, image: Shape, measurement: Shape, name: str) -> Adapted:
    """The operator of a library that works on numpy arrays, one image at a time, on the CPU; shapes without batch."""

    def of_batches(function: ArrayMap, shape: Shape) -> Callable[[Tensor], Tensor]:
        def each(batch: Tensor) -> Tensor:
            results = [np.asarray(function(sample)).reshape(shape) for sample in batch.detach().cpu().numpy()]
            stacked = torch.from_numpy(np.stack(results))
            return stacked.to(batch.device, batch.dtype.to_complex() if stacked.is_complex() else batch.real.dtype)

        return each

    operator = Adapted(of_batches(forward, measurement), of_batches(adjoint, image), name)
    operator.image_shape, operator.measurement_shape = image, measurement
    operator.one_by_one = True
    return operator


def _image_shape(
    own: tuple[int, ...] | None, given: tuple[int, ...] | None, name: str, size: int | None = None
) -> tuple[int, ...]:
    """`(C, H, W)`: as given, or after the operator's own shape, `(H, W)` or `(C, H, W)`."""
    shape = given or own
    if shape is not None and len(shape) == 2:
        shape = (1, *shape)
    if shape is None or len(shape) != 3:
        raise ValueError(
            f"{name} does not say the shape of its images: use td.as_operator(operator, image_shape=(C, H, W))"
        )
    expected = size if size is not None else math.prod(own or shape)
    if math.prod(shape) != expected:
        raise ValueError(f"{name} is for images of {expected} numbers, image_shape {shape} has {math.prod(shape)}")
    return tuple(shape)


def adjoint_gap(obj: Any, x: Tensor | None = None) -> float:
    """How far the adjoint of an operator is from the one that belongs to its forward map, on random data.

    The largest `|<H u, v> - <u, H^T v>| / ||H u||` for three draws of standard normal u and v, whatever the size of
    the image: about 1 for an unrelated adjoint, rounding error for the right one.

    Args:
        obj: an operator, or anything that `as_operator` takes.
        x: an image `(B, C, H, W)` whose shape, dtype and device are used, its values are not; by default of the
            operator's own shape, 64 x 64 where it has none.
    """
    operator = as_operator(obj)
    if x is None:
        shape = operator.image_shape or (1, 64, 64)
        sizes = [default if size is None else size for size, default in zip(shape, (1, 64, 64), strict=True)]
        x = torch.zeros(operator.batch or 1, *sizes, device=operator.device)
    return _adjointness(operator, x)[0]


def check_adjoint(operator: Operator, x: Tensor) -> None:
    """Raise ValueError if `operator` is not linear, or its adjoint wrong, for images like `x`."""
    gap, left, right = _adjointness(operator, x)
    if gap > ADJOINT_TOLERANCE:  # what has an adjoint is linear, so that only now this can be the reason
        deviation = _nonlinearity(operator, x)
        if deviation > ADJOINT_TOLERANCE:
            raise ValueError(
                f"the operator is not linear: H(u + 2 v) differs from H u + 2 H v by {deviation:.1e} of its size for "
                "random u and v. Take its constant part out of the operator and the measurements, or linearise it."
            )
        raise ValueError(
            f"the adjoint does not belong to the forward operator: <H u, v> = {left:.6g} but <u, H^T v> = {right:.6g} "
            f"for random u and v (relative gap {gap:.1e}). The adjoint must be the exact (conjugate) transpose."
        )


def _adjointness(operator: Operator, x: Tensor) -> tuple[float, complex, complex]:
    """The largest gap, with its `<H u, v>` and `<u, H^T v>`."""
    generator = torch.Generator().manual_seed(0)
    operator = checked(operator, x)
    found = [_one_gap(operator, x, generator) for _ in range(3)]
    refuse_nonfinite(operator)
    return max(found, key=lambda one: one[0])


def _one_gap(operator: Operator, x: Tensor, generator: torch.Generator) -> tuple[float, complex, complex]:
    u = _random_like(x, generator)
    Hu = operator.forward(u)
    v = _random_like(Hu, generator)
    Htv = operator.adjoint(v)
    if Htv.shape != u.shape:
        raise ValueError(f"the adjoint returns shape {tuple(Htv.shape)} for images of shape {tuple(u.shape)}")
    left, right = _inner(Hu, v), _inner(u, Htv)
    if not (x.is_complex() and Hu.is_complex()):  # over the reals only the real parts have to agree
        left, right = left.real, right.real
    scale = math.sqrt(_inner(Hu, Hu).real)  # that of <H u, v> for normal v
    return abs(left - right) / scale if scale else abs(right), left, right


def _nonlinearity(operator: Operator, x: Tensor) -> float:
    """`||H(u + 2 v) - H u - 2 H v||`, relative."""
    generator = torch.Generator().manual_seed(0)
    u, v = _random_like(x, generator), _random_like(x, generator)
    whole = operator.forward(u + 2 * v)
    difference = whole - operator.forward(u) - 2 * operator.forward(v)
    return math.sqrt(_inner(difference, difference).real / max(_inner(whole, whole).real, sys.float_info.min))


def _random_like(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, generator=generator).to(like.device)


def _inner(a: Tensor, b: Tensor) -> complex:
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    return complex(torch.vdot(a.flatten().to(wide), b.flatten().to(wide)))
