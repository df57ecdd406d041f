"""What a competitor is: a denoiser or a solver of inverse problems, its parameters, and the reason why it cannot run.

A method is a frozen dataclass that can be called. Those of its fields that are declared by `tunable` are its
parameters; `dataclasses.replace(method, lam=2.0)` is the same method with another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.operators import Downsample, Operator
from torchdeal.precision import full_precision
from torchdeal.simulate import bicubic
from torchdeal.solvers.cg import conjugate_gradient

P = ParamSpec("P")
Method = TypeVar("Method", covariant=True)

CG_TOLERANCE, CG_ITERATIONS = 1e-4, 100
NORM_ITERATIONS, NORM_MARGIN = 30, 1.02  # power iterations give a lower bound of the norm
_norms: WeakKeyDictionary[Operator, dict[tuple[int, ...], float]] = WeakKeyDictionary()


class Unavailable(ValueError):  # noqa: N818 (it is a state more than an error)
    """A competitor that cannot run here or on this problem. The message says why, and what would help."""


class PeerDenoiser(Protocol):
    """Removes white noise."""

    def __call__(self, noisy: Tensor, /, sigma: float) -> Tensor:
        """Images `(B, C, H, W)` in 0..1 from such with noise of deviation `sigma`, on the 0..255 scale."""
        ...


class PeerSolver(Protocol):
    """Solves inverse problems."""

    def __call__(self, y: Tensor, /, H: Operator, noise: float) -> Tensor:
        """Images `(B, C, H, W)` from `y = H x + noise`, the noise of deviation `noise` in the units of y."""
        ...


@dataclass(frozen=True)
class Peer(Generic[Method]):
    """A competitor in the registry."""

    make: Callable[[Path | None, int, str], Method]  # of the folder of weights, the channels and the device
    paper: str
    problems: tuple[str, ...]  # of "denoising", "deblur", "superres", "mri", "ct"
    channels: tuple[int, ...] = (1, 3)


def tunable(default: float, *values: float) -> Any:
    """A field that is a parameter, above 0, and the values to try for it; those between them are possible, too."""
    return field(default=default, metadata={"grid": values, "between": True})


def choice(default: float, *values: float) -> Any:
    """A field that is a parameter with only these values."""
    return field(default=default, metadata={"grid": values, "between": False})


def grid(method: Any) -> dict[str, tuple[float, ...]]:
    """The parameters of a method and the values to try for each; none if it has no parameters."""
    return {item.name: item.metadata["grid"] for item in fields(method) if "grid" in item.metadata}


def finer(method: Any, values: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """The values to try with more of them: between each two their geometric mean, where that is possible."""
    free = {item.name for item in fields(method) if item.metadata.get("between")}
    return {name: _with_means(tried) if name in free else tried for name, tried in values.items()}


def _with_means(values: tuple[float, ...]) -> tuple[float, ...]:
    means = [(low * high) ** 0.5 for low, high in pairwise(values)]
    return tuple(sorted([*values, *means]))


def parameters(method: Any) -> dict[str, float]:
    """The parameters of a method and their values now."""
    return {name: getattr(method, name) for name in grid(method)}


def inference(method: Callable[Concatenate[Any, Tensor, P], Tensor]) -> Callable[Concatenate[Any, Tensor, P], Tensor]:
    """A `__call__` without gradients and in full precision."""

    @functools.wraps(method)
    def call(self: Any, given: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        with torch.no_grad(), full_precision(given.device):
            return method(self, given, *args, **kwargs)

    return call


def package(module: str, method: str, extra: str) -> ModuleType:
    """An optional package; without it `Unavailable`, with the extra that brings it."""
    try:
        return optional(module, method, extra)
    except ImportError as error:
        raise Unavailable(str(error)) from None


def need_channels(channels: int, served: tuple[int, ...], method: str) -> None:
    """Raise `Unavailable` for images that a method has no weights for."""
    if channels not in served:
        kinds = " or ".join({1: "gray", 3: "colour"}.get(count, f"{count}-channel") for count in served)
        raise Unavailable(f"{method} is for {kinds} images, these have {channels} channels")


def need_level(sigma: float, low: float, high: float, method: str) -> None:
    """Raise `Unavailable` for noise that a method was not made for."""
    if not low <= sigma <= high:
        raise Unavailable(f"{method} is for sigma from {low:g} to {high:g}, not {sigma:g}")


def squared_norm(H: Operator, shape: tuple[int, ...]) -> float:
    """A bound of `||H||^2` for images of `shape`, `(C, H, W)`; computed once for an operator."""
    known = _norms.setdefault(H, {})
    if shape not in known:
        known[shape] = (NORM_MARGIN * H.norm(shape, iterations=NORM_ITERATIONS)) ** 2
    return known[shape]


def first_image(y: Tensor, H: Operator, backprojected: Tensor) -> Tensor:
    """What an iteration begins with: `H^T y`, scaled so that it fits the measurements best.

    Small images are interpolated: there `H^T y` is dark where nothing was measured.
    """
    if isinstance(H, Downsample):
        height, width = backprojected.shape[-2:]
        return bicubic(y, H.scale)[..., :height, :width]
    energy = backprojected.abs().square().flatten(1).sum(1)
    seen = H.forward(backprojected).abs().square().flatten(1).sum(1)
    return backprojected * (energy / seen.clamp_min(torch.finfo(seen.dtype).tiny)).view(-1, 1, 1, 1)


def fitted_image(H: Operator, backprojected: Tensor, fitted: Tensor, weight: float, start: Tensor) -> Tensor:
    """`argmin_x ||H x - y||^2 + weight ||x - fitted||^2`, given `H^T y`."""

    def apply(p: Tensor) -> Tensor:
        return H.normal(p) + weight * p

    b = backprojected + weight * fitted
    return conjugate_gradient(apply, b, start, tolerance=CG_TOLERANCE, max_iterations=CG_ITERATIONS).x


def each_picture(function: Callable[[Any], Any], images: Tensor) -> Tensor:
    """A function of numpy pictures, `(H, W)` or `(H, W, C)`, for a batch of images `(B, C, H, W)`."""
    pictures = images.detach().cpu().double().permute(0, 2, 3, 1).numpy()
    gray = images.shape[1] == 1
    results = [function(picture[..., 0] if gray else picture) for picture in pictures]
    tensors = [torch.as_tensor(result[..., None] if gray else result) for result in results]
    return torch.stack(tensors).permute(0, 3, 1, 2).to(images).contiguous()
