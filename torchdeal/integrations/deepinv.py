"""DeepInverse both ways.

Its physics are operators here: `td.reconstruct(y, physics)`. Our model is a reconstructor and a denoiser there: `DEAL`
and `Denoiser`, for inference; there is no gradient through the solver, and a backward pass that needs one is an error.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torchdeal.io.checkpoint import default_weights, load
from torchdeal.model import DEAL as Model  # noqa: N811  here DEAL is the reconstructor
from torchdeal.operators import Identity, Operator, as_operator
from torchdeal.operators.adapters import Adapted
from torchdeal.operators.base import moved
from torchdeal.reconstruct import (
    DEFAULT_MAX_ITERATIONS,
    DEFAULT_TOLERANCE,
    ConvergenceWarning,
    PerSample,
    reconstruct,
)
from torchdeal.solvers import Solution

try:
    from deepinv import models as deepinv_models  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
    from deepinv import physics as deepinv_physics  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
except ModuleNotFoundError as error:
    if error.name != "deepinv":  # DeepInverse is there, but something that it needs is not
        raise
    raise ImportError("torchdeal.deepinv needs DeepInverse: pip install torchdeal[deepinv]") from None


# Its physics as operators


def from_physics(physics: Any) -> Operator:
    """A physics of DeepInverse as an operator; TypeError if DEAL cannot take it."""
    name = type(physics).__name__
    if not isinstance(physics, deepinv_physics.LinearPhysics):
        raise TypeError(f"{name} is not linear: give a deepinv.physics.LinearPhysics")
    if isinstance(physics, deepinv_physics.StackedPhysics):
        raise TypeError(
            f"{name} measures a list of tensors: stack its parts by torchdeal.operators.Stack, "
            "which takes their measurements flattened and concatenated"
        )
    if _is_mri(_first(physics)) and _first(physics).mask.ndim > 4:
        raise TypeError(f"{name} is for volumes or sequences: reconstruct their slices or frames, with MRI")
    if type(physics) is deepinv_physics.Denoising and bool((physics.mask == 1).all()):
        identity = Identity()  # for which the model has a learned strength
        identity.noise = _noise(physics)
        return identity
    return DeepInverse(physics)


class DeepInverse(Adapted):
    """A `LinearPhysics` as an operator: `A` and `A_adjoint`, of images and measurements as DeepInverse lays them out.

    So complex images and k-space of its MRI stay real tensors with two channels, real and imaginary part.
    """

    def __init__(self, physics: Any):
        super().__init__(physics.A, physics.A_adjoint, type(physics).__name__)
        self.physics = physics
        self.noise = _noise(physics)
        self.image_shape = _image_shape(physics)
        self.complex_channels = _is_mri(_first(physics))
        self.data_range = None if self.complex_channels else 1.0  # its convention; k-space comes in any units

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> DeepInverse:
        return DeepInverse(_moved_physics(self.physics, device, dtype))

    @property
    def device(self) -> torch.device:
        return next((tensor.device for tensor in self.physics.buffers()), torch.device("cpu"))


def _first(physics: Any) -> Any:
    """What acts on the image."""
    return physics.physics_list[0] if isinstance(physics, deepinv_physics.ComposedLinearPhysics) else physics


def _is_mri(physics: Any) -> bool:
    return isinstance(physics, (deepinv_physics.MRI, deepinv_physics.MultiCoilMRI))


def _noise(physics: Any) -> Tensor | None:
    model = physics.noise_model
    return model.sigma if isinstance(model, deepinv_physics.GaussianNoise) else None


def _image_shape(physics: Any) -> tuple[int | None, ...] | None:
    """`(C, H, W)`, where the physics says it; one channel is any number of them, as everywhere in DeepInverse."""
    physics = _first(physics)
    if _is_mri(physics):
        return (2, *physics.mask.shape[-2:])  # its img_size is not always that of the mask
    size = getattr(physics, "img_size", None) or getattr(physics, "imsize", None)
    if not isinstance(size, (tuple, list)) or len(size) not in (2, 3):
        return None
    channels = size[0] if len(size) == 3 and size[0] > 1 else None
    return (channels, *size[-2:])


def _moved_physics(physics: Any, device: torch.device | str | None, dtype: torch.dtype | None) -> Any:
    """The physics itself where nothing changes, else a copy, since a caller's physics must not move."""
    tensors = (*physics.parameters(), *physics.buffers())
    if all(moved(tensor, device, dtype) is tensor for tensor in tensors):
        return physics
    # not Module.to, which would make complex tensors real
    return physics.clone()._apply(lambda tensor: moved(tensor, device, dtype))


# Our model as its reconstructor and its denoiser

AnyWeights = Model | str | os.PathLike[str] | None
GIVEN = "given"  # the key of a model that is not chosen after the image


