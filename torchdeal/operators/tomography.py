"""Operators of computed tomography."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.operators.base import Operator
from torchdeal.operators.ray_matrix import Rays, SparseRows, backprojection_matrix, projection_matrix

CHUNK_NUMBERS = 2**24  # samples of rays that are taken at a time
MATRIX_BYTES = 1.5e9  # the most that the matrix and its transpose may take
WEIGHTS_PER_PIXEL = 2.2  # at an angle: the rays that see it, on average
INDEX_BYTES = 4


class Radon(Operator):
    """Parallel-beam CT: integrals of the image along rays, in pixels, by bilinear interpolation.

    The geometry is that of scikit-image's `radon`: angle 0 sums over the rows, and the detector has a bin for each
    column of the image, or, if `circle` is False, of the larger square that holds it in any orientation. Measurements
    are `(B, C, angles, bins)`; scikit-image has them transposed, `(bins, angles)`.

    The first application builds a sparse matrix, the first adjoint its transpose. They are kept for each device and
    precision of the data, by the operator and its copies on other devices, and take `35 * angles * H * W` bytes in
    float32, 53 in float64: 138 MB for 60 angles of 256 x 256. Where that is more than 1.5 GB, rays are interpolated
    each time they are needed, which is about 50 times slower on a CPU; and on CUDA, the last bits of such an adjoint
    are not the same each time.

    Args:
        angles: in degrees.
        size: `(H, W)` of the image.
        circle: the image is square, and zero outside its inscribed circle.
    """

    trusted = True
    _matrix_bytes = MATRIX_BYTES
    _in_segments = False  # multiplies on the CPU as on CUDA

    def __init__(self, angles: Tensor | np.ndarray, size: tuple[int, int], *, circle: bool = False):
        self.angles = torch.as_tensor(angles, dtype=torch.float64).flatten()
        if not self.angles.numel() or not bool(torch.isfinite(self.angles).all()):
            raise ValueError("the angles must be finite numbers, at least one")
        height, width = self.size = (size[0], size[1])
        if circle and height != width:
            raise ValueError(f"circle is for square images, this one is {height} x {width}: leave it out")
        self.bins = width if circle else math.ceil(math.sqrt(2) * max(height, width))
        self.image_shape = (None, height, width)
        self.measurement_shape = (None, len(self.angles), self.bins)
        self._matrices: dict[tuple[torch.device, torch.dtype, bool], SparseRows] = {}

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Radon:
        """A copy on the device, with the same matrices; the angles keep their precision."""
        moved = super().to(device)
        moved._matrices = self._matrices
        return moved

    def __getstate__(self) -> dict[str, object]:
        """Without the matrices: they are larger than what they are made of."""
        return {**vars(self), "_matrices": {}}

    def _forward(self, x: Tensor) -> Tensor:
        return _Linear.apply(x, self._project, self._backproject)  # pyright: ignore[reportReturnType]

    def _adjoint(self, y: Tensor) -> Tensor:
        return _Linear.apply(y, self._backproject, self._project)  # pyright: ignore[reportReturnType]

    def _project(self, x: Tensor) -> Tensor:
        if x.is_complex():
            return torch.complex(self._project(x.real), self._project(x.imag))
        images = x.flatten(0, 1)
        rays = self._multiply(images, transposed=False) if self._has_matrix(x.dtype) else self._sample(images)
        return rays.reshape(*x.shape[:2], len(self.angles), self.bins)

    def _backproject(self, y: Tensor) -> Tensor:
        """The transpose of `_project`."""
        if y.is_complex():
            return torch.complex(self._backproject(y.real), self._backproject(y.imag))
        rays = y.flatten(0, 1)
        images = self._multiply(rays, transposed=True) if self._has_matrix(y.dtype) else self._spread(rays)
        return images.reshape(*y.shape[:2], *self.size)

    def _has_matrix(self, dtype: torch.dtype) -> bool:
        if dtype not in (torch.float32, torch.float64):  # sparse products of others do not exist
            return False
        weights = WEIGHTS_PER_PIXEL * len(self.angles) * math.prod(self.size)
        return 2 * weights * (INDEX_BYTES + dtype.itemsize) <= self._matrix_bytes

    def _multiply(self, images: Tensor, *, transposed: bool) -> Tensor:
        matrix = self._matrix(images, transposed)
        columns = images.flatten(1)
        in_segments = images.is_cuda or self._in_segments
        return matrix.multiply_in_segments(columns) if in_segments else matrix.multiply(columns)

    def _matrix(self, like: Tensor, transposed: bool) -> SparseRows:
        key = like.device, like.dtype, transposed
        if key not in self._matrices:
            radians = torch.deg2rad(self.angles.to(like.device))
            rays = Rays(radians.cos(), radians.sin(), self.size, self.bins)
            build = backprojection_matrix if transposed else projection_matrix
            self._matrices[key] = build(rays, like.dtype)
        return self._matrices[key]

    def _sample(self, images: Tensor) -> Tensor:
        """The projections, `(images, angles, bins)`, of `(images, H, W)`, with no matrix."""
        parts = []
        for angles in self.angles.split(self._chunk(images)):
            rays = F.grid_sample(images.expand(len(angles), -1, -1, -1), self._grid(angles, images), align_corners=True)
            parts.append(rays.sum(-2))
        return torch.cat(parts).transpose(0, 1)

    def _spread(self, rays: Tensor) -> Tensor:
        """The transpose of `_sample`: what a ray has seen goes back to the pixels it was interpolated from."""
        images = rays.new_zeros(len(rays), *self.size)
        chunk = self._chunk(images)
        for angles, seen in zip(self.angles.split(chunk), rays.transpose(0, 1).split(chunk), strict=True):
            spread = seen[:, :, None, :].expand(-1, -1, self.bins, -1)
            places = images.expand(len(angles), -1, -1, -1)
            options = 0, 0, True  # bilinear, zeros beyond the image, corners aligned
            grid = self._grid(angles, rays)
            parts, _ = torch.ops.aten.grid_sampler_2d_backward(spread, places, grid, *options, [True, False])
            images = images + parts.sum(0)
        return images

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
        return max(1, CHUNK_NUMBERS // (len(images) * self.bins**2))


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
