"""What the page shows, as PNG files: all of one size, in one range of gray."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from torchdeal.cli import explanation_pictures as pictures
from torchdeal.cli.pictures import LITTLE, WHITE
from torchdeal.cli.report import array_of
from torchdeal.cli.run import Problem, Solved


@dataclass(frozen=True, eq=False)
class Looks:
    """How images of a problem are shown.

    Attributes:
        problem: whose images they are.
        degraded: what the measurements look like, of the size of the result.
        low: what is black.
        high: what is white.
        result: the image, when there is one.
    """

    problem: Problem
    degraded: Tensor
    low: float
    high: float
    result: Tensor | None = None

    @classmethod
    def of(cls, problem: Problem, degraded: Tensor) -> Looks:
        """With the range of the file, unless that is not known or the picture uses little of it."""
        white = problem.simulation.white if problem.simulation else WHITE if problem.H.measures_images else None
        low, high = float(degraded.min()), float(degraded.max())
        if white is not None and (high - low > LITTLE * white or problem.simulation):
            low, high = 0.0, white
        return cls(problem, degraded, low, high)

    @property
    def white(self) -> float:
        """In the units of the image, what is 255 to a person."""
        if self.problem.simulation:
            return self.problem.simulation.white
        return WHITE if self.problem.H.measures_images else max(self.high - self.low, 1e-30)

    def with_result(self, solved: Solved) -> Looks:
        low, high = self.low, self.high
        if not self.problem.simulation and not self.problem.H.measures_images:
            low, high = float(solved.x.min()), float(solved.x.max())
        return replace(self, result=solved.x, low=low, high=high)

    def picture(self, image: Tensor) -> bytes:
        """An image `(1, C, H, W)`."""
        return pictures.png(self._gray(image))

    def before(self) -> bytes:
        """The measurements; what has no scale of its own is spread from black to white."""
        if self.problem.simulation or self.problem.H.measures_images:
            return self.picture(self.degraded)
        array = array_of(self.degraded)
        return pictures.png(pictures.in_gray(array, float(array.min()), float(np.quantile(array, 0.999))))

    def after(self) -> bytes:
        assert self.result is not None
        return self.picture(self.result)

    def preview(self, x: Tensor) -> bytes:
        """Of an iterate, `(1, C, H, W)` with white at 1."""
        kept = self.problem.keep(x)
        white = self.problem.white
        if white is None:
            return pictures.png(pictures.in_gray(array_of(kept), 0.0, max(float(kept.max()), 1e-30)))
        return self.picture(kept * white)

    def numbers(self, values: np.ndarray) -> tuple[bytes, float, float]:
        """Numbers `(H, W)` as colours, with what the first and the last colour mean."""
        low, high = (float(np.quantile(values, share)) for share in (0.005, 0.995))
        return pictures.png(pictures.in_colours(values, low, high)), low, high

    def weights(self, weights: np.ndarray) -> bytes:
        """Over the result in gray: blue adds, orange subtracts."""
        assert self.result is not None
        return pictures.png(pictures.with_weights(self._gray(self.result), weights))

    def _gray(self, image: Tensor) -> np.ndarray:
        image = image.abs() if torch.is_complex(image) else image
        return pictures.in_gray(array_of(image), self.low, self.high)
