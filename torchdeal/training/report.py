"""What a run tells as it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.metrics import decibels
from torchdeal.model import DEAL
from torchdeal.training.batches import Batch
from torchdeal.training.step import StepResult
from torchdeal.training.validation import Score

LEAST_ERROR = 1e-12  # a PSNR of 120 dB: JSON has no infinity


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
class Validated:
    """The scores of the averaged weights."""

    step: int
    scores: list[Score]
    best: bool  # so far

    def __str__(self) -> str:
        best = ", the best so far" if self.best else ""
        return f"validation at step {self.step}: {', '.join(map(str, self.scores))}{best}"


@dataclass(frozen=True)
class Example:
    """What the averaged weights are, and what the last step made of its batch: for pictures, not for words."""

    step: int
    model: DEAL
    batch: Batch
    result: StepResult


Event = Report | Validated | Example | str
Listener = Callable[[Event], None]  # is told each event; all but examples can be printed


class Tally:
    """Sums over the steps since the last report, kept on the device: reading them makes it wait.

    Where the loss or the gradient was not finite, a step counts only as bad.
    """

    def __init__(self, device: torch.device):
        self.sums = torch.zeros(6, device=device)  # loss, error, gradient, bad steps, contraction and its count
        self.restart()

    def restart(self) -> None:
        self.sums.zero_()
        self.iterations, self.count, self.started = 0, 0, time.monotonic()

    def count_step(self, iterations: int) -> None:
        self.iterations += iterations
        self.count += 1

    def add(self, result: StepResult, norm: Tensor) -> None:
        loss = result.loss.detach()
        good = torch.isfinite(norm) & torch.isfinite(loss)
        values = [torch.where(good, value, 0) for value in (loss, result.error, norm)]
        contraction = [torch.zeros_like(loss)] * 2  # and how many
        if result.contraction is not None:
            contraction = [torch.where(good, result.contraction, 0), good.to(loss.dtype)]
        self.sums += torch.stack([*values, (~good).to(norm.dtype), *contraction])

    def bad_share(self) -> float:
        """Of the steps."""
        return float(self.sums[3]) / self.count

    def report(self, *, step: int, steps: int, lr: float, seconds: float, cg_iterations: float, pixels: int) -> Report:
        """The means since the last time, with those CG iterations in all, and patches of so many numbers."""
        loss, error, norm, bad, contraction, known = self.sums.tolist()
        good = max(self.count - bad, 1e-9)
        return Report(
            step=step,
            steps=steps,
            loss=loss / good,
            psnr=decibels(max(error / good / pixels, LEAST_ERROR)),
            lr=lr,
            gradient=norm / good,
            iterations=self.iterations / self.count,
            cg_iterations=cg_iterations / self.count,
            contraction=contraction / known if known else None,
            steps_per_second=self.count / max(time.monotonic() - self.started, 1e-9),
            seconds=seconds,
        )
