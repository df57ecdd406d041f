"""What a run tells as it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.model import DEAL
from torchdeal.training.batches import Batch
from torchdeal.training.step import Outcome
from torchdeal.training.validation import Score


@dataclass(frozen=True)
class Report:
    """What a run tells every so many steps; means since the report before."""

    step: int
    steps: int
    loss: float
    psnr: float  # of the training patches, of the mean squared error
    lr: float
    gradient: float  # its norm, before it was clipped
    iterations: float  # without gradient, outer
    cg_iterations: float  # in these
    contraction: float | None  # of T near the fixed point; None where the loss does not ask for it
    steps_per_second: float
    seconds: float

    def __str__(self) -> str:
        contraction = "" if self.contraction is None else f"contraction {self.contraction:.3f}  "
        return (
            f"step {self.step}/{self.steps}  loss {self.loss:.3f}  PSNR {self.psnr:.2f}  lr {self.lr:.1e}  "
            f"gradient {self.gradient:.0f}  outer {self.iterations:.1f}  CG {self.cg_iterations:.0f}  {contraction}"
            f"{self.steps_per_second:.2f} steps/s  {self.seconds:.0f} s"
        )


@dataclass(frozen=True)
class Listener:
    """What is called as a run goes on."""

    report: Callable[[Report], None] = lambda report: None
    validated: Callable[[int, list[Score], bool], None] = lambda step, scores, best: None
    example: Callable[[int, DEAL, Batch, Outcome], None] = lambda step, model, batch, outcome: None
    message: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Means:
    """Over some steps; where a gradient was not finite, the step counts only as bad."""

    loss: float
    error: float
    gradient: float
    contraction: float | None
    iterations: float
    cg_iterations: float
    steps_per_second: float
    bad: float  # share of the steps


class Tally:
    """Sums over steps, kept on the device: reading them makes it wait."""

    def __init__(self, device: torch.device):
        self.sums = torch.zeros(6, device=device)  # loss, error, gradient, bad steps, contraction and its count
        self.restart()

    def restart(self) -> None:
        self.sums.zero_()
        self.iterations, self.count, self.started = 0, 0, time.monotonic()

    def count_step(self, iterations: int) -> None:
        self.iterations += iterations
        self.count += 1

    def add(self, outcome: Outcome, norm: Tensor) -> None:
        loss = outcome.loss.detach()
        good = torch.isfinite(norm) & torch.isfinite(loss)
        values = [torch.where(good, value, 0) for value in (loss, outcome.error, norm)]
        contraction = [torch.zeros_like(loss)] * 2  # and how many
        if outcome.contraction is not None:
            contraction = [outcome.contraction, torch.ones_like(loss)]
        self.sums += torch.stack([*values, (~good).to(norm.dtype), *contraction])

    def take(self, cg_iterations: float) -> Means:
        """The means since the last time, with those CG iterations in all; then everything starts from zero."""
        loss, error, norm, bad, contraction, known = self.sums.tolist()
        good = max(self.count - bad, 1e-9)
        means = Means(
            loss=loss / good,
            error=error / good,
            gradient=norm / good,
            contraction=contraction / known if known else None,
            iterations=self.iterations / self.count,
            cg_iterations=cg_iterations / self.count,
            steps_per_second=self.count / max(time.monotonic() - self.started, 1e-9),
            bad=bad / self.count,
        )
        self.restart()
        return means
