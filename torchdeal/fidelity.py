"""Noise that is not white and Gaussian: data terms beyond plain least squares.

Where measurements have standard deviations `d`, the data term is `||(H x - y) / d||^2`: H and y are divided by d, which
is least squares again (`whitened`). Where d depends on the image (`Poisson`), or says which measurements to believe
(`Impulse`), the problem is solved a few times, each time with the deviations that follow from the answer before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.io.measurements import PerSample, per_sample
from torchdeal.noise import MEDIAN_OF_NORMAL
from torchdeal.operators import Mask, Operator
from torchdeal.reconstruction import Reconstruction
from torchdeal.solvers import Progress
from torchdeal.solvers.result import per_sample_column

LEAST_COUNTS = 0.5  # what is darker has the noise of so many counts: an answer may be 0 or below
DOUBTED = 4.0  # standard deviations
IGNORED = 3.7  # times that: the weight is below 1e-3 there
SURELY_OUTLYING = 5.0  # times what is usual
LOOSE, LOOSE_ITERATIONS = 3e-2, 12  # of all solutions but the last


@dataclass(frozen=True)
class Run:
    """How long a problem is worked at, and what is told about it."""

    tolerance: float
    max_iterations: int
    keep_path: bool = False
    callback: Callable[[Progress], None] | None = None
    symmetries: int = 1  # how many the answer is the mean over

    def after(self, iterations: int, **changed: int) -> Run:
        """The same for a callback that has seen so many iterations already; these fields of its `Progress` change."""
        callback = self.callback
        if callback is None:
            return self

        def counting_on(progress: Progress) -> None:
            callback(replace(progress, iteration=iterations + progress.iteration, **changed))

        return replace(self, callback=counting_on)


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


def measurements_made(operator: Operator, y: Tensor) -> Tensor:
    """Which of them there are, bool, like y: a mask leaves holes, whose values say nothing."""
    made = operator.mask != 0 if isinstance(operator, Mask) else torch.ones((), dtype=torch.bool, device=y.device)
    return made.to(y.device).expand_as(y)


class NoiseModel(ABC):
    """Noise whose standard deviation follows from the image. All values are in the units of the measurements."""

    are_levels: ClassVar[bool]  # whether deviations are noise levels, which a denoiser may know; else they are doubts
    rounds: ClassVar[int]  # of reweighting, after the first solution

    @abstractmethod
    def first_deviation(self, y: Tensor, images: bool, made: Tensor) -> Tensor:
        """Of each measurement, before there is an answer; `made` says which were made at all, bool, like y."""

    @abstractmethod
    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        """Of each measurement, given what an answer predicts for it."""


@dataclass(frozen=True)
class Poisson(NoiseModel):
    """Counted photons, and the noise of reading them: `variance = gain * H x + read^2`.

    A measurement of which nothing was counted must be 0: subtract the offset of a camera first.

    Attributes:
        gain: what one count adds to a measurement, in its units: 1 where measurements are counts, 1/30 where white is 1
            and 30 counts. A number, or one per sample.
        read: standard deviation of the Gaussian noise that is added to all measurements alike, in their units.
    """

    gain: PerSample
    read: PerSample = 0.0
    are_levels: ClassVar[bool] = True
    rounds: ClassVar[int] = 2

    def first_deviation(self, y: Tensor, images: bool, made: Tensor) -> Tensor:
        """That of the mean. That of y itself would trust most what is too dark by chance."""
        _refuse_complex(y)
        mean = (y * made).flatten(1).sum(1) / made.flatten(1).sum(1).clamp_min(1)
        return self.deviation(y, per_sample_column(mean, y).expand_as(y))

    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        gain = per_sample_column(per_sample("gain", self.gain, y, above=0.0), y)
        read = per_sample_column(per_sample("read", self.read, y, minimum=0.0), y)
        return (gain * torch.maximum(prediction, LEAST_COUNTS * gain) + read.square()).sqrt()


@dataclass(frozen=True)
class Impulse(NoiseModel):
    """White Gaussian noise, and outliers: salt and pepper, hot pixels, spikes.

    A measurement that lies k standard deviations from what the others say counts `exp(-(k / 4)^2)` times (the weights
    of Welsch): an outlier does not count at all, while Huber's weights would leave some of each.

    Attributes:
        sigma: standard deviation of the Gaussian noise, in the units of the measurements. A number, or one per sample.
    """

    sigma: PerSample
    are_levels: ClassVar[bool] = False
    rounds: ClassVar[int] = 2

    def first_deviation(self, y: Tensor, images: bool, made: Tensor) -> Tensor:
        """Of images those of neighbours tell. Others begin with plain least squares."""
        return self.deviation(y, _median_of_neighbours(y, made) if images else y)

    def deviation(self, y: Tensor, prediction: Tensor) -> Tensor:
        sigma = per_sample_column(per_sample("sigma", self.sigma, y, above=0.0), y)
        outlying = (y - prediction).abs() / (DOUBTED * sigma)
        return torch.where(outlying < IGNORED, sigma * (outlying.square() / 2).exp(), torch.inf)


class Reweightable(Protocol):
    """A problem that can be solved for different noise."""

    @property
    def operator(self) -> Operator: ...

    def solve(self, noise: PerSample | None, start: Any, run: Run, *, are_levels: bool) -> Reconstruction: ...

    def prediction(self, found: Reconstruction) -> Tensor: ...


def reweighted(model: NoiseModel, y: Tensor, problem: Reweightable, start: Any, run: Run) -> Reconstruction:
    """Solve with the deviations that the answer before predicts, a few times; only the last time to the tolerance."""
    limits = {"tolerance": max(run.tolerance, LOOSE), "max_iterations": min(run.max_iterations, LOOSE_ITERATIONS)}
    loose = replace(run, **limits, symmetries=1)
    operator = problem.operator
    deviation = model.first_deviation(y, operator.measures_images, measurements_made(operator, y))
    found = problem.solve(deviation, start, loose, are_levels=model.are_levels)
    for left in reversed(range(model.rounds)):
        deviation = model.deviation(y, problem.prediction(found))
        now = (loose if left else run).after(len(found.residuals))
        found = _together(found, problem.solve(deviation, found, now, are_levels=model.are_levels))
    return found


def _together(before: Reconstruction, after: Reconstruction) -> Reconstruction:
    """The later answer, with the iterations of both."""
    return replace(
        after,
        iterations=before.iterations + after.iterations,
        cg_iterations=before.cg_iterations + after.cg_iterations,
        residuals=torch.cat([before.residuals, after.residuals]),
        path=(*before.path, *after.path[1:]),
    )


def _median_of_neighbours(y: Tensor, made: Tensor) -> Tensor:
    """The median over 3 x 3 pixels of images `(B, C, H, W)`; where there are holes, over those of 5 x 5 that are none.

    What is in a hole, or has no neighbour, stays.
    """
    if y.is_complex():
        return torch.complex(_median_of_neighbours(y.real, made), _median_of_neighbours(y.imag, made))
    reach = 1 if bool(made.all()) else 2
    padded = F.pad(torch.where(made, y, torch.nan), (reach,) * 4, mode="replicate")
    width = 2 * reach + 1
    median = padded.unfold(-2, width, 1).unfold(-2, width, 1).flatten(-2).nanmedian(-1).values
    return torch.where(made & ~median.isnan(), median, y)


def without_outliers(y: Tensor, made: Tensor) -> Tensor:
    """Images whose impulses are replaced by the median of their neighbours, to estimate the noise of the rest."""
    median = _median_of_neighbours(y, made)
    off = torch.where(made, (y - median).abs(), torch.nan)
    usual = off.flatten(1).nanmedian(1).values / MEDIAN_OF_NORMAL
    return torch.where(off > SURELY_OUTLYING * per_sample_column(usual, y), median, y)


def _refuse_complex(y: Tensor) -> None:
    if y.is_complex():
        raise ValueError("the measurements are complex, but counts are real: Poisson noise is not for them")
