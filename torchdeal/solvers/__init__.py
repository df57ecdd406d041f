"""Solvers: linear systems, the fixed point, and the gradient. They know nothing of models or operators."""

from torchdeal.solvers.cg import LinearMap, LinearSolution, conjugate_gradient, sample_norms
from torchdeal.solvers.fixed_point import System, solve_fixed_point
from torchdeal.solvers.gradient import differentiable_solve, implicit_solve
from torchdeal.solvers.momentum import extrapolation
from torchdeal.solvers.result import Progress, Solution, Status

__all__ = [
    "LinearMap",
    "LinearSolution",
    "Progress",
    "Solution",
    "Status",
    "System",
    "conjugate_gradient",
    "differentiable_solve",
    "extrapolation",
    "implicit_solve",
    "sample_norms",
    "solve_fixed_point",
]
