"""In which phase each sample of a run is, and how it ends."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from torchdeal.solvers.distance import DistanceEstimate
from torchdeal.solvers.result import Evaluation, Status

# What other values do was measured by tools/solver_constants.py, on 14 problems of 48 x 48 pixels.
ROUGH_UNTIL = 2e-3  # relative steps below this are not taken with rough systems, whose error is about 1e-3
EARLY = 2.0  # the accurate end begins after steps of at most this many tolerances. 1: 3 % fewer CG; 5: 2 % more CG, 4 %
# fewer outer iterations
SMALL_STEPS = 2  # as many of them in a row. 1: 1 % more CG iterations, 2 % fewer outer ones; 3: 1 and 2 % more
TOO_EARLY = 10.0  # it is called off where the estimate is more than this many tolerances. 3 or 30: no difference there
# For runs that get nowhere. The 14 problems have none, and show no difference. docs/notes/2026-11-solver-trials.md has
# one that went to and fro for 150 iterations; it ended after 54 with Aitken's rule, and momentum given up after this.
STUCK_WINDOW = 25  # iterations in which the residual should fall
STUCK_FACTOR = 0.95  # to at most this part of its least value before
BLOW_UP = 1e3  # times the first relative residual, or times 1, which is that of a run from zero: it has diverged

_STATUSES = list(Status)
_GOING_ON = -1


class Phase(IntEnum):
    """From the start to the end. A sample moves down this list, and up only where closing in began too early."""

    FAR = 0  # approaching: loose solves, of rough systems if all samples are here
    NEAR = 1  # approaching: loose solves of precise systems
    CLOSING_IN = 2  # accurate solves: the distance is estimated
    INSISTING = (
        3  # accurate solves for good: loose ones got nowhere, as in ill-posed systems, whose slow modes they leave
    )
    ENDED = 4


FAR, NEAR, CLOSING_IN, INSISTING, ENDED = map(int, Phase)  # numpy takes several times as long for members of an enum


class Phases:
    """The phase of each sample, moved on after each evaluation.

    Args:
        ended: samples that have their answer from the start, `(B,)`.
        tolerance: on the estimated relative distance.
        rounding: relative residuals below this are rounding errors.
    """

    def __init__(self, ended: np.ndarray, tolerance: float, rounding: float):
        self.tolerance, self.rounding = tolerance, rounding
        self.phase = np.where(ended, ENDED, FAR)
        self.active = ~ended
        self._ending = np.where(ended, _STATUSES.index(Status.CONVERGED), _GOING_ON)
        self._approached = np.full_like(self.phase, FAR)  # how close loose steps have come: FAR or NEAR
        self._small_steps = np.zeros_like(self.phase)  # in a row
        self.residuals: list[np.ndarray] = []  # of all evaluations, (B,) each
        self._least = np.full(len(ended), np.inf)  # of those before the last STUCK_WINDOW

    @property
    def closing_in(self) -> np.ndarray:
        """Which samples want accurate solves."""
        return (self.phase == CLOSING_IN) | (self.phase == INSISTING)

    @property
    def all_far(self) -> bool:
        """Whether rough systems will do. It is decided for the whole batch, which is evaluated together."""
        return bool(((self.phase == FAR) | ~self.active).all())

    def statuses(self) -> tuple[Status, ...]:
        return tuple(Status.MAX_ITERATIONS if i == _GOING_ON else _STATUSES[i] for i in self._ending.tolist())

    def update(self, now: Evaluation, estimate: DistanceEstimate) -> np.ndarray:
        """Move on; returns the samples that `STUCK_WINDOW` accurate steps have not brought forward: momentum ends."""
        self.residuals.append(now.residual)
        trusted = estimate.trusted
        no_progress = self._no_progress()
        stuck = no_progress & (estimate.accurate_steps >= STUCK_WINDOW)
        self._end(Status.CONVERGED, trusted & (estimate.relative <= self.tolerance))
        self._end(Status.DIVERGED, self._blown_up(now))
        if stuck.any():
            self._end(Status.STALLED, stuck & self._at_the_limit())
        self._move(now, no_progress, trusted & (estimate.relative > TOO_EARLY * self.tolerance))
        return stuck

    def give_up(self, samples: np.ndarray) -> None:
        """These will not settle."""
        self._end(Status.UNSETTLED, samples)

    def _end(self, status: Status, samples: np.ndarray) -> None:
        """These samples, if they have not ended yet."""
        ending = samples & self.active
        if ending.any():
            self._ending = np.where(ending, _STATUSES.index(status), self._ending)
            self.phase = np.where(ending, ENDED, self.phase)
            self.active = self.active & ~ending

    def _move(self, now: Evaluation, no_progress: np.ndarray, still_far: np.ndarray) -> None:
        """To what the last step tells; closing in is called off where the estimate says that it began too early."""
        small = now.step <= EARLY * self.tolerance * now.size
        self._small_steps = np.where(small, self._small_steps + 1, 0)
        at_goal = self._small_steps >= SMALL_STEPS
        close = np.where(now.step <= ROUGH_UNTIL * now.size, NEAR, FAR)
        self._approached = np.maximum(self._approached, close)
        called_off = (self.phase == CLOSING_IN) & still_far & ~at_goal
        phase = np.where(called_off, self._approached, self.phase)
        reached = np.where(at_goal, CLOSING_IN, self._approached)
        reached = np.where(no_progress, INSISTING, reached)
        self.phase = np.maximum(phase, reached)

    def _blown_up(self, now: Evaluation) -> np.ndarray:
        finite = np.isfinite(now.size) & np.isfinite(now.residual) & np.isfinite(now.step)
        return ~(finite & (now.residual <= BLOW_UP * np.maximum(self.residuals[0], 1)))

    def _at_the_limit(self) -> np.ndarray:
        """All of the window: a run that has passed an almost fixed point comes back to such residuals, and goes on."""
        return np.max(self.residuals[-STUCK_WINDOW:], axis=0) <= self.rounding

    def _no_progress(self) -> np.ndarray:
        if len(self.residuals) <= STUCK_WINDOW:
            return np.zeros(len(self.phase), dtype=bool)
        self._least = np.minimum(self._least, self.residuals[-STUCK_WINDOW - 1])
        return np.min(self.residuals[-STUCK_WINDOW:], axis=0) > STUCK_FACTOR * self._least
