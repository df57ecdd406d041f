"""The fixed point of `x = A(x)^-1 b`: inexact steps, an accurate end, and an estimate of what is left.

One outer iteration freezes the system at `x`, takes its residual `r = b - A(x) x`, which is the residual of the
fixed-point equation itself, and solves `A(x) d = r` for the correction `d = T(x) - x` by conjugate gradients.

* Far from the fixed point the solve is loose: it more than halves the residual, since a better solution of a
  system that is about to change is wasted work.
* The next iterate has momentum, as in Nesterov's method: `x + d` and a part of how it differs from the one before.
  Where the step turns against the movement, the momentum starts anew; where it opposes the step before, a part of
  the movement is taken back; where it has led nowhere, it ends for good, and the plain iteration is left.
* At the end the solve is accurate, and `d` is known to a fifth of its own size. With the contraction factor q of T,
  measured between such evaluations, `||x + d - x*|| <= q / (1 - q) ||d||`; a second estimate takes T to be affine
  along the last steps, and is pessimistic about the part of `d` that they do not explain. Only the larger of the two
  ends a run: a small residual does not (an ill-posed system hides large errors in small residuals), nor does a small
  loose step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.backends.cuda.graphs import Replays
from torchdeal.solvers.cg import LinearMap, Workspace, conjugate_gradient, inner_products, sample_norms
from torchdeal.solvers.result import Solution, Status

LOOSE = 0.4  # reduction of the residual by a loose solve
ACCURATE = 0.2  # reduction of the residual, and relative error of the correction, of an accurate one
EARLY = 2.0  # the accurate end begins after two loose steps of at most this many tolerances
ROUGH_UNTIL = 2e-3  # relative steps below this are not taken with rough systems
SLOWEST = 0.97  # the contraction that is assumed where none was measured reliably
MOMENTUM = 0.7  # at most; it grows as k / (k + 3) from each start
ACCURATE_STEPS = 3  # accurate steps in a row before their ratios are trusted
UNEXPLAINED = 20.0  # steps to the fixed point that are assumed for what earlier steps do not explain
CG_LIMIT = 1000
RATIO_GROWTH = 1.05  # how much the last ratio may exceed the one before: more, and slower modes are still emerging
RATIO_DROP = 0.8  # and how much it may fall below: more, and a fast mode that dominated is dying out
MEMORY = 3  # iterates between which the contraction is measured
STUCK_WINDOW = 25  # iterations in which the residual should fall by STUCK_FACTOR
STUCK_FACTOR = 0.95
ROUNDING = 20  # machine epsilons: relative residuals and steps below this are rounding errors
BLOW_UP = 1e3


@dataclass(frozen=True)
class System:
    """`A(x)`, frozen at some x, Hermitian positive definite."""

    apply: LinearMap
    approximate: LinearMap | None = None  # to about 1e-3 of its norm, for the solves; None: not to be had, or too rough
    preconditioner: LinearMap | None = None  # Hermitian positive definite, close to the inverse
    key: Hashable = None  # solves with the same key do the same work on the same memory, as CUDA graphs must

    @property
    def for_solves(self) -> LinearMap:
        """The correction is wanted to a fifth of its size; the residual that it corrects is always that of `apply`."""
        return self.approximate or self.apply


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each outer iteration; tensors have one entry per sample."""

    iteration: int
    x: Tensor
    residual: Tensor  # relative to ||b||
    distance: Tensor  # estimated relative distance to the fixed point; inf while unknown
    active: Tensor  # bool: samples that go on


def solve_fixed_point(
    linearise: Callable[[Tensor], System],
    b: Tensor,
    start: Tensor | None = None,
    *,
    rough: Callable[[Tensor], System] | None = None,
    tolerance: float,
    max_iterations: int,
    keep_path: bool = False,
    callback: Callable[[Progress], None] | None = None,
) -> Solution:
    """Find `x` with `A(x) x = b`, each sample of the batch on its own.

    A sample has converged when `max(q / (1 - q) ||d||, secants) + ||error of d|| <= tolerance * ||x||`, with `d` the
    last accurate correction and q the largest contraction, to the power 2/3, that was measured since the accurate end
    began, or that the growing measurements lead to, if the last two agree. It is then frozen.

    Args:
        linearise: `x -> A(x)`.
        b: right-hand sides, `(B, C, H, W)`.
        start: `x_0`, zero if None.
        rough: a faster approximation of `linearise`, to about 1e-3, for the steps far from the fixed point.
        tolerance: on the estimated relative distance to the fixed point.
        max_iterations: outer iterations at most.
        keep_path: return all iterates.
        callback: called with a `Progress` after each outer iteration.
    """
    run = _Run(b, start, tolerance)
    path = [run.x] if keep_path else []
    for iteration in range(1, max_iterations + 1):
        if not bool(run.active.any()):
            break
        run.step(linearise, rough or linearise, left=max_iterations - iteration)
        if keep_path:
            path.append(run.x)
        if callback:
            callback(Progress(iteration, run.x, run.residuals[-1], run.distance, run.active))
    return run.solution(tuple(path))


