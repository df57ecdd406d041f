"""`deal upscale`."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
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
from torchdeal.kernels import gaussian_kernel, parse_kernel
from torchdeal.operators import Downsample
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

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
            look=lambda y: _enlarged(y, scale, blur),
        )

    restore_pictures(paths, pose, settings)


def _multiple(picture: Tensor, scale: int) -> Tensor:
    """Without the last rows and columns that make no whole pixel when it is shrunk."""
    height, width = (length // scale * scale for length in picture.shape[-2:])
    return picture[..., :height, :width]


def _enlarged(small: Tensor, scale: int, kernel: Tensor) -> Tensor:
    """By bicubic interpolation, each pixel where the kernel has taken it from."""
    axes = []
    for dim, length in enumerate(small.shape[-2:]):
        weights = kernel.sum(1 - dim)
        centre = float((weights * (len(weights) // 2 - torch.arange(len(weights)))).sum())
        places = (torch.arange(length * scale) - centre) / scale
        axes.append(2 * places / (length - 1) - 1)
    rows, columns = torch.meshgrid(*axes, indexing="ij")
    grid = torch.stack([columns, rows], -1)[None].to(small.dtype)
    return F.grid_sample(small, grid, mode="bicubic", padding_mode="border", align_corners=True)
