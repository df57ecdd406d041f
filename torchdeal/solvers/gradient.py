"""The gradient of a linear solve, without differentiating through its iterations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchdeal.solvers.cg import conjugate_gradient

ParametricMap = Callable[..., Tensor]
Solve = Callable[[Tensor, Tensor | None], Tensor]


def implicit_solve(
    apply: ParametricMap,
    b: Tensor,
    parameters: tuple[Tensor, ...],
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
) -> Tensor:
    """`x = A(theta)^-1 b`, differentiable in `b` and `theta`, by conjugate gradients.

    Args:
        apply: `(p, *theta) -> A(theta) p`, Hermitian positive definite; all it depends on that needs a gradient
            must come in through `theta`.
        b: right-hand sides, `(B, ...)`.
        parameters: `theta`.
        start: first guess of the forward solve.
        tolerance: relative, of the forward and of the backward solve.
        max_iterations: of each.
    """
    values = [parameter.detach() for parameter in parameters]

    def solve(b: Tensor, start: Tensor | None) -> Tensor:
        options = {"tolerance": tolerance, "max_iterations": max_iterations}
        return conjugate_gradient(lambda p: apply(p, *values), b, start, **options).x

    def pairing(v: Tensor, x: Tensor, *theta: Tensor) -> Tensor:
        return (v.conj() * apply(x, *theta)).real.sum() if v.is_complex() else (v * apply(x, *theta)).sum()

    return differentiable_solve(solve, pairing, b, parameters, start=start)


def differentiable_solve(
    solve: Solve, pairing: ParametricMap, b: Tensor, parameters: tuple[Tensor, ...], *, start: Tensor | None = None
) -> Tensor:
    """`x = A(theta)^-1 b`, differentiable in `b` and `theta`, by whatever solves such systems.

    From `A x = b`: `dx = A^-1 (db - dA x)`. For an incoming gradient g, with `v = A^-1 g`, the gradient is `v` for
    `b`, and that of `-<v, A(theta) x>` at fixed v and x for `theta`.

    Args:
        solve: `(b, start) -> A(theta)^-1 b`, without gradient.
        pairing: `(v, x, *theta) -> <v, A(theta) x>`, summed over the batch, differentiable in theta; terms in which no
            theta occurs may be left out.
        b: right-hand sides, `(B, ...)`.
        parameters: `theta`.
        start: first guess of the forward solve.
    """
    return _Solve.apply(solve, pairing, start, b, *parameters)  # pyright: ignore[reportReturnType]


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, solve: Solve, pairing: ParametricMap, start: Tensor | None, b: Tensor, *parameters: Tensor):
        x = solve(b, start)
        ctx.solve, ctx.pairing = solve, pairing
        ctx.save_for_backward(x, *parameters)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, *parameters = ctx.saved_tensors
        v = ctx.solve(grad, None)
        with torch.enable_grad():
            wanted = ctx.needs_input_grad[4:]
            theta = [p.detach().requires_grad_(want) for p, want in zip(parameters, wanted, strict=True)]
            sought = [p for p in theta if p.requires_grad]
            paired = -ctx.pairing(v, x.detach(), *theta) if sought else None
            found = torch.autograd.grad(paired, sought, allow_unused=True) if paired is not None else ()
        grads = iter(found)
        return None, None, None, v, *(next(grads) if want else None for want in wanted)
