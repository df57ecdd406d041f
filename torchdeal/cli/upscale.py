"""`deal upscale`."""

from __future__ import annotations

from typing import Annotated

import typer
from torch import Tensor

from torchdeal.cli.pictures import check_kernel_fits, picture_problem, restore_pictures
from torchdeal.cli.problem import Problem, Settings
from torchdeal.cli.shared import (
    AsJson,
    Channelwise,
    DataRange,
    Device,
    DeviceChoice,
    Inputs,
    Lam,
    MaxIterations,
    ModelName,
    ModelSigma,
    SaveDegraded,
    Seed,
    Simulate,
    Tolerance,
    device_name,
)
from torchdeal.operators import Downsample
from torchdeal.operators.blur_kernels import gaussian_kernel, parse_kernel
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE
from torchdeal.simulate import bicubic

DEFAULT_STD = 0.3  # of the Gaussian, relative to the scale: fits what common programs do when they shrink a picture
DEFAULT_SIGMA = 1.0  # estimates take the detail of a small, sharp picture for noise

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal upscale small.png large.png --scale 2[/bold]\n\n"
    "[bold]deal upscale noisy.png large.png --scale 3 --kernel gaussian:1.2 --sigma 5[/bold]\n\n"
    "[bold]deal upscale clean.png large.png --scale 2 --simulate --save-degraded bicubic.png[/bold]"
)


def upscale(
    paths: Inputs,
    scale: Annotated[int, typer.Option(min=2, max=16, help="How many times larger, each way.")],
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL",
            help="The blur before the picture was shrunk, in pixels of the result: gaussian:STD (around the middle of "
            "each pixel of the input), or a file (.npy or a picture; its centre, (height // 2, width // 2), is at the "
            "first of the pixels that became one). Default: a Gaussian of 0.3 times the scale, as pictures that were "
            "shrunk by common programs have it.",
        ),
    ] = None,
    sigma: Annotated[
        float, typer.Option(help="Standard deviation of the noise in the picture on the 0..255 scale.")
    ] = DEFAULT_SIGMA,
    lam: Lam = None,
    model_sigma: ModelSigma = None,
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
    """Enlarge a picture, in gray or colour (super-resolution)."""
    settings = Settings(
        sigma=sigma,
        lam=lam,
        model_sigma=model_sigma,
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
    shift = -(scale - 1) / 2  # from the first of the pixels that become one to their middle
    blur = gaussian_kernel(DEFAULT_STD * scale, shift) if kernel is None else parse_kernel(kernel, shift)
    shrink = Downsample(scale, blur, "reflect")

    def pose(picture: Tensor) -> Problem:
        if simulate:
            picture = _multiple(picture, scale)
        check_kernel_fits(blur, [length * (1 if simulate else scale) for length in picture.shape[-2:]])
        return picture_problem(
            picture,
            shrink,
            settings,
            estimate=lambda _: sigma,
            degraded_by="bicubic",
            look=lambda y: bicubic(y, scale, blur),
        )

    restore_pictures(paths, pose, settings)


def _multiple(picture: Tensor, scale: int) -> Tensor:
    """Without the last rows and columns that make no whole pixel when it is shrunk."""
    height, width = (length // scale * scale for length in picture.shape[-2:])
    return picture[..., :height, :width]
