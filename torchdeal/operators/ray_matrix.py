"""The matrices of parallel-beam CT: the weight of each pixel in each ray, and products with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_NUMBERS = 2**17  # pairs of an angle and a pixel that are weighted at a time: they stay in the cache
LEAST_WEIGHT = 1e-12  # what is less is a rounding error, at angles such as 90 degrees
OUT_OF_REACH = 9.0  # a distance at which interpolation has no weight, in any direction

Part = tuple[Tensor, Tensor, Tensor]  # some rows of a matrix: the entries in each, all columns, all values


@dataclass(frozen=True)
class Rays:
    """Parallel rays, one for each bin at each angle, 1 apart, with samples 1 apart at as many places as there are bins.

    They are numbered angle by angle; pixels row by row.
    """

    cos: Tensor  # of the angles, (angles,), float64
    sin: Tensor
    size: tuple[int, int]  # of the image, (H, W)
    bins: int

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
        bins, aside = self._nearest(cos * x - sin * y)
        _, ahead = self._nearest(sin * x + cos * y)
        aside_x, aside_y = cos * aside, sin * aside
        weights = torch.zeros_like(aside)
        for step in ahead:
            away_x = (aside_x + sin * step).abs_().clamp_max_(1)
            away_y = (aside_y - cos * step).abs_().clamp_max_(1)
            weights.addcmul_(away_x.sub_(1), away_y.sub_(1))
        return bins.movedim(0, -1), weights.movedim(0, -1)

    def _nearest(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The three bins, or samples, around a place, `(3, ...)`, and their distances; some may not exist."""
        place = place + self.bins // 2
        numbers = torch.stack([place.round() + offset for offset in (-1, 0, 1)])
        absent = (numbers < 0) | (numbers >= self.bins)
        return numbers, (numbers - place).masked_fill_(absent, OUT_OF_REACH)


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix; the entries of its row i are those from `starts[i]` to `starts[i + 1]`."""

    starts: Tensor  # (rows + 1,), int32: half the memory of int64, and what MKL works with
    columns: Tensor  # (entries,), int32
    values: Tensor  # (entries,)
    width: int

    def multiply(self, x: Tensor) -> Tensor:
        """The products with `(images, width)`, `(images, rows)`."""
        size = (len(self.starts) - 1, self.width)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrix = torch.sparse_csr_tensor(self.starts, self.columns, self.values, size, check_invariants=False)
        return (matrix @ x.T.contiguous()).T

    def multiply_in_segments(self, x: Tensor) -> Tensor:
        """`multiply` for CUDA, where cuSPARSE may add in another order each time."""
        return torch.stack([self._sums(image) for image in x])

    def _sums(self, image: Tensor) -> Tensor:
        terms = image.index_select(0, self.columns).mul_(self.values)
        return torch.segment_reduce(terms, "sum", offsets=self.starts, unsafe=True)  # unsafe: offsets are not checked


def projection_matrix(rays: Rays, dtype: torch.dtype) -> SparseRows:
    """From pixels to rays."""
    return _join(_rows_of_rays(rays, dtype), rays, dtype, len(rays.pixels))


def backprojection_matrix(rays: Rays, dtype: torch.dtype) -> SparseRows:
    """From rays to pixels, the transpose of `projection_matrix`: weights are cheaper to compute again than to sort."""
    return _join(_rows_of_pixels(rays, dtype), rays, dtype, len(rays.cos) * rays.bins)


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


def _join(parts: Iterable[Part], rays: Rays, dtype: torch.dtype, width: int) -> SparseRows:
    """Parts are copied as they come, into the most that there can be, and do not stay beside the whole."""
    most, device = 3 * len(rays.cos) * len(rays.pixels), rays.cos.device
    columns, values = torch.empty(most, dtype=torch.int32, device=device), torch.empty(most, dtype=dtype, device=device)
    counts, end = [], 0
    for part in parts:
        start, end = end, end + len(part[2])
        columns[start:end], values[start:end] = part[1:]
        counts.append(part[0])
    columns = columns[:end].clone()  # gives the rest back
    values = values[:end].clone()
    return SparseRows(F.pad(torch.cat(counts).cumsum(0), (1, 0)).int(), columns, values, width)
