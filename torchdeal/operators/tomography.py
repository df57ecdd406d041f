"""Operators of computed tomography."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.operators.base import Operator

CHUNK_NUMBERS = 2**24  # samples of rays that are taken at a time


class Radon(Operator):
    """Parallel-beam CT: integrals of the image along rays, in pixels, by bilinear interpolation.

    The geometry is that of scikit-image's `radon`: angle 0 sums over the rows, and the detector has a bin for each
    column of the image, or, if `circle` is False, of the larger square that holds it in any orientation. Measurements
    are `(B, C, angles, bins)`; scikit-image has them transposed, `(bins, angles)`.

    Args:
        angles: in degrees.
        size: `(H, W)` of the image.
        circle: the image is square, and zero outside its inscribed circle.
    """

    measures_images = False

    def __init__(self, angles: Tensor | np.ndarray, size: tuple[int, int], *, circle: bool = False):
        self.angles = torch.as_tensor(angles, dtype=torch.float64).flatten()
        if not self.angles.numel() or not bool(torch.isfinite(self.angles).all()):
            raise ValueError("the angles must be finite numbers, at least one")
        height, width = self.size = tuple(size)
        if circle and height != width:
            raise ValueError(f"circle is for square images, this one is {height} x {width}: leave it out")
        self.bins = width if circle else math.ceil(math.sqrt(2) * max(height, width))
        self.image_shape = (None, height, width)
        self.measurement_shape = (None, len(self.angles), self.bins)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Radon:
        """A copy on the device; the angles keep their precision."""
        moved = super().to(device)
        moved.angles = self.angles.to(moved.angles.device)
        return moved

    def _forward(self, x: Tensor) -> Tensor:
        return _Linear.apply(x, self._project, self._backproject)  # pyright: ignore[reportReturnType]

    def _adjoint(self, y: Tensor) -> Tensor:
        return _Linear.apply(y, self._backproject, self._project)  # pyright: ignore[reportReturnType]

    def _project(self, x: Tensor) -> Tensor:
        if x.is_complex():
            return torch.complex(self._project(x.real), self._project(x.imag))
        images = x.reshape(1, -1, *x.shape[-2:])
        parts = []
        for angles in self.angles.split(self._chunk(images)):
            grid = self._grid(angles, x)
            rays = F.grid_sample(images.expand(len(angles), -1, -1, -1), grid, align_corners=True)
            parts.append(rays.sum(-2))
        return torch.cat(parts).transpose(0, 1).reshape(*x.shape[:2], len(self.angles), self.bins)

    def _backproject(self, y: Tensor) -> Tensor:
        """The transpose of `_project`: what a ray has seen goes back to the pixels it was interpolated from."""
        if y.is_complex():
            return torch.complex(self._backproject(y.real), self._backproject(y.imag))
        rays = y.reshape(-1, len(self.angles), self.bins).transpose(0, 1)
        image = y.new_zeros(1, rays.shape[1], *self.size)
        chunk = self._chunk(image)
        for angles, seen in zip(self.angles.split(chunk), rays.split(chunk), strict=True):
            grid = self._grid(angles, y)
            spread = seen[:, :, None, :].expand(-1, -1, self.bins, -1)
            places = image.expand(len(angles), -1, -1, -1)
            options = 0, 0, True  # bilinear, zeros beyond the image, corners aligned
            parts, _ = torch.ops.aten.grid_sampler_2d_backward(spread, places, grid, *options, [True, False])
            image = image + parts.sum(0, keepdim=True)
        return image.reshape(*y.shape[:2], *self.size)

    def _grid(self, angles: Tensor, like: Tensor) -> Tensor:
        """Where the rays are sampled, `(angles, bins, bins, 2)`: x and y, the corner pixels at -1 and 1."""
        along = torch.arange(self.bins, dtype=torch.float64, device=like.device)
        radians = torch.deg2rad(angles.to(like.device))
        cos, sin = radians.cos()[:, None, None], radians.sin()[:, None, None]
        centre = self.bins // 2
        column, row = along[None, None, :] - centre, along[None, :, None] - centre
        x, y = cos * column + sin * row, cos * row - sin * column
        height, width = self.size
        grid = torch.stack([2 * (x + width // 2) / (width - 1) - 1, 2 * (y + height // 2) / (height - 1) - 1], -1)
        return grid.to(like.dtype)

    def _chunk(self, images: Tensor) -> int:
        return max(1, CHUNK_NUMBERS // (images.shape[1] * self.bins**2))


class _Linear(torch.autograd.Function):
    """A linear map whose gradient is its transpose."""

    @staticmethod
    def forward(ctx, x: Tensor, apply: Callable[[Tensor], Tensor], transpose: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.maps = apply, transpose
        return apply(x)

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        apply, transpose = ctx.maps
        return _Linear.apply(grad, transpose, apply), None, None
