"""CRR-NN and WCRR-NN: learned ridge regularisers, convex and weakly convex (Goujon et al. 2023 and 2024).

`R(x) = sum_{c, pixels} Psi(s_c (W x)_c) / s_c^2`, with W three convolutions in turn, scales `s_c` that depend on the
noise level, and Psi the antiderivative of `psi(t) = (mu + rho) clip(t, 0.002) - rho clip(t, 0.098)`, where clip(t, a)
is t between -a and a. The most negative slope of psi is `-rho`: 0 for CRR, 1 for WCRR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.peers.base import (
    Unavailable,
    first_image,
    inference,
    need_channels,
    need_level,
    squared_norm,
    tunable,
)
from torchdeal.benchmark.peers.weights import read_weights
from torchdeal.operators import Operator
from torchdeal.solvers.cg import inner_products, sample_norms

INNER, OUTER = 0.002, 0.098  # where psi bends
HIGHEST_LEVEL = 30.0
TOLERANCE, MAX_ITERATIONS = 1e-4, 500


@dataclass(frozen=True, eq=False)
class RidgeRegularizer:
    """R, its gradient, and the constants that a solver needs."""

    kernels: tuple[Tensor, ...]
    log_scale: Tensor  # (channels, knots)
    knots: Tensor  # noise levels, 0..255, uniform
    mu: float  # the Lipschitz constant of the gradient, with ||W|| = 1
    rho: float  # R + rho/2 ||x||^2 is convex

    def energy(self, x: Tensor, sigma: float) -> Tensor:
        """R, `(B,)`."""
        scale = self._scale(x, sigma)
        response = self._filter(x, scale)
        potential = (self.mu + self.rho) * _clip_integral(response, INNER) - self.rho * _clip_integral(response, OUTER)
        return (potential / scale.square()).flatten(1).sum(1)

    def gradient(self, x: Tensor, sigma: float) -> Tensor:
        """`W^T [psi(s_c (W x)_c) / s_c]`."""
        scale = self._scale(x, sigma)
        response = self._filter(x, scale)
        # In place: passes over 60 feature maps take as long as the filters.
        slope = response.clamp(-INNER, INNER).mul_(self.mu + self.rho)
        if self.rho:
            slope.sub_(response.clamp_(-OUTER, OUTER), alpha=self.rho)
        return self._filter_adjoint(slope, 1 / scale)

    def _scale(self, like: Tensor, sigma: float) -> Tensor:
        """`exp(spline_c(sigma)) / (sigma + 1e-5)`, the spline linear between its knots."""
        place = (sigma - float(self.knots[0])) / float(self.knots[1] - self.knots[0])
        left = min(int(place), len(self.knots) - 2)
        value = torch.lerp(self.log_scale[:, left], self.log_scale[:, left + 1], place - left)
        return (value.exp() / (sigma + 1e-5)).to(like).view(-1, 1, 1)

    def _filter(self, x: Tensor, gain: Tensor) -> Tensor:
        """`gain_c (W x)_c`, with a gain `(60, 1, 1)`."""
        *inner, last = (kernel.to(x) for kernel in self.kernels)
        for kernel in (*inner, gain[..., None] * last):
            x = F.conv2d(x, kernel, padding="same")
        return x

    def _filter_adjoint(self, u: Tensor, gain: Tensor) -> Tensor:
        """`W^T (gain_c u_c)`."""
        *inner, last = (kernel.to(u) for kernel in self.kernels)
        for kernel in (gain[..., None] * last, *reversed(inner)):
            u = F.conv2d(u, kernel.transpose(0, 1).flip(2, 3), padding="same")  # quicker than conv_transpose2d
        return u


@dataclass(frozen=True, eq=False)
class RidgeDenoiser:
    """The minimiser of `0.5 ||x - y||^2 + R(x)`."""

    regularizer: RidgeRegularizer

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        need_level(sigma, 0, HIGHEST_LEVEL, "this regulariser")

        def gradient(x: Tensor) -> Tensor:
            return x - noisy + self.regularizer.gradient(x, sigma)

        return accelerated_gradient(gradient, noisy, 1 / (1 + self.regularizer.mu))


@dataclass(frozen=True, eq=False)
class RidgeSolver:
    """A critical point of `0.5 ||H x - y||^2 + lam R(x)`, with `lam = strength (255 noise / sigma)^2`.

    So strength 1 is what denoising has, whatever the noise: R at sigma is made for noise of sigma.
    """

    regularizer: RidgeRegularizer
    sigma: float = tunable(15.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0)
    strength: float = tunable(1.0, *(2.0**k for k in range(-4, 9)))
    tolerance: float = 1e-5  # less than for denoising: ill-posed problems take small steps far from the solution
    max_iterations: int = 1000

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        need_level(self.sigma, 0, HIGHEST_LEVEL, "this regulariser")
        backprojected = H.adjoint(y)
        lam = self.strength * (255 * noise / self.sigma) ** 2

        def gradient(x: Tensor) -> Tensor:
            return H.normal(x) - backprojected + lam * self.regularizer.gradient(x, self.sigma)

        start = first_image(y, H, backprojected)
        lipschitz = squared_norm(H, tuple(backprojected.shape[1:])) + lam * self.regularizer.mu
        return accelerated_gradient(
            gradient, start, 1 / lipschitz, tolerance=self.tolerance, max_iterations=self.max_iterations
        )


def accelerated_gradient(
    gradient: Callable[[Tensor], Tensor],
    start: Tensor,
    step: float,
    *,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> Tensor:
    """Nesterov's method with restarts; each sample has a momentum of its own, and stops by itself.

    A sample is done when `||x' - x|| < tolerance ||x'||`, from the second iteration on.
    """
    x = z = start
    column = (-1,) + (1,) * (start.ndim - 1)
    t = start.new_ones(len(start))
    live = torch.ones_like(t, dtype=torch.bool)
    for iteration in range(max_iterations):
        # x' = z - g;  t' = (1 + sqrt(1 + 4 t^2)) / 2;  z = x' + (t - 1) / t' (x' - x)
        g = step * gradient(z)
        latest = z - g
        change = latest - x
        ahead = (1 + (1 + 4 * t.square()).sqrt()) / 2
        uphill = inner_products(g, change) > 0
        momentum = torch.where(uphill, 0.0, (t - 1) / ahead)
        t = torch.where(uphill, 1.0, ahead)
        z = latest + momentum.view(column) * change
        x = torch.where(live.view(column), latest, x)
        if iteration > 0:
            live = live & (sample_norms(change) >= tolerance * sample_norms(latest))
            if not bool(live.any()):
                break
    return x


def make_ridge(peers_dir: Path | None, channels: int, device: str, *, name: str) -> RidgeRegularizer:
    """CRR-NN or WCRR-NN: `name` is `crr_nn_gray` or `wcrr_nn_gray`."""
    need_channels(channels, (1,), name.partition("_")[0].upper())
    weights = read_weights(peers_dir, name, device)
    profile, knots, mu = weights["profile_derivative"], weights["profile_knots"], float(weights["mu"])
    rho = float(-(profile.diff() / knots.diff()).min().clamp(max=0).round())
    bends = (mu + rho) * knots.clamp(-INNER, INNER) - rho * knots.clamp(-OUTER, OUTER)
    if not torch.allclose(bends, profile, atol=1e-4):
        raise Unavailable(f"{name}: its profile is not the one that this implementation is for")
    kernels = tuple(weights[f"conv{i}.weight"] for i in range(3))
    return RidgeRegularizer(kernels, weights["log_scale"], weights["log_scale_knots"], mu, rho)


def _clip_integral(t: Tensor, bound: float) -> Tensor:
    """The antiderivative of `clip(t, bound)` that is 0 at 0."""
    inside = t.abs().clamp(max=bound)
    return inside * (t.abs() - 0.5 * inside)
