"""Noise that is not white and Gaussian: data terms beyond plain least squares.

Where measurements have standard deviations `d`, the data term is `||(H x - y) / d||^2`: H and y are divided by d, which
is least squares again (`whitened`). Where d depends on the image (`Poisson`), or says which measurements to believe
(`Impulse`), the problem is solved a few times, each time with the deviations that follow from the answer before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.io.measurements import PerSample, per_sample
from torchdeal.operators import Operator
from torchdeal.reconstruction import Reconstruction
from torchdeal.solvers import Progress
from torchdeal.solvers.result import per_sample_column


@dataclass(frozen=True)
class Run:
    """How long a problem is worked at, and what is told about it: arguments of `solve_fixed_point`."""

    tolerance: float
    max_iterations: int
    keep_path: bool = False
    callback: Callable[[Progress], None] | None = None


def whitened(operator: Operator, y: Tensor, deviations: Tensor) -> tuple[Operator, Tensor, Tensor]:
    """The same problem with noise that is the same everywhere: H and y weighted, and its standard deviation, `(B,)`.

    Weights are relative: the mean of their squares is 1 in each sample, over the measurements that count. So lam and
    the gain of H mean what they mean without weights.

    Args:
        operator: `H`.
        y: the measurements, `(B, ...)`.
        deviations: of each, `(B or 1, ...)`, above 0; a measurement with an infinite one does not count.
    """
    if not bool((deviations > 0).all()):
        raise ValueError("the noise map must be above 0 everywhere; infinite where a measurement is to be ignored")
    least = deviations.flatten(1).amin(1)
    if bool(torch.isinf(least).any()):
        raise ValueError("the noise map is infinite everywhere: there is nothing to reconstruct from")
    weight = per_sample_column(least, deviations) / deviations  # squares of it do not overflow
    counted = (weight > 0).flatten(1).sum(1)
    size = (weight.square().flatten(1).sum(1) / counted).sqrt()
    noise, weight = (least / size).expand(len(y)), weight / per_sample_column(size, weight)
    if bool((weight == 1).all()):  # nothing to weigh
        return operator, y, noise
    return operator.weighted(weight), weight * y, noise


class NoiseModel(ABC):
    """Noise whose standard deviation follows from the image.

    All values are in the units of the measurements.
    """

    rounds: int = 3  # of reweighting, after the first solution

    @abstractmethod
    def first_deviation(self, y: Tensor, images: bool) -> Tensor:
        """Before there is an answer: a number per sample, or one for each measurement."""

    @abstractmethod
    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        """Of each measurement, given what an answer predicts for it."""


@dataclass(frozen=True)
class Poisson(NoiseModel):
    """Counted photons, and the noise of reading them: `variance = gain * H x + read^2`.

    Attributes:
        gain: what one count adds to a measurement, in its units: 1 where measurements are counts, 1/30 where white is 1
            and 30 counts. A number, or one per sample.
        read: standard deviation of the Gaussian noise that is added to all measurements alike, in their units.
    """

    gain: PerSample
    read: PerSample = 0.0

    def first_deviation(self, y: Tensor, images: bool) -> Tensor:
        return self._deviation(y, y.flatten(1).mean(1).clamp_min(0))

    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        return self._deviation(y, prediction)

    def _deviation(self, y: Tensor, mean: Tensor) -> Tensor:
        gain = per_sample_column(per_sample("gain", self.gain, y, above=0.0), mean)
        read = per_sample_column(per_sample("read", self.read, y, minimum=0.0), mean)
        return (gain * torch.maximum(mean, LEAST_COUNTS * gain) + read.square()).sqrt()


@dataclass(frozen=True)
class Impulse(NoiseModel):
    """White Gaussian noise, and outliers: salt and pepper, hot pixels, spikes.

    Attributes:
        sigma: standard deviation of the Gaussian noise, in the units of the measurements. A number, or one per sample.
    """

    sigma: PerSample

    def first_deviation(self, y: Tensor, images: bool) -> Tensor:
        sigma = per_sample("sigma", self.sigma, y, above=0.0)
        return self.deviation(y, _median(y)) if images else sigma

    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        sigma = per_sample_column(per_sample("sigma", self.sigma, y, above=0.0), y)
        outlying = (y - prediction).abs() / (OUTLYING * sigma)
        return sigma * torch.exp(outlying.square() / 2)  # the weights of Welsch


LEAST_COUNTS = 0.5
OUTLYING = 3.0
LOOSE, LOOSE_ITERATIONS = 3e-2, 10


def _median(y: Tensor) -> Tensor:
    padded = F.pad(y, (1,) * 4, mode="replicate")
    return padded.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten(-2).median(-1).values


class Reweightable(Protocol):
    """A problem that can be solved for different noise."""

    @property
    def operator(self) -> Operator: ...

    def solve(self, noise: PerSample | None, start: Any, run: Run) -> Reconstruction: ...

    def prediction(self, found: Reconstruction) -> Tensor: ...


def reweighted(model: NoiseModel, y: Tensor, problem: Reweightable, start: Any, run: Run) -> Reconstruction:
    """Solve with the deviations that the answer before predicts, a few times; only the last time to the tolerance."""
    loose = replace(run, tolerance=max(run.tolerance, LOOSE), max_iterations=min(run.max_iterations, LOOSE_ITERATIONS))
    deviation = model.first_deviation(y, problem.operator.measures_images)
    found = problem.solve(deviation, start, loose)
    for left in reversed(range(model.rounds)):
        deviation = model.deviation(y, problem.prediction(found))
        found = problem.solve(deviation, found, loose if left else run)
    return found
