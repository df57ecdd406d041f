"""Momentum: the next iterate lies ahead of `T(x)`, in the direction of the last movement, or a little back."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdeal.solvers.result import Evaluation

MOST = 0.7  # factor at most. 0 takes 131 % more CG iterations, 0.5 25 %, 0.9 3 % (tools/solver_constants.py)


def extrapolation(age: Tensor, turned: Tensor, opposed: Tensor, aitken: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the last movement, from the `T(x)` before to this one, to add, per sample.

    It grows as `k / (k + 3)` with the age k, as in Nesterov's method. Where the correction turns against the movement,
    the age starts anew. Where a correction opposes the one before, T overshoots: a part of the movement is taken back,
    the one after which the correction would be smallest if T were affine (Aitken's rule). Without that, where T
    overshoots by as much as it corrects, the iteration would go to and fro for ever.

    Args:
        age: steps since the momentum started, `(B,)`.
        turned: whether the correction goes against the movement.
        opposed: whether it goes against the one before.
        aitken: the part that is taken back then.

    Returns:
        the age, 0 where it starts anew, and the factor.
    """
    age = torch.where(turned | opposed, 0, age)
    forward = (age / (age + 3)).clamp_max(MOST)
    return age, torch.where(opposed, -aitken.clamp(0, MOST), forward)


class Momentum:
    """The momentum of a run, for each sample.

    Args:
        like: the iterates.
    """

    def __init__(self, like: Tensor):
        self.age = torch.zeros(len(like), dtype=torch.double)  # steps since it started
        self.over = torch.zeros(len(like), dtype=torch.bool)  # for good: it has led nowhere

    def factor(self, now: Evaluation, moving: Tensor) -> Tensor:
        """How much of the last movement to go ahead of the present `T(x)`; 0 but for the samples that move on."""
        factor = torch.zeros_like(self.age)
        if now.geometry.earlier:
            seen = now.geometry
            self.age, factor = extrapolation(self.age, seen.turned, seen.opposed, seen.aitken)
            factor = torch.minimum(factor, torch.where(self.over, 0.0, 1.0)) * moving
        self.age = self.age + 1
        return factor
