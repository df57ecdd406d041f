"""`deal deblur`."""

from __future__ import annotations

from typing import Annotated

import typer
from torch import Tensor

from torchdeal.cli.pictures import check_kernel_fits, estimated_sigma, picture_problem, restore_pictures
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
    NoiseLevel,
    SaveDegraded,
    Seed,
    Simulate,
    Tolerance,
    device_name,
)
from torchdeal.operators import Blur, BlurBoundary
from torchdeal.operators.blur_kernels import parse_kernel
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal deblur blurred.png sharp.png --kernel gaussian:1.6[/bold]   (the noise level is estimated)\n\n"
    "[bold]deal deblur photos/ sharp/ --kernel psf.npy --sigma 2.55[/bold]\n\n"
    "[bold]deal deblur clean.png sharp.png --kernel motion:15,30 --simulate --save-degraded blurred.png[/bold]"
)


def deblur(
    paths: Inputs,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="KERNEL",
            help="gaussian:STD or motion:LENGTH,ANGLE, in pixels and degrees (counter-clockwise from the right), "
            "or a file (.npy or a picture). It is scaled to the sum 1; its centre is at (height // 2, width // 2).",
        ),
    ],
    sigma: NoiseLevel = None,
    boundary: Annotated[
        BlurBoundary,
        typer.Option(
            help="What the blur saw beyond the border. valid, for photos: the scene goes on, and that is reconstructed "
            "too (a simulation loses the border). reflect: its mirror image. circular: the opposite border, as in "
            "simulations of the literature; on a photo it fails. zero: black.",
        ),
    ] = BlurBoundary.VALID,
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
    """Undo a known blur, in gray or colour."""
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
    blur = Blur(parse_kernel(kernel), boundary)

    def pose(picture: Tensor) -> Problem:
        check_kernel_fits(blur.kernel, picture.shape[-2:])
        return picture_problem(
            picture,
            blur,
            settings,
            estimate=estimated_sigma,
            degraded_by="blurred",
            keep=lambda x: _measured_part(x, blur),
        )

    restore_pictures(paths, pose, settings)


def _measured_part(x: Tensor, blur: Blur) -> Tensor:
    """Without the border that a valid blur sees but does not measure."""
    if blur.boundary is not BlurBoundary.VALID:
        return x
    (height, width), (rows, columns) = blur.kernel.shape, x.shape[-2:]
    top, left = (height - 1) - height // 2, (width - 1) - width // 2
    return x[..., top : top + rows - height + 1, left : left + columns - width + 1]
