"""Total variation, the classical baseline: `argmin_x 0.5 ||H x - y||^2 + strength TV(x)` over images x in a box.

`TV(x)` is the sum over pixels of the norm of the gradient, of all colours together: isotropic and vectorial. The
method is that of Chambolle and Pock (2011) with both `H` and the gradient `G` dualised, so that any linear `H` will do:

    min_{x in box} max_{q, |p| <= strength} <H x - y, q> - 0.5 ||q||^2 + <G x, p>

It stops on the duality gap, which bounds how far the objective is from its minimum; each image of a batch by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.operators import Operator

GRADIENT_NORM_SQUARED = 8.0  # a bound of the largest eigenvalue of G^T G
CHECK_EVERY = 20  # iterations from one gap to the next
STEP_FACTOR = 4.0  # of the rule for the primal step, found by trial: only the speed depends on it


@dataclass(frozen=True)
class Minimiser:
    """Images `(B, C, H, W)` and how good they are, `(B,)` each."""

    x: Tensor
    objective: Tensor
    gap: Tensor  # objective minus dual objective, relative to the objective
    iterations: Tensor
    converged: Tensor


def minimise_total_variation(
    y: Tensor,
    operator: Operator,
    strength: float,
    *,
    norm: float,
    box: tuple[float, float] = (0.0, 1.0),
    start: Tensor | None = None,
    tolerance: float = 1e-3,
    max_iterations: int = 2000,
) -> Minimiser:
    """Minimise `0.5 ||H x - y||^2 + strength TV(x)` over real images x with values in the box.

    Args:
        y: measurements, `(B, ...)`, real or complex.
        operator: `H`.
        strength: above 0.
        norm: `||H||_2`, or a bound of it, above 0.
        box: the least and the largest value of the image.
        start: the first iterate; zero if None.
        tolerance: stop when `objective - dual objective <= tolerance * objective`.
        max_iterations: at most so many.
    """
    if not (0 < strength < math.inf and 0 < norm < math.inf):
        raise ValueError(f"strength and norm must be finite and above 0, got {strength:g} and {norm:g}")
    # The same problem with ||H|| = 1: its steps do not depend on the units of the measurements.
    problem = _Objective(y / norm, (1 / norm) * operator, strength / norm**2, box)
    x = (torch.zeros_like(operator.adjoint(y)) if start is None else start).clamp(*box)
    # Steps: tau (sigma_q ||H||^2 + sigma_p ||G||^2) = 1. Dual variables, and so good steps, grow with the strength.
    tau = 1 / (STEP_FACTOR * math.sqrt(problem.strength))
    sigma_q, sigma_p = 0.5 / tau, 0.5 / (tau * GRADIENT_NORM_SQUARED)
    q, p = problem.residual(x), torch.zeros_like(gradient(x))
    ahead, latest = x, x
    gap = torch.full((len(x),), math.inf, dtype=torch.float64, device=x.device)
    iterations = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    for iteration in range(1, max_iterations + 1):
        q = (q + sigma_q * problem.residual(ahead)) / (1 + sigma_q)
        p = _project(p + sigma_p * gradient(ahead), problem.strength)
        slope = problem.operator.adjoint(q) + gradient_adjoint(p)
        previous, latest = latest, (latest - tau * slope).clamp(*box)
        ahead = 2 * latest - previous
        if iteration % CHECK_EVERY == 0 or iteration == max_iterations:
            live = gap > tolerance  # the others stay as they are
            x = torch.where(live.view(-1, 1, 1, 1), latest, x)
            iterations = torch.where(live, iteration, iterations)
            gap = torch.where(live, problem.relative_gap(latest, q, slope), gap)
            if bool((gap <= tolerance).all()):
                break
    return Minimiser(x, problem.objective(x) * norm**2, gap, iterations, gap <= tolerance)


@dataclass(frozen=True)
class _Objective:
    y: Tensor
    operator: Operator
    strength: float
    box: tuple[float, float]

    def residual(self, x: Tensor) -> Tensor:
        return self.operator.forward(x) - self.y

    def objective(self, x: Tensor) -> Tensor:
        return 0.5 * _square(self.residual(x)) + self.strength * total_variation(x)

    def relative_gap(self, x: Tensor, q: Tensor, slope: Tensor) -> Tensor:
        """Of images and dual variables with `slope = H^T q + G^T p`, p within its bounds."""
        primal = self.objective(x)
        low, high = self.box
        lowest = torch.where(slope > 0, low * slope, high * slope)  # the least <x, slope> for x in the box
        dual = _sums(lowest) - 0.5 * _square(q) - _sums((q.conj() * self.y).real)
        return torch.where(primal > 0, (primal - dual) / primal, 0.0)


def gradient(x: Tensor) -> Tensor:
    """Differences `(B, C, 2, H, W)` to the next pixel down and to the right, zero at the border."""
    down, right = torch.zeros_like(x), torch.zeros_like(x)
    down[..., :-1, :] = x[..., 1:, :] - x[..., :-1, :]
    right[..., :-1] = x[..., 1:] - x[..., :-1]
    return torch.stack([down, right], 2)


def gradient_adjoint(p: Tensor) -> Tensor:
    """The transpose of `gradient`."""
    down, right = p[:, :, 0, :-1, :], p[:, :, 1, :, :-1]
    x = torch.zeros_like(p[:, :, 0])
    x[..., 1:, :] += down
    x[..., :-1, :] -= down
    x[..., 1:] += right
    x[..., :-1] -= right
    return x


def total_variation(x: Tensor) -> Tensor:
    """The sum over pixels of the norm of the gradient of all channels, `(B,)`."""
    return _sums(_pixel_norms(gradient(x)))


def _pixel_norms(p: Tensor) -> Tensor:
    return torch.linalg.vector_norm(p, dim=(1, 2), keepdim=True)


def _project(p: Tensor, radius: float) -> Tensor:
    """The nearest field whose norms are at most the radius."""
    return p / (_pixel_norms(p) / radius).clamp_min(1)


def _square(values: Tensor) -> Tensor:
    return _sums(values.abs().double().square())


def _sums(values: Tensor) -> Tensor:
    """Per sample, in double precision."""
    return values.double().flatten(1).sum(1)
