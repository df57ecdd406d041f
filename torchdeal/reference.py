"""The method as the paper writes it: direct convolutions, plain CG, no tricks. The oracle and the baseline.

Shares only the constrained weights with the rest of the package. One image at a time; slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model import DEAL, Boundary, Weights


@dataclass(frozen=True)
class ReferenceResult:
    """The last iterate and what it took; for a callback, those so far."""

    x: Tensor
    iterations: int
    cg_iterations: int
    last_change: float  # ||x_{k+1} - x_k|| / ||x_k||


@torch.no_grad()
def reference_reconstruct(
    y: Tensor,
    model: DEAL,
    *,
    sigma: float,
    lam: float | None = None,
    forward: Callable[[Tensor], Tensor] = lambda x: x,
    adjoint: Callable[[Tensor], Tensor] = lambda y: y,
    inner_tolerance: float = 1e-8,
    outer_tolerance: float = 1e-5,
    max_inner: int = 1000,
    max_outer: int = 1000,
    start: Tensor | None = None,
    callback: Callable[[ReferenceResult], None] | None = None,
) -> ReferenceResult:
    """`x_{k+1} = A_k^-1 H^T y`, `A_k = H^T H + lam W^T M(x_k)^2 W`, by CG from `x_k`, until `x_k` stops changing.

    The tolerances are those of the paper's inference: CG stops when `||r||^2 <= inner_tolerance` (absolute), the
    iteration when `||x_{k+1} - x_k|| <= outer_tolerance * ||x_k||`. With these defaults it can stop 0.5 % away from the
    fixed point, since a CG that has nothing to do returns no change; an oracle needs `inner_tolerance` far smaller.

    Args:
        y: measurements, a batch of one.
        model: gives the weights.
        sigma: noise level of the model, on the 0..255 scale.
        lam: strength; `kappa(sigma)` if None.
        forward: `H`.
        adjoint: `H^T`.
        inner_tolerance: of CG, squared and absolute.
        outer_tolerance: relative change of the image.
        max_inner: CG iterations per system.
        max_outer: systems.
        start: `x_0`; zero if None.
        callback: called after each outer iteration.
    """
    b = adjoint(y)
    if len(b) != 1:
        raise ValueError(f"the reference takes one image at a time, got a batch of {len(b)}")
    level = b.new_tensor([sigma])
    weights = model.weights()  # once: every call looks at all parameters, which would count as time of the method
    strength = float(weights.lam(level)) if lam is None else lam

    def system(squared_mask: Tensor, p: Tensor) -> Tensor:
        penalty = _filters_adjoint(weights, squared_mask * _filters(weights, p))
        return adjoint(forward(p)) + strength * penalty

    x = torch.zeros_like(b) if start is None else start.clone()
    iterations, cg_iterations, change = 0, 0, float("inf")
    while iterations < max_outer and change > outer_tolerance:
        iterations += 1
        frozen = partial(system, _mask(weights, x, level) ** 2)
        new, steps = _conjugate_gradient(frozen, b, x, inner_tolerance, max_inner)
        cg_iterations += steps
        change = float((new - x).norm() / x.norm()) if float(x.norm()) > 0 else float("inf")
        x = new
        if callback:
            callback(ReferenceResult(x, iterations, cg_iterations, change))
    return ReferenceResult(x, iterations, cg_iterations, change)


def _conjugate_gradient(
    apply: Callable[[Tensor], Tensor], b: Tensor, x: Tensor, tolerance: float, limit: int
) -> tuple[Tensor, int]:
    r = b - apply(x)
    p, rr = r, float((r * r).sum())
    for step in range(limit):
        if rr <= tolerance:
            return x, step
        Ap = apply(p)
        alpha = rr / float((p * Ap).sum())
        x, r = x + alpha * p, r - alpha * Ap
        rr, before = float((r * r).sum()), rr
        p = r + rr / before * p
    return x, limit


def _filters(weights: Weights, x: Tensor) -> Tensor:
    reflect = weights.boundary is Boundary.REFLECT
    if reflect:
        x = F.pad(x, (12, 12, 12, 12), mode="reflect")
    for kernel in weights.filters:
        x = F.conv2d(x, kernel, padding=0 if reflect else 4)
    return x


def _filters_adjoint(weights: Weights, z: Tensor) -> Tensor:
    reflect = weights.boundary is Boundary.REFLECT
    for kernel in reversed(weights.filters):
        z = F.conv_transpose2d(z, kernel, padding=0 if reflect else 4)
    if not reflect:
        return z
    shape = (*z.shape[:2], z.shape[2] - 24, z.shape[3] - 24)
    padding = [12, 12, 12, 12]
    return torch.ops.aten.reflection_pad2d_backward(z, z.new_empty(shape), padding)


def _mask(weights: Weights, x: Tensor, sigma: Tensor) -> Tensor:
    reflect = weights.boundary is Boundary.REFLECT
    if reflect:
        x = F.pad(x, (14, 14, 14, 14), mode="reflect")
    for kernel in weights.mask_filters:
        x = F.conv2d(x, kernel, padding=0 if reflect else 4)
    x = F.conv2d(_spline(x, weights.phi[0]), weights.mix[0], padding=0 if reflect else 1)
    x = F.conv2d(_spline(x, weights.phi[1]), weights.mix[1], padding=0 if reflect else 1)
    return _spline(weights.alpha(sigma) * x, weights.phi[2]).clip(0.01, 1)


def _spline(x: Tensor, values: Tensor) -> Tensor:
    position = x.abs() * 10
    left = position.floor().clip(max=29)
    return values[left.long()] * (left + 1 - position) + values[left.long() + 1] * (position - left)
