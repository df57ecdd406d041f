"""How much an answer changes with the measurements: the derivative of the fixed point, and its largest gain.

At a fixed point, `A(x) x = H^T y`. The derivative of the left side in x is `A + K`, with K the part that comes from the
masks, `K v = lam W^T (dM^2(x)[v] W x)`. So, by the implicit function theorem, `dx/dy = (A + K)^-1 H^T`. Its norm is the
smallest L with `||x(y + e) - x(y)|| <= L ||e||` in the limit of small e. With frozen masks, that is, for one step T,
the derivative is `A^-1 H^T`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import reflect
from torchdeal.model.filters import analysis, synthesis, valid_convolutions
from torchdeal.model.spline import even_spline
from torchdeal.operators import Operator
from torchdeal.solvers import LinearMap, conjugate_gradient, sample_norms
from torchdeal.solvers.cg import inner_products
from torchdeal.solvers.result import per_sample_column
from torchdeal.system import AttentiveSystem

CG_TOLERANCE, CG_LIMIT = 1e-4, 1000
SOLVE_TOLERANCE, SOLVE_STEPS = 1e-3, 30  # of systems with A + K


@dataclass(frozen=True)
class Gains:
    """Per sample: norms of the two derivatives, and where the measurements move the answer most."""

    frozen: Tensor  # ||A^-1 H^T||, (B,)
    total: Tensor  # ||dx/dy||, (B,)
    direction: Tensor  # of length 1, (B, ...) as the measurements


@torch.no_grad()
def largest_gains(
    weights: Weights, operator: Operator, x: Tensor, sigma: Tensor, lam: Tensor, iterations: int
) -> Gains:
    """Power iterations on both derivatives at x: estimates from below.

    Args:
        weights: of the model.
        operator: `H`.
        x: the fixed points, `(B, C, H, W)`, real.
        sigma: on the 0..255 scale, `(B,)`.
        lam: `(B, 1, 1, 1)`.
        iterations: of each power iteration.
    """
    alpha = weights.alpha(sigma)
    system = AttentiveSystem.of(weights, operator, x, lam, alpha).precise(x)
    masks = masks_derivative(weights, x, alpha, lam)

    def frozen(b: Tensor) -> Tensor:
        options = {"tolerance": CG_TOLERANCE, "max_iterations": CG_LIMIT, "preconditioner": system.preconditioner}
        return conjugate_gradient(system.apply, b, **options).x

    def solve(masks: LinearMap) -> LinearMap:  # (A + K) v = b, as (1 + A^-1 K) v = A^-1 b
        return lambda b: conjugate_residual(lambda v: v + frozen(masks(v)), frozen(b))

    noise = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0)).to(x).expand_as(x)
    start = operator.forward(noise.contiguous())
    gain_frozen, first = _power_iteration(operator, frozen, frozen, start, iterations)
    gain, direction = _power_iteration(operator, solve(masks), solve(transposed(masks, x)), start + first, iterations)
    return Gains(gain_frozen, gain, direction)


def masks_derivative(weights: Weights, x: Tensor, alpha: Tensor, lam: Tensor) -> LinearMap:
    """`K`: how `lam W^T M(x)^2 W z` changes with x where z stays, taken at `z = x`.

    The splines are linear in pieces: the derivative of M is a chain of convolutions with their slopes in between.
    """
    mirrored = weights.boundary is Boundary.REFLECT
    padding = 0 if mirrored else 1

    def bank(v: Tensor) -> Tensor:
        if mirrored:
            return valid_convolutions(reflect(v, MASK_REACH), weights.mask_filters)
        return analysis(v, weights.mask_filters, weights.boundary)

    def mixed(features: Tensor, layer: int) -> Tensor:
        return F.conv2d(features, weights.mix[layer], padding=padding)

    first, slope_1 = _with_slope(bank(x), weights.phi[0])
    second, slope_2 = _with_slope(mixed(first, 0), weights.phi[1])
    mask, slope_3 = _with_slope(mixed(second, 1) * alpha, weights.phi[2])
    inside = (mask > MASK_FLOOR) & (mask < 1)
    # d(M^2) W x = 2 M dM W x
    last = (
        lam * 2 * mask.clamp(MASK_FLOOR, 1) * slope_3 * inside * alpha * analysis(x, weights.filters, weights.boundary)
    )
    return lambda v: synthesis(
        last * mixed(slope_2 * mixed(slope_1 * bank(v), 0), 1), weights.filters, weights.boundary
    )


def transposed(linear: LinearMap, like: Tensor) -> LinearMap:
    """The transpose of a linear map from images like that to such images."""

    def apply(u: Tensor) -> Tensor:
        with torch.enable_grad():
            v = torch.zeros_like(like, requires_grad=True)
            return torch.autograd.grad((linear(v) * u).sum(), v)[0]

    return apply


def conjugate_residual(
    apply: LinearMap, b: Tensor, *, tolerance: float = SOLVE_TOLERANCE, steps: int = SOLVE_STEPS
) -> Tensor:
    """Solve `apply(x) = b` for a map near the identity, symmetric or not, by generalised conjugate residuals."""
    x, residual = torch.zeros_like(b), b
    kept: list[tuple[Tensor, Tensor]] = []  # directions p and their images q, these orthonormal
    for _ in range(steps):
        p, q = residual, apply(residual)
        for direction, image in kept:
            share = per_sample_column(inner_products(q, image), q)
            p, q = p - share * direction, q - share * image
        size = per_sample_column(sample_norms(q).clamp_min(torch.finfo(q.dtype).tiny), q)
        p, q = p / size, q / size
        kept.append((p, q))
        step = per_sample_column(inner_products(residual, q), q)
        x, residual = x + step * p, residual - step * q
        if bool((sample_norms(residual) <= tolerance * sample_norms(b)).all()):
            break
    return x


def _power_iteration(
    operator: Operator,
    inverse: Callable[[Tensor], Tensor],
    inverse_transposed: Callable[[Tensor], Tensor],
    start: Tensor,
    iterations: int,
) -> tuple[Tensor, Tensor]:
    """The largest gain of `inverse(H^T v)`, and the v of length 1 that has it."""
    towards, gain, v = start, start.new_zeros(len(start)), start
    for _ in range(iterations):
        v = towards / per_sample_column(sample_norms(towards), towards)
        change = inverse(operator.adjoint(v))
        gain = sample_norms(change)
        towards = operator.forward(inverse_transposed(change))
    return gain, v


def _with_slope(features: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """The values of a spline, and its slopes there."""
    with torch.enable_grad():
        leaf = features.detach().requires_grad_()
        values = even_spline(leaf, phi.detach())
        (slope,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), slope
