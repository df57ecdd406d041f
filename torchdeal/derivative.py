"""The derivatives of the method at an answer: of one step T, and of the answer in the measurements.

At a fixed point, `A(x) x = H^T y`. The derivative of the left side in x is `A + K`, with K the part that comes from the
masks, `K v = lam W^T (dM^2(x)[v] W x)`. So:

* one step, `T(x) = A(x)^-1 H^T y`, has the derivative `T'(x) = -A^-1 K`;
* by the implicit function theorem, the answer has `dx/dy = (A + K)^-1 H^T`. Its norm is the smallest L with
  `||x(y + e) - x(y)|| <= L ||e||` in the limit of small e. With frozen masks it would be `A^-1 H^T`;
* Newton's step from x towards the fixed point is `(A + K)^-1 (H^T y - A(x) x)`.

K is not symmetric. Of a complex image it is linear over the reals: real and imaginary part have masks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import reflect
from torchdeal.model.filters import analysis, synthesis, valid_convolutions
from torchdeal.model.spline import even_spline
from torchdeal.operators import Operator
from torchdeal.solvers import LinearMap, System, conjugate_gradient, sample_norms
from torchdeal.solvers.cg import inner_products
from torchdeal.solvers.result import per_sample_column
from torchdeal.solvers.spectrum import largest_eigenpair
from torchdeal.system import AttentiveSystem, as_seen, seen_by_model

ACCURACY = 1e-3
LOOSE = 0.1  # relative residual of solves with A that bring one with A + K forward
CG_LIMIT = 1000
STEPS_LIMIT = 30  # of a solve with A + K


@dataclass(frozen=True)
class Gains:
    """Per sample: norms of the two derivatives of the answer, and where the measurements move it most."""

    frozen: Tensor  # ||A^-1 H^T||, (B,)
    total: Tensor  # ||dx/dy||, (B,)
    direction: Tensor  # of length 1, (B, ...) as the measurements


@dataclass(frozen=True, eq=False)
class Derivative:
    """The linear maps of this page, at x. All are per sample."""

    system: System  # A(x)
    operator: Operator
    masks: LinearMap  # K
    x: Tensor
    accuracy: float = ACCURACY  # relative error of solves with A, relative residual of those with A + K

    @classmethod
    def at(
        cls,
        x: Tensor,
        weights: Weights,
        operator: Operator,
        sigma: Tensor,
        lam: Tensor,
        accuracy: float = ACCURACY,
    ) -> Derivative:
        """At x.

        Args:
            x: images, `(B, C, H, W)`, real or complex.
            weights: of the model.
            operator: `H`.
            sigma: on the 0..255 scale, `(B,)`; or a map for each image that the model sees, `(P, 1, H, W)`.
            lam: `(B, 1, 1, 1)`.
            accuracy: of solves.
        """
        alpha = weights.alpha(sigma)
        system = AttentiveSystem.of(weights, operator, x, lam, alpha).precise(x)
        return cls(system, operator, masks_derivative(weights, x, alpha, lam), x, accuracy)

    @cached_property
    def masks_transposed(self) -> LinearMap:
        return transposed(self.masks, self.x)

    def frozen(self, b: Tensor) -> Tensor:
        """`A^-1 b`."""
        return self._frozen(b, self.accuracy, error_tolerance=self.accuracy)

    def _frozen(self, b: Tensor, tolerance: float, error_tolerance: float = torch.inf) -> Tensor:
        return conjugate_gradient(
            self.system.apply,
            b,
            tolerance=tolerance,
            error_tolerance=error_tolerance,
            max_iterations=CG_LIMIT,
            preconditioner=self.system.preconditioner,
        ).x

    def step(self, v: Tensor) -> Tensor:
        """`T'(x) v`."""
        return -self.frozen(self.masks(v))

    def step_transposed(self, u: Tensor) -> Tensor:
        """`T'(x)^T u`."""
        return -self.masks_transposed(self.frozen(u))

    def solve(self, b: Tensor) -> Tensor:
        """`(A + K)^-1 b`."""
        return self._solved(self.masks, b)

    def solve_transposed(self, b: Tensor) -> Tensor:
        """`(A + K^T)^-1 b`."""
        return self._solved(self.masks_transposed, b)

    def _solved(self, masks: LinearMap, b: Tensor) -> Tensor:
        return conjugate_residual(
            lambda v: self.system.apply(v) + masks(v), b, lambda r: self._frozen(r, LOOSE), tolerance=self.accuracy
        )


@torch.no_grad()
def largest_gains(derivative: Derivative, steps: int) -> Gains:
    """Norms of both derivatives of the answer, by so many steps of Lanczos each: estimates from below."""
    operator = derivative.operator

    def squared_frozen(v: Tensor) -> Tensor:
        return operator.forward(derivative.frozen(derivative.frozen(operator.adjoint(v))))

    start = operator.forward(white_noise_like(derivative.x))
    frozen, first = largest_eigenpair(squared_frozen, start, steps)
    total, direction = sensitivity(derivative, steps, start / per_sample_column(sample_norms(start), start) + first)
    return Gains(frozen.clamp_min(0).sqrt(), total, direction)


@torch.no_grad()
def sensitivity(derivative: Derivative, steps: int, start: Tensor) -> tuple[Tensor, Tensor]:
    """`||dx/dy||`, from below, and the measurements of length 1 that have it."""
    operator = derivative.operator

    def squared(v: Tensor) -> Tensor:
        return operator.forward(derivative.solve_transposed(derivative.solve(operator.adjoint(v))))

    value, direction = largest_eigenpair(squared, start, steps)
    return value.clamp_min(0).sqrt(), direction


def white_noise_like(x: Tensor, seed: int = 0) -> Tensor:
    """Of variance 1, the same for each sample."""
    parts = 2 if x.is_complex() else 1
    draws = torch.randn(*x.shape[1:], parts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    noise = torch.view_as_complex(draws) if x.is_complex() else draws[..., 0]
    return noise.to(x).expand_as(x).contiguous()


def masks_derivative(weights: Weights, x: Tensor, alpha: Tensor, lam: Tensor) -> LinearMap:
    """`K`: how `lam W^T M(x)^2 W z` changes with x where z stays, taken at `z = x`.

    The splines are linear in pieces: the derivative of M is a chain of convolutions with their slopes in between.
    """
    channels = weights.filters[0].shape[1]
    mirrored = weights.boundary is Boundary.REFLECT
    padding = 0 if mirrored else 1
    seen = seen_by_model(x, channels)
    alpha = alpha.repeat_interleave(len(seen) // len(alpha), 0)

    def bank(v: Tensor) -> Tensor:
        if mirrored:
            return valid_convolutions(reflect(v, MASK_REACH), weights.mask_filters)
        return analysis(v, weights.mask_filters, weights.boundary)

    def mixed(features: Tensor, layer: int) -> Tensor:
        return F.conv2d(features, weights.mix[layer], padding=padding)

    first, slope_1 = _with_slope(bank(seen), weights.phi[0])
    second, slope_2 = _with_slope(mixed(first, 0), weights.phi[1])
    mask, slope_3 = _with_slope(mixed(second, 1) * alpha, weights.phi[2])
    inside = (mask > MASK_FLOOR) & (mask < 1)
    # d(M^2) W x = 2 M dM W x
    last = 2 * mask.clamp(MASK_FLOOR, 1) * slope_3 * inside * alpha * analysis(seen, weights.filters, weights.boundary)

    def apply(v: Tensor) -> Tensor:
        change = last * mixed(slope_2 * mixed(slope_1 * bank(seen_by_model(v, channels)), 0), 1)
        return lam * as_seen(synthesis(change, weights.filters, weights.boundary), v)

    return apply


def transposed(linear: LinearMap, like: Tensor) -> LinearMap:
    """The transpose of a linear map from images like that to such images."""
    with torch.enable_grad():
        v = torch.zeros_like(like, requires_grad=True)
        image = linear(v)
    return lambda u: torch.autograd.grad(image, v, u, retain_graph=True)[0]


def conjugate_residual(
    apply: LinearMap,
    b: Tensor,
    towards: LinearMap = lambda r: r,
    *,
    tolerance: float = ACCURACY,
    steps: int = STEPS_LIMIT,
) -> Tensor:
    """Solve `apply(x) = b`, symmetric or not, by generalised conjugate residuals.

    Args:
        apply: the map.
        b: right-hand sides, `(B, ...)`.
        towards: roughly the inverse of the map; need not be linear.
        tolerance: on the relative residual, of every sample.
        steps: at most.
    """
    x, residual = torch.zeros_like(b), b
    kept: list[tuple[Tensor, Tensor]] = []  # directions p and their images q, these orthonormal
    for _ in range(steps):
        if bool((sample_norms(residual) <= tolerance * sample_norms(b)).all()):
            break
        p = towards(residual)
        q = apply(p)
        for direction, image in kept:
            share = per_sample_column(inner_products(q, image), q)
            p, q = p - share * direction, q - share * image
        size = per_sample_column(sample_norms(q).clamp_min(torch.finfo(q.dtype).tiny), q)
        p, q = p / size, q / size
        kept.append((p, q))
        share = per_sample_column(inner_products(residual, q), q)
        x, residual = x + share * p, residual - share * q
    return x


def _with_slope(features: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
    """The values of a spline, and its slopes there."""
    with torch.enable_grad():
        leaf = features.detach().requires_grad_()
        values = even_spline(leaf, phi.detach())
        (slope,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), slope
