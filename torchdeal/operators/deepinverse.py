"""Physics of DeepInverse as operators. It is imported only where a physics was passed, so DeepInverse is there."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from torchdeal.operators.adapters import Adapted
from torchdeal.operators.base import Operator, moved_tensor
from torchdeal.operators.imaging import Identity


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


def from_physics(physics: Any) -> Operator:
    """A physics of DeepInverse as an operator; TypeError if DEAL cannot take it."""
    library, name = _library(), type(physics).__name__
    if not isinstance(physics, library.LinearPhysics):
        raise TypeError(f"{name} is not linear: give a deepinv.physics.LinearPhysics")
    if isinstance(physics, library.StackedPhysics):
        raise TypeError(
            f"{name} measures a list of tensors: stack its parts by torchdeal.operators.Stack, "
            "which takes their measurements flattened and concatenated"
        )
    if _is_mri(_first(physics)) and _first(physics).mask.ndim > 4:
        raise TypeError(f"{name} is for volumes or sequences: reconstruct their slices or frames, with MRI")
    if type(physics) is library.Denoising and bool((physics.mask == 1).all()):
        identity = Identity()  # for which the model has a learned strength
        identity.noise = _noise(physics)
        return identity
    return DeepInverse(physics)


def _library() -> Any:
    return sys.modules["deepinv.physics"]


def _first(physics: Any) -> Any:
    """What acts on the image."""
    return physics.physics_list[0] if isinstance(physics, _library().ComposedLinearPhysics) else physics


def _is_mri(physics: Any) -> bool:
    return isinstance(physics, (_library().MRI, _library().MultiCoilMRI))


def _noise(physics: Any) -> Tensor | None:
    model = physics.noise_model
    return model.sigma if isinstance(model, _library().GaussianNoise) else None


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
    if all(moved_tensor(tensor, device, dtype) is tensor for tensor in tensors):
        return physics
    # not Module.to, which would make complex tensors real
    return physics.clone()._apply(lambda tensor: moved_tensor(tensor, device, dtype))
