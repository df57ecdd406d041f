"""Computed tomography: the operator, and the sparse matrices that it is."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.operators.base import Linear, Operator, Self
from torchdeal.operators.given import as_size, number_tensor

CHUNK_NUMBERS = 2**24  # samples of rays that are taken at a time
MATRIX_BYTES = 1.5e9  # the most that the matrix and its transpose may take
WEIGHTS_PER_PIXEL = 2.2  # at an angle: the rays that see it, on average
INDEX_BYTES = 4
BLOCK_NUMBERS = 2**17  # pairs of an angle and a pixel that are weighted at a time: they stay in the cache
LEAST_WEIGHT = 1e-12  # what is less is a rounding error, at angles such as 90 degrees
MOST_PIXELS = 2**29  # so that indices, of pixels and of bytes, do not overflow
MANY = 8  # angles, from which on a small range looks like a mistake of units
OUT_OF_REACH = 9.0  # a distance at which interpolation has no weight, in any direction

Part = tuple[Tensor, Tensor, Tensor]  # some rows of a matrix: the entries in each, all columns, all values


class Projector(Operator):
    """Sums of the image along rays, `(B, C, angles, bins)`: a sparse matrix, built where it is first needed.

    A subclass builds it, and applies itself without one, for where that would be too large.
    """

    _matrix_bytes = MATRIX_BYTES
    _in_segments = False  # multiplies on the CPU as on CUDA

    def __init__(self, angles: Sequence[float] | Tensor | np.ndarray, size: tuple[int, int], bins: int, center: float):
        self.angles = as_angles(angles)
        self.size, self.bins = size, bins
        if math.prod(size) > MOST_PIXELS or bins > MOST_PIXELS:
            raise ValueError(f"an image of {size[0]} x {size[1]} seen by {bins} bins is too large")
        if not isinstance(center, Real) or not math.isfinite(center):
            raise ValueError(f"center must be a finite number of bins, got {center!r}")
        self.center = float(center)
        self.image_shape = (None, *size)
        self.measurement_shape = (None, len(self.angles), bins)
        self._matrices: dict[tuple[torch.device, torch.dtype, bool], Tensor] = {}

    @abstractmethod
    def _weights(self) -> float:
        """How many there are in the matrix, about."""

    @abstractmethod
    def _matrix(self, like: Tensor, transposed: bool) -> Tensor:
        """From pixels to rays, or its transpose, in sparse rows, for values of this kind."""

    @abstractmethod
    def _sample(self, images: Tensor) -> Tensor:
        """The projections, `(images, angles, bins)`, of `(images, H, W)`, with no matrix."""

    @abstractmethod
    def _spread(self, rays: Tensor) -> Tensor:
        """The transpose of `_sample`: what a ray has seen goes back to the pixels it was interpolated from."""

    def to(self: Self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """A copy on the device, with the same matrices; the angles keep their precision."""
        return super().to(device)

    def __getstate__(self) -> dict[str, object]:
        """Without the matrices: they are larger than what they are made of."""
        return {**vars(self), "_matrices": {}}

    def _forward(self, x: Tensor) -> Tensor:
        return Linear.apply(x, self._apply, False)  # pyright: ignore[reportReturnType]

    def _adjoint(self, y: Tensor) -> Tensor:
        return Linear.apply(y, self._apply, True)  # pyright: ignore[reportReturnType]

    def _apply(self, values: Tensor, transposed: bool) -> Tensor:
        """The projections of images, or the images of what goes back from projections."""
        if values.is_complex():
            return torch.complex(self._apply(values.real, transposed), self._apply(values.imag, transposed))
        if not values.is_floating_point():
            raise TypeError(f"{type(self).__name__} needs floating-point numbers, got {values.dtype}: use .float()")
        flat = values.flatten(0, 1)
        if self._has_matrix(values.dtype):
            result = self._multiply(flat, transposed)
        else:
            result = self._spread(flat) if transposed else self._sample(flat)
        return result.reshape(*values.shape[:2], *(self.size if transposed else (len(self.angles), self.bins)))

    def _has_matrix(self, dtype: torch.dtype) -> bool:
        if dtype not in (torch.float32, torch.float64):  # sparse products of others do not exist
            return False
        return 2 * self._weights() * (INDEX_BYTES + dtype.itemsize) <= self._matrix_bytes

    def _multiply(self, values: Tensor, transposed: bool) -> Tensor:
        key = values.device, values.dtype, transposed
        if key not in self._matrices:
            self._matrices[key] = self._matrix(values, transposed)
        matrix, columns = self._matrices[key], values.flatten(1)
        if values.is_cuda or self._in_segments:
            return torch.stack([segment_sums(matrix, column) for column in columns])
        return (matrix @ columns.T.contiguous()).T


class Radon(Projector):
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
        size: `(H, W)` of the image, or one number for a square.
        circle: the image is square, and zero outside its inscribed circle.
        bins: of the detector, each as wide as a pixel; by default as above.
        center: how many bins the rotation axis lies beyond the bin `bins // 2`, where scikit-image has it. Of an even
            number of bins whose middle is the axis this is -0.5.
    """

    trusted = True

    def __init__(
        self,
        angles: Sequence[float] | Tensor | np.ndarray,
        size: int | tuple[int, int],
        *,
        circle: bool = False,
        bins: int | None = None,
        center: float = 0.0,
    ):
        height, width = as_size(size)
        if circle and height != width:
            raise ValueError(f"circle is for square images, this one is {height} x {width}: leave it out")
        self.samples = width if circle else math.ceil(math.sqrt(2) * max(height, width))  # of a ray
        super().__init__(angles, (height, width), as_bins(bins) or self.samples, center)

    def _weights(self) -> float:
        return WEIGHTS_PER_PIXEL * len(self.angles) * math.prod(self.size)

    def _matrix(self, like: Tensor, transposed: bool) -> Tensor:
        radians = torch.deg2rad(self.angles.to(like.device))
        rays = Rays(radians.cos(), radians.sin(), self.size, self.bins, self.samples, self.center)
        return ray_matrix(rays, like.dtype, transposed=transposed)

    def _sample(self, images: Tensor) -> Tensor:
        parts = []
        for angles in self.angles.split(self._chunk(images)):
            rays = F.grid_sample(images.expand(len(angles), -1, -1, -1), self._grid(angles, images), align_corners=True)
            parts.append(rays.sum(-2))
        return torch.cat(parts).transpose(0, 1)

    def _spread(self, rays: Tensor) -> Tensor:
        images = rays.new_zeros(len(rays), *self.size)
        chunk = self._chunk(images)
        for angles, seen in zip(self.angles.split(chunk), rays.transpose(0, 1).split(chunk), strict=True):
            spread = seen[:, :, None, :].expand(-1, -1, self.samples, -1)
            places = images.expand(len(angles), -1, -1, -1)
            options = 0, 0, True  # bilinear, zeros beyond the image, corners aligned
            grid = self._grid(angles, rays)
            parts, _ = torch.ops.aten.grid_sampler_2d_backward(spread, places, grid, *options, [True, False])
            images = images + parts.sum(0)
        return images

    def _grid(self, angles: Tensor, like: Tensor) -> Tensor:
        """Where the rays are sampled, `(angles, samples, bins, 2)`: x and y, the corner pixels at -1 and 1."""
        across = torch.arange(self.bins, dtype=torch.float64, device=like.device)
        along = torch.arange(self.samples, dtype=torch.float64, device=like.device)
        radians = torch.deg2rad(angles.to(like.device))
        cos, sin = radians.cos()[:, None, None], radians.sin()[:, None, None]
        column = across[None, None, :] - (self.bins // 2 + self.center)
        row = along[None, :, None] - self.samples // 2
        x, y = cos * column + sin * row, cos * row - sin * column
        height, width = self.size
        grid = torch.stack([2 * (x + width // 2) / (width - 1) - 1, 2 * (y + height // 2) / (height - 1) - 1], -1)
        return grid.to(like.dtype)

    def _chunk(self, images: Tensor) -> int:
        return max(1, CHUNK_NUMBERS // (len(images) * self.bins * self.samples))


def as_angles(angles: Sequence[float] | Tensor | np.ndarray) -> Tensor:
    """In degrees, `(angles,)`, float64, checked."""
    values = number_tensor("angles", angles).detach().cpu()
    if values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"the angles must be real numbers, in degrees, got {values.dtype}")
    if values.ndim == 0:
        raise ValueError("the angles must be a list, in degrees: for 180 steps of a degree numpy.arange(180)")
    values = values.to(torch.float64, copy=True).flatten()
    if not values.numel() or not bool(torch.isfinite(values).all()):
        raise ValueError("the angles must be finite numbers, at least one")
    if look_like_radians(values):
        warnings.warn(
            f"the angles go from {float(values.min()):.3g} to {float(values.max()):.3g}: they are taken for degrees; "
            "if they are radians, convert them by numpy.rad2deg",
            stacklevel=4,
        )
    return values


def look_like_radians(angles: Tensor) -> bool:
    """Many angles over half a turn or a whole one, if they were radians."""
    return len(angles) >= MANY and float(angles.max() - angles.min()) > 2.8 and float(angles.abs().max()) < 6.3


def as_bins(bins: int | None) -> int | None:
    if bins is not None and (isinstance(bins, bool) or not isinstance(bins, Integral) or bins < 1):
        raise ValueError(f"bins must be how many the detector has, a whole number from 1, got {bins!r}")
    return bins if bins is None else int(bins)


@dataclass(frozen=True)
class Rays:
    """Parallel rays, one for each bin at each angle, 1 apart, with samples 1 apart.

    They are numbered angle by angle; pixels row by row.
    """

    cos: Tensor  # of the angles, (angles,), float64
    sin: Tensor
    size: tuple[int, int]  # of the image, (H, W)
    bins: int
    samples: int  # of a ray
    center: float  # of the rotation axis, in bins, relative to the bin `bins // 2`

    @property
    def pixels(self) -> Tensor:
        """All of them."""
        return torch.arange(self.size[0] * self.size[1], device=self.cos.device)

    def weights(self, cos: Tensor, sin: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The bins near a pixel and its weights in their rays, `(..., 3)`, for angles and pixels that are broadcast.

        Bilinear interpolation reaches less than 1 far in x and y, so that only the three nearest rays can see a pixel,
        each by its three samples that are nearest.
        """
        height, width = self.size
        x, y = pixels % width - width // 2, pixels // width - height // 2
        bins, aside = _nearest(cos * x - sin * y + (self.bins // 2 + self.center), self.bins)
        _, ahead = _nearest(sin * x + cos * y + self.samples // 2, self.samples)
        aside_x, aside_y = cos * aside, sin * aside
        weights = torch.zeros_like(aside)
        for step in ahead:
            away_x = (aside_x + sin * step).abs_().clamp_max_(1)
            away_y = (aside_y - cos * step).abs_().clamp_max_(1)
            weights.addcmul_(away_x.sub_(1), away_y.sub_(1))
        return bins.movedim(0, -1), weights.movedim(0, -1)


def _nearest(place: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The three bins, or samples, around a place, `(3, ...)`, and their distances; some may not exist."""
    nearby = torch.stack([place.round() + offset for offset in (-1, 0, 1)])
    absent = (nearby < 0) | (nearby >= number)
    return nearby, (nearby - place).masked_fill_(absent, OUT_OF_REACH)


def ray_matrix(rays: Rays, dtype: torch.dtype, *, transposed: bool) -> Tensor:
    """From pixels to rays, or its transpose, in sparse rows: weights are cheaper to compute again than to sort.

    Its indices are int32: half the memory of int64, and what MKL works with.

    Parts are copied as they come, into the most that there can be, and do not stay beside the whole.
    """
    parts = _rows_of_pixels(rays, dtype) if transposed else _rows_of_rays(rays, dtype)
    angles, pixels, device = len(rays.cos), len(rays.pixels), rays.cos.device
    columns = torch.empty(3 * angles * pixels, dtype=torch.int32, device=device)
    values = torch.empty(3 * angles * pixels, dtype=dtype, device=device)
    counts, end = [], 0
    for part in parts:
        start, end = end, end + len(part[2])
        columns[start:end], values[start:end] = part[1:]
        counts.append(part[0])
    columns, values = columns[:end].clone(), values[:end].clone()  # gives the rest back
    return sparse_rows(torch.cat(counts), columns, values, angles * rays.bins if transposed else pixels)


def sparse_rows(counts: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    """A matrix from how many entries each of its rows has, and the columns and values of all."""
    starts = F.pad(counts.cumsum(0), (1, 0)).int()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(starts, columns, values, (len(counts), width), check_invariants=False)


def segment_sums(matrix: Tensor, x: Tensor) -> Tensor:
    """`matrix @ x` for CUDA, where cuSPARSE may add in another order each time."""
    terms = x.index_select(0, matrix.col_indices()).mul_(matrix.values())
    return torch.segment_reduce(terms, "sum", offsets=matrix.crow_indices(), unsafe=True)  # unsafe: no checks


def _rows_of_rays(rays: Rays, dtype: torch.dtype) -> Iterator[Part]:
    """The rows of one angle after the other."""
    pixels = rays.pixels
    for cos, sin in zip(rays.cos, rays.sin, strict=True):
        bins, weights = (numbers.flatten() for numbers in rays.weights(cos, sin, pixels))
        kept = (weights > LEAST_WEIGHT).nonzero()[:, 0]
        bins, order = bins.take(kept).int().sort(stable=True)
        kept = kept.take(order)
        yield bins.bincount(minlength=rays.bins), (kept // 3).int(), weights.take(kept).to(dtype)


def _rows_of_pixels(rays: Rays, dtype: torch.dtype) -> Iterator[Part]:
    """The rows of one block of pixels after the other."""
    angles = len(rays.cos)
    first_ray = rays.bins * torch.arange(angles, device=rays.cos.device)[:, None]
    for pixels in rays.pixels.split(max(1, BLOCK_NUMBERS // angles)):
        bins, weights = rays.weights(rays.cos, rays.sin, pixels[:, None])
        seen = weights > LEAST_WEIGHT
        kept = seen.flatten().nonzero()[:, 0]
        yield seen.sum((1, 2)), (bins + first_ray).take(kept).int(), weights.take(kept).to(dtype)
