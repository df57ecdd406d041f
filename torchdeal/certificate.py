"""What is known about an answer, in numbers and in sentences: `rec.certificate()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdeal.derivative import Derivative, sensitivity, white_noise_like
from torchdeal.io.measurements import positive, positive_integer
from torchdeal.precision import full_precision
from torchdeal.reconstruction import posed_by
from torchdeal.solvers import sample_norms
from torchdeal.solvers.cg import inner_products
from torchdeal.solvers.spectrum import largest_eigenpair
from torchdeal.starts import Agreement, from_starts
from torchdeal.theory import (
    CHEAP_STEPS,
    Contraction,
    contraction,
    everywhere,
    kernels,
    operator_norm,
    smallest_eigenvalue,
)

if TYPE_CHECKING:
    from torchdeal.reconstruction import PosedEquation, Reconstruction

ACCURACY = 1e-2  # of solves: the numbers are shown with three digits


@dataclass(frozen=True, eq=False)
class Certificate:
    """Numbers per sample, `(B,)`, on the CPU; `str()` says what they mean.

    They are about the problem as it was solved: images in 0..1, H with a gain not far from 1. Norms are estimates from
    below, smallest eigenvalues from above. A bound that says nothing is infinite.

    Attributes:
        smallest: eigenvalue of `A(x)`.
        largest: likewise.
        constants: `||H 1|| / ||1||`, how much of a constant image H keeps.
        kernel: the smallest eigenvalue of `H^T H + W^T W`.
        resolution: what is below is rounding, in `kernel`.
        operator_norm: `||H||`.
        radius: the spectral radius of `T'(x)`; below 1, the plain iteration converges from near by.
        contraction: `||T'(x)||`, Euclidean, as in the paper's theorem.
        energy_contraction: the same in the norm `<v, A v>^(1/2)`. Bounds need one of the two below 1.
        step: `||T(x) - x|| / ||x||`.
        newton: the length of Newton's step, relative to `||x||`: how far the fixed point is, to first order.
        bound: on the same distance, from the contraction.
        sensitivity: `||dx/dy||`.
        stability: the paper's bound of it, `||H|| / ((1 - contraction) smallest)`.
        energy_stability: that from the other contraction, `1 / ((1 - energy_contraction) smallest^(1/2))`.
        lam: the strength.
        floor: `lambda_eps`, the smallest eigenvalue of A whatever the masks are.
        global_contraction: a bound of T's contraction between any two images; below 1, the fixed point is the only one.
        unique_below: lam below which that is proven from H alone.
        converged: whether the run said so.
        steps: of Lanczos, behind each number.
        agreement: what other starts lead to, if asked for.
    """

    smallest: Tensor
    largest: Tensor
    constants: Tensor
    kernel: Tensor
    resolution: Tensor
    operator_norm: Tensor
    radius: Tensor
    contraction: Tensor
    energy_contraction: Tensor
    step: Tensor
    newton: Tensor
    bound: Tensor
    sensitivity: Tensor
    stability: Tensor
    energy_stability: Tensor
    lam: Tensor
    floor: Tensor
    global_contraction: Tensor
    unique_below: Tensor
    converged: tuple[bool, ...]
    steps: int
    agreement: Agreement | None = field(default=None, repr=False)

    def numbers(self, sample: int = 0) -> dict[str, float]:
        """Of one sample, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: float(value[sample]) for name, value in values.items() if isinstance(value, Tensor)}

    def sentences(self, sample: int = 0) -> list[str]:
        """About one sample."""
        from torchdeal.certificate_words import sentences

        return sentences(self, sample)

    def __str__(self) -> str:
        if len(self.converged) == 1:
            return "\n".join(self.sentences())
        parts = ("\n".join([f"Sample {index}:", *self.sentences(index)]) for index in range(len(self.converged)))
        return "\n\n".join(parts)


