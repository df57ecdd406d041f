"""Why a reconstruction looks as it does: its masks, what they do to responses, and what each pixel is the mean of.

At the fixed point the result is `x = A^-1 H^T y` with `A = H^T H + lam W^T M(x)^2 W`. So each pixel is a weighted sum
of the data, and its weights, a row of `A^-1 H^T`, can be computed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchdeal.backends.tiles import cut
from torchdeal.model import SIGMA_MAX, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.filters import Bank, analysis, impulse_responses
from torchdeal.model.spline import PHI_END, even_spline
from torchdeal.precision import full_precision
from torchdeal.reconstruction import PosedEquation, Reconstruction, posed_by
from torchdeal.solvers import conjugate_gradient, sample_norms
from torchdeal.solvers.cg import inner_products
from torchdeal.system import seen_by_model

PRECISION = {torch.float64: 1e-8, torch.float32: 1e-5}  # of the rows: relative residuals
MOST_CG_ITERATIONS = 2000
BAND = 128  # rows of an image whose masks are in memory at a time, where means are wanted
SHOWN_CHANNELS = 4  # whose phi is among the splines
STRONG = 64  # they are chosen among so many filters of the largest energy

Pixel = tuple[int, int]


class MaskedResponse(NamedTuple):
    """What attention does: means over the channels, `(P, H, W)`; P counts the images that the model sees."""

    response: Tensor  # (W x)^2
    mask: Tensor  # M(x)
    adapted: Tensor  # (M(x) W x)^2


@dataclass(frozen=True, eq=False)
class WeightedMean:
    """A pixel of the result as a weighted sum of the data; an entry per sample.

    Attributes:
        pixel: its row and column.
        weights: of the data, of the shape of `equation.y`: `H v`. (Where noise is not the same everywhere, the equation
            has less noisy data multiplied by more; so are these.)
        inverse: `v = A^-1 e`, `(B, C, H, W)`; the same as the weights in denoising.
        value: what the weights make of the data, `(B,)`: the pixel, as far as the run came to the fixed point.
        averaged: of how many measured values the plain mean has as little noise as this pixel, `(B,)`, if all data are
            equally noisy. Below 1 noise is amplified, as by deblurring. In colour it counts pixels.
        residual: `||e - A v|| / ||e||`, `(B,)`: how precise the weights are.
    """

    pixel: Pixel
    weights: Tensor
    inverse: Tensor
    value: Tensor
    averaged: Tensor
    residual: Tensor


@dataclass(frozen=True)
class FilterBank:
    """The filters of a bank, each as one convolution, those of the largest energy first."""

    channels: np.ndarray  # (N,), their numbers
    values: np.ndarray  # (N, C, 25, 25)


@dataclass(frozen=True)
class Splines:
    """Values of the learned functions on a grid; phi1, phi2 and phi^sigma_c are even."""

    x: np.ndarray  # of phi1 and phi2
    phi1: np.ndarray
    phi2: np.ndarray
    sigma: np.ndarray  # of kappa, on the 0..255 scale
    kappa: np.ndarray
    channels: list[int]  # of phi^sigma_c
    input: np.ndarray  # its x
    phi_sigma: dict[float, np.ndarray]  # by sigma, (channels, points)


def explain(reconstruction: Reconstruction) -> Explanation:
    """What led to a result of `reconstruct`. Nothing is computed before it is asked for.

    Raises ValueError for a result that solves no problem, as of a picture left alone.
    """
    return Explanation(*posed_by(reconstruction))


@dataclass(frozen=True, eq=False)
class Explanation:
    """The masks, responses and weighted means of a reconstruction, and the filters and splines of its model.

    Masks and responses are `(P, N, H, W)`, for P images that the model sees and N filters. P is the batch, times the
    channels where a gray model sees each of them, times 2 for complex images: real part, then imaginary part.

    Attributes:
        equation: the problem that was solved.
        image: the answer, `(B, C, H, W)` in 0..1.
    """

    equation: PosedEquation
    image: Tensor

    def at(self, image: Tensor) -> Explanation:
        """The same problem at another image, such as an earlier iterate, or the noisy picture."""
        if image.shape != self.image.shape:
            raise ValueError(f"the image must have the shape {tuple(self.image.shape)}, not {tuple(image.shape)}")
        return replace(self, image=image.to(self.image))

    def masks(self) -> Tensor:
        """`M(x)`, `(P, N, H, W)`: near 1 a response is held down, as noise is; near 0 it is spared, as structure."""
        with torch.no_grad(), full_precision(self.image.device):
            return self.equation.weights.mask(self._seen, self._alpha)

    def responses(self) -> Tensor:
        """`W x`, `(P, N, H, W)`."""
        weights = self.equation.weights
        with torch.no_grad(), full_precision(self.image.device):
            return analysis(self._seen, weights.filters, weights.boundary)

    def adapted(self) -> Tensor:
        """`M(x) W x`, the responses after attention, `(P, N, H, W)`."""
        return self.masks().mul_(self.responses())

    @cached_property
    def means(self) -> MaskedResponse:
        """Means over all channels, computed band by band, as all masks of a large picture are much memory."""
        height = self.image.shape[-2]
        bands = [self._means_of(part, height) for part in cut(height, BAND)]
        return MaskedResponse(*(torch.cat(parts, -2) for parts in zip(*bands, strict=True)))

    @property
    def mean_mask(self) -> Tensor:
        """The mean of `M(x)` over the channels, `(P, H, W)`; low where structure is protected."""
        return self.means.mask

    def row(self, y: int, x: int, channel: int | None = None) -> WeightedMean:
        """With which weights the pixel in row y and column x averages the data."""
        return self.rows([(y, x)], channel)[0]

    def rows(self, pixels: Sequence[Pixel], channel: int | None = None) -> list[WeightedMean]:
        """Rows of `A^-1 H^T`: `x[n] = <H A^-1 e_n, y>`, since A is symmetric; y is `equation.y`.

        Args:
            pixels: row and column of each, from 0.
            channel: of a colour image; by default the mean of all is explained. Of a complex pixel it is the magnitude.
        """
        units = [self._unit(self._checked(pixel), channel) for pixel in pixels]
        with torch.no_grad(), full_precision(self.image.device):
            system = self.equation.system().precise(self.image)
            found = []
            for pixel, unit in zip(pixels, units, strict=True):
                solved = conjugate_gradient(
                    system.apply,
                    unit,
                    tolerance=PRECISION[unit.real.dtype],
                    max_iterations=MOST_CG_ITERATIONS,
                    preconditioner=system.preconditioner,
                )
                found.append(self._mean((int(pixel[0]), int(pixel[1])), unit, solved.x, solved.residual))
        return found

    @property
    def filters(self) -> FilterBank:
        """Of W."""
        return effective_kernels(self.equation.weights.filters)

    @property
    def mask_filters(self) -> FilterBank:
        """Of W_mask."""
        return effective_kernels(self.equation.weights.mask_filters)

    @property
    def splines(self) -> Splines:
        """At the noise levels of this reconstruction; of a map of noise at its lowest and highest."""
        sigma = self.equation.sigma
        levels = sigma if sigma.ndim == 1 else torch.stack([sigma.min(), sigma.max()])
        return learned_splines(self.equation.weights, sorted(set(levels.tolist())))

    @property
    def _channels(self) -> int:
        return self.equation.weights.filters[0].shape[1]

    @property
    def _seen(self) -> Tensor:
        return seen_by_model(self.image, self._channels)

    @property
    def _alpha(self) -> Tensor:
        """For each image that the model sees."""
        alpha = self.equation.weights.alpha(self.equation.sigma)
        return alpha.repeat_interleave(len(self._seen) // len(alpha), 0)

    def _means_of(self, part: slice, height: int) -> MaskedResponse:
        """Of some rows, computed with as many above and below as their masks depend on."""
        top, bottom = max(part.start - MASK_REACH, 0), min(part.stop + MASK_REACH, height)
        sigma = self.equation.sigma if self.equation.sigma.ndim == 1 else self.equation.sigma[..., top:bottom, :]
        around = Explanation(replace(self.equation, sigma=sigma), self.image[..., top:bottom, :])
        inside = slice(part.start - top, part.stop - top)
        response, mask = (values[..., inside, :] for values in (around.responses(), around.masks()))
        return MaskedResponse(*(values.mean(1) for values in (response**2, mask, (mask * response) ** 2)))

    def _checked(self, pixel: Pixel) -> Pixel:
        height, width = self.image.shape[-2:]
        row, column = (operator.index(place) for place in pixel)
        if not (0 <= row < height and 0 <= column < width):
            raise ValueError(
                f"the pixel {row},{column} is outside of the image: rows go from 0 to {height - 1}, "
                f"columns from 0 to {width - 1}"
            )
        return row, column

    def _unit(self, pixel: Pixel, channel: int | None) -> Tensor:
        """`e`, for which `<e, x>` is the pixel."""
        row, column = pixel
        unit, values = torch.zeros_like(self.image), self.image[..., row, column]
        direction = values.sgn() if values.is_complex() else torch.ones_like(values)
        direction = torch.where(direction == 0, torch.ones_like(direction), direction)
        if channel is None:
            unit[..., row, column] = direction / self.image.shape[1]
        elif 0 <= channel < self.image.shape[1]:
            unit[:, channel, row, column] = direction[:, channel]
        else:
            raise ValueError(f"there is no channel {channel}: channels go from 0 to {self.image.shape[1] - 1}")
        return unit

    def _mean(self, pixel: Pixel, unit: Tensor, inverse: Tensor, residual: Tensor) -> WeightedMean:
        weights = self.equation.operator.forward(inverse)
        value = inner_products(weights, self.equation.y) * self.equation.scale.to(weights.device)
        energies = inner_products(unit, unit), inner_products(weights, weights)
        return WeightedMean(pixel, weights, inverse, value, energies[0] / energies[1], residual / sample_norms(unit))


def effective_kernels(bank: Bank) -> FilterBank:
    """The layers of a bank as one layer of 25 x 25 filters."""
    with torch.no_grad():
        values = impulse_responses(bank).cpu().numpy()
    channels = np.argsort(-np.square(values).sum((1, 2, 3)), kind="stable")
    return FilterBank(channels, values[channels])


def learned_splines(weights: Weights, sigmas: Sequence[float], points: int = 601) -> Splines:
    """The functions of a model, over the whole range in which they change; phi^sigma_c at these noise levels."""
    channels = spread_channels(weights)
    like = weights.kappa
    x = torch.linspace(0, 1.2 * PHI_END, points).to(like)
    sigma = torch.linspace(0, SIGMA_MAX, points).to(like)
    with torch.no_grad():
        alpha = {level: weights.alpha(like.new_tensor([level]))[0, channels, 0, 0] for level in sigmas}
        widest = float(min(scaling.min() for scaling in alpha.values()))
        inputs = torch.linspace(0, 1.3, points).to(like) * half_width(weights) / widest
        phi_sigma = {
            level: even_spline(scaling[:, None] * inputs, weights.phi[2]).clamp(MASK_FLOOR, 1).cpu().numpy()
            for level, scaling in alpha.items()
        }
        phi1, phi2 = (even_spline(x, values).cpu().numpy() for values in weights.phi[:2])
        kappa = weights.lam(sigma).flatten().cpu().numpy()
    return Splines(x.cpu().numpy(), phi1, phi2, sigma.cpu().numpy(), kappa, channels, inputs.cpu().numpy(), phi_sigma)


def half_width(weights: Weights) -> float:
    """Where phi3 has come down to the floor of the masks; its last knot if it never does."""
    low = (weights.phi[2] <= MASK_FLOOR).nonzero().flatten()
    knots = len(weights.phi[2])
    return PHI_END * (int(low[0]) if len(low) else knots - 1) / (knots - 1)


def spread_channels(weights: Weights) -> list[int]:
    """Channels of strong filters, from a small one to a large one: those with few pixels of weight come first."""
    kernels = effective_kernels(weights.filters)
    energy = np.square(kernels.values[:STRONG]).sum(1)
    offsets = np.arange(energy.shape[1]) - energy.shape[1] // 2
    radius = (energy * (offsets[:, None] ** 2 + offsets**2)).sum((1, 2)) / energy.sum((1, 2))
    by_size = kernels.channels[:STRONG][np.argsort(radius, kind="stable")]
    return [int(by_size[place]) for place in np.linspace(0, len(by_size) - 1, SHOWN_CHANNELS).round().astype(int)]


def telling_pixels(picture: np.ndarray, margin: int | None = None) -> dict[str, Pixel]:
    """A pixel on an edge, in texture, and in a flat place, by the structure tensor of the picture around it.

    Args:
        picture: `(H, W)`. Where nothing changes in it, there is a flat place alone.
        margin: how far from the border they are, at least, where there is room; by default 12, or a quarter of it.
    """
    if min(picture.shape) < 2:
        raise ValueError("the picture is too small to look for an edge in it: say which pixels are of interest")
    rows, columns = np.gradient(picture)
    across, down, mixed = (_smoothed(product) for product in (rows * rows, columns * columns, rows * columns))
    energy = across + down
    coherence = np.hypot(across - down, 2 * mixed) / np.maximum(energy, 1e-12)
    scores = {"Edge": energy * coherence**4, "Texture": energy * (1 - coherence) ** 2, "Flat": -energy}
    room = min(picture.shape) - 1
    skip = min(12, room // 4) if margin is None else min(margin, room // 2)
    inside = tuple(slice(skip, length - skip) for length in picture.shape)
    places: dict[str, Pixel] = {}
    for name, score in scores.items():
        row, column = np.unravel_index(int(score[inside].argmax()), score[inside].shape)
        pixel = int(row) + skip, int(column) + skip
        if pixel not in places.values() and (name == "Flat" or energy[pixel] > 1e-12):
            places[name] = pixel
    return places


def _smoothed(values: np.ndarray, reach: int = 3) -> np.ndarray:
    """Means over a square window, mirrored at the border."""
    table = np.pad(values, reach, mode="symmetric").cumsum(0).cumsum(1)
    table = np.pad(table, ((1, 0), (1, 0)))
    size = 2 * reach + 1
    return (table[size:, size:] - table[:-size, size:] - table[size:, :-size] + table[:-size, :-size]) / size**2
