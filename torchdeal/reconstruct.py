"""The main path: measurements and an operator in, the fixed point out.

`reconstruct` finds x with `x = T(x)`, `T(z) = argmin_x ||H x - y||^2 + lam ||M(z) W x||^2`, that is
`A(x) x = H^T y` with `A(z) = H^T H + lam W^T M(z)^2 W`. Here the operator, the model and the solver meet.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdeal.backends.cpu.workers import steady, together
from torchdeal.display.progress import progress_shown
from torchdeal.estimation import DataRange, Parameters, choose_parameters, far_unit, gain, unless_automatic
from torchdeal.fidelity import NoiseModel, Run, measurements_made, reweighted, whitened
from torchdeal.io.checkpoint import default_weights, load, on_device
from torchdeal.io.images import ImageFormat
from torchdeal.io.measurements import (
    PerSample,
    deviation_map,
    measurements_to_tensor,
    positive,
    positive_integer,
    refuse_gradients,
    start_to_tensor,
    with_channels,
)
from torchdeal.measured_noise import estimate_measured_noise
from torchdeal.model import DEAL, SIGMA_MAX, Boundary
from torchdeal.noise import estimate_sigma
from torchdeal.operators import Identity, Mask, Operator, Scaled, as_operator, check_adjoint
from torchdeal.operators.checked import Checked, checked, refuse_nonfinite
from torchdeal.precision import full_precision
from torchdeal.reconstruction import PosedEquation, Reconstruction
from torchdeal.solvers import Progress, sample_norms
from torchdeal.solvers.result import per_sample_column
from torchdeal.symmetries import check_symmetries, solved

DEFAULT_TOLERANCE = 1e-3
DEFAULT_MAX_ITERATIONS = 500
UNSEEN = 1e-5  # of what H makes of other images: a constant image of which it makes less is lost in rounding


class ConvergenceWarning(UserWarning):
    """A reconstruction was returned that is not known to be within the tolerance of the fixed point."""


def reconstruct(
    y: Any,
    H: Any = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    sigma: PerSample | str | None = None,
    lam: PerSample | str | None = None,
    noise: PerSample | NoiseModel | str | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    start: Any = None,
    keep_path: bool = False,
    callback: Callable[[Progress], None] | None = None,
    progress: bool = False,
    device: torch.device | str | None = None,
    data_range: float | str | None = None,
    channelwise: bool = False,
    alpha: bool = False,
    symmetries: int = 1,
    backend: str | None = None,
) -> Reconstruction:
    """Reconstruct `x` from `y = H x + noise`, for any linear `H`.

    Args:
        y: measurements. Images (numpy `(H, W)`, `(H, W, C)`, `(B, H, W, C)` or torch `(B, C, H, W)`; float in 0..1,
            uint8 or uint16) for the operators that measure images, else a torch tensor or numpy array `(B, ...)`.
            Where the operator says its `measurement_shape`, the batch dimension may be left out.
        H: an operator, or anything that `as_operator` takes; None is the identity (denoising).
        model: a model, or what `load` takes; by default the bundled one for 1 or 3 channels.
        sigma: the noise level that the model assumes, in the units of the data: 25 for uint8 data or `25/255` for
            data in 0..1. A number, or one per sample. In denoising also a map, a level for each pixel (0: keep it):
            numpy `(H, W)`, `(H, W, C)`, `(B, H, W, C)`, torch `(H, W)`, `(C, H, W)`, `(B, C, H, W)`; C and B may be 1.
        lam: strength of the regularisation, as in the equation above. A number, or one per sample. Where sigma or lam
            is None or `"auto"`, it is found from the measurements and their noise (`estimation.default_parameters`); in
            denoising sigma is the noise, and lam the value learned for it.
        noise: standard deviation of the noise in the measurements, in their units (of the real and of the imaginary
            part where they are complex). A number, one per sample, or a map like the measurements, with a level for
            each of them (infinite: it is ignored); or another kind of noise, `Poisson` or `Impulse`. By default what
            the operator says, as a DeepInverse physics with Gaussian noise does; else it is estimated, for pictures,
            k-space and sinograms.
        tolerance: on the estimated relative distance to the fixed point, per sample.
        max_iterations: outer iterations at most; where noise is of another kind, those of the last solution; of several
            symmetries, those of each run.
        start: the first iterate, an image like the result, or a `Reconstruction`; zero if None. Another start can lead
            to another fixed point: uniqueness is proven only for small lam.
        keep_path: keep all iterates in `Reconstruction.path`.
        callback: called with a `Progress` after each outer iteration.
        progress: show a bar, in a terminal or a notebook.
        device: where to compute; by default where the given model is, else where `y` is.
        data_range: the value of white in the image; by default 1.0, 255 or 65535, after the dtype. With `"auto"` it is
            the range of a rough reconstruction, for each image. So it is by default where measurements are not images
            and that range is far from 1, unless the operator says it: images of DeepInverse are in 0..1, but for MRI.
        channelwise: apply a gray model to each channel of the image on its own; always so where the two channels are
            real and imaginary part, as in the MRI of DeepInverse.
        alpha: the last of 2 or 4 channels is transparency, which is returned as it is.
        symmetries: the answer is the mean over so many of the eight symmetries of the square. 4 are the four turns, 8
            these and their mirror images. It is mostly a little closer to the truth; 8 take five to six times as long.
        backend: `"direct"`, `"fft"` or `"packed"`; by default the fastest one that fits.

    Returns:
        a `Reconstruction`: the image `x`, of the kind of `y`, how the run ended, how far the fixed point may be, and
        the sigma and lam that were used. Where the noise is of another kind, the problem is solved several times:
        status and distance are those of the last one, iterations those of all.
    """
    refuse_gradients(y=y, start=start, sigma=sigma, lam=lam, noise=noise)
    given_sigma, given_lam, given_noise = map(unless_automatic, (sigma, lam, noise))
    operator = Identity() if H is None else as_operator(H)
    channelwise = channelwise or operator.complex_channels
    white = DataRange.of(data_range, operator)
    measurements, image_format = measurements_to_tensor(
        y,
        white=white.given,
        images=operator.measures_images,
        check_range=operator.is_identity,  # what another H scales need not be in 0..1, only the image
        shape=operator.measurement_shape,
        alpha=alpha,
    )
    model = _model_for(measurements, operator, model, channelwise, device)
    measurements, operator = _beside(model, measurements, operator)
    limits = positive("tolerance", tolerance), positive_integer("max_iterations", max_iterations)
    check_symmetries(symmetries)
    shown = progress_shown(progress, limits[0], callback)
    with shown as told, torch.no_grad(), full_precision(measurements.device), steady(measurements):
        run = Run(*limits, keep_path, told and together()(told), symmetries)
        _check(operator, measurements, _image_of(operator, measurements), model, channelwise)
        given = _Given(model, operator, measurements, white, image_format, given_sigma, given_lam, backend)
        if given_noise is None:
            given_noise = operator.noise
        if given_noise is None and (given_sigma is None or (given_lam is None and not operator.is_identity)):
            given_noise = estimate_measured_noise(operator, measurements) * image_format.data_range
        if isinstance(given_noise, NoiseModel):
            return reweighted(given_noise, measurements * image_format.data_range, given, start, run)
        return given.solve(given_noise, start, run)


@dataclass(frozen=True, eq=False)
class _Given:
    """What stays the same where a problem is solved several times, each time with another noise."""

    model: DEAL
    operator: Operator
    y: Tensor
    white: DataRange
    image_format: ImageFormat
    sigma: PerSample | None
    lam: PerSample | None
    backend: str | None

    def prediction(self, found: Reconstruction) -> Tensor:
        """What would have been measured of an answer if there were no noise, in the units of the measurements."""
        equation, image = found.posed()
        return self.operator.forward(image * _column(equation.scale)) * self.image_format.data_range

    def solve(self, noise: PerSample | None, start: Any, run: Run, *, are_levels: bool = True) -> Reconstruction:
        """Pose the problem, and find the fixed point. In denoising a map of noise is known to the model, if of levels.

        Elsewhere the noise is made the same everywhere.
        """
        operator, y = self.operator, self.y
        deviations = deviation_map(noise, y, operator.measures_images)
        known = are_levels and operator.is_identity and self.sigma is None
        known = known and (deviations is None or bool(torch.isfinite(deviations).all()))
        if deviations is not None and not known:
            deviations = torch.where(measurements_made(operator, y), deviations, torch.inf)
            operator, y, noise = whitened(operator, y, deviations)
        operator, b, unit = _posed(operator, y, self.model.boundary)
        scale = self.white.scale(operator, b)
        if deviations is not None and known:
            scale = torch.maximum(scale, self._least_scale(deviations))
        white_now = self.image_format.data_range * scale
        knobs = self.sigma, self.lam, noise
        weights = self.model.weights()
        found = choose_parameters(weights, operator, b / _column(scale), *knobs, white=white_now, unit=unit)
        equation = _equation(self.model, operator, y / unit, b, found, scale, self.image_format, self.backend)
        solution = solved(equation, self._first_image(start, b, scale), run)
        refuse_nonfinite(self.operator)
        x, *path = (equation.restored(x) for x in (solution.x, *solution.path))
        return Reconstruction(
            **{**vars(solution), "x": x, "path": tuple(path)},
            sigma=found.sigma / 255 * (white_now if found.sigma.ndim == 1 else _column(white_now)),
            lam=(found.lam.flatten() if found.sigma.ndim == 1 else found.lam) * unit * unit,
            equation=equation,
            image=solution.x,
            symmetries=run.symmetries,
        )

    def _first_image(self, start: Any, b: Tensor, scale: Tensor) -> Tensor | None:
        if not isinstance(start, Reconstruction):
            return start_to_tensor(start, b, self.white.given, _column(scale))
        equation, image = start.posed()
        if image.shape != b.shape:
            raise ValueError(f"the start is an image of shape {tuple(image.shape)}, the image is {tuple(b.shape)}")
        white = equation.scale * (equation.image_format.data_range / self.image_format.data_range)
        return image.to(b) * _column(white.to(scale) / scale)

    def _least_scale(self, deviations: Tensor) -> Tensor:
        """With which the model knows all levels of a map from its training. With few photons, noise is as white."""
        return deviations.flatten(1).amax(1) * (255 / SIGMA_MAX / self.image_format.data_range)


def denoise(
    image: Any,
    sigma: PerSample | None = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    callback: Callable[[Progress], None] | None = None,
    progress: bool = False,
    device: torch.device | str | None = None,
    data_range: float | None = None,
    channelwise: bool = False,
    alpha: bool = False,
    symmetries: int = 1,
) -> Any:
    """Remove white Gaussian noise of standard deviation `sigma` (in the units of the data; estimated if None).

    Sigma is a number, one per sample, or a map `(H, W)`, a level for each pixel.

    Returns an image of the same kind, dtype and layout. Warns where it is not known to have converged. The other
    arguments are those of `reconstruct`, which also returns how the run went.
    """
    refuse_gradients(image=image)
    if sigma is None:
        sigma = estimate_sigma(image, data_range=data_range, alpha=alpha)
    solution = reconstruct(
        image,
        model=model,
        sigma=sigma,
        tolerance=tolerance,
        max_iterations=max_iterations,
        callback=callback,
        progress=progress,
        device=device,
        data_range=data_range,
        channelwise=channelwise,
        alpha=alpha,
        symmetries=symmetries,
    )
    if not solution.converged:
        warnings.warn(str(solution), ConvergenceWarning, stacklevel=2)
    return solution.x


def _model_for(
    measurements: Tensor,
    operator: Operator,
    model: DEAL | str | os.PathLike[str] | None,
    channelwise: bool,
    device: torch.device | str | None,
) -> DEAL:
    """The model that was given, named, or is bundled for such images, on the device."""
    if isinstance(model, DEAL):
        if model.kappa.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"the model is in {model.kappa.dtype}, which is too rough to solve with: use model.float()")
        return on_device(model, device)
    if model is None:
        with torch.no_grad(), full_precision(measurements.device):
            placed = checked(operator.to(measurements.device, measurements.real.dtype), measurements)
            model = default_weights(_image_of(placed, measurements).shape[1], channelwise)
    return load(model, device=measurements.device if device is None else device)


def _beside(model: DEAL, measurements: Tensor, operator: Operator) -> tuple[Tensor, Operator]:
    """Both on the device of the model, in its precision; the operator checked at every call, unless it is ours."""
    device, dtype = model.kappa.device, model.kappa.dtype
    measurements = measurements.to(device, dtype.to_complex() if measurements.is_complex() else dtype)
    return measurements, checked(operator.to(device, dtype), measurements)


def _image_of(operator: Operator, measurements: Tensor) -> Tensor:
    """`H^T y`."""
    b = operator.adjoint(measurements)
    if b.ndim != 4:
        raise ValueError(f"the adjoint should return images (B, C, H, W), got shape {tuple(b.shape)}")
    if b.is_complex() and not measurements.is_complex() and isinstance(operator, Checked):
        raise ValueError(
            f"{operator.known_as()}: the adjoint returned a complex image for real measurements: return its real part, "
            "or, if the image is complex, give complex measurements"
        )
    return b


def _posed(operator: Operator, measurements: Tensor, boundary: Boundary) -> tuple[Operator, Tensor, float]:
    """`H` and `H^T y`, checked, with a gain not far from 1; and what H and y were divided by for that."""
    b = _image_of(operator, measurements)
    unit = 1.0 if operator.is_identity else far_unit(operator, b)
    if unit != 1:
        operator = Scaled(1 / unit, operator)
        b = operator.adjoint(measurements / unit)
    if not bool(torch.isfinite(b).all()):
        raise ValueError(f"{operator.known_as()}: the adjoint of the measurements is infinite: rescale one of the two")
    _check_mean(operator, b, boundary)
    return operator, b, unit


def _equation(
    model: DEAL,
    operator: Operator,
    y: Tensor,
    b: Tensor,
    found: Parameters,
    scale: Tensor,
    image_format: ImageFormat,
    backend: str | None,
) -> PosedEquation:
    """What is to be solved, with white at 1."""
    y, b = y / per_sample_column(scale, y), b / _column(scale)
    image_format = with_channels(image_format, b.shape[1])
    if found.sigma.ndim == 1:
        return PosedEquation(model.weights(), operator, y, b, *found, scale, image_format, backend)
    # A noise map: each pixel has a lam of its own. Its equation is divided by that, and all are multiplied by one.
    lam = 1 / (1 / found.lam).mean((1, 2, 3), keepdim=True)
    share = (lam / found.lam).sqrt()
    levels = _seen_levels(found.sigma, model.channels)
    noise = None if found.noise is None else found.noise * share
    known = model.weights(), Mask(share), y * share, b * share * share
    return PosedEquation(*known, levels, lam, noise, scale, image_format, backend)


def _seen_levels(level: Tensor, channels: int) -> Tensor:
    """A noise map `(B, C or 1, H, W)` for the images that the model sees, `(P, 1, H, W)`."""
    if channels == 1:
        return level.reshape(-1, 1, *level.shape[-2:])
    return level.square().mean(1, keepdim=True).sqrt()


def _check(operator: Operator, measurements: Tensor, b: Tensor, model: DEAL, channelwise: bool) -> None:
    """Raise ValueError for what cannot be reconstructed."""
    _check_channels(b.shape[1], model, channelwise, operator.measures_images)
    if isinstance(operator, Checked):
        again = operator.forward(torch.ones_like(b))  # b itself may be huge
        if again.shape != measurements.shape or again.is_complex() != measurements.is_complex():
            kinds = ["complex" if tensor.is_complex() else "real" for tensor in (again, measurements)]
            raise ValueError(
                f"{operator.known_as()}: the forward operator returned {kinds[0]} measurements of shape "
                f"{tuple(again.shape)}, but those that were given are {kinds[1]}, of shape {tuple(measurements.shape)}"
            )
        refuse_nonfinite(operator)
        check_adjoint(operator, b)


def _check_channels(channels: int, model: DEAL, channelwise: bool, measures_images: bool) -> None:
    if channelwise and model.channels != 1:
        raise ValueError(f"channelwise needs a gray model, this one has {model.channels} channels")
    if channels != model.channels and not channelwise:
        remedies = [f"use the model {name}" for name, number in (("gray", 1), ("color", 3)) if number == channels]
        if model.channels == 1:
            remedies.append("set channelwise to treat each channel as a gray image")
        if measures_images and channels - 1 in (1, 3):
            remedies.append("set alpha if the last channel is transparency")
        raise ValueError(
            f"the image has {channels} channels and the model {model.channels}: {', or '.join(remedies) or 'no match'}"
        )


def _check_mean(operator: Operator, b: Tensor, boundary: Boundary) -> None:
    """`W` maps constants to 0: what the mean of the image is, only the measurements can tell."""
    if operator.is_identity or boundary is not Boundary.REFLECT:
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