def momentum(age: Tensor, correction: Tensor, before: Tensor, movement: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the last movement to add, per sample.

    Where a correction opposes the one before, T overshoots: a part of the movement is taken back, the one after which
    the correction would be smallest if T were affine (Aitken's rule). Without that, where T overshoots by as much as it
    corrects, the iteration would go to and fro for ever.

    Args:
        age: steps since the momentum started, `(B,)`.
        correction: the last step, `T(x) - x`.
        before: the one before.
        movement: from the `T(x)` before to the last one.

    Returns:
        the age, 0 where the step has turned against the movement, and the factor.
    """
    turned = inner_products(correction, movement) < 0
    opposed = inner_products(correction, before) < 0
    change = correction - before
    taken_back = inner_products(correction, change) / inner_products(change, change)
    age = torch.where(turned | opposed, 0, age)
    forward = (age / (age + 3)).clamp_max(MOMENTUM)
    return age, torch.where(opposed, -taken_back.clamp(0, MOMENTUM).to(forward.dtype), forward)


class _Run:
    """The state of one call, a vector entry per sample.

    The vectors are on the CPU, which decides; it would take a GPU longer to start on one than a CPU to finish it.
    """

    def __init__(self, b: Tensor, start: Tensor | None, tolerance: float):
        batch, dtype = len(b), b.real.dtype
        self.b, self.tolerance, self.rounding = b, tolerance, ROUNDING * torch.finfo(b.dtype).eps
        (self.b_norm,) = _on_cpu(sample_norms(b))
        self.x = torch.zeros_like(b) if start is None else start.clone()
        self.x.masked_fill_(_column(self.b_norm == 0, b), 0)  # the fixed point of b = 0
        self.history: list[tuple[Tensor, Tensor]] = []  # the last iterates x, and the T(x) that was found
        self.age = torch.zeros(batch, device=b.device)  # steps since the momentum started
        self.active = self.b_norm > 0
        self.converged = ~self.active
        self.stalled, self.diverged = torch.zeros_like(self.active), torch.zeros_like(self.active)
        self.wants_accuracy, self.stuck = torch.zeros_like(self.active), torch.zeros_like(self.active)
        self.plain = torch.zeros_like(self.active)  # no momentum any more
        self.close = torch.zeros_like(self.active)  # too close for rough systems
        self.was_small = torch.zeros_like(self.active)  # the last step was below the tolerance
        self.settled = torch.zeros_like(self.active)  # the ratios agree
        self.accurate_steps = torch.zeros(batch, dtype=torch.long)
        self.ratio = torch.full((batch,), torch.nan, dtype=dtype)  # ||T(x) - T(x')|| / ||x - x'|| of the last two
        self.ratio_before = torch.full((batch,), torch.nan, dtype=dtype)
        self.highest = torch.full((batch,), torch.nan, dtype=dtype)  # ratio since the accurate end began
        self.contraction = torch.full((batch,), torch.nan, dtype=dtype)
        self.distance = torch.full((batch,), torch.inf, dtype=dtype).masked_fill(self.converged, 0.0)
        self.iterations = torch.zeros(batch, dtype=torch.long)
        self.cg_iterations = torch.zeros(batch, dtype=torch.long)
        self.residuals: list[Tensor] = []
        self.workspace = Workspace(Replays().run)

    def step(self, linearise: Callable[[Tensor], System], rough: Callable[[Tensor], System], left: int) -> None:
        """One outer iteration: freeze the system, solve for the correction, judge what remains, move on."""
        accurate = self.wants_accuracy | (left < ACCURATE_STEPS)
        far = not bool((self.active & (accurate | self.close)).any())
        system = rough(self.x) if far else linearise(self.x)
        residual = torch.where(_column(self.active, self.b), self.b - system.apply(self.x), 0)
        tolerance = torch.where(accurate, ACCURATE, LOOSE).to(self.b.device, self.b.real.dtype)
        error_tolerance = torch.where(accurate, ACCURATE, torch.inf).to(tolerance)
        solve = conjugate_gradient(
            system.for_solves,
            residual,
            tolerance=tolerance,
            error_tolerance=error_tolerance if bool(accurate.any()) else torch.inf,
            max_iterations=CG_LIMIT,
            preconditioner=system.preconditioner,
            workspace=None if system.key is None else self.workspace,
            key=system.key,
        )
        new = self.x + solve.x
        norm, step, size, error, solved, cg_iterations = _on_cpu(
            *(sample_norms(vectors) for vectors in (residual, solve.x, new)),
            *(solve.error, solve.converged, solve.iterations),
        )
        self.residuals.append(torch.where(self.active, norm / self.b_norm, torch.nan))
        self.iterations += self.active
        self.cg_iterations += cg_iterations.long()
        unknown = torch.full_like(step, torch.nan)  # what loose steps tell; not worth the time
        ratio, secants = (unknown, unknown) if far else (self._measured_ratio(new), self._by_secants(solve.x))
        self._estimate_distance(accurate & (solved > 0), ratio, secants, step, error, size)
        self._decide(step, error, size)
        self._move(new, solve.x, final=left == 0)

    def _measured_ratio(self, new: Tensor) -> Tensor:
        """`||T(x) - T(x')|| / ||x - x'||`, the largest over the last accurate iterates x'; nan where there is none."""
        ratio = torch.full_like(self.ratio, torch.nan)
        pairs = list(reversed(self.history))
        norms = _on_cpu(*(sample_norms(new - image) / sample_norms(self.x - x) for x, image in pairs))
        for back, measured in enumerate(norms):
            ratio = torch.fmax(ratio, torch.where(self.accurate_steps > back, measured, torch.nan))
        return ratio

    def _by_secants(self, correction: Tensor) -> Tensor:
        """The distance to the fixed point if T were affine, as far as the last accurate iterates tell.

        The combination of their differences that explains the most of the correction leads to the fixed point. For
        what it leaves unexplained the contraction was not seen, and a slow one is assumed.
        """
        d = correction.flatten(1)
        if not self.history:
            return UNEXPLAINED * _on_cpu(sample_norms(d))[0]
        pairs = [
            (known * (self.x - x).flatten(1), known * (d - (image - x).flatten(1)))
            for back, (x, image) in enumerate(reversed(self.history))
            for known in [(self.accurate_steps > back)[:, None].to(d.device)]
        ]
        moves, changes = (torch.stack(column, 2) for column in zip(*pairs, strict=True))
        share = _least_squares(changes, d)
        left = d - _combined(changes, share)
        explained, unexplained = _on_cpu(sample_norms(_combined(moves, share)), sample_norms(left))
        return explained + UNEXPLAINED * unexplained

    def _move(self, new: Tensor, correction: Tensor, final: bool) -> None:
        """The next iterate: with momentum, except for samples that end here."""
        ahead = new
        if self.history:
            x_before, new_before = self.history[-1]
            movement = new - new_before
            self.age, factor = momentum(self.age, correction, new_before - x_before, movement)
            limit = torch.where(self.plain, 0.0, 1.0).to(factor)
            factor = torch.minimum(factor, limit) * (self.active & (not final)).to(factor.device)
            ahead = new + _column(factor.to(new.real.dtype), new) * movement
        self.age = self.age + 1
        self.history = [*self.history, (self.x, new)][-MEMORY:]
        self.x = ahead

    def _estimate_distance(
        self, accurate: Tensor, ratio: Tensor, secants: Tensor, step: Tensor, error: Tensor, size: Tensor
    ) -> None:
        """`q / (1 - q) ||d|| + ||error of d||`, relative, where the last two corrections were accurate."""
        update = accurate & self.active
        self.highest = torch.where(update, torch.fmax(ratio, self.highest), torch.nan)
        negligible = step <= self.rounding * size  # the ratio of rounding errors says nothing
        now = torch.where(negligible, 0, torch.fmax(_limit(self.ratio_before, self.ratio, ratio), self.ratio))
        # The highest ratio counts, unless that was above SLOWEST and is over: a run may pass a place where T expands.
        highest = torch.fmax(self.highest, now)
        contraction = torch.where(now < 1, torch.minimum(highest, torch.fmax(now, now.new_tensor(SLOWEST))), now)
        agree = (ratio <= RATIO_GROWTH * self.ratio) & (ratio >= RATIO_DROP * self.ratio)
        self.settled = update & (agree | negligible | (self.residuals[-1] == 0))
        # Ratios of steps creep up to q from below, as the fast modes die out before the slow ones.
        slow = contraction ** (2 / 3)
        left = torch.maximum(slow / (1 - slow) * step, secants) + error
        distance = torch.where(contraction < 1, left / size, torch.inf)
        distance = distance.masked_fill(self.residuals[-1] == 0, 0.0)  # exactly: this is the fixed point
        self.contraction = torch.where(update, contraction, self.contraction)
        distance = torch.where(update, distance.nan_to_num(nan=torch.inf, posinf=torch.inf), torch.inf)
        self.distance = torch.where(self.active, distance, self.distance)  # a loose step makes it unknown again
        self.accurate_steps = torch.where(update, self.accurate_steps + 1, self.accurate_steps * ~self.active)
        self.ratio_before = torch.where(update, self.ratio, torch.nan)
        self.ratio = torch.where(update, ratio, torch.nan)

    def _decide(self, step: Tensor, error: Tensor, size: Tensor) -> None:
        """Which samples are done, and how accurately the next system of the others is to be solved."""
        in_any_case = SLOWEST / (1 - SLOWEST) * step + error <= self.tolerance * size
        trusted = (self.accurate_steps >= ACCURATE_STEPS) & (self.settled | in_any_case)
        self.converged |= self.active & trusted & (self.distance <= self.tolerance)
        finite = torch.isfinite(size) & torch.isfinite(self.residuals[-1])
        first = self.residuals[0].clamp_min(1)
        self.diverged |= self.active & ~(finite & (self.residuals[-1] <= BLOW_UP * first))
        self.active = self.active & ~(self.converged | self.diverged)
        no_progress = self._no_progress()
        # All of the window: a run that has passed an almost fixed point comes back to such residuals, and goes on.
        at_the_limit = torch.stack(self.residuals[-STUCK_WINDOW:]).amax(0) <= self.rounding
        self.stalled |= self.active & no_progress & at_the_limit & (self.accurate_steps >= STUCK_WINDOW)
        self.active = self.active & ~self.stalled
        # Near the goal, as far as loose steps can tell, the accurate end begins; far from it, it is called off.
        # Loose steps that get nowhere call for it for good: in an ill-posed system they leave the slow modes alone.
        self.stuck |= no_progress
        self.plain |= no_progress & (self.accurate_steps >= STUCK_WINDOW)
        self.close |= step <= ROUGH_UNTIL * size
        small = step <= EARLY * self.tolerance * size
        near = small & self.was_small
        self.was_small = small
        too_early = trusted & (self.distance > 10 * self.tolerance) & ~near
        self.wants_accuracy = (self.wants_accuracy & ~too_early) | near | self.stuck

    def _no_progress(self) -> Tensor:
        if len(self.residuals) <= STUCK_WINDOW:
            return torch.zeros_like(self.active)
        before = torch.stack(self.residuals[:-STUCK_WINDOW]).amin(0)
        lately = torch.stack(self.residuals[-STUCK_WINDOW:]).amin(0)
        return lately > STUCK_FACTOR * before

    def solution(self, path: tuple[Tensor, ...]) -> Solution:
        return Solution(
            x=self.x,
            statuses=tuple(self._status(i) for i in range(len(self.b))),
            distance=self.distance.cpu().double(),
            contraction=self.contraction.cpu().double(),
            iterations=self.iterations.cpu(),
            cg_iterations=self.cg_iterations.cpu(),
            residuals=torch.stack(self.residuals).cpu().double()
            if self.residuals
            else torch.zeros(0, len(self.b), dtype=torch.double),
            path=path,
        )

    def _status(self, sample: int) -> Status:
        if self.converged[sample]:
            return Status.CONVERGED
        if self.diverged[sample]:
            return Status.DIVERGED
        return Status.STALLED if self.stalled[sample] else Status.MAX_ITERATIONS


def _least_squares(columns: Tensor, target: Tensor) -> Tensor:
    """Real `w`, `(B, m)`, with the smallest `||target - sum_i w_i column_i||`; columns `(B, n, m)` may be 0."""
    # Small: a GPU needs longer to start on it than a CPU to finish.
    gram = (columns.mH @ columns).real.double().cpu()
    products = (columns.mH @ target[..., None]).real.double().cpu()
    ridge = 1e-9 * gram.diagonal(dim1=1, dim2=2).sum(1) + torch.finfo(torch.double).tiny
    identity = torch.eye(columns.shape[2], dtype=gram.dtype, device=gram.device)
    return torch.linalg.solve(gram + ridge[:, None, None] * identity, products)[..., 0].to(
        target.device, target.real.dtype
    )


def _combined(columns: Tensor, weights: Tensor) -> Tensor:
    return (columns @ weights[..., None].to(columns.dtype))[..., 0]


def _limit(before: Tensor, last: Tensor, now: Tensor) -> Tensor:
    """Where ratios that still grow are going to, if their growth shrinks geometrically; at most SLOWEST, or now."""
    growth, growth_before = now - last, last - before
    limit = now + growth.square() / (growth_before - growth).clamp_min(0)
    limit = torch.where(growth > 0, limit.clamp_max(SLOWEST), now)
    return torch.fmax(limit, now)  # and now where the others are unknown


def _on_cpu(*per_sample: Tensor) -> tuple[Tensor, ...]:
    """All of them in one transfer, in the precision of the first."""
    if not per_sample:
        return ()
    return torch.stack([vector.to(per_sample[0].dtype) for vector in per_sample]).cpu().unbind(0)


def _column(per_sample: Tensor, like: Tensor) -> Tensor:
    return per_sample.to(like.device).view(-1, *[1] * (like.ndim - 1))
