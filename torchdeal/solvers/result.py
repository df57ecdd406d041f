"""What the iteration finds: in one step, so far, and at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.solvers.geometry import Geometry


class Status(Enum):
    """How a run ended; `str(status)` is the name and a sentence, `status.value` the sentence."""

    CONVERGED = "The estimated distance to the fixed point is below the tolerance."
    MAX_ITERATIONS = "The maximum number of iterations was reached. Raise max_iterations or the tolerance."
    UNSETTLED = (
        "A part of the image still moves, and would take many more iterations to settle, mostly for no visible change. "
        "A larger sigma or lam often settles it; to go on all the same, take this result as the start."
    )
    STALLED = (
        "The residual is at the limit of the precision and no longer decreases. "
        "Raise the tolerance or use a float64 model."
    )
    DIVERGED = "The iterates grow without bound or are not finite. Check the operator and lower lam."

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation of `T`: images of the samples that are computed, vectors with one entry for each of the batch.

    Vectors are on the host, where decisions are made.
    """

    x: Tensor
    image: Tensor  # T(x)
    correction: Tensor  # T(x) - x, the solution of A(x) d = b - A(x) x
    geometry: Geometry  # of this correction and those before
    residual: np.ndarray  # ||b - A(x) x|| / ||b||; nan for samples that have ended
    step: np.ndarray  # ||T(x) - x||; nan where the solve broke down, whose correction is then 0
    size: np.ndarray  # ||T(x)||
    error: np.ndarray  # of the correction: an estimate of its norm
    accurate: np.ndarray  # bool: the correction was asked for, and found, accurately
    cg_iterations: np.ndarray
    precise: bool  # the system was not a rough one

    def of_samples(self, kept: Tensor) -> Evaluation:
        """With these of its images alone."""
        return replace(self, x=self.x[kept], image=self.image[kept], correction=self.correction[kept])


@dataclass(frozen=True)
class Progress:
    """What a callback sees after each outer iteration; tensors have one entry per sample."""

    iteration: int
    x: Tensor
    residual: Tensor  # relative to ||b||
    distance: Tensor  # estimated relative distance to the fixed point; inf while unknown
    active: Tensor  # bool: samples that go on
    run: int = 0  # which of several runs this is,
    runs: int = 1  # and how many there are


@dataclass(frozen=True, eq=False)
class Movement:
    """What moved in each image in the last `iterations` before its run was given up; nan where it was not.

    Attributes:
        tolerance: of the run.
        iterations: over how many of them it was looked at.
        relative: `||x - x'|| / ||x||`, `(B,)`.
        settled: share of the pixels that moved by at most the tolerance, relative to the root mean square of the image.
        row: where it moved most.
        column: likewise.
    """

    tolerance: float
    iterations: int
    relative: Tensor
    settled: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def none(cls, samples: int, tolerance: float) -> Movement:
        """No run was given up."""
        return cls(tolerance, 0, *torch.full((4, samples), torch.nan, dtype=torch.double))

    def or_more(self, other: Movement) -> Movement:
        """For each sample what moved more, of two runs."""
        more = other.relative.nan_to_num(nan=-1) > self.relative.nan_to_num(nan=-1)
        each = zip(self.columns, other.columns, strict=True)
        columns = [torch.where(more, theirs, own) for own, theirs in each]
        return Movement(self.tolerance, max(self.iterations, other.iterations), *columns)

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.relative, self.settled, self.row, self.column

    def __str__(self) -> str:
        """About the sample that moved most; empty if none was given up."""
        if not bool(self.relative.isfinite().any()):
            return ""
        most = int(self.relative.nan_to_num(nan=-1).argmax())
        return (
            f"In the last {self.iterations} iterations {100 * float(self.settled[most]):.1f} % of the pixels moved by "
            f"at most {self.tolerance:g} of the root mean square. In all the image moved by "
            f"{float(self.relative[most]):.1g} of its length, most around row {int(self.row[most])}, column "
            f"{int(self.column[most])}."
        )


@dataclass(frozen=True, eq=False)
class Solution:
    """A reconstruction and what is known about it. All tensors but `x` are on the CPU, one entry per sample.

    Attributes:
        x: the reconstruction; an array of the kind that was passed in.
        statuses: how each sample ended.
        distance: estimated relative distance to the fixed point, `||x - x*|| / ||x||`, shape `(B,)`; infinite
            where the run was too short, or not contracting, to know. An estimate, not a proof.
        contraction: the factor by which T shrinks distances, as last measured, `(B,)`; nan where unknown.
        iterations: outer iterations (masks), `(B,)`; where there were several runs, of all of them.
        cg_iterations: conjugate-gradient iterations in all, `(B,)`.
        residuals: `||b - A(M(x_k)) x_k|| / ||b||` for each outer iteration k, `(K, B)`; nan after a sample ended.
        movement: what still moves in the samples that are UNSETTLED; None if that was not looked at.
        path: the iterates `x_0, x_1, ...` if they were asked for, else empty. Of a mean over symmetries those of all
            runs, one after the other, and the mean.
    """

    x: Any
    statuses: tuple[Status, ...]
    distance: Tensor
    contraction: Tensor
    iterations: Tensor
    cg_iterations: Tensor
    residuals: Tensor
    path: tuple[Any, ...] = field(default=(), repr=False)
    movement: Movement | None = field(default=None, repr=False)

    @classmethod
    def at_once(cls, x: Tensor) -> Solution:
        """An answer that needed no iterations, for each image of a batch `(B, C, H, W)`."""
        none = torch.zeros(len(x))
        count = torch.zeros(len(x), dtype=torch.int64)
        return cls(x, (Status.CONVERGED,) * len(x), none, none, count, count, torch.zeros(0, len(x)))

    @property
    def status(self) -> Status:
        """The status of the worst sample, which is that of the batch."""
        return worst(self.statuses)

    @property
    def converged(self) -> bool:
        """Whether every sample converged."""
        return self.status is Status.CONVERGED

    def __str__(self) -> str:
        text = (
            f"{self.status.name}: {_span(self.iterations)} outer and {_span(self.cg_iterations)} CG iterations, "
            f"estimated relative distance to the fixed point {float(self.distance.max()):.1e}."
        )
        moving = f" {self.movement}" if self.status is Status.UNSETTLED else ""
        return text if self.converged else f"{text}{moving} {self.status.value}"

    def __repr__(self) -> str:
        return f"<Solution {self}>"


def worst(statuses: Iterable[Status]) -> Status:
    """The last one in the order of `Status`."""
    return max(statuses, key=list(Status).index)


def per_sample_column(per_sample: Tensor, like: Tensor) -> Tensor:
    """A vector `(B,)` in a shape that multiplies `like`, `(B, ...)`, sample by sample."""
    return per_sample.to(like.device).view(-1, *[1] * (like.ndim - 1))


def _span(counts: Tensor) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"
