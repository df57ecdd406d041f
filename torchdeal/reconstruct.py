"""The main path: measurements and an operator in, the fixed point out.

`reconstruct` finds x with `x = T(x)`, `T(z) = argmin_x ||H x - y||^2 + lam ||M(z) W x||^2`, that is
`A(x) x = H^T y` with `A(z) = H^T H + lam W^T M(z)^2 W`. Here the operator, the model and the solver meet.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchdeal.backends import Backend, choose_backend
from torchdeal.backends.cuda.graphs import Replays
from torchdeal.estimation import DataRange, choose_parameters, estimate_sigma, gain
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.io.measurements import (
    PerSample,
    measurements_to_tensor,
    positive,
    positive_integer,
    start_to_tensor,
)
from torchdeal.model import DEAL, Boundary, Weights
from torchdeal.model.filters import impulse_responses
from torchdeal.operators import Identity, Operator, as_operator, check_adjoint, is_trusted
from torchdeal.precision import full_precision
from torchdeal.solvers import Progress, Solution, System, Workspace, sample_norms, solve_fixed_point
from torchdeal.solvers.preconditioning import Preconditioning

DEFAULT_TOLERANCE = 1e-3
DEFAULT_MAX_ITERATIONS = 500
UNSEEN = 1e-5  # of what H makes of other images: a constant image of which it makes less is lost in rounding
WELL_CONDITIONED = 100.0  # lam up to which a correction in denoising may be solved for with rough penalties


class ConvergenceWarning(UserWarning):
    """A reconstruction was returned that is not known to be within the tolerance of the fixed point."""


def reconstruct(
    y: Any,
    H: Any = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    sigma: PerSample | None = None,
    lam: PerSample | None = None,
    noise: PerSample | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    start: Any = None,
    keep_path: bool = False,
    callback: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
    data_range: float | str | None = None,
    channelwise: bool = False,
    backend: str | None = None,
) -> Solution:
    """Reconstruct `x` from `y = H x + noise`, for any linear `H`.

    Args:
        y: measurements. Images (numpy `(H, W)`, `(H, W, C)`, `(B, H, W, C)` or torch `(B, C, H, W)`; float in 0..1,
            uint8 or uint16) for the operators that measure images, else a torch tensor `(B, ...)`.
        H: an operator, or anything that `as_operator` takes; None is the identity (denoising).
        model: a model, or what `load` takes; by default the bundled one for 1 or 3 channels.
        sigma: the noise level that the model assumes, in the units of the data: 25 for uint8 data or `25/255` for
            data in 0..1. A number, or one per sample.
        lam: strength of the regularisation, as in the equation above. A number, or one per sample. None, for
            denoising, is the value learned for sigma.
        noise: standard deviation of the noise in the measurements, in their units (of the real and of the imaginary
            part where they are complex). A number, or one per sample. It gives sigma and lam, where they are None, by
            the rule of `estimation.default_parameters`. By default what the operator says, as a DeepInverse physics
            with Gaussian noise does.
        tolerance: on the estimated relative distance to the fixed point, per sample.
        max_iterations: outer iterations at most.
        start: the first iterate, an image like the result; zero if None. Another start can lead to another fixed
            point: uniqueness is proven only for small lam.
        keep_path: keep all iterates in `Solution.path`.
        callback: called with a `Progress` after each outer iteration.
        device: where to compute; by default where the given model is, else where `y` is.
        data_range: the value of white in the image; by default 1.0, 255 or 65535, after the dtype. With `"auto"` it is
            the range of a rough reconstruction, for each image. So it is by default where measurements are not images
            and that range is far from 1, unless the operator says it: images of DeepInverse are in 0..1, but for MRI.
        channelwise: apply a gray model to each channel of the image on its own; always so where the two channels are
            real and imaginary part, as in the MRI of DeepInverse.
        backend: `"direct"`, `"fft"` or `"packed"`; by default the fastest one that fits.

    Returns:
        a `Solution`: the image `x`, of the kind of `y`, how the run ended, and how far it may be from the fixed point.
    """
    operator = Identity() if H is None else as_operator(H)
    channelwise = channelwise or operator.complex_channels
    white = DataRange.of(data_range, operator)
    measurements, image_format = measurements_to_tensor(
        y,
        white=white.given,
        images=operator.measures_images,
        check_range=operator.is_identity,  # what another H scales need not be in 0..1, only the image
        needed_by=type(operator).__name__,
    )
    model = _model_for(measurements, operator, model, channelwise, device)
    measurements, operator = _beside(model, measurements, operator)
    with torch.no_grad(), full_precision(measurements.device):
        b, weights = operator.adjoint(measurements), model.weights()
        _check(operator, b, model, weights, channelwise)
        scale = white.scale(operator, b)
        b = b / _column(scale)
        knobs = sigma, lam, operator.noise if noise is None else noise
        level, strength = choose_parameters(weights, operator, b, *knobs, white=image_format.data_range * scale)
        system = AttentiveSystem.of(weights, operator, b, strength, weights.alpha(level), backend)
        first = start_to_tensor(start, b, white.given)
        solution = solve_fixed_point(
            system.precise,
            b,
            None if first is None else first / _column(scale),
            rough=system.rough,
            tolerance=positive("tolerance", tolerance),
            max_iterations=positive_integer("max_iterations", max_iterations),
            keep_path=keep_path,
            callback=callback,
            workspace=Workspace(Replays().run),
        )
        x, *path = (image_format.restore(x * _column(scale)) for x in (solution.x, *solution.path))
    return replace(solution, x=x, path=tuple(path))


def denoise(
    image: Any,
    sigma: PerSample | None = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    callback: Callable[[Progress], None] | None = None,
    device: torch.device | str | None = None,
    data_range: float | None = None,
    channelwise: bool = False,
) -> Any:
    """Remove white Gaussian noise of standard deviation `sigma` (in the units of the data; estimated if None).

    Returns an image of the same kind, dtype and layout. Warns where it is not known to have converged. The other
    arguments are those of `reconstruct`, which also returns how the run went.
    """
    if sigma is None:
        sigma = estimate_sigma(image, data_range=data_range)
    solution = reconstruct(
        image,
        model=model,
        sigma=sigma,
        tolerance=tolerance,
        max_iterations=max_iterations,
        callback=callback,
        device=device,
        data_range=data_range,
        channelwise=channelwise,
    )
    if not solution.converged:
        warnings.warn(str(solution), ConvergenceWarning, stacklevel=2)
    return solution.x


@dataclass(frozen=True)
class AttentiveSystem:
    """`x -> A(x) = H^T H + lam W^T M(x)^2 W`, with the masks frozen at x.

    A gray model sees each channel of a colour image as an image, and real and imaginary part of a complex one.
    """

    backend: Backend
    operator: Operator
    lam: Tensor  # (B, 1, 1, 1)
    alpha: Tensor  # (B, N, 1, 1)
    channels: int  # of the model
    well_conditioned: bool  # a correction may be solved for with rough penalties
    preconditioning: Preconditioning | None = None

    @classmethod
    def of(
        cls, weights: Weights, operator: Operator, b: Tensor, lam: Tensor, alpha: Tensor, backend: str | None = None
    ) -> AttentiveSystem:
        """The system for images like b, by the backend of that name, or the fastest one."""
        chosen, channels = choose_backend(weights, b, backend), weights.filters[0].shape[1]
        # With H = I the condition of A is about 1 + lam: the error of a rough penalty stays small in the solution.
        well_conditioned = operator.is_identity and float(lam.max()) <= WELL_CONDITIONED
        known = preconditioning(weights, operator, b)
        return cls(chosen, operator, lam, alpha, channels, well_conditioned, known)

    def precise(self, x: Tensor) -> System:
        return self._at(x, precise=True)

    def rough(self, x: Tensor) -> System:
        """To about 1e-3, where the backend saves time that way."""
        return self._at(x, precise=False)

    def _at(self, x: Tensor, precise: bool) -> System:
        images = _seen_by_model(x, self.channels)
        alpha = self.alpha.repeat_interleave(len(images) // len(x), 0)
        squared_mask = self.backend.squared_mask(images, alpha, precise=precise)

        def apply(p: Tensor, precise: bool) -> Tensor:
            penalty = self.backend.penalty(_seen_by_model(p, self.channels), squared_mask, precise=precise)
            return self.operator.normal(p).addcmul(self.lam.to(p.dtype), _as_seen(penalty, p))

        preconditioner = self._preconditioner(squared_mask)
        rough = partial(apply, precise=False) if self.well_conditioned else None
        # A preconditioner is made of new tensors each time. Else what is solved depends on `kind` alone.
        replayable = preconditioner is None and self.operator.replayable and self.backend.replayable(len(images))
        kind = "rough" if self.well_conditioned or not precise else "precise"
        return System(partial(apply, precise=precise), rough, preconditioner, kind if replayable else None)

    def _preconditioner(self, squared_mask: Any) -> Callable[[Tensor], Tensor] | None:
        if self.preconditioning is None:
            return None
        return self.preconditioning.at(self.lam, *self.backend.mask_sums(squared_mask, self.preconditioning.energy))


def preconditioning(weights: Weights, operator: Operator, like: Tensor) -> Preconditioning | None:
    """What makes preconditioners for images like `like`; None where nothing is known of `H^T H`, or in denoising.

    (With `H = I` it saves a third of the CG iterations but little time: masks cost more there than solves.)
    """
    symbol = None if operator.is_identity else operator.normal_symbol(like)
    if symbol is None:
        return None
    filters, reflecting = impulse_responses(weights.filters), weights.boundary is Boundary.REFLECT
    diagonal, aliasing = operator.normal_diagonal(like), operator.normal_aliasing(like)
    return Preconditioning(filters, reflecting, symbol, diagonal, like, aliasing)


def _seen_by_model(x: Tensor, channels: int) -> Tensor:
    """What the model sees: real images of its number of channels; of a complex one two, each with masks of its own."""
    parts = torch.view_as_real(x).movedim(-1, 1) if x.is_complex() else x
    return parts.reshape(-1, channels, *x.shape[-2:])


def _as_seen(parts: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_seen_by_model`."""
    if not like.is_complex():
        return parts.view_as(like)
    real, imaginary = parts.view(len(like), 2, *like.shape[1:]).unbind(1)
    return torch.complex(real, imaginary)