class DEAL(deepinv_models.Reconstructor):
    """Reconstructs `x` from `y = A x + noise`, for any linear physics: `x = DEAL()(y, physics)`.

    Sigma and lam follow from the noise: from `noise`, or from the physics where its noise is Gaussian.

    Args:
        weights: bundled ones, a file, or a model, as in `torchdeal.load`; None: color for three channels, else
            gray. Real and imaginary part of a complex image are two gray images.
        sigma: the noise level that the model assumes, in the units of the image.
        lam: strength of the regularisation.
        noise: standard deviation of the noise in the measurements.
        tolerance: on the estimated relative distance to the fixed point.
        max_iterations: outer iterations at most.
        channelwise: apply a gray model to each channel of the image on its own.
        symmetries: how many the image is the mean over, as in `torchdeal.reconstruct`.
        data_range: the value of white in the image, as in `torchdeal.reconstruct`; by default 1.0, for MRI `"auto"`.
        device: where the weights are, the CPU if None.
    """

    def __init__(
        self,
        weights: AnyWeights = None,
        *,
        sigma: PerSample | None = None,
        lam: PerSample | None = None,
        noise: PerSample | None = None,
        tolerance: float = DEFAULT_TOLERANCE,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        channelwise: bool = False,
        symmetries: int = 1,
        data_range: float | str | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        self.models = _models(weights, device)
        self.sigma, self.lam, self.noise = sigma, lam, noise
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.channelwise, self.symmetries, self.data_range = channelwise, symmetries, data_range

    def forward(self, y: Tensor, physics: Any, **given: PerSample | None) -> Tensor:
        """The image, as the physics lays it out. What else is given is for `solve`."""
        with torch.no_grad():  # `_result` refuses what would need a gradient
            solution = self.solve(y, physics, **given)
        return _result(solution, (y, *given.values(), *_tensors(physics), *_tensors(self)))

    def solve(
        self,
        y: Tensor,
        physics: Any,
        *,
        sigma: PerSample | None = None,
        lam: PerSample | None = None,
        noise: PerSample | None = None,
    ) -> Solution:
        """Like `forward`, with all that is known about the result: how the run ended, and how far it may be from the
        fixed point. Sigma, lam and noise are for this call: one number, or one per sample.
        """
        return reconstruct(
            y,
            physics,
            model=self._model(y, physics),
            sigma=self.sigma if sigma is None else sigma,
            lam=self.lam if lam is None else lam,
            noise=self.noise if noise is None else noise,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            channelwise=self.channelwise,
            symmetries=self.symmetries,
            data_range=self.data_range,
        )

    def _model(self, y: Tensor, physics: Any) -> Model:
        with torch.no_grad():
            channels = as_operator(physics).to(y.device, y.real.dtype).adjoint(y).shape[1]
        return _chosen(self.models, channels, self.channelwise)


class Denoiser(deepinv_models.Denoiser):
    """Removes white Gaussian noise of standard deviation `sigma` from images in 0..1: `x = Denoiser()(y, sigma)`.

    Args:
        weights: as in `DEAL`. With None, an image of two channels is complex, as in the MRI of DeepInverse.
        tolerance, max_iterations, channelwise, device: as in `DEAL`.
    """

    def __init__(
        self,
        weights: AnyWeights = None,
        *,
        tolerance: float = DEFAULT_TOLERANCE,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        channelwise: bool = False,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        self.models = _models(weights, device)
        self.tolerance, self.max_iterations, self.channelwise = tolerance, max_iterations, channelwise

    def forward(self, x: Tensor, sigma: PerSample) -> Tensor:
        """The denoised images `(B, C, H, W)`; sigma is one number, or one per sample."""
        if x.ndim != 4:
            raise ValueError(f"the image must be (B, C, H, W), got {tuple(x.shape)}")
        model = self._model(x.shape[1])
        levels = torch.as_tensor(sigma, device=x.device).detach().flatten()
        images = x.reshape(-1, model.channels, *x.shape[-2:])
        if len(levels) == len(x):
            levels = levels.repeat_interleave(len(images) // len(x))
        with torch.no_grad():
            solution = reconstruct(
                images,
                model=model,
                sigma=levels,
                tolerance=self.tolerance,
                max_iterations=self.max_iterations,
                data_range=1.0,  # said, since iterates of an algorithm may lie far beyond, and are no mistake
            )
        return _result(solution, (x, sigma, *_tensors(self))).reshape(x.shape)

    def _model(self, channels: int) -> Model:
        """The model for images of so many channels, or the gray one if it is to see each of them."""
        model = _chosen(self.models, channels, self.channelwise)
        separate = self.channelwise or channels == 2
        if model.channels != channels and not (model.channels == 1 and separate):
            raise ValueError(
                f"the image has {channels} channels and the model {model.channels}: "
                "use other weights, or gray ones and channelwise=True"
            )
        return model


def _models(weights: AnyWeights, device: torch.device | str | None) -> nn.ModuleDict:
    """The model with these weights, or both that are bundled: they move and are saved with the module."""
    if weights is None:
        return nn.ModuleDict({name: load(name, device=device) for name in ("gray", "color")})
    model = weights if isinstance(weights, Model) else load(weights)
    return nn.ModuleDict({GIVEN: model.to(device)})


def _chosen(models: nn.ModuleDict, channels: int, channelwise: bool) -> Any:
    return models[GIVEN if GIVEN in models else default_weights(channels, channelwise)]


def _tensors(module: Any) -> tuple[Tensor, ...]:
    return (*module.parameters(), *module.buffers()) if isinstance(module, nn.Module) else ()


def _result(solution: Solution, inputs: Iterable[Any]) -> Tensor:
    """The image, such that a derivative with respect to an input is an error rather than missing.

    It comes with a warning if it is not known to have converged.
    """
    if not solution.converged:
        warnings.warn(str(solution), ConvergenceWarning, stacklevel=3)
    return _NoGradient.apply(solution.x, *(value for value in inputs if isinstance(value, Tensor)))  # pyright: ignore[reportReturnType]


class _NoGradient(torch.autograd.Function):
    """The first argument, without derivatives in the others."""

    @staticmethod
    def forward(x: Tensor, *inputs: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            "torchdeal.deepinv is for inference, without gradients: call it under torch.no_grad(), or detach its result"
        )

    jvp = backward  # of forward mode
