"""`deal denoise`."""

from __future__ import annotations

from torch import Tensor

from torchdeal.cli.pictures import estimated_sigma, picture_problem, restore_pictures
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
    NoiseLevel,
    SaveDegraded,
    Seed,
    Simulate,
    Tolerance,
    device_name,
)
from torchdeal.operators import Identity
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]\n\n"
    "[bold]deal denoise clean.png denoised.png --sigma 25 --simulate --save-degraded noisy.png[/bold]"
)


def denoise(
    paths: Inputs,
    sigma: NoiseLevel = None,
    model: ModelName = None,
    device: DeviceChoice = Device.auto,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    max_iterations: MaxIterations = DEFAULT_MAX_ITERATIONS,
    channelwise: Channelwise = False,
    data_range: DataRange = None,
    simulate: Simulate = False,
    seed: Seed = 0,
    save_degraded: SaveDegraded = None,
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
        simulate=simulate,
        seed=seed,
        save_degraded=save_degraded,
        quiet=as_json,
    )

    def pose(picture: Tensor) -> Problem:
        return picture_problem(picture, Identity(), settings, estimate=estimated_sigma, degraded_by="noisy")

    restore_pictures(paths, pose, settings)
