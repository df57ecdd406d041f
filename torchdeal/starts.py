"""The same problem from other starts: do they lead to the same answer, and where in the image do they not?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.derivative import white_noise_like
from torchdeal.reconstruction import PosedEquation
from torchdeal.solvers import sample_norms, solve_fixed_point

SMALLEST_REGION = 8  # pixels on a side


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far the answers from other starts are from the given one. S starts, B samples; all on the CPU."""

    starts: tuple[str, ...]
    apart: Tensor  # relative to the norm of the given answer, (S, B)
    distance: Tensor  # of each answer to its fixed point, as its run estimates it, (S, B)
    difference: Tensor  # the largest over starts and channels, in 0..1, (B, H, W)
    regions: tuple[tuple[int, int, int], ...]  # for each sample y, x and size of the square that differs most
    share: Tensor  # of the squared difference that lies there, (B,); nan where nothing differs


def from_starts(
    equation: PosedEquation,
    x: Tensor,
    starts: int,
    *,
    tolerance: float,
    max_iterations: int,
    callback: Callable[[str], None] = lambda name: None,
) -> Agreement:
    """Solve again from zero, from `H^T y`, and then from white noise in 0..1 (seeds 0, 1, ...).

    Args:
        equation: the problem.
        x: the given answer, `(B, C, H, W)`.
        starts: how many.
        tolerance: of each run, as in `reconstruct`.
        max_iterations: likewise.
        callback: called with the name of each start.
    """
    system, names, found = equation.system(), [], []
    for name, start in islice(_starts(equation), starts):
        callback(f"from {name}")
        solution = solve_fixed_point(
            system.precise,
            equation.b,
            start,
            rough=system.rough,
            part=system.part,
            tolerance=tolerance,
            max_iterations=max_iterations,
        )
        names.append(name)
        found.append((solution.x, solution.distance))
    apart = torch.stack([sample_norms(other - x) / sample_norms(x).clamp_min(_tiny(x)) for other, _ in found])
    difference = torch.stack([(other - x).abs().amax(1) for other, _ in found]).amax(0)
    regions, share = _most_different(difference)
    distance = torch.stack([distance for _, distance in found])
    return Agreement(tuple(names), apart.double().cpu(), distance.cpu(), difference.cpu(), regions, share)


def _starts(equation: PosedEquation) -> Iterator[tuple[str, Tensor]]:
    b = equation.b
    yield "H^T y", b
    yield "noise (seed 0)", 0.5 + 0.25 * white_noise_like(b, 0)
    yield "zero", torch.zeros_like(b)  # where `reconstruct` starts, if not told otherwise
    for seed in count(1):
        yield f"noise (seed {seed})", 0.5 + 0.25 * white_noise_like(b, seed)


def _most_different(difference: Tensor) -> tuple[tuple[tuple[int, int, int], ...], Tensor]:
    """The square, a quarter of the image on a side, with the most of the squared difference; and how much that is."""
    squared, sides = difference.double().square(), difference.shape[-2:]
    size = min(max(SMALLEST_REGION, min(sides) // 4), *sides)
    sums = F.avg_pool2d(squared[:, None], size, stride=1)[:, 0] * size**2
    most, place = sums.flatten(1).max(1)
    columns = sums.shape[-1]
    regions = tuple((int(index) // columns, int(index) % columns, size) for index in place)
    return regions, (most / squared.sum((1, 2))).cpu()


def _tiny(x: Tensor) -> float:
    return torch.finfo(x.dtype).tiny
