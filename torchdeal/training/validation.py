"""How good the weights are on images that are not trained on, always with the same noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.reconstruct import reconstruct
from torchdeal.training.batches import make_operator
from torchdeal.training.config import TaskConfig
from torchdeal.training.data import read_pictures

MAX_ITERATIONS = 100


@dataclass(frozen=True)
class Score:
    """Means over images, one noise level."""

    sigma: float
    psnr: float
    converged: int
    images: int
    iterations: float

    def __str__(self) -> str:
        return (
            f"sigma {self.sigma:g}: {self.psnr:.3f} dB "
            f"({self.converged} of {self.images} converged, {self.iterations:.0f} outer)"
        )


class Validation:
    """The validation images of a run.

    Args:
        sources: folders, tar files or images.
        channels: of the model.
        smallest: height and width that an image must have.
        task: what is measured, at which noise levels.
    """

    def __init__(self, sources: Sequence[Path], channels: int, smallest: int, task: TaskConfig):
        pictures, self.skipped = read_pictures(sources, channels=channels, smallest=smallest)
        self.pictures, self.task = [torch.from_numpy(picture.copy()) for picture in pictures], task

    def scores(self, model: DEAL) -> list[Score]:
        """PSNR of the model at its fixed points, as a user would get it."""
        return [self._score(model, sigma) for sigma in self.task.validation_sigma]

    def _score(self, model: DEAL, sigma: float) -> Score:
        results = [self._reconstruct(model, pixels, sigma) for pixels in self.pictures]
        psnrs, converged, iterations = zip(*results, strict=True)
        return Score(sigma, float(np.mean(psnrs)), sum(converged), len(results), float(np.mean(iterations)))

    def _reconstruct(self, model: DEAL, pixels: Tensor, sigma: float) -> tuple[float, bool, int]:
        device = next(model.parameters()).device
        clean = pixels[None].to(device).float() / 255
        operator = make_operator(self.task, clean, torch.Generator(device).manual_seed(0))
        measured = operator.forward(clean)
        noise = np.random.default_rng(0).normal(0, sigma / 255, tuple(measured.shape))
        measured = measured + torch.from_numpy(noise).to(measured)
        with torch.no_grad():
            # What the model has learned for this noise is its strength in any task that it is trained on.
            learned = model.weights().lam(measured.new_tensor([sigma])).flatten()
        lam = None if operator.is_identity else learned
        solution = reconstruct(
            measured, operator, model=model, sigma=sigma / 255, lam=lam, max_iterations=MAX_ITERATIONS
        )
        return psnr(solution.x, clean), solution.converged, int(solution.iterations.max())
