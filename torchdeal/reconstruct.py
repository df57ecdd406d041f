"""The main path: measurements and an operator in, the fixed point out.

`reconstruct` finds x with `x = T(x)`, `T(z) = argmin_x ||H x - y||^2 + lam ||M(z) W x||^2`, that is
`A(x) x = H^T y` with `A(z) = H^T H + lam W^T M(z)^2 W`. Here the operator, the model and the solver meet.
"""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.backends import Backend, choose_backend
from torchdeal.backends.cuda.graphs import Replays
from torchdeal.estimation import default_parameters, estimate_range, gain
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.io.images import ImageFormat, to_tensor
from torchdeal.model import DEAL, SIGMA_MAX, Boundary, Weights
from torchdeal.operators import Identity, Operator, as_operator, check_adjoint, is_trusted
from torchdeal.precision import full_precision
from torchdeal.solvers import Progress, Solution, System, Workspace, sample_norms, solve_fixed_point
from torchdeal.solvers.preconditioning import Preconditioning, preconditioning

PerSample = float | Sequence[float] | np.ndarray | Tensor

AUTO = "auto"
PLAUSIBLE = (0.3, 3.0)  # ranges of images that were meant to be in 0..1
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
            the rule of `tuning.default_parameters`. By default what the operator says, as a DeepInverse physics with
            Gaussian noise does.
        tolerance: on the estimated relative distance to the fixed point, per sample.
        max_iterations: outer iterations at most.
        start: the first iterate, an image like the result; zero if None. Another start can lead to another fixed
            point: uniqueness is proven only for small lam.
        keep_path: keep all iterates in `Solution.path`.
        callback: called with a `Progress` after each outer iteration.
        device: where to compute; by default where the model is.
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
    noise = operator.noise if noise is None else noise
    data_range = operator.data_range if data_range is None else data_range
    if isinstance(data_range, str) and data_range != AUTO:
        raise ValueError(f"data_range must be a positive number or {AUTO!r}, not {data_range!r}")
    automatic = data_range == AUTO or (data_range is None and not operator.measures_images)
    white = 1.0 if automatic or isinstance(data_range, str) else data_range  # of what is not scaled below
    measurements, image_format = _measurements(y, operator, white)
    if not isinstance(model, DEAL):
        place = device if device is not None else measurements.device
        model = _default_model(model, measurements, operator, channelwise, place)
    model = _on(model, device)
    parameter = next(model.parameters())
    measurements = _cast(measurements, parameter)
    operator = operator.to(parameter.device, parameter.dtype)
    with torch.no_grad(), full_precision(parameter.device):
        b = operator.adjoint(measurements)
        _check_image(b, model, channelwise)
        if not is_trusted(operator):
            check_adjoint(operator, b)
        weights = model.weights()
        _check_mean(operator, b, weights)
        scale = _scale(operator, b, keep_plausible=data_range is None) if automatic else b.real.new_ones(len(b))
        b = b / _column(scale)
        level, strength = _parameters(weights, operator, b, sigma, lam, noise, image_format.data_range * scale)
        chosen = choose_backend(weights, b, backend)
        known = preconditioning(weights, operator, b)
        precise, rough = (
            _linearisation(chosen, operator, strength, weights.alpha(level), model.channels, precise, known)
            for precise in (True, False)
        )
        solution = solve_fixed_point(
            precise,
            b,
            _start(start, b, white, scale),
            rough=rough,
            tolerance=_positive("tolerance", tolerance),
            max_iterations=_positive_integer("max_iterations", max_iterations),
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
        from torchdeal.estimation import estimate_sigma

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


def _linearisation(
    backend: Backend,
    operator: Operator,
    lam: Tensor,
    alpha: Tensor,
    channels: int,
    precise: bool,
    known: Preconditioning | None,
) -> Callable[[Tensor], System]:
    """`x -> A(x)`, with the masks frozen at x. A gray model sees each channel of a colour image as an image, and real
    and imaginary part of a complex one.
    """
    # With H = I the condition of A is about 1 + lam: the error of a rough penalty stays small in the solution.
    well_conditioned = isinstance(operator, Identity) and float(lam.max()) <= WELL_CONDITIONED

    def linearise(x: Tensor) -> System:
        parts = _gray_parts(x, channels)
        copies = len(parts) // len(x)
        squared_mask = backend.squared_mask(parts, alpha.repeat_interleave(copies, 0), precise=precise)

        def apply(p: Tensor, precise: bool) -> Tensor:
            penalty = backend.penalty(_gray_parts(p, channels), squared_mask, precise=precise)
            return operator.normal(p).addcmul(lam.to(p.dtype), _whole(penalty, p))

        preconditioner = known.at(lam, *backend.mask_sums(squared_mask, known.energy)) if known else None
        rough = partial(apply, precise=False) if well_conditioned else None
        # A preconditioner is made of new tensors each time. Else what is solved depends on `kind` alone.
        replayable = preconditioner is None and operator.replayable and backend.replayable(len(parts))
        kind = "rough" if well_conditioned or not precise else "precise"
        return System(partial(apply, precise=precise), rough, preconditioner, kind if replayable else None)

    return linearise


def _gray_parts(x: Tensor, channels: int) -> Tensor:
    """What the model sees: real images of its number of channels; of a complex one two, each with masks of its own."""
    parts = torch.view_as_real(x).movedim(-1, 1) if x.is_complex() else x
    return parts.reshape(-1, channels, *x.shape[-2:])


def _whole(parts: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_gray_parts`."""
    if not like.is_complex():
        return parts.view_as(like)
    real, imaginary = parts.view(len(like), 2, *like.shape[1:]).unbind(1)
    return torch.complex(real, imaginary)


def _measurements(y: Any, operator: Operator, data_range: float | None) -> tuple[Tensor, ImageFormat]:
    if operator.measures_images and not (isinstance(y, Tensor) and y.is_complex()):
        # What H scales need not be in 0..1, only the image.
        return to_tensor(y, data_range=data_range, name="measurement", check_range=isinstance(operator, Identity))
    if not isinstance(y, Tensor) or not (y.is_floating_point() or y.is_complex()):
        raise TypeError(
            f"{type(operator).__name__} needs its measurements as a floating-point torch tensor (B, ...), "
            f"got {type(y).__name__}"
        )
    if not bool(torch.isfinite(y).all()):
        raise ValueError("the measurements hold NaN or infinite values")
    scale = 1.0 if data_range is None else _positive("data_range", data_range)
    dtype = str(y.real.dtype).removeprefix("torch.")
    return y.detach() / scale, ImageFormat("torch", dtype, "BCHW", scale, y.device)


def _default_model(
    name: str | os.PathLike[str] | None,
    measurements: Tensor,
    operator: Operator,
    channelwise: bool,
    device: torch.device | str,
) -> DEAL:
    if name is None:
        channels = operator.to(measurements.device, measurements.real.dtype).adjoint(measurements).shape[1]
        name = default_weights(channels, channelwise)
    return load(name, device=device)


def _on(model: DEAL, device: torch.device | str | None) -> DEAL:
    """The model on the device: itself if it is there, else a copy, since a caller's model must not move."""
    if device is None or next(model.parameters()).device == torch.empty(0, device=device).device:
        return model
    return copy.deepcopy(model).to(device)


def _cast(measurements: Tensor, parameter: Tensor) -> Tensor:
    dtype = parameter.dtype.to_complex() if measurements.is_complex() else parameter.dtype
    return measurements.to(parameter.device, dtype)


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
    if isinstance(operator, Identity) or weights.boundary is not Boundary.REFLECT:
        return
    constant = torch.ones_like(b)
    seen = sample_norms(operator.forward(constant)) / sample_norms(constant)
    if bool((seen <= UNSEEN * gain(operator, b)).any()):
        raise ValueError(
            "the measurements do not depend on the mean of the image (the operator maps a constant image to 0), and "
            "the model cannot know it: measure it too; in MRI, check that the mask has the layout that `centered`, or "
            "--corner, says"
        )


def _per_sample(
    name: str, value: PerSample, b: Tensor, *, minimum: float | None = None, above: float | None = None
) -> Tensor:
    """The value as a vector `(B,)` on the device of b."""
    try:
        vector = torch.as_tensor(value).detach().to(b.device, b.real.dtype).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number or one number per sample, not {value!r}") from None
    if len(vector) not in (1, len(b)):
        raise ValueError(f"{name} has {len(vector)} values for a batch of {len(b)}: give one, or one per sample")
    low = float(vector.min()) if bool(torch.isfinite(vector).all()) else math.nan
    if not (low >= minimum if minimum is not None else low > (above if above is not None else -math.inf)):
        rule = f"at least {minimum:g}" if minimum is not None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {rule}, got {value}")
    return vector.expand(len(b))


def _parameters(
    weights: Weights,
    operator: Operator,
    b: Tensor,
    sigma: PerSample | None,
    lam: PerSample | None,
    noise: PerSample | None,
    white: Tensor,
) -> tuple[Tensor, Tensor]:
    """Sigma on the 0..255 scale, `(B,)`, and lam, `(B, 1, 1, 1)`: as given, or by the rules."""
    denoising = isinstance(operator, Identity)
    if denoising and sigma is None:
        sigma, noise = noise, None
    if noise is None and (sigma is None or (lam is None and not denoising)):
        missing = " and ".join(name for name, value in (("sigma", sigma), ("lam", lam)) if value is None)
        raise ValueError(
            "sigma, the noise level, is needed"
            if denoising
            else f"{missing} missing: give noise, the standard deviation of the noise in the measurements"
        )
    level = None if sigma is None else _per_sample("sigma", sigma, b, minimum=0.0) * (255 / white)
    if level is not None:
        _warn_untrained(level, white)
    strength = None if lam is None else _column(_per_sample("lam", lam, b, above=0.0))
    if denoising and level is not None and strength is None:
        strength = weights.lam(level)
    if level is None or strength is None:
        assert noise is not None
        measured = _per_sample("noise", noise, b, above=0.0) * (255 / white)
        default_level, default_strength = default_parameters(weights, operator, b, measured, level)
        level = default_level if level is None else level
        strength = default_strength if strength is None else strength
    return level, strength


def _scale(operator: Operator, b: Tensor, keep_plausible: bool) -> Tensor:
    """What to divide each image by, `(B,)`."""
    scale = estimate_range(operator, b)
    plausible = keep_plausible & (scale > PLAUSIBLE[0]) & (scale < PLAUSIBLE[1])
    return torch.where(plausible, 1.0, scale)


def _warn_untrained(level: Tensor, white: Tensor) -> None:
    worst = int(level.argmax())
    if float(level[worst]) > SIGMA_MAX * (1 + 1e-6):
        scale = float(white[worst]) / 255
        warnings.warn(
            f"sigma = {float(level[worst]) * scale:g} is beyond the noise levels of the training, "
            f"0 to {SIGMA_MAX * scale:g} for data in this range: expect a poor result",
            stacklevel=4,
        )


def _start(start: Any, b: Tensor, data_range: float | None, scale: Tensor) -> Tensor | None:
    if start is None:
        return None
    if isinstance(start, Tensor) and start.is_complex() and b.is_complex():
        tensor = start.detach() / (data_range or 1.0)
        if not bool(torch.isfinite(torch.view_as_real(tensor)).all()):
            raise ValueError("the start holds NaN or infinite values: replace them first")
    else:
        tensor, _ = to_tensor(start, data_range=data_range, name="start")
    if tensor.shape != b.shape:
        raise ValueError(f"the start has shape {tuple(tensor.shape)} as (B, C, H, W), the image {tuple(b.shape)}")
    return tensor.to(b) / _column(scale)


def _column(per_sample: Tensor) -> Tensor:
    return per_sample.view(-1, 1, 1, 1)


def _positive(name: str, value: float) -> float:
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def _positive_integer(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)
