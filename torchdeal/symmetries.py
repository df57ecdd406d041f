"""The mean over the symmetries of the square.

A picture that is turned or mirrored has an answer that is not quite the same one, turned or mirrored: the weights have
no such symmetry. Each of these answers is wrong in its own way, and their mean is closer to the truth than they are on
average. In place of the picture the weights are turned (`Weights.turned`), so that this works for every operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdeal.fidelity import Run
from torchdeal.io.measurements import positive_integer
from torchdeal.model import SYMMETRIES
from torchdeal.replayed_cg import replayed_cg
from torchdeal.solvers import Solution, sample_norms, solve_fixed_point
from torchdeal.solvers.result import Movement, Status, per_sample_column, worst

if TYPE_CHECKING:
    from torchdeal.reconstruction import PosedEquation


def check_symmetries(number: int) -> None:
    """Raise ValueError where there are not so many."""
    if positive_integer("symmetries", number) > SYMMETRIES:
        raise ValueError(f"symmetries must be at most {SYMMETRIES}, those of the square, got {number}")


def solved(equation: PosedEquation, start: Tensor | None, run: Run) -> Solution:
    """The fixed point; of several symmetries the mean of their fixed points.

    All but the first begin with the answer of the first, which is close to theirs, unless that has diverged.
    """
    run = run.after(0, runs=run.symmetries)
    answers = [_solved_once(equation, start, run)]
    if run.symmetries == 1:
        return answers[0]
    near = _where_it_has_not_diverged(answers[0], torch.zeros_like(equation.b) if start is None else start)
    for symmetry in range(1, run.symmetries):
        turned = replace(equation, weights=equation.weights.turned(symmetry))
        done = sum(len(answer.residuals) for answer in answers)
        answers.append(_solved_once(turned, near, run.after(done, run=symmetry)))
    return mean_of(answers)


def _where_it_has_not_diverged(answer: Solution, otherwise: Tensor) -> Tensor:
    diverged = torch.tensor([status is Status.DIVERGED for status in answer.statuses])
    return torch.where(per_sample_column(diverged, answer.x), otherwise, answer.x)


def _solved_once(equation: PosedEquation, start: Tensor | None, run: Run) -> Solution:
    system = equation.system()
    return solve_fixed_point(
        system.precise,
        equation.b,
        start,
        rough=system.rough,
        part=system.part,
        tolerance=run.tolerance,
        max_iterations=run.max_iterations,
        keep_path=run.keep_path,
        callback=run.callback,
        replayed=replayed_cg(equation.b),
    )


def mean_of(answers: Sequence[Solution]) -> Solution:
    """One solution: the mean of the images, the worst status, iterations of all.

    The distance is to the mean of the fixed points. It is at most the mean of the distances, and unknown where one is.
    """
    x = torch.stack([answer.x for answer in answers]).mean(0)
    lengths = torch.stack([answer.distance * sample_norms(answer.x).cpu() for answer in answers]).mean(0)
    distance = torch.where(lengths == 0, 0, lengths / sample_norms(x).cpu())
    return Solution(
        x=x,
        statuses=tuple(map(worst, zip(*(answer.statuses for answer in answers), strict=True))),
        distance=distance.nan_to_num(nan=torch.inf, posinf=torch.inf),
        contraction=reduce(torch.fmax, (answer.contraction for answer in answers)),
        iterations=torch.stack([answer.iterations for answer in answers]).sum(0),
        cg_iterations=torch.stack([answer.cg_iterations for answer in answers]).sum(0),
        residuals=torch.cat([answer.residuals for answer in answers]),
        path=_joined([answer.path for answer in answers], x),
        movement=reduce(Movement.or_more, (answer.movement for answer in answers if answer.movement is not None)),
    )


def _joined(paths: Sequence[tuple[Tensor, ...]], mean: Tensor) -> tuple[Tensor, ...]:
    """One path, which ends at the mean. The later ones begin with an image of the first, which is not repeated."""
    first, *others = paths
    return (*first, *(image for path in others for image in path[1:]), mean) if first else ()
