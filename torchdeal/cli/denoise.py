"""`deal denoise`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Inputs, Settings, with_settings
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.run import Problem, run
from torchdeal.io import files
from torchdeal.noise import NoiseLevel
from torchdeal.operators import Identity

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]\n\n"
    "[bold]deal denoise noisy.tif clean.tif --noise-map levels.npy[/bold]\n\n"
    "[bold]deal denoise clean.png denoised.png --sigma 25 --simulate --save-degraded noisy.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Denoising(PictureTask):
    noise_map: Tensor | None = None  # (1, C or 1, H, W), on the 0..255 scale

    def pose(self, frame: Tensor) -> Problem:
        if self.noise_map is None:
            return self.problem(frame, Identity(), degraded_by="noisy", leave_clean=True)
        if self.noise_map.shape[-2:] != frame.shape[-2:]:
            sizes = [" x ".join(map(str, tensor.shape[-2:])) for tensor in (self.noise_map, frame)]
            raise ValueError(f"the noise map is {sizes[0]} and the picture {sizes[1]}: they must have the same size")
        mean = float(self.noise_map.square().mean().sqrt())
        posed = self.problem(frame, Identity(), degraded_by="noisy", estimate=lambda y: NoiseLevel(mean, mean, mean))
        return replace(posed, noise=mean, estimated=False, level=None, noise_map=self.noise_map)


@with_settings(without=("lam", "model_sigma"))
def denoise(
    paths: Inputs,
    noise_map: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="In place of --sigma: the standard deviation of the noise in each pixel, on the 0..255 scale. A file "
            "(.npy, .tif, ...) of the size of the pictures, whose values are taken as they are.",
        ),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Remove white Gaussian noise from images (PNG, JPEG, WebP, BMP, TIFF, npy; 8 bit, 16 bit, float)."""
    if noise_map is not None and (settings.sigma is not None or settings.simulate):
        raise ValueError("--noise-map says the noise of a noisy picture: leave out --sigma and --simulate")
    levels = None if noise_map is None else read_noise_map(noise_map)
    run(Denoising(settings, levels), picture_jobs(paths, settings.recursive), reads=[noise_map] if noise_map else [])


def read_noise_map(path: Path) -> Tensor:
    """`(1, C or 1, H, W)`, finite and at least 0."""
    file = files.read(path).without_alpha()
    if file.pixels.ndim not in (2, 3):
        raise ValueError(f"{path}: a noise map is one picture, this file has {file.pixels.shape}")
    levels = np.atleast_3d(file.pixels.astype(np.float32))
    if not (np.isfinite(levels) & (levels >= 0)).all():
        raise ValueError(f"{path}: the noise map must be finite and at least 0")
    return torch.from_numpy(levels).permute(2, 0, 1)[None]
