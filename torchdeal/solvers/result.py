"""What a run of the fixed-point iteration returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torch import Tensor


class Status(Enum):
    """How a run ended; `str(status)` is a sentence."""

    CONVERGED = "The estimated distance to the fixed point is below the tolerance."
    MAX_ITERATIONS = "The maximum number of iterations was reached. Raise max_iterations or the tolerance."
    STALLED = (
        "The residual is at the limit of the precision and no longer decreases. "
        "Raise the tolerance or use a float64 model."
    )
    DIVERGED = "The iterates grow without bound or are not finite. Check the operator and lower lam."

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Solution:
    """A reconstruction and what is known about it. All tensors but `x` are on the CPU, one entry per sample.

    Attributes:
        x: the reconstruction; an array of the kind that was passed in.
        statuses: how each sample ended.
        distance: estimated relative distance to the fixed point, `||x - x*|| / ||x||`, shape `(B,)`; infinite
            where the run was too short, or not contracting, to know. An estimate, not a proof.
        contraction: the factor q by which a step shrinks the next one, `(B,)`; nan where unknown.
        iterations: outer iterations (masks), `(B,)`.
        cg_iterations: conjugate-gradient iterations in all, `(B,)`.
        residuals: `||b - A(M(x_k)) x_k|| / ||b||` for each outer iteration k, `(K, B)`; nan after a sample ended.
        path: the iterates `x_0, x_1, ...` if they were asked for, else empty.
    """

    x: Any
    statuses: tuple[Status, ...]
    distance: Tensor
    contraction: Tensor
    iterations: Tensor
    cg_iterations: Tensor
    residuals: Tensor
    path: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def status(self) -> Status:
        """The status of the batch: that of its worst sample."""
        return max(self.statuses, key=list(Status).index)

    @property
    def converged(self) -> bool:
        """Whether every sample converged."""
        return self.status is Status.CONVERGED

    def __str__(self) -> str:
        text = (
            f"{self.status.name}: {_span(self.iterations)} outer and {_span(self.cg_iterations)} CG iterations, "
            f"estimated relative distance to the fixed point {float(self.distance.max()):.1e}."
        )
        return text if self.converged else f"{text} {self.status}"

    def __repr__(self) -> str:
        return f"<Solution {self}>"


def _span(counts: Tensor) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"
