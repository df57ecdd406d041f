"""Linear operators between images and measurements."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Self = TypeVar("Self", bound="Operator")


class Operator(ABC):
    """A linear map `H` from images `(B, C, H, W)` to measurements `(B, ...)`, with its exact adjoint.

    A subclass writes `_forward` and `_adjoint`. Shapes without the batch dimension, where the operator fixes
    them, go into `image_shape` and `measurement_shape`; a None in them, or in their place, means "any".

    `measures_images` says that measurements are images too, `(B, C, h, w)` in 0..1, so that numpy arrays and
    integers can be taken for them.
    """

    trusted = False  # whether tests hold its adjoint right; a subclass has to say so itself: see `is_trusted`
    measures_images = False
    is_identity = False  # denoising: the model has a learned strength for it
    replayable = False  # whether a CUDA graph can replay it: the same work on the same memory, whatever the image
    image_shape: tuple[int | None, ...] | None = None
    measurement_shape: tuple[int | None, ...] | None = None
    batch: int | None = None  # where each sample has an operator of its own
    noise: Tensor | float | None = None  # standard deviation of the noise in the measurements, where it is known
    data_range: float | None = None  # the value of white in the image, where it is known
    complex_channels = False  # whether the two channels of an image are the real and imaginary part of a complex one

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, y: Tensor) -> Tensor: ...

    def forward(self, x: Tensor) -> Tensor:
        """`H x`."""
        self._check("image", x, self.image_shape)
        return self._forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        """`H^T y` (conjugate transpose for complex data)."""
        self._check("measurement", y, self.measurement_shape)
        return self._adjoint(y)

    def normal(self, x: Tensor) -> Tensor:
        """`H^T H x`; override it where it is cheaper than the two in turn."""
        return self._adjoint(self._forward(x))

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        """The diagonal of `F H^T H F^*`, with F the Fourier transform: all of `H^T H` if it is circulant.

        Solvers are faster where this is known, even if only about: it must be real and at least 0.

        Args:
            like: an image, `(B, C, H, W)`.

        Returns:
            one number per frequency, in the order of `torch.fft.fft2`, in a shape that is broadcast to that of the
            image; None if it is not known.
        """
        return None

    def normal_diagonal(self, like: Tensor) -> Tensor:
        """The diagonal of `H^T H`, or a local mean of it, broadcast likewise. Only where there is a `normal_symbol`."""
        symbol = self.normal_symbol(like)
        assert symbol is not None
        return symbol.mean((-2, -1), keepdim=True)  # that of a circulant is constant

    def normal_aliasing(self, like: Tensor) -> tuple[Tensor, int] | None:
        """The symbol of B, and s, where `H^T H` is `B^* S B`: B a circulant, S keeps every s-th row and column.

        With this, solvers are faster yet than with the `normal_symbol`, which such an operator has too.
        """
        return None

    def weighted(self, weight: Tensor) -> Operator:
        """`weight * H x`, for a weight of the shape of the measurements, `(B or 1, ...)`."""
        return Weighted(weight, self)

    def of_samples(self, samples: Tensor) -> Operator | None:
        """The same operator for these samples of a batch alone, `(n,)`, on the CPU; None where it is not to be had.

        What an operator of a user keeps of each sample only its author knows: where nothing is said here, a batch is
        computed until all of its samples have ended. One that treats all samples alike returns itself.
        """
        return self._of_samples(samples) if vars(type(self)).get("trusted", False) else None

    def _of_samples(self, samples: Tensor) -> Operator | None:
        """Of an operator of the package, which is the same for all samples where it is not for a batch."""
        return self if self.batch is None else None

    def _with_samples_of(self: Self, names: Sequence[str], samples: Tensor) -> Self:
        """The same with these samples of the tensors of these names, where they are `(B, ., H, W)`."""
        if self.batch is None:
            return self
        some = copy.copy(self)
        some.batch = len(samples)
        for name in names:
            values = getattr(self, name)
            if values is not None and values.ndim == 4 and len(values) > 1:
                setattr(some, name, values[samples])
        return some

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def __matmul__(self, other: Operator) -> Operator:
        """`(F @ G)(x) = F(G(x))`."""
        if not isinstance(other, Operator):
            return NotImplemented
        return Compose(self, other)

    def __rmul__(self, factor: float) -> Operator:
        """`factor * H`."""
        return Scaled(factor, self)

    def to(self: Self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """A copy with its tensors on `device` and, where they are floating point or complex, in `dtype`."""
        copied = copy.copy(self)
        vars(copied).update({name: moved(value, device, dtype) for name, value in vars(self).items()})
        return copied

    def parts(self) -> Iterator[Operator]:
        """The operators that this one is made of."""
        for value in vars(self).values():
            values = value if isinstance(value, tuple) else (value,)
            yield from (part for part in values if isinstance(part, Operator))

    def norm(self, shape: tuple[int, ...], *, iterations: int = 100, complex_image: bool = False) -> float:
        """`||H||_2` by power iterations on `H^T H`, for images of `shape` `(C, H, W)`: a lower bound, soon tight."""
        dtype = torch.complex128 if complex_image else torch.float64
        operator = self.to(dtype=torch.float64)
        x = torch.randn(self.batch or 1, *shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
        x = x.to(self.device)
        value = 0.0
        for _ in range(iterations):
            size = float(torch.linalg.vector_norm(x))
            if size == 0:
                return 0.0
            x = operator.normal(x / size)
            value = float(torch.linalg.vector_norm(x))
        return value**0.5

    def known_as(self) -> str:
        """How messages call it."""
        return type(self).__name__

    @property
    def device(self) -> torch.device:
        """Where its tensors are; the CPU if it has none."""
        for value in vars(self).values():
            first = value[0] if isinstance(value, tuple) and value else value
            if isinstance(first, (Tensor, Operator)):
                return first.device
        return torch.device("cpu")

    def _check(self, what: str, tensor: Tensor, shape: tuple[int | None, ...] | None) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{self.known_as()}: the {what} must be a torch tensor, got {type(tensor).__name__}")
        name, got = self.known_as(), tuple(tensor.shape)
        if len(got) < 2:
            raise ValueError(f"{name}: the {what} needs a batch dimension, got {got}")
        if self.batch not in (None, got[0]):
            raise ValueError(f"{name} is for a batch of {self.batch}, got {got}")
        if shape is None:
            return
        if len(got) != 1 + len(shape) or any(e not in (None, g) for e, g in zip(shape, got[1:], strict=True)):
            expected = ", ".join("any" if e is None else str(e) for e in shape)
            raise ValueError(f"{name}: the {what} should have shape (batch, {expected}), got {got}")


class Combination(Operator):
    """An operator made of others: what is known about it follows from what is known about its parts.

    The image (its shape, its range, whether its two channels are a complex one) is known by the parts that see it; the
    measurements (their shape, whether they are images, their noise) by the parts that make them. It is for the batch
    that any part is for, and a CUDA graph can replay it if it can replay all parts. It is never the identity, whatever
    it does: denoising, with its learned strength, is asked for by `Identity` alone.
    """

    def _inherit(self, *, sees: Sequence[Operator], makes: Sequence[Operator]) -> None:
        self.image_shape = sees[0].image_shape
        self.complex_channels = any(part.complex_channels for part in sees)
        ranges = {part.data_range for part in sees if part.data_range is not None}
        if len(ranges) > 1:
            values = " and ".join(f"{white:g}" for white in sorted(ranges))
            raise ValueError(f"the operators are for images of different ranges (white is {values}): give all the same")
        self.data_range = next(iter(ranges), None)
        self.measurement_shape, self.measures_images = makes[0].measurement_shape, makes[0].measures_images
        noises = [None if part.noise is None else torch.as_tensor(part.noise).tolist() for part in makes]
        self.noise = makes[0].noise if all(noise == noises[0] for noise in noises) else None
        self.batch = next((part.batch for part in self.parts() if part.batch), None)
        self.replayable = all(part.replayable for part in self.parts())

    def _of_samples(self, samples: Tensor) -> Operator | None:
        """Made of the same parts for these samples."""
        found = {id(part): restricted(part, samples) for part in self.parts()}
        if None in found.values():
            return None
        some = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                setattr(some, name, tuple(found.get(id(part), part) for part in value))
            elif isinstance(value, Operator):
                setattr(some, name, found[id(value)])
        some.batch = self.batch and len(samples)
        return some


def restricted(operator: Operator, samples: Tensor) -> Operator | None:
    """`operator.of_samples(samples)`; raises ValueError where its `batch` is not that of these samples."""
    some = operator.of_samples(samples)
    if some is not None and some.batch not in (None, len(samples)):
        raise ValueError(
            f"{operator.known_as()}: of_samples, asked for {len(samples)} samples, returned an operator for a batch of "
            f"{some.batch}: set `batch` of what it returns, too"
        )
    return some


class Compose(Combination):
    """`outer(inner(x))`, written `outer @ inner`."""

    trusted = True

    def __init__(self, outer: Operator, inner: Operator):
        self.outer, self.inner = outer, inner
        self._inherit(sees=[inner], makes=[outer])

    def _forward(self, x: Tensor) -> Tensor:
        return self.outer.forward(self.inner.forward(x))

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.inner.adjoint(self.outer.adjoint(y))


class Scaled(Combination):
    """`factor * H`, for a real factor."""

    trusted = True

    def __init__(self, factor: float, operator: Operator):
        self.factor, self.operator = float(factor), operator
        if not math.isfinite(self.factor):
            raise ValueError(f"the factor of an operator must be finite, got {factor}")
        self._inherit(sees=[operator], makes=[operator])
        self.noise = None if operator.noise is None else abs(self.factor) * operator.noise

    def _forward(self, x: Tensor) -> Tensor:
        return self.factor * self.operator.forward(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.factor * self.operator.adjoint(y)

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        symbol = self.operator.normal_symbol(like)
        return None if symbol is None else self.factor**2 * symbol

    def normal_diagonal(self, like: Tensor) -> Tensor:
        return self.factor**2 * self.operator.normal_diagonal(like)

    def normal_aliasing(self, like: Tensor) -> tuple[Tensor, int] | None:
        aliasing = self.operator.normal_aliasing(like)
        return None if aliasing is None else (self.factor * aliasing[0], aliasing[1])


class Weighted(Combination):
    """`weight * H x`: whitens noise whose standard deviation is not the same everywhere, with `weight = 1 / deviation`.

    The measurements must be multiplied by the weight as well.

    Args:
        weight: real, of the shape of the measurements, with or without batch, or one that is broadcast to it.
        operator: `H`.
    """

    trusted = True

    def __init__(self, weight: Tensor, operator: Operator):
        self.weight = torch.as_tensor(weight)
        if self.weight.is_complex() or not bool((torch.isfinite(self.weight) & (self.weight >= 0)).all()):
            raise ValueError("the weight must be real, finite and at least 0")
        self.operator = operator
        self._inherit(sees=[operator], makes=[operator])
        weights, noise = self.weight.unique(), operator.noise
        # With several weights the noise differs from place to place, and is not one number any more.
        self.noise = None if noise is None or len(weights) != 1 else float(weights[0]) * noise
        dimensions = 3 if self.measurement_shape is None else len(self.measurement_shape)
        self._weighs_each = self.weight.ndim > dimensions and len(self.weight) > 1
        if self._weighs_each:
            self.batch = len(self.weight)

    def _of_samples(self, samples: Tensor) -> Operator | None:
        if self.measurement_shape is None and not self._weighs_each and len(self.weight) > 1:
            return None  # these weights may be those of the samples
        some = super()._of_samples(samples)
        if isinstance(some, Weighted) and self._weighs_each:
            some.weight = self.weight[samples]
        return some

    def _forward(self, x: Tensor) -> Tensor:
        return self.weight * self.operator.forward(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.operator.adjoint(self.weight * y)

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        """About: that of H with the mean of the squared weights; `normal_diagonal` says where there is more of it.

        Only where measurements are images: a weight of another measurement belongs to no place.
        """
        symbol = self.operator.normal_symbol(like) if self.measures_images else None
        squares = torch.atleast_2d(self.weight).square()
        return None if symbol is None else symbol * squares.mean((-2, -1), keepdim=True)

    def normal_diagonal(self, like: Tensor) -> Tensor:
        """That of H, times a mean of the squared weights of the measurements that see a pixel."""
        seen = self.operator.forward(torch.ones_like(like))
        total = self.operator.adjoint(seen).real
        shares = self.operator.adjoint(self.weight.square() * seen).real / torch.where(total > 0, total, torch.inf)
        return shares.clamp_min(0) * self.operator.normal_diagonal(like)


class Stack(Combination):
    """`x -> (H_1 x, H_2 x, ...)`: several measurements of one image, flat and one after the other.

    Args:
        operators: all for images of the same shape.
        image_shape: `(C, H, W)`.
    """

    trusted = True

    def __init__(self, operators: Sequence[Operator], image_shape: tuple[int, int, int]):
        if not operators:
            raise ValueError("Stack needs at least one operator")
        self.operators = tuple(operators)
        self._inherit(sees=self.operators, makes=self.operators)
        self.image_shape, self.measures_images = tuple(image_shape), False
        probe = torch.zeros(self.batch or 1, *image_shape, device=self.device)
        with torch.no_grad():
            measured = [operator.to(dtype=probe.dtype).forward(probe) for operator in self.operators]
        self.shapes = tuple(tuple(part.shape[1:]) for part in measured)
        self.measurement_shape = (sum(math.prod(shape) for shape in self.shapes),)

    def _forward(self, x: Tensor) -> Tensor:
        return torch.cat([operator.forward(x).flatten(1) for operator in self.operators], 1)

    def _adjoint(self, y: Tensor) -> Tensor:
        parts = y.split([math.prod(shape) for shape in self.shapes], 1)
        images = [
            operator.adjoint(part.reshape(len(y), *shape))
            for operator, part, shape in zip(self.operators, parts, self.shapes, strict=True)
        ]
        return torch.stack(images).sum(0)


class Linear(torch.autograd.Function):
    """`apply(x, False)`, or its transpose, `apply(x, True)`: the gradient of a linear map is its transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, apply: Callable[[Tensor, bool], Tensor], transposed: bool) -> Tensor:
        ctx.map = apply, transposed
        return apply(x, transposed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        apply, transposed = ctx.map
        return Linear.apply(gradients[0], apply, not transposed), None, None


def moved(value: Any, device: torch.device | str | None, dtype: torch.dtype | None) -> Any:
    """A tensor on `device` and, where it is floating point or complex, in `dtype`; operators and tuples likewise."""
    if isinstance(value, Operator):
        return value.to(device, dtype)
    if type(value) is tuple:  # not a named one, whose names would be lost
        return tuple(moved(part, device, dtype) for part in value)
    if not isinstance(value, Tensor):
        return value
    if dtype is not None and value.is_complex():
        return value.to(device=device, dtype=dtype.to_complex())
    return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
