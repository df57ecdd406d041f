"""Momentum: the next iterate lies ahead of `T(x)`, in the direction of the last movement, or a little back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchdeal.solvers.result import Evaluation

MOST = 0.7  # factor at most. 0 takes 94 % more CG iterations, 0.5 11 %, 0.9 1 % (tools/solver_constants.py)
# Steps after which the factor is 1/2. There 1: 5 % more CG; 3: 1 % fewer, 4 % fewer outer iterations, 1 answer too far.
# On larger images 3 takes 4 % more time (docs/notes/2026-11-solver-trials.md)
RAMP = 2.0


def extrapolation(age: Any, turned: Any, opposed: Any, aitken: Any, where: Any = torch.where) -> tuple[Any, Any]:
    """How much of the last movement, from the `T(x)` before to this one, to add, per sample.

    It grows as `k / (k + 2)` with the age k, a little faster than in Nesterov's method. Where the correction turns
    against the movement, the age starts anew. Where a correction opposes the one before, T overshoots: a part of the
    movement is taken back, the one after which the correction would be smallest if T were affine (Aitken's rule).
    Without that, where T overshoots by as much as it corrects, the iteration would go to and fro for ever.

    Args:
        age: steps since the momentum started, `(B,)`; a tensor, or an array, as the others are.
        turned: whether the correction goes against the movement.
        opposed: whether it goes against the one before.
        aitken: the part that is taken back then.
        where: `numpy.where` for arrays.

    Returns:
        the age, 0 where it starts anew, and the factor.
    """
    age = where(turned | opposed, 0, age)
    forward = (age / (age + RAMP)).clip(max=MOST)
    return age, where(opposed, -aitken.clip(0, MOST), forward)


class Momentum:
    """The momentum of a run, for each sample.

    Args:
        samples: how many there are.
    """

    def __init__(self, samples: int):
        self.age = np.zeros(samples)  # steps since it started
        self.over = np.zeros(samples, dtype=bool)  # for good: it has led nowhere

    def factor(self, now: Evaluation, moving: np.ndarray) -> np.ndarray:
        """How much of the last movement to go ahead of the present `T(x)`; 0 but for the samples that move on."""
        seen, factor = now.geometry, np.zeros_like(self.age)
        if seen.earlier:
            self.age, factor = extrapolation(self.age, seen.turned, seen.opposed, seen.aitken, np.where)
            factor = np.where(self.over, np.minimum(factor, 0), factor) * moving
        self.age = self.age + 1
        return factor
