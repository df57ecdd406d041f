"""`deal denoise`."""

from __future__ import annotations

from typing import Annotated

import typer
from torch import Tensor

from torchdeal.cli.pictures import WHITE, estimated_sigma, restore_pictures
from torchdeal.cli.problem import Problem, Settings
from torchdeal.cli.shared import (
    AsJson,
    Channelwise,
    DataRange,
    Device,
    DeviceChoice,
    Inputs,
    MaxIterations,
    ModelName,
    Tolerance,
    device_name,
)
from torchdeal.operators import Identity
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]"
)


def denoise(
    paths: Inputs,
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on the 0..255 scale, whatever the bit depth. Default: estimated."
        ),
    ] = None,
    model: ModelName = None,
    device: DeviceChoice = Device.auto,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    max_iterations: MaxIterations = DEFAULT_MAX_ITERATIONS,
    channelwise: Channelwise = False,
    data_range: DataRange = None,
    as_json: AsJson = False,
) -> None:
    """Remove white Gaussian noise from images (PNG, JPEG, WebP, TIFF, npy; 8 bit, 16 bit, float)."""
    settings = Settings(
        sigma=sigma,
        model=model,
        device=device_name(device),
        tolerance=tolerance,
        max_iterations=max_iterations,
        channelwise=channelwise,
        data_range=data_range,
        quiet=as_json,
    )

    def pose(picture: Tensor) -> Problem:
        noise = estimated_sigma(picture) if sigma is None else sigma
        return Problem(picture, Identity(), noise, estimated=sigma is None, white=WHITE)

    restore_pictures(paths, pose, settings)
