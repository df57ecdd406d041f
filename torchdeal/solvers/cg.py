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


@dataclass(frozen=True)
class _Iterates:
    """The state of the iteration, changed in place; a vector entry per sample."""

    x: Tensor
    r: Tensor
    p: Tensor
    rz: Tensor  # <r, z>, with z the preconditioned residual
    residual: Tensor
    target: Tensor
    live: Tensor
    done: Tensor
    iterations: Tensor
    decrease: Tensor  # alpha <r, z> of the last iterations, (k, B)
    length: Tensor  # ||p||^2 / <p, A p> of the last iterations
    squared_bound: Tensor  # of the error, in units of ||r|| / smallest

    def advance(self, apply: LinearMap, preconditioner: LinearMap | None, row: int | None, smallest: float) -> None:
        """One iteration. With a row, what the estimate of the error needs goes there; else small residuals end it.

        Few and small operations: on a GPU their number is what an iteration costs beside the operator.
        """
        scalar = (-1,) + (1,) * (self.x.ndim - 1)
        Ap = apply(self.p)
        curvature = inner_products(self.p, Ap)
        # Rounding, or an operator that is not positive definite: no step along p makes sense.
        self.live.logical_and_(curvature > 0)
        # alpha = <r, z> / <p, A p>;  x += alpha p;  r -= alpha A p
        alpha = torch.where(self.live, self.rz / curvature, 0)
        self.x.addcmul_(alpha.view(scalar), self.p)
        self.r.addcmul_(alpha.view(scalar), Ap, value=-1)
        z = preconditioner(self.r) if preconditioner else self.r
        rz = inner_products(self.r, z)
        torch.sqrt(inner_products(self.r, self.r) if preconditioner else rz, out=self.residual)
        self.iterations.add_(self.live)
        # beta = <r', z'> / <r, z>;  p = z' + beta p
        beta = torch.where(self.live, rz / self.rz, 0)
        if row is not None:
            self.decrease[row] = alpha * self.rz
            self.length[row] = torch.where(self.live, inner_products(self.p, self.p) / curvature, 0)
            if smallest > 0 and preconditioner is None:
                self.squared_bound.copy_(_next_squared_bound(self.squared_bound, smallest * alpha, beta))
        else:
            self.done.logical_or_(self.live & (self.residual <= self.target))
            self.live.logical_and_(~self.done)
        torch.addcmul(z, beta.view(scalar), self.p, out=self.p)
        self.rz.copy_(rz)


def conjugate_gradient(
    apply: LinearMap,
    b: Tensor,
    start: Tensor | None = None,
    *,
    tolerance: float | Tensor,
    max_iterations: int,
    error_tolerance: float | Tensor = float("inf"),
    preconditioner: LinearMap | None = None,
    smallest: float = 0.0,
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

    Where it is known that no eigenvalue of A is below some mu, there is a bound on the error too, and the smaller of
    the two counts. It is `||b - A x|| / mu`, without a preconditioner times `sqrt(h_k)`, by Gauss-Radau quadrature
    (Meurant and Tichy 2013): `h_0 = 1`, `h_{k+1} = (h_k - mu alpha_k) / (h_k - mu alpha_k + beta_{k+1})`.

    Args:
        apply: `p -> A p`.
        b: right-hand sides, `(B, ...)`, real or complex.
        start: first guess, zero if None.
        tolerance: relative to `||b||`; a number or one per sample, `(B,)`.
        max_iterations: of the whole batch.
        error_tolerance: likewise, relative to `||x||`; infinite by default, that is, not asked for.
        preconditioner: `r -> P r` with `P` Hermitian positive definite, close to `A^-1`.
        smallest: what no eigenvalue of A is below; 0 where nothing is known.
        check_every: iterations after which to look whether all samples are done, and to estimate their errors; looking
            makes a GPU wait for the host. By default 1, on a GPU 2. With 0 all iterations are made.
    """
    interval = (1 if b.device.type == "cpu" else 2) if check_every is None else check_every
    together = min(interval or max_iterations, max_iterations)
    asked = bool((torch.as_tensor(error_tolerance) < float("inf")).any())
    state = _first_iterates(apply, b, start, tolerance * sample_norms(b), preconditioner, rows=max(1, together))
    error = torch.where(state.residual == 0, 0.0, torch.full_like(state.residual, float("inf")))
    enough = state.residual <= state.target
    state.done.copy_(enough & _accurate(error, error_tolerance, state.x) if asked else enough)
    state.live.copy_(~state.done)
    history: list[tuple[Tensor, Tensor]] = []
    snapshots = _Snapshots(state.x)
    left = max_iterations
    while left > 0 and not (interval and not bool(state.live.any())):
        for row in range(min(together, left)):
            state.advance(apply, preconditioner, row if asked else None, smallest)
        if asked:
            history += list(zip(state.decrease.clone()[:left], state.length.clone()[:left], strict=True))
            latest = snapshots.past_error(state.x, len(history)) if preconditioner else _past_error(history)
            if smallest > 0:
                latest = torch.minimum(latest, state.squared_bound.sqrt() * state.residual / smallest)
            error = torch.where(state.live, latest, error).masked_fill(state.residual == 0, 0.0)
            state.done.logical_or_((state.residual <= state.target) & _accurate(error, error_tolerance, state.x))
            state.live.logical_and_(~state.done)
        left -= together
    return LinearSolution(state.x, state.residual, error, state.iterations, state.done)


def _first_iterates(
    apply: LinearMap, b: Tensor, start: Tensor | None, target: Tensor, preconditioner: LinearMap | None, rows: int
) -> _Iterates:
    # b = 0 has the solution 0, whatever the start was; a zero residual leaves nothing to do.
    nonzero = (sample_norms(b) > 0).view((-1,) + (1,) * (b.ndim - 1))
    x = torch.zeros_like(b) if start is None else torch.where(nonzero, start, 0)
    r = b.clone() if start is None else b - apply(x)
    z = preconditioner(r) if preconditioner else r
    residual = sample_norms(r)
    return _Iterates(
        x=x,
        r=r,
        p=z.clone(),
        rz=inner_products(r, z),
        residual=residual,
        target=target,
        live=torch.ones_like(residual, dtype=torch.bool),
        done=torch.zeros_like(residual, dtype=torch.bool),
        iterations=torch.zeros_like(residual, dtype=torch.long),
        decrease=residual.new_zeros(rows, len(b)),
        length=residual.new_zeros(rows, len(b)),
        squared_bound=torch.ones_like(residual),
    )


def _next_squared_bound(bound: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """By Gauss-Radau quadrature, alpha in units of 1 / smallest. Where rounding leaves nothing, 1 holds in any case."""
    rest = bound - alpha
    return torch.where(rest > 0, rest / (rest + beta), 1)


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
