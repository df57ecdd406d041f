"""Conjugate gradients for a batch of linear systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

LinearMap = Callable[[Tensor], Tensor]

MIN_WINDOW = 5  # iterations at least, whose progress tells how far the first of them was from the solution
PRECONDITIONED_WINDOW = 3  # likewise with a preconditioner, when each brings more


@dataclass(frozen=True)
class LinearSolution:
    """What `conjugate_gradient` found, per sample."""

    x: Tensor
    residual: Tensor  # ||b - A x||, (B,)
    error: Tensor  # estimate of ||x - A^-1 b||, (B,); inf where it was not asked for
    iterations: Tensor  # (B,)
    converged: Tensor  # (B,), bool


def conjugate_gradient(
    apply: LinearMap,
    b: Tensor,
    start: Tensor | None = None,
    *,
    tolerance: float | Tensor,
    max_iterations: int,
    error_tolerance: float | Tensor = float("inf"),
    preconditioner: LinearMap | None = None,
    check_every: int | None = None,
) -> LinearSolution:
    """Solve `A x = b` for Hermitian positive definite `A`, one system per sample.

    A sample is done when `||b - A x|| <= tolerance * ||b||` and the estimated error
    `||x - A^-1 b|| <= error_tolerance * ||x||`. From then on it is frozen: its step length is 0.

    The error is estimated by the formula of Hestenes and Stiefel (1952, theorem 6:3): with
    `E_j = sum_{i >= j} alpha_i <r_i, z_i>` the squared A-norm of the error,
    `||x - x_j||^2 = sum_{i >= j} ||p_i||^2 / <p_i, A p_i> (E_i + E_{i+1})`, the sums cut off at the last
    iteration. What is reported is the error at the start of the last third of the iterations (five at least), which
    bounds the present one. With a preconditioner the formula is about another norm than the Euclidean one. What is
    reported then is `||x - x_j||` itself, with x_j the iterate at the start of the last third or a little before (three
    at least).

    Args:
        apply: `p -> A p`.
        b: right-hand sides, `(B, ...)`, real or complex.
        start: first guess, zero if None.
        tolerance: relative to `||b||`; a number or one per sample, `(B,)`.
        max_iterations: of the whole batch.
        error_tolerance: likewise, relative to `||x||`; infinite by default, that is, not asked for.
        preconditioner: `r -> P r` with `P` Hermitian positive definite, close to `A^-1`.
        check_every: iterations after which to look whether all samples are done; looking makes a GPU wait for the
            host. By default 1, on a GPU 2. With 0 all iterations are made.
    """
    scalar = (-1,) + (1,) * (b.ndim - 1)
    b_norm = sample_norms(b)
    target = tolerance * b_norm
    # b = 0 has the solution 0, whatever the start was; a zero residual leaves nothing to do.
    x = torch.zeros_like(b) if start is None else torch.where((b_norm > 0).view(scalar), start, 0)
    r = b.clone() if start is None else b - apply(x)
    z = preconditioner(r) if preconditioner else r
    p = z
    rz = inner_products(r, z)
    residual = sample_norms(r)
    error = torch.where(residual == 0, 0.0, torch.full_like(residual, float("inf")))
    iterations = torch.zeros_like(residual, dtype=torch.long)
    asked = bool((torch.as_tensor(error_tolerance) < float("inf")).any())
    done = residual <= target
    if asked:
        done = done & _accurate(error, error_tolerance, x)
    done = done | (residual == 0)
    live = ~done
    history: list[tuple[Tensor, Tensor]] = []
    snapshots = _Snapshots(x)
    # Few and small operations: on a GPU their number is what an iteration costs beside the operator.
    interval = (1 if b.device.type == "cpu" else 2) if check_every is None else check_every
    for iteration in range(max_iterations):
        if interval and iteration % interval == 0 and not bool(live.any()):
            break
        Ap = apply(p)
        curvature = inner_products(p, Ap)
        # Rounding, or an operator that is not positive definite: no step along p makes sense.
        live = live & (curvature > 0)
        # alpha = <r, z> / <p, A p>;  x += alpha p;  r -= alpha A p
        alpha = torch.where(live, rz / curvature, 0)
        x.addcmul_(alpha.view(scalar), p)
        r = r.addcmul(alpha.view(scalar), Ap, value=-1)
        z = preconditioner(r) if preconditioner else r
        before, rz = rz, inner_products(r, z)
        residual = sample_norms(r) if preconditioner else rz.sqrt()
        finished = live & (residual <= target)
        if asked:
            if preconditioner:
                latest = snapshots.past_error(x, iteration + 1)
            else:
                history.append((alpha * before, torch.where(live, inner_products(p, p) / curvature, 0)))
                latest = _past_error(history)
            error = torch.where(live, latest, error).masked_fill(residual == 0, 0.0)
            finished = finished & _accurate(error, error_tolerance, x)
        iterations += live
        # beta = <r', z'> / <r, z>;  p = z' + beta p
        p = z.addcmul(torch.where(live, rz / before, 0).view(scalar), p)
        done, live = done | finished, live & ~finished
    return LinearSolution(x, residual, error, iterations, done)


class _Snapshots:
    """A few earlier iterates, each about a third later than the one before."""

    def __init__(self, start: Tensor):
        self.kept = [(0, start.clone())]

    def past_error(self, x: Tensor, iteration: int) -> Tensor:
        """`||x - x_j||` for the last j that was kept of those before the last third; inf if there is none."""
        latest = iteration - max(PRECONDITIONED_WINDOW, iteration // 3)
        while len(self.kept) > 1 and self.kept[1][0] <= latest:
            self.kept.pop(0)
        error = sample_norms(x - self.kept[0][1])
        if 3 * iteration >= 4 * self.kept[-1][0]:
            self.kept.append((iteration, x.clone()))
        return error if latest >= 0 else torch.full_like(error, float("inf"))


def _past_error(history: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The estimate of the error at the beginning of the last third of the history; inf if that is too short."""
    window = max(MIN_WINDOW, len(history) // 3)
    if len(history) < window:
        return torch.full_like(history[0][0], float("inf"))
    decrease, step = (torch.stack(terms) for terms in zip(*history[-window:], strict=True))
    energy = decrease.flip(0).cumsum(0).flip(0)  # E_i
    return (step * (2 * energy - decrease)).sum(0).sqrt()  # E_{i+1} = E_i - decrease_i


def _accurate(error: Tensor, error_tolerance: float | Tensor, x: Tensor) -> Tensor:
    return (torch.as_tensor(error_tolerance, device=error.device) == float("inf")) | (
        error <= error_tolerance * sample_norms(x)
    )


def inner_products(a: Tensor, b: Tensor) -> Tensor:
    """Real part of `<a, b>` per sample, `(B,)`."""
    product = (a.conj() * b).real if a.is_complex() else a * b
    return product.flatten(1).sum(1)


def sample_norms(a: Tensor) -> Tensor:
    """`||a||` per sample, `(B,)`."""
    return torch.linalg.vector_norm(a.flatten(1), dim=1)
