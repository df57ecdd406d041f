"""The sigma for an inverse problem: how much white noise would be as bad as these measurements.

The model knows one kind of problem, pictures with white noise of level sigma. Measurements `y = H x + noise` leave
something else unknown: what a blur damps, what lies between pixels, what was never measured. So sigma is the level of
the white noise that would leave as large an error in the image.

Both errors can be told without knowing the image, for a linear estimate: with a prior for which neighbouring pixels
differ by about tau, `exp(-||grad x||^2 / (2 tau^2))`, what is left to know has the covariance
`noise^2 (H^T H + (noise / tau)^2 L)^-1`, with L the Laplacian; with white noise of level s, `(1 / s^2 + L / tau^2)^-1`.
Only tau comes from the picture: a few rounds lead towards the one for which these measurements are most likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchdeal.operators import Operator
from torchdeal.solvers import conjugate_gradient
from torchdeal.solvers.cg import inner_products

TYPICAL, LEAST, MOST = 15 / 255, 2 / 255, 45 / 255  # of tau, where white is 1: photographs have 15 to 40
ROUNDS = 3  # of looking for tau: where measurements hardly tell, it stays near the typical one
TOLERANCE, CG_LIMIT = 1e-2, 100
# Chosen on crops of 66 and 96 pixels of Set12, knees and chest slices in ten problems (`deal benchmark tune`).
FLAT_SHARE = 0.65  # of tau: a few edges make most of it, and most pixels have none
CENTRE, POWER = 23 / 255, 1.4  # larger levels are taken for even larger ones
MOST_FREQUENCIES = 256  # in either direction, for which the error of white noise is computed
HALVINGS = 40  # of the interval in which the level is looked for


def equivalent_noise(operator: Operator, b: Tensor, noise: Tensor, signs: Tensor) -> Tensor:
    """The sigma for each sample, `(B,)`, where white is 1.

    Args:
        operator: `H`.
        b: `H^T y`, `(B, C, H, W)`, with white at 1.
        noise: standard deviation of the noise in y, `(B,)`.
        signs: random signs like b.
    """
    tau, unknown = _most_likely_steps(operator, b, noise, signs)
    tau = FLAT_SHARE * tau
    unknown = _solve(operator, (noise / tau).square(), signs, unknown)
    error = noise * (inner_products(signs, unknown) / signs[0].numel()).clamp_min(0).sqrt()
    level = _white_noise_that_leaves(error, tau, (b.shape[-2], b.shape[-1]))
    return level * (level / CENTRE) ** (POWER - 1)


def _most_likely_steps(
    operator: Operator, b: Tensor, noise: Tensor, signs: Tensor, rounds: int = ROUNDS
) -> tuple[Tensor, Tensor]:
    """Tau, by expectation and maximisation; and the solution for the signs, to begin the next one with.

    `tau^2 = E ||grad x||^2 / n`: that of the mean, and what is left to know, `noise^2 tr(L A^-1)`, by one random probe.
    """
    tau, mean, unknown = torch.full_like(noise, TYPICAL), None, None
    rough_signs, b = laplacian(signs), _without_mean(operator, b)
    parts = 2 if b.is_complex() else 1
    for _ in range(rounds):
        weight = (noise / tau).square()
        mean = _solve(operator, weight, b, mean)
        unknown = _solve(operator, weight, signs, unknown)
        seen = inner_products(mean, laplacian(mean))
        unseen = noise.square() * inner_products(rough_signs, unknown)
        tau = ((seen / parts + unseen.clamp_min(0)) / b[0].numel()).sqrt().clamp(LEAST, MOST)
    assert unknown is not None
    return tau, unknown


def _without_mean(operator: Operator, b: Tensor) -> Tensor:
    """`H^T y` without what a constant image makes of it, which has no steps: it would hide all else from a solve."""
    flat = operator.normal(torch.ones_like(b))
    share = inner_products(flat, b) / inner_products(flat, flat).clamp_min(torch.finfo(b.real.dtype).tiny)
    return b - share.view(-1, 1, 1, 1).to(b.dtype) * flat


def _solve(operator: Operator, weight: Tensor, b: Tensor, start: Tensor | None) -> Tensor:
    """`(H^T H + weight L)^-1 b`."""
    column = weight.view(-1, 1, 1, 1)

    def apply(x: Tensor) -> Tensor:
        return operator.normal(x) + column * laplacian(x)

    return conjugate_gradient(apply, b, start, tolerance=TOLERANCE, max_iterations=CG_LIMIT).x


def laplacian(x: Tensor) -> Tensor:
    """`grad^T grad x`: the differences to the neighbours, which are missing at the border."""
    out = torch.zeros_like(x)
    for dim in (-2, -1):
        length = x.shape[dim]
        step = x.diff(dim=dim)
        out.narrow(dim, 1, length - 1).add_(step)
        out.narrow(dim, 0, length - 1).sub_(step)
    return out


def _white_noise_that_leaves(error: Tensor, tau: Tensor, size: tuple[int, int]) -> Tensor:
    """The level s, `(B,)`, with `mean_k 1 / (1 / s^2 + l_k / tau^2) = error^2`; l_k are the eigenvalues of L."""
    down, across = (_eigenvalues(min(length, MOST_FREQUENCIES), tau.device) for length in size)
    roughness = (down[:, None] + across).flatten() / tau.double().square()[:, None]

    def left(level: Tensor) -> Tensor:
        return (1 / (level.square().reciprocal()[:, None] + roughness)).mean(1).sqrt()

    return _bisect(left, error.double()).to(error.dtype)


def _eigenvalues(length: int, device: torch.device) -> Tensor:
    """Those of second differences in a row of so many pixels."""
    return 2 - 2 * torch.cos(math.pi / length * torch.arange(length, device=device, dtype=torch.float64))


def _bisect(function: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Where a growing function has this value; between 1e-4 and 10."""
    low, high = torch.full_like(value, 1e-4), torch.full_like(value, 10.0)
    for _ in range(HALVINGS):
        middle = (low * high).sqrt()
        below = function(middle) < value
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low * high).sqrt()
