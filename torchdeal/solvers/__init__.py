"""Solvers: linear systems, the fixed point, and the gradient. They know nothing of models or operators."""

from torchdeal.solvers.cg import LinearSolution, conjugate_gradient
from torchdeal.solvers.fixed_point import Progress, System, momentum, solve_fixed_point
from torchdeal.solvers.gradient import differentiable_solve, implicit_solve
from torchdeal.solvers.result import Solution, Status

__all__ = [
    "LinearSolution",
    "Progress",
    "Solution",
    "Status",
    "System",
    "conjugate_gradient",
    "differentiable_solve",
    "implicit_solve",
    "momentum",
    "solve_fixed_point",
]
