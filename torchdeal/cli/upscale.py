"""`deal upscale`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Inputs, Settings, with_settings
from torchdeal.cli.pictures import PictureTask, check_kernel_fits
from torchdeal.cli.run import Problem, run
from torchdeal.operators import Downsample
from torchdeal.operators.blur_kernels import gaussian_kernel, parse_kernel
from torchdeal.scale.local import LocalOperator, local
from torchdeal.simulate import bicubic

DEFAULT_STD = 0.3  # of the Gaussian, relative to the scale: fits what common programs do when they shrink a picture
DEFAULT_SIGMA = 1.0  # estimates take the detail of a small, sharp picture for noise

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal upscale small.png large.png --scale 2[/bold]\n\n"
    "[bold]deal upscale noisy.png large.png --scale 3 --kernel gaussian:1.2 --sigma 5[/bold]\n\n"
    "[bold]deal upscale clean.png large.png --scale 2 --simulate --save-degraded bicubic.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Upscaling(PictureTask):
    scale: int
    blur: Tensor

    @property
    def magnification(self) -> int:
        return 1 if self.settings.simulate else self.scale

    def pose(self, frame: Tensor) -> Problem:
        height, width = frame.shape[-2:]
        if self.settings.simulate:  # without the last rows and columns that make no whole pixel when it is shrunk
            large = height // self.scale * self.scale, width // self.scale * self.scale
            if not all(large):
                raise ValueError(f"the picture, {height} x {width}, cannot be shrunk {self.scale} times: lower --scale")
            frame = frame[..., : large[0], : large[1]]
        else:
            large = height * self.scale, width * self.scale
        check_kernel_fits(self.blur, large)
        shrink = Downsample(self.scale, self.blur, "reflect")
        return self.problem(frame, shrink, degraded_by="bicubic", look=lambda y: bicubic(y, self.scale, self.blur))

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        return local(Downsample(self.scale, self.blur, "reflect"))


@with_settings(sigma_help="Standard deviation of the noise in the picture on the 0..255 scale.", sigma=DEFAULT_SIGMA)
def upscale(
    paths: Inputs,
    scale: Annotated[int, typer.Option(min=2, max=16, help="How many times larger, each way.")],
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL",
            help="The blur before the picture was shrunk, in pixels of the result: gaussian:STD or disk:RADIUS (around "
            "the middle of each pixel of the input), or a file (.npy or a picture; its centre, (height // 2, width // "
            "2), is at the first of the pixels that became one). Default: a Gaussian of 0.3 times the scale, as "
            "pictures that were shrunk by common programs have it.",
        ),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Enlarge a picture, in gray or colour (super-resolution)."""
    shift = -(scale - 1) / 2  # from the first of the pixels that become one to their middle
    blur = gaussian_kernel(DEFAULT_STD * scale, shift) if kernel is None else parse_kernel(kernel, shift)
    reads = [] if kernel is None else [Path(kernel)]
    run(Upscaling(settings, scale, blur), picture_jobs(paths, settings.recursive), reads)