def certify(
    reconstruction: Reconstruction,
    *,
    steps: int = 8,
    starts: int = 0,
    tolerance: float = 1e-3,
    max_iterations: int = 500,
    callback: Callable[[str], None] | None = None,
) -> Certificate:
    """See `Reconstruction.certificate`."""
    equation, x = posed_by(reconstruction)
    positive_integer("steps", steps)
    if starts:
        positive_integer("starts", starts)
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the result is not finite: there is nothing to say about it")
    told = callback or (lambda name: None)
    with torch.no_grad(), full_precision(x.device):
        found = _numbers(equation, x, steps, told)
        agreement = None
        if starts:
            limits = {"tolerance": positive("tolerance", tolerance), "max_iterations": max_iterations}
            agreement = from_starts(equation, x, starts, callback=told, **limits)
    converged = tuple(status.name == "CONVERGED" for status in reconstruction.statuses)
    on_cpu = {name: value.double().cpu() for name, value in found.items()}
    return Certificate(**on_cpu, converged=converged, steps=steps, agreement=agreement)


def _numbers(equation: PosedEquation, x: Tensor, steps: int, told: Callable[[str], None]) -> dict[str, Tensor]:
    weights, operator, sigma, lam = equation.weights, equation.operator, equation.sigma, equation.lam
    derivative = Derivative.at(x, weights, operator, sigma, lam, ACCURACY)
    noise = white_noise_like(x)
    told("eigenvalues")
    smallest = smallest_eigenvalue(derivative.system, noise, steps)
    largest, _ = largest_eigenpair(derivative.system.apply, noise, CHEAP_STEPS)
    common, gain = kernels(weights, operator, x, steps), operator_norm(operator, x)
    told("contraction")
    shrinking = contraction(derivative, steps)
    told("distance")
    # From the measurements: b - A x would be rounding where H sees little.
    residual = equation.system().precise(x).residual_of(equation.b, x)
    distances = _distances(derivative, residual, shrinking, smallest)
    told("sensitivity")
    measured, _ = sensitivity(derivative, max(1, steps // 2), operator.forward(noise))
    told("uniqueness")
    widely = everywhere(weights, operator, equation.b, sigma, lam, steps)
    return distances | {
        "smallest": smallest,
        "largest": largest,
        "constants": common.constants,
        "kernel": common.smallest,
        "resolution": common.resolution,
        "operator_norm": gain,
        "radius": shrinking.radius,
        "contraction": shrinking.euclidean,
        "energy_contraction": shrinking.energy,
        "sensitivity": measured,
        "stability": gain * _geometric(shrinking.euclidean) / smallest,
        "energy_stability": _geometric(shrinking.energy) / smallest.sqrt(),
        "lam": lam.flatten(),
        "floor": widely.smallest,
        "global_contraction": widely.contraction,
        "unique_below": widely.unique_below,
    }


def _distances(derivative: Derivative, residual: Tensor, shrinking: Contraction, smallest: Tensor) -> dict[str, Tensor]:
    """All relative to `||x||`."""
    x, system = derivative.x, derivative.system
    size = sample_norms(x)
    step = derivative.frozen(residual)
    length = sample_norms(step)
    energy = inner_products(step, system.apply(step)).clamp_min(0).sqrt()
    bounds = length * _geometric(shrinking.euclidean), energy * _geometric(shrinking.energy) / smallest.sqrt()
    found = {
        "step": length,
        "newton": sample_norms(derivative.solve(residual)),
        "bound": torch.minimum(*(torch.where(bound.isnan(), torch.inf, bound) for bound in bounds)),
    }
    # The answer to y = 0 is 0, which is no distance away.
    return {name: torch.where(size > 0, value / size, 0) for name, value in found.items()}


def _geometric(q: Tensor) -> Tensor:
    """`1 + q + q^2 + ...`."""
    return torch.where(q < 1, 1 / (1 - q), torch.inf)
