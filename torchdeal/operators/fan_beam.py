"""Fan-beam tomography: rays from a point to a straight detector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.given import as_size
from torchdeal.operators.tomography import LEAST_WEIGHT, Part, Projector, as_bins, segment_sums, sparse_rows


class FanBeam(Projector):
    """Fan-beam CT with a flat detector: integrals of the image along rays, in pixels, by Joseph's method.

    A ray is sampled in each row or each column that it crosses, whichever are more, by linear interpolation between two
    pixels. Lengths are in pixels. At angle 0 the source is below the image, the detector above, and its bins go from
    left to right; the source then goes counter-clockwise. So it is in ASTRA (`fanflat`); and with a source far
    away it is `Radon`.

    Measurements are `(B, C, angles, bins)`. A sparse matrix is kept as by `Radon`; it takes about `32 * angles * bins *
    max(H, W)` bytes in float32. Where that is more than 1.5 GB, weights are computed each time they are needed.

    Args:
        angles: in degrees; mostly a whole turn.
        size: `(H, W)` of the image, or one number for a square.
        source: its distance from the rotation axis; it must be outside the image.
        detector: its distance from the rotation axis.
        bins: of the detector; by default as many as see the whole image at any angle.
        pitch: the width of a bin. At `(source + detector) / source`, the magnification, a bin is as wide as a pixel
            where its shadow falls on the axis.
        center: how many bins the shadow of the axis lies beyond the bin `bins // 2`.
    """

    trusted = True

    def __init__(
        self,
        angles: Sequence[float] | Tensor | np.ndarray,
        size: int | tuple[int, int],
        source: float,
        detector: float,
        *,
        bins: int | None = None,
        pitch: float = 1.0,
        center: float = 0.0,
    ):
        height, width = as_size(size)
        reach = math.hypot(height // 2 + 1, width // 2 + 1)  # from the axis to the farthest corner
        self.source, self.pitch = _length("source", source), _length("pitch", pitch)
        self.distance = self.source + _length("detector", detector, zero=True)  # from the source to the detector
        if self.source <= reach:
            raise ValueError(
                f"the source is inside the image: it is {self.source:g} pixels from the axis, and the corners are "
                f"{reach:.1f} pixels away; check the unit of the distance"
            )
        shadow = self.distance * math.tan(math.asin(reach / self.source)) / self.pitch
        super().__init__(angles, (height, width), as_bins(bins) or 2 * math.ceil(shadow) + 1, center)

    def _weights(self) -> float:
        return 2.0 * max(self.size) * len(self.angles) * self.bins

    def _matrix(self, like: Tensor, transposed: bool) -> Tensor:
        shape = (len(self.angles) * self.bins, math.prod(self.size))
        rows = list(self._parts(like))
        counts, columns, weights = (torch.cat(parts) for parts in zip(*rows, strict=True))
        if not transposed:
            return sparse_rows(counts, columns, weights, shape[1])
        columns, order = columns.sort(stable=True)
        rays = torch.arange(shape[0], device=like.device, dtype=torch.int32).repeat_interleave(counts)
        return sparse_rows(columns.bincount(minlength=shape[1]), rays[order], weights[order], shape[0])

    def _sample(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        parts = [
            torch.stack([segment_sums(sparse_rows(*part, flat.shape[1]), image) for image in flat])
            for part in self._parts(flat)
        ]
        return torch.stack(parts, 1)

    def _spread(self, rays: Tensor) -> Tensor:
        images = rays.new_zeros(len(rays), math.prod(self.size))
        for seen, (counts, columns, weights) in zip(rays.unbind(1), self._parts(rays), strict=True):
            images.index_add_(1, columns, weights * seen.repeat_interleave(counts, 1))
        return images

    def _parts(self, like: Tensor) -> Iterator[Part]:
        """The rows of the matrix, one angle after the other."""
        for radians in torch.deg2rad(self.angles).tolist():
            pixels, weights = self._rays(math.cos(radians), math.sin(radians), like.device)
            seen = weights > LEAST_WEIGHT
            yield seen.sum(1), pixels[seen].int(), weights[seen].to(like.dtype)

    def _rays(self, cos: float, sin: float, device: torch.device) -> tuple[Tensor, Tensor]:
        """At an angle: the pixels that each ray sees, `(bins, 2 * max(H, W))`, and their weights."""
        bins = torch.arange(self.bins, dtype=torch.float64, device=device)
        along = (bins - (self.bins // 2 + self.center)) * self.pitch
        # x to the right, y down, from the rotation axis; the rays go from the source to the detector
        start_x, start_y = self.source * sin, self.source * cos
        ray_x, ray_y = along * cos - self.distance * sin, -along * sin - self.distance * cos
        height, width = self.size
        flat = (ray_x.abs() >= ray_y.abs())[:, None]
        steps = torch.arange(max(self.size), dtype=torch.float64, device=device)
        # where a flat ray crosses the columns, a steep one the rows
        row = height // 2 + start_y + (steps - width // 2 - start_x) * (ray_y / ray_x)[:, None]
        column = width // 2 + start_x + (steps - height // 2 - start_y) * (ray_x / ray_y)[:, None]
        place = torch.where(flat, row, column)
        before = place.floor()
        length = torch.hypot(ray_x, ray_y) / torch.maximum(ray_x.abs(), ray_y.abs())
        ends = torch.where(flat, height, width)
        exists = steps < torch.where(flat, width, height)
        pixels, weights = [], []
        for neighbour, share in ((before, before + 1 - place), (before + 1, place - before)):
            inside = exists & (neighbour >= 0) & (neighbour < ends)
            pixels.append(torch.where(flat, neighbour * width + steps, steps * width + neighbour))
            weights.append(torch.where(inside, share * length[:, None], 0.0))
        return torch.cat(pixels, 1), torch.cat(weights, 1)


def _length(name: str, value: float, *, zero: bool = False) -> float:
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be a length in pixels, {'at least' if zero else 'above'} 0, got {value!r}")
    return float(value)
