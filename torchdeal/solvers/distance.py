"""How far an iterate is from the fixed point: an estimate, from how the map T behaved along the last steps."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from torchdeal.solvers.geometry import Geometry
from torchdeal.solvers.result import Evaluation

# What other values do was measured by tools/solver_constants.py, on 14 problems.
MEMORY = 3  # iterates between which the contraction is measured
ENOUGH = 3  # accurate steps in a row, so that there are two ratios. 2: 1 % fewer CG iterations; 4: no difference
# A part of d that earlier steps do not explain is taken to shrink so many times more slowly than they do. 2: 5 % fewer
# CG iterations, but on larger images twice as many answers too far (docs/notes/2026-11-solver-trials.md); 5: 5 % more
SLOWER = 3.0
# A ratio that has grown is taken to grow by so many times as much again: slow modes are still emerging. 0: 3 % fewer CG
# iterations, but the gray model once ended 5 times too far away; 4: 1 % more
GROWTH = 2.0
SLOWEST = 0.97  # but not beyond this. 0.9 or 0.99: no difference
# Where T goes back by more than it was moved, the fixed point lies between x and T(x). No plain iteration leads there,
# but momentum that is taken back does. This contraction says: it is at most as far as the step is long
OVERSHOOTING = 0.5
# Where A is ill-conditioned, T may have modes that shrink by 1 % from step to step and are too small to show. So there
# estimates are so many times what the steps tell (docs/notes/2026-11-solver-trials.md). 2: 3 % fewer CG iterations; 6:
# 1 % more
CAUTION = 4.0


class DistanceEstimate:
    """The estimated relative distance `||T(x) - x*|| / ||T(x)||` of each sample.

    With `d = T(x) - x`, known with an error e, it is

        ||sum_i w_i (T(x) - T(x_i))|| + 3 / (1 - q) ||d - sum_i w_i (d - d_i)|| + ||e||.

    - By secants: T is taken to be affine along the last steps, from the iterates x_i. The combination w of them that
      explains the most of d leads to the fixed point, and the first term is how far.
    - The second is for the part of d that it leaves. The contraction factor q of T is measured as
      `||T(x) - T(x_i)|| / ||x - x_i||`, the largest for the last iterates, and taken to be 1/2 where T overshoots.
      Where it has grown since the step before it is taken to go on growing, to 0.97 at most. What shrinks by q moves
      `1 / (1 - q)` times as far as its first step; what did not show itself is taken to be three times slower.

    Where the system is ill-conditioned, both are multiplied by `CAUTION`.

    What is assumed, and can be wrong: directions in which T contracts much more slowly than q have shown themselves in
    the last steps, and T is nearly affine from here to the fixed point. So it is no bound. A mode that is small now and
    shrinks slowly is not seen; then the estimate is too small.

    It is unknown, infinite, after a step that was not accurate.

    Args:
        like: the iterates.
        ended: samples whose distance is 0 from the start, `(B,)`.
        rounding: relative steps below this are rounding errors.
    """

    def __init__(self, like: Tensor, ended: np.ndarray, rounding: float):
        self.rounding = rounding
        self.relative = np.where(ended, 0.0, np.inf)
        self.contraction = np.full(len(like), np.nan)
        self.accurate_steps = np.zeros(len(like), dtype=np.int64)  # in a row

    @property
    def trusted(self) -> np.ndarray:
        """Whether there were enough accurate steps."""
        return self.accurate_steps >= ENOUGH

    @np.errstate(all="ignore")
    def update(self, now: Evaluation, active: np.ndarray, *, cautious: bool = False) -> None:
        """Take in an evaluation; `cautious` where the system is ill-conditioned."""
        update = now.accurate & active
        if not update.any():
            self._forget(active)
            return
        negligible = now.step <= self.rounding * now.size  # the ratio of rounding errors says nothing
        ratio = np.where(negligible, 0, self._measured_ratio(now.geometry))
        contraction = grown(self.contraction, ratio)
        explained, unexplained = now.geometry.secants(self.accurate_steps)
        left = explained + SLOWER / (1 - contraction) * unexplained
        distance = ((CAUTION if cautious else 1) * left + now.error) / now.size
        distance = np.where(contraction < 1, distance, np.inf)
        distance = np.where(now.residual == 0, 0.0, distance)  # this is the fixed point
        distance = np.where(update & ~np.isnan(distance), distance, np.inf)
        self.relative = np.where(active, distance, self.relative)
        self.contraction = np.where(update & ~negligible, ratio, self.contraction)
        self.accurate_steps = np.where(update, self.accurate_steps + 1, self.accurate_steps * ~active)

    def _forget(self, active: np.ndarray) -> None:
        """No step was accurate: nothing is known of the samples that go on."""
        self.relative = np.where(active, np.inf, self.relative)
        self.accurate_steps = self.accurate_steps * ~active

    def _measured_ratio(self, seen: Geometry) -> np.ndarray:
        """`||T(x) - T(x')|| / ||x - x'||`, the largest over the last accurate iterates x'; nan where there is none."""
        ratios = seen.ratios()
        ratios = np.where((ratios >= 1) & seen.went_back(), OVERSHOOTING, ratios)
        known = np.arange(seen.earlier) < self.accurate_steps[:, None]
        return np.fmax.reduce(np.where(known, ratios, np.nan), axis=1, initial=np.nan)


def grown(before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """What a ratio of contraction will be if it goes on growing; `now` where the one before is unknown."""
    growth = np.fmax(now - before, 0)
    return np.minimum(now + GROWTH * growth, np.fmax(now, SLOWEST))
