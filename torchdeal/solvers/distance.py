"""How far an iterate is from the fixed point: an estimate, from how the map T behaved along the last steps."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from torchdeal.solvers.geometry import Geometry
from torchdeal.solvers.result import Evaluation

# What other values do was measured by tools/solver_constants.py, on 14 problems. With these, 1 of the 14 answers is
# further from its fixed point than the tolerance.
MEMORY = 3  # iterates between which the contraction is measured. 1: 4 % more CG iterations; 5: no difference
ENOUGH = 3  # accurate steps in a row before their ratios are trusted. 2: no difference; 4: 1 % more CG iterations
SLOWEST = 0.97  # contraction assumed where none was measured reliably. 0.9: 2 answers too far; 0.99: 2 % more CG
UNEXPLAINED = 20.0  # steps assumed for what earlier ones do not explain. 5: 2 answers too far; 50: none, 9 % more CG
# How much the last ratio may exceed the one before (more, and slower modes are still emerging), and fall below it
# (more, and a fast mode that dominated is dying out). Stricter values, 1.02 and 0.9: 1 % more CG iterations
RATIO_GROWTH = 1.05
RATIO_DROP = 0.8
# Where T goes back by more than it was moved, the fixed point lies between x and T(x). No plain iteration leads there,
# but momentum that is taken back does. This contraction says: it is at most as far as the step is long
OVERSHOOTING = 0.5
# Where A is ill-conditioned, T may have modes that shrink by 1 % from step to step and are too small to show. So there
# estimates are so many times what the steps tell (docs/notes/2026-11-when-runs-end.md)
CAUTION = 3.0
CREEP = 2 / 3  # power of q: ratios creep up to it, as fast modes die out first. 1/2: 2 % more CG; 1: 3 % less


class DistanceEstimate:
    """The estimated relative distance `||T(x) - x*|| / ||T(x)||` of each sample.

    With `d = T(x) - x`, known with an error e, it is the larger of two estimates, plus `||e||`:

    * `q / (1 - q) ||d||`, with q the contraction factor of T. It is measured as `||T(x) - T(x')|| / ||x - x'||` for
      the last iterates x', and taken to be 1/2 where T overshoots. The largest ratio since the accurate steps began
      counts, or the one that growing ratios lead to, to the power 2/3.
    * By secants: T is taken to be affine along the last steps. The combination of them that explains the most of d
      leads to the fixed point; for the part of d that it leaves, 20 more steps are assumed.

    Where the system is ill-conditioned, that is multiplied by `CAUTION`.

    What is assumed, and can be wrong: the directions in which T contracts slowest have shown themselves in the last
    steps, and T is nearly affine from here to the fixed point. So it is no bound. A mode that is small now and shrinks
    slowly is not seen; then the estimate is too small.

    It is unknown, infinite, after a step that was not accurate.

    Args:
        like: the iterates.
        ended: samples whose distance is 0 from the start, `(B,)`.
        rounding: relative steps below this are rounding errors.
    """

    def __init__(self, like: Tensor, ended: np.ndarray, rounding: float):
        self.rounding = rounding
        unknown = np.full(len(like), np.nan)
        self.relative = np.where(ended, 0.0, np.inf)
        self.contraction = unknown
        self.accurate_steps = np.zeros(len(like), dtype=np.int64)  # in a row
        self._settled = np.zeros(len(like), dtype=bool)  # the last two ratios agree
        self._ratio = self._ratio_before = self._highest = unknown

    def trusted(self, now: Evaluation, tolerance: float) -> np.ndarray:
        """Whether there were enough accurate steps, and they agree, or are small enough for any contraction."""
        in_any_case = SLOWEST / (1 - SLOWEST) * now.step + now.error <= tolerance * now.size
        return (self.accurate_steps >= ENOUGH) & (self._settled | in_any_case)

    @np.errstate(all="ignore")
    def update(self, now: Evaluation, active: np.ndarray, *, cautious: bool = False) -> None:
        """Take in an evaluation; `cautious` where the system is ill-conditioned."""
        update = now.accurate & active
        if not update.any():
            self._forget(active)
            return
        ratio, secants = self._measured_ratio(now.geometry), self._by_secants(now.geometry)
        self._highest = np.where(update, np.fmax(ratio, self._highest), np.nan)
        negligible = now.step <= self.rounding * now.size  # the ratio of rounding errors says nothing
        exact = now.residual == 0  # this is the fixed point
        contraction = self._contraction_now(ratio, negligible)
        agree = (ratio <= RATIO_GROWTH * self._ratio) & (ratio >= RATIO_DROP * self._ratio)
        self._settled = update & (agree | negligible | exact)
        slow = np.array([q**CREEP for q in contraction.tolist()])  # numpy's power rounds differently on each machine
        left = np.maximum(slow / (1 - slow) * now.step, secants) * (CAUTION if cautious else 1) + now.error
        distance = np.where(exact, 0.0, np.where(contraction < 1, left / now.size, np.inf))
        distance = np.where(update & ~np.isnan(distance), distance, np.inf)
        self.relative = np.where(active, distance, self.relative)
        self.contraction = np.where(update, contraction, self.contraction)
        self.accurate_steps = np.where(update, self.accurate_steps + 1, self.accurate_steps * ~active)
        self._ratio_before = np.where(update, self._ratio, np.nan)
        self._ratio = np.where(update, ratio, np.nan)

    def _forget(self, active: np.ndarray) -> None:
        """No step was accurate: nothing is known of the samples that go on."""
        self.relative = np.where(active, np.inf, self.relative)
        self.accurate_steps = self.accurate_steps * ~active
        self._ratio = self._ratio_before = self._highest = np.full(len(active), np.nan)
        self._settled = np.zeros(len(active), dtype=bool)

    def _contraction_now(self, ratio: np.ndarray, negligible: np.ndarray) -> np.ndarray:
        """The highest ratio, unless that was above SLOWEST and is over: a run may pass a place where T expands."""
        now = np.fmax(growth_limit(self._ratio_before, self._ratio, ratio), self._ratio)
        now = np.where(negligible, 0, now)
        highest = np.fmax(self._highest, now)
        return np.where(now < 1, np.minimum(highest, np.fmax(now, SLOWEST)), now)

    def _measured_ratio(self, seen: Geometry) -> np.ndarray:
        """`||T(x) - T(x')|| / ||x - x'||`, the largest over the last accurate iterates x'; nan where there is none."""
        ratios = seen.ratios()
        ratios = np.where((ratios >= 1) & seen.went_back(), OVERSHOOTING, ratios)
        known = np.arange(seen.earlier) < self.accurate_steps[:, None]
        return np.fmax.reduce(np.where(known, ratios, np.nan), axis=1, initial=np.nan)

    def _by_secants(self, seen: Geometry) -> np.ndarray:
        """`||x* - x||` if T were affine, as far as the last accurate iterates tell."""
        explained, unexplained = seen.secants(self.accurate_steps)
        return explained + UNEXPLAINED * unexplained


@np.errstate(all="ignore")
def growth_limit(before: np.ndarray, last: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Where ratios that still grow are going to, if their growth shrinks geometrically; at most SLOWEST, or now."""
    growth, growth_before = now - last, last - before
    limit = now + growth * growth / np.maximum(growth_before - growth, 0)
    limit = np.where(growth > 0, np.minimum(limit, SLOWEST), now)
    return np.fmax(limit, now)  # and now where the others are unknown
