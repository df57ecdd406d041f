"""The fixed point of `x = A(x)^-1 b`.

One outer iteration freezes the system at x, takes its residual `r = b - A(x) x`, which is the residual of the
fixed-point equation itself, and solves `A(x) d = r` for the correction `d = T(x) - x` by conjugate gradients. Four
parts, each in a module of its own, decide the rest:

* `phases`: far from the fixed point the solve is loose, since a better solution of a system that is about to change is
  wasted work; at the end it is accurate.
* `distance`: from accurate corrections, how far the fixed point is. Only this ends a run: a small residual does not (an
  ill-posed system hides large errors in small residuals), nor does a small loose step.
* `momentum`: the next iterate lies ahead of `T(x)`.
* `cg`: the linear solve.

`gathered` leaves samples that have ended out of the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from torchdeal.solvers.cg import LinearMap, LinearSolution, conjugate_gradient, sample_norms
from torchdeal.solvers.distance import ENOUGH, DistanceEstimate
from torchdeal.solvers.gathered import Gathered
from torchdeal.solvers.geometry import Geometry, host_array, inner_products_of
from torchdeal.solvers.momentum import Momentum
from torchdeal.solvers.phases import Phases
from torchdeal.solvers.result import Evaluation, Progress, Solution, per_sample_column
from torchdeal.solvers.settling import Settling

# What other values do was measured by tools/solver_constants.py, on 14 problems of 48 x 48 pixels.
LOOSE = 0.4  # reduction of the residual by a loose solve. 0.2: 17 % more CG iterations; 0.6: 11 % more outer ones
# The same where A is ill-conditioned, and a residual of 0.4 may leave more than that of the error
ILL_CONDITIONED_LOOSE = 0.1
ACCURATE = 0.2  # the same of an accurate one, and the error of its correction. 0.4: 4 % less CG, but
# a correction that is known to less than half of its size is little to estimate a distance from
# That error where it is bounded, as in denoising, beside a residual of LOOSE: the bound is about twice the error.
# 0.4: 8 % more CG, 2 % fewer outer iterations; 0.6: 3 % more CG, 2 % fewer outer ones
BOUNDED = 0.8
CG_LIMIT = 1000  # iterations of one solve, so that each ends; the 14 problems take 1175 in 244 solves
ROUNDING = 20  # machine epsilons: relative residuals and steps below this are rounding errors


class ReplayedSolver(Protocol):
    """Solves `A x = b` as `conjugate_gradient` does, from zero; replays what has a key."""

    def __call__(
        self,
        key: Hashable,
        apply: LinearMap,
        b: Tensor,
        *,
        tolerance: Tensor,
        error_tolerance: Tensor,
        max_iterations: int,
        smallest: float = 0.0,
    ) -> LinearSolution: ...


@dataclass(frozen=True)
class System:
    """`A(x)`, frozen at some x, Hermitian positive definite."""

    apply: LinearMap
    approximate: LinearMap | None = None  # to about 1e-3 of its norm, for the solves; None: not to be had, or too rough
    preconditioner: LinearMap | None = None  # Hermitian positive definite, close to the inverse
    key: Hashable = None  # solves with the same key do the same work on the same memory, as CUDA graphs must
    smallest: float = 0.0  # no eigenvalue of A is below this
    # `x -> b - A(x) x` with less rounding than that formula has; None: the formula is as good
    residual: LinearMap | None = None

    def residual_of(self, b: Tensor, x: Tensor) -> Tensor:
        """`b - A(x) x`."""
        return b - self.apply(x) if self.residual is None else self.residual(x)

    @property
    def well_conditioned(self) -> bool:
        """Whether a small residual is a small error: else there would be no approximation."""
        return self.approximate is not None

    @property
    def for_solves(self) -> LinearMap:
        """The correction is wanted to a part of its size; the residual that it corrects is always that of `apply`."""
        return self.approximate or self.apply


class Systems(Protocol):
    """`x -> A(x)`, and a faster approximation of it, for some samples of a batch."""

    def precise(self, x: Tensor) -> System: ...

    def rough(self, x: Tensor) -> System: ...


def solve_fixed_point(
    linearise: Callable[[Tensor], System],
    b: Tensor,
    start: Tensor | None = None,
    *,
    rough: Callable[[Tensor], System] | None = None,
    part: Callable[[Tensor], Systems | None] | None = None,
    tolerance: float,
    max_iterations: int,
    keep_path: bool = False,
    callback: Callable[[Progress], None] | None = None,
    replayed: ReplayedSolver | None = None,
) -> Solution:
    """Find `x` with `A(x) x = b`, each sample of the batch on its own.

    A sample has converged when its estimated distance to the fixed point (`DistanceEstimate`) is at most
    `tolerance * ||x||`, and the estimate is trusted. It is then frozen, and soon not computed any more (`Gathered`).

    Samples of a batch share only how they are computed: `rough` is used as long as all are far from their fixed points,
    and on a GPU CG looks less often whether a sample is done where another one wants accuracy. So a neighbour can
    change a result within the tolerance.

    Args:
        linearise: `x -> A(x)`.
        b: right-hand sides, `(B, C, H, W)`.
        start: `x_0`, zero if None.
        rough: a faster approximation of `linearise`, to about 1e-3, for the steps far from the fixed point.
        part: the systems of some samples alone, by their places in the batch, `(n,)`, on the CPU; None where they
            cannot be had, or for the whole argument: then all are computed until the last one has ended.
        tolerance: on the estimated relative distance to the fixed point.
        max_iterations: outer iterations at most.
        keep_path: return all iterates.
        callback: called with a `Progress` after each outer iteration.
        replayed: solves systems without a preconditioner; None: as the others.
    """
    b_norm = host_array(sample_norms(b))
    rounding = ROUNDING * torch.finfo(b.dtype).eps
    trivial = b_norm == 0  # the fixed point of b = 0 is 0
    here = Gathered(b, _first_iterate(b, start, trivial))
    phases, estimate = Phases(trivial, tolerance, rounding), DistanceEstimate(b, trivial, rounding)
    settling = Settling(len(b), tolerance)
    momentum, path = Momentum(len(b)), [here.x]
    iterations, cg_iterations = np.zeros((2, len(b)), dtype=np.int64)
    for iteration in range(1, max_iterations + 1):
        active, left = phases.active, max_iterations - iteration
        if not active.any():
            break
        if part is not None and here.mostly_ended(active):
            (samples,) = active.nonzero()
            if (smaller := part(torch.from_numpy(samples))) is not None:
                here.keep(samples)
                linearise, rough = smaller.precise, rough and smaller.rough
        accurate = phases.closing_in | (left < ENOUGH)  # the last steps at least, so that there is an estimate
        precise = not phases.all_far or bool((active & accurate).any())
        system = linearise(here.x) if precise or rough is None else rough(here.x)
        now = _evaluate(system, here, b_norm, active, accurate, precise, replayed)
        iterations += active
        cg_iterations += now.cg_iterations
        estimate.update(now, active, cautious=not system.well_conditioned)
        momentum.over |= phases.update(now, estimate)
        image = here.whole(now.image) if settling.looks_at(iteration) else now.image
        given_up = settling.given_up(iteration, image, phases.active, patient=system.well_conditioned)
        if given_up.any():
            estimate.relative = np.where(given_up, host_array(settling.distance), estimate.relative)
            phases.give_up(given_up)
        here.go_on(now, momentum.factor(now, phases.active & (left > 0)))
        if keep_path:
            path.append(here.whole(here.x))
        if callback:
            residual, distance, going_on = map(torch.from_numpy, (now.residual, estimate.relative, phases.active))
            callback(Progress(iteration, here.whole(here.x), residual, distance, going_on))
    return Solution(
        x=here.whole(here.x),
        statuses=phases.statuses(),
        distance=torch.from_numpy(estimate.relative),
        contraction=torch.from_numpy(estimate.contraction),
        iterations=torch.from_numpy(iterations),
        cg_iterations=torch.from_numpy(cg_iterations),
        residuals=torch.from_numpy(np.array(phases.residuals, dtype=float).reshape(-1, len(b))),
        path=tuple(path) if keep_path else (),
        movement=settling.movement,
    )


def _first_iterate(b: Tensor, start: Tensor | None, trivial: np.ndarray) -> Tensor:
    x = torch.zeros_like(b) if start is None else start.clone()
    return x.masked_fill_(_column(trivial, b), 0)


def _column(per_sample: np.ndarray, like: Tensor) -> Tensor:
    return per_sample_column(torch.from_numpy(per_sample), like)


def _evaluate(
    system: System,
    here: Gathered,
    b_norm: np.ndarray,
    active: np.ndarray,
    accurate: np.ndarray,
    precise: bool,
    replayed: ReplayedSolver | None,
) -> Evaluation:
    """`T(x)`: the correction that solves the system for its residual, loosely, or accurately where asked for."""
    residual = system.residual_of(here.b, here.x)
    if not active[here.places].all():
        residual = torch.where(_column(active[here.places], residual), residual, 0)
    solve = _solve(system, residual, accurate[here.places], replayed)
    earlier = here.history if precise else here.history[-1:]  # momentum looks at the latest alone
    correction, image = solve.x, here.x + solve.x
    seen = _looked_at(here, correction, image, residual, solve, earlier)
    # Where the system made NaN of something, CG gives up with a residual of NaN. Such a step has no length, and is not
    # taken.
    broken = ~(np.isfinite(seen.left) & np.isfinite(seen.geometry.step))
    if broken.any():
        correction = correction.masked_fill(_column(broken[here.places], correction), 0)
        image = here.x + correction
        seen = _looked_at(here, correction, image, residual, solve, earlier)
    return Evaluation(
        x=here.x,
        image=image,
        correction=correction,
        geometry=seen.geometry,
        residual=np.where(active, seen.residual / np.where(active, b_norm, 1), np.nan),
        step=np.where(broken, np.nan, seen.geometry.step),
        size=seen.size,
        error=seen.error,
        accurate=accurate & (seen.solved > 0),
        cg_iterations=seen.cg_iterations.astype(np.int64),
        precise=precise,
    )


def _solve(system: System, b: Tensor, accurate: np.ndarray, replayed: ReplayedSolver | None) -> LinearSolution:
    loose = LOOSE if system.well_conditioned else ILL_CONDITIONED_LOOSE
    wanted = ([loose], [BOUNDED]) if system.smallest > 0 else ([ACCURATE], [ACCURATE])
    tolerances = np.where(accurate, wanted, [[loose], [np.inf]]).astype(np.float32)
    tolerance, error_tolerance = torch.from_numpy(tolerances).to(b.device, b.real.dtype).unbind(0)
    options = {"max_iterations": CG_LIMIT, "smallest": system.smallest}
    if replayed is not None and system.preconditioner is None:
        return replayed(
            system.key, system.for_solves, b, tolerance=tolerance, error_tolerance=error_tolerance, **options
        )
    return conjugate_gradient(
        system.for_solves,
        b,
        tolerance=tolerance,
        error_tolerance=error_tolerance if accurate.any() else torch.inf,
        preconditioner=system.preconditioner,
        **options,
    )


class _Seen(NamedTuple):
    """What the host needs to know of a step, a vector entry per sample of the batch."""

    geometry: Geometry
    residual: np.ndarray  # of the equation
    size: np.ndarray  # ||T(x)||
    left: np.ndarray  # the residual that the solve has left
    error: np.ndarray
    solved: np.ndarray
    cg_iterations: np.ndarray


def _looked_at(
    here: Gathered,
    correction: Tensor,
    image: Tensor,
    residual: Tensor,
    solve: LinearSolution,
    earlier: Sequence[Evaluation],
) -> _Seen:
    """In one transfer."""
    products = inner_products_of(here.x, correction, [(step.x, step.correction) for step in earlier])
    norms = [sample_norms(residual), sample_norms(image), solve.residual, solve.error]
    counts = [solve.converged, solve.iterations]
    found = torch.cat([products.flatten(1), *(v[:, None] for v in (*norms, *counts))], 1)
    found = here.whole_table(host_array(found))
    geometry = Geometry(found[:, : -len(norms + counts)].reshape(-1, *products.shape[1:]))
    return _Seen(geometry, *found[:, -len(norms + counts) :].T)
