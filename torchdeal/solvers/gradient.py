"""The gradient of a linear solve, without differentiating through its iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchdeal.solvers.cg import conjugate_gradient

ParametricMap = Callable[..., Tensor]


def implicit_solve(
    apply: ParametricMap,
    b: Tensor,
    parameters: tuple[Tensor, ...],
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
) -> Tensor:
    """`x = A(theta)^-1 b`, differentiable in `b` and `theta`.

    From `A x = b`: `dx = A^-1 (db - dA x)`. For an incoming gradient g, with `v = A^-1 g` solved by the same
    conjugate gradients, the gradient is `v` for `b`, and that of `-<v, A(theta) x>` at fixed v and x for `theta`.

    Args:
        apply: `(p, *theta) -> A(theta) p`, Hermitian positive definite; all it depends on that needs a gradient
            must come in through `theta`.
        b: right-hand sides, `(B, ...)`.
        parameters: `theta`.
        start: first guess of the forward solve.
        tolerance: relative, of the forward and of the backward solve.
        max_iterations: of each.
    """
    options = {"tolerance": tolerance, "max_iterations": max_iterations}
    return _ImplicitSolve.apply(apply, options, start, b, *parameters)  # pyright: ignore[reportReturnType]


class _ImplicitSolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, apply: ParametricMap, options: dict[str, Any], start: Tensor | None, b: Tensor, *parameters: Tensor
    ):
        x = conjugate_gradient(lambda p: apply(p, *parameters), b, start, **options).x
        ctx.system, ctx.options = apply, options
        ctx.save_for_backward(x, *parameters)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, *parameters = ctx.saved_tensors
        v = conjugate_gradient(lambda p: ctx.system(p, *parameters), grad, **ctx.options).x
        with torch.enable_grad():
            wanted = ctx.needs_input_grad[4:]
            theta = [p.detach().requires_grad_(want) for p, want in zip(parameters, wanted, strict=True)]
            sought = [p for p in theta if p.requires_grad]
            found = torch.autograd.grad(ctx.system(x.detach(), *theta), sought, -v, allow_unused=True) if sought else ()
        grads = iter(found)
        return None, None, None, v, *(next(grads) if want else None for want in wanted)