def _model_for(
    measurements: Tensor,
    operator: Operator,
    model: DEAL | str | os.PathLike[str] | None,
    channelwise: bool,
    device: torch.device | str | None,
) -> DEAL:
    """The model that was given, named, or is bundled for such images, on the device."""
    if isinstance(model, DEAL):
        if device is None or model.kappa.device == torch.empty(0, device=device).device:
            return model
        return copy.deepcopy(model).to(device)  # a caller's model must not move
    if model is None:
        channels = operator.to(measurements.device, measurements.real.dtype).adjoint(measurements).shape[1]
        model = default_weights(channels, channelwise)
    return load(model, device=measurements.device if device is None else device)


def _beside(model: DEAL, measurements: Tensor, operator: Operator) -> tuple[Tensor, Operator]:
    """Both on the device of the model, in its precision."""
    device, dtype = model.kappa.device, model.kappa.dtype
    measurements = measurements.to(device, dtype.to_complex() if measurements.is_complex() else dtype)
    return measurements, operator.to(device, dtype)


def _check(operator: Operator, b: Tensor, model: DEAL, weights: Weights, channelwise: bool) -> None:
    """Raise ValueError for what cannot be reconstructed."""
    _check_image(b, model, channelwise)
    if not is_trusted(operator):
        check_adjoint(operator, b)
    _check_mean(operator, b, weights)


