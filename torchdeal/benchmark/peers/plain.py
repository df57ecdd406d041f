"""Solvers without learning: total variation, Wiener, Richardson-Lucy, zero-filling, filtered back-projection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable, first_image, inference, squared_norm, tunable
from torchdeal.benchmark.total_variation import minimise_total_variation
from torchdeal.extras import optional
from torchdeal.operators import (
    Blur,
    BlurBoundary,
    Fourier,
    MultiCoilFourier,
    NonCartesianFourier,
    Operator,
    Radon,
)
from torchdeal.simulate import filtered_back_projection

EXTRA = "peers"
SMALLEST = 1e-6  # of what Richardson-Lucy divides by


@dataclass(frozen=True, eq=False)
class TVSolver:
    """`argmin_x 0.5 ||H x - y||^2 + strength noise^2 TV(x)` over x in [0, 1]."""

    strength: float = tunable(8.0, *(2.0**k for k in range(-1, 12)))

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        start = first_image(y, H, H.adjoint(y))
        norm = squared_norm(H, tuple(start.shape[1:])) ** 0.5
        return minimise_total_variation(y, H, self.strength * noise**2, norm=norm, start=start).x


@dataclass(frozen=True, eq=False)
class Wiener:
    """`argmin_x ||H x - y||^2 + balance ||L x||^2`, with L the Laplacian; in closed form for circular blur."""

    balance: float = tunable(0.02, *(10.0 ** (k / 2) for k in range(-8, 1)))

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        blur = _blur(H, "Wiener's filter")
        if blur.boundary is not BlurBoundary.CIRCULAR:
            raise Unavailable("Wiener's filter is for circular blur")
        laplacian = torch.tensor([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]]).to(y)
        roughness = Blur(laplacian).normal_symbol(y)
        symbol = blur.normal_symbol(y)
        assert symbol is not None
        assert roughness is not None
        return torch.fft.ifft2(torch.fft.fft2(H.adjoint(y)) / (symbol + self.balance * roughness)).real


@dataclass(frozen=True, eq=False)
class RichardsonLucy:
    """`x <- x H^T(y / H x) / H^T 1`, from one half; fewer iterations mean less noise."""

    iterations: float = tunable(30, 5, 10, 20, 30, 50, 80, 120)

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        _blur(H, "the method of Richardson and Lucy")
        positive = y.clamp_min(0)
        seen = H.adjoint(torch.ones_like(y)).clamp_min(SMALLEST)
        x = torch.full_like(seen, 0.5)
        for _ in range(int(self.iterations)):
            x = x * H.adjoint(positive / H.forward(x).clamp_min(SMALLEST)) / seen
        return x


@dataclass(frozen=True, eq=False)
class ZeroFilling:
    """What was not measured of the k-space is zero: `H^T y`."""

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        if not isinstance(H, (Fourier, MultiCoilFourier, NonCartesianFourier)):
            raise Unavailable(f"zero-filling is for k-space, not for {H.known_as()}")
        return H.adjoint(y)


@dataclass(frozen=True, eq=False)
class FilteredBackProjection:
    """With the ramp filter, by scikit-image, of projections that a Gaussian has smoothed."""

    smoothing: float = tunable(1.0, *(2.0 ** (k / 2) for k in range(-6, 7)))  # its deviation in bins

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        if not isinstance(H, Radon):
            raise Unavailable(f"filtered back-projection is for parallel beams, not for {H.known_as()}")
        try:
            ndimage = optional("scipy.ndimage", "filtered back-projection", EXTRA)
            smooth = ndimage.gaussian_filter1d(y.cpu().double().numpy(), self.smoothing, mode="constant")
            sinograms = torch.from_numpy(smooth).flatten(0, 1)[:, None]
            slices = [filtered_back_projection(sinogram[None], H.to("cpu")) for sinogram in sinograms]
        except ImportError as error:
            raise Unavailable(str(error)) from None
        return torch.cat(slices).view(*y.shape[:2], *H.size).to(y)


def _blur(H: Operator, method: str) -> Blur:
    if not isinstance(H, Blur):
        raise Unavailable(f"{method} is for blur, not for {H.known_as()}")
    return H
