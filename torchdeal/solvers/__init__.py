"""Solvers: linear systems, the fixed point, and the gradient. They know nothing of models or operators."""

from torchdeal.solvers.cg import LinearMap, LinearSolution, conjugate_gradient, sample_norms
from torchdeal.solvers.fixed_point import Progress, System, momentum, solve_fixed_point
from torchdeal.solvers.gradient import differentiable_solve, implicit_solve
from torchdeal.solvers.result import Solution, Status

__all__ = [
    "LinearMap",
    "LinearSolution",
    "Progress",
    "Solution",
    "Status",
    "System",
    "conjugate_gradient",
    "differentiable_solve",
    "implicit_solve",
    "momentum",
    "sample_norms",
    "solve_fixed_point",
]