def _check_image(b: Tensor, model: DEAL, channelwise: bool) -> None:
    if b.ndim != 4:
        raise ValueError(f"the adjoint should return images (B, C, H, W), got shape {tuple(b.shape)}")
    channels, height, width = b.shape[1:]
    if channelwise and model.channels != 1:
        raise ValueError(f"channelwise needs a gray model, this one has {model.channels} channels")
    if channels != model.channels and not channelwise:
        remedies = [f"use the model {name}" for name, number in (("gray", 1), ("color", 3)) if number == channels]
        if model.channels == 1:
            remedies.append("set channelwise to treat each channel as a gray image")
        raise ValueError(
            f"the image has {channels} channels and the model {model.channels}: {', or '.join(remedies) or 'no match'}"
        )
    if min(height, width) < model.min_size:
        raise ValueError(f"the image is {height} x {width}; at least {model.min_size} x {model.min_size} is needed")


def _check_mean(operator: Operator, b: Tensor, weights: Weights) -> None:
    """`W` maps constants to 0: what the mean of the image is, only the measurements can tell."""
    if operator.is_identity or weights.boundary is not Boundary.REFLECT:
        return
    constant = torch.ones_like(b)
    seen = sample_norms(operator.forward(constant)) / sample_norms(constant)
    if bool((seen <= UNSEEN * gain(operator, b)).any()):
        raise ValueError(
            "the measurements do not depend on the mean of the image (the operator maps a constant image to 0), and "
            "the model cannot know it: measure it too; in MRI, check that the mask has the layout that `centered`, or "
            "--corner, says"
        )


def _column(per_sample: Tensor) -> Tensor:
    return per_sample.view(-1, 1, 1, 1)
