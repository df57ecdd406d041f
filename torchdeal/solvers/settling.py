"""Whether a run gets anywhere: how much of the image still moves, and where.

Some runs do not settle: T has directions in which it hardly contracts, as where `H` sees little of the image or the
measurements are not what the operator makes of any image. More iterations then move a part of the image to and fro.
So from time to time the image is compared with what it was a while ago.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.solvers.cg import sample_norms
from torchdeal.solvers.geometry import host_array
from torchdeal.solvers.result import Movement, per_sample_column

LOOK_EVERY = 19  # iterations between two looks; a prime, so that nothing that goes to and fro looks the same each time
LOOKS = 3  # before a run may be given up; as many as the tolerance has digits, if these are more
SHRINKING = 0.5  # to this part at most from look to look, if a run is to go on: a tenth takes 63 iterations then
# The same where A is ill-conditioned. There more iterations hardly change what a person sees
ILL_CONDITIONED_SHRINKING = 0.1
STILL_TO_GO = 3.0  # where A is ill-conditioned, what is left is so many times what the movements tell
VISIBLE = 1e-3  # relative; who asks for less wants to wait, so no run is given up that moves less
UNKNOWN = 0.9  # movements that shrink by less say nothing about where they end
SPOT = 9  # side of the square in which the movement is largest


class Settling:
    """Looks at a run every `LOOK_EVERY` iterations.

    Args:
        samples: how many there are.
        tolerance: on the relative distance.
    """

    def __init__(self, samples: int, tolerance: float):
        self.tolerance = tolerance
        self.patience = LOOK_EVERY * max(LOOKS, round(-math.log10(tolerance)))  # iterations
        self.movement = Movement.none(samples, tolerance)
        self.distance = torch.full((samples,), torch.inf)  # relative, to where movements that shrink so lead
        self._seen: Tensor | None = None
        self._moved = torch.full((samples,), torch.inf)

    def looks_at(self, iteration: int) -> bool:
        """Whether the image of this iteration matters."""
        return iteration % LOOK_EVERY == 0

    def given_up(self, iteration: int, image: Tensor, active: np.ndarray, *, patient: bool = True) -> np.ndarray:
        """The samples that will not settle within about as many iterations as they had, `(B,)`.

        Not `patient`, where the system is ill-conditioned: those that do not settle at once.
        """
        none = np.zeros(len(active), dtype=bool)
        if not self.looks_at(iteration):
            return none
        before, self._seen = self._seen, image.clone()
        if before is None:
            return none
        going_on = torch.from_numpy(active)
        moved, size = on_cpu(sample_norms(image - before), sample_norms(image))
        relative = moved / size
        shrinking = relative / self._moved
        self._moved = relative
        left = torch.where(shrinking < UNKNOWN, relative * (shrinking / (1 - shrinking)).clamp_min(1), torch.inf)
        after_as_many_again = left * shrinking.clamp_max(1) ** (iteration / LOOK_EVERY)
        if patient:
            hopeless = going_on & (shrinking > SHRINKING) & (after_as_many_again > self.tolerance)
        else:
            left = STILL_TO_GO * left
            hopeless = going_on & (shrinking > ILL_CONDITIONED_SHRINKING) & (left > self.tolerance)
        if self.tolerance < VISIBLE:
            hopeless &= relative > VISIBLE
        if iteration < self.patience or not bool(hopeless.any()):
            return none
        self.distance = torch.where(hopeless, left, self.distance)
        self._describe(image - before, relative, size, hopeless)
        return host_array(hopeless)

    def _describe(self, change: Tensor, relative: Tensor, size: Tensor, samples: Tensor) -> None:
        channels = change if change.ndim == 4 else change.flatten(1)[:, None, None]
        energy = channels.abs().square().mean(1, keepdim=True)
        height, width = energy.shape[-2:]
        still = energy.sqrt() <= per_sample_column(self.tolerance * size / change[0].numel() ** 0.5, energy)
        sides = [min(SPOT, side) // 2 * 2 - 1 if side > 1 else 1 for side in (height, width)]
        spots = F.avg_pool2d(energy, sides, 1, [side // 2 for side in sides], count_include_pad=False)
        place = spots.flatten(1).argmax(1)
        found = on_cpu(still.double().flatten(1).mean(1), place // width, place % width)
        each = zip((relative.double(), *found), self.movement.columns, strict=True)
        self.movement = Movement(self.tolerance, LOOK_EVERY, *(torch.where(samples, new, kept) for new, kept in each))


def on_cpu(*per_sample: Tensor) -> tuple[Tensor, ...]:
    """All of them in one transfer, in the precision of the first."""
    return torch.stack([vector.to(per_sample[0].dtype) for vector in per_sample]).cpu().unbind(0)
