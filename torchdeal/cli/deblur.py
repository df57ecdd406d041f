"""`deal deblur`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch.nn.functional as F
import typer
from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Inputs, Settings, with_settings
from torchdeal.cli.pictures import PictureTask, check_kernel_fits
from torchdeal.cli.run import Problem, run
from torchdeal.operators import Blur, BlurBoundary
from torchdeal.operators.blur_kernels import parse_kernel
from torchdeal.scale.local import LocalOperator, local

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal deblur blurred.png sharp.png --kernel gaussian:1.6[/bold]   (the noise level is estimated)\n\n"
    "[bold]deal deblur photos/ sharp/ --kernel psf.npy --sigma 2.55[/bold]\n\n"
    "[bold]deal deblur clean.png sharp.png --kernel motion:15,30 --simulate --save-degraded blurred.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Deblurring(PictureTask):
    made = "deblurred"
    blur: Blur

    def pose(self, frame: Tensor) -> Problem:
        check_kernel_fits(self.blur.kernel, frame.shape[-2:])
        return self.problem(frame, self.blur, degraded_by="blurred", keep=self._measured_part)

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        return local(self.blur)

    def _measured_part(self, x: Tensor) -> Tensor:
        """Without the border that a valid blur sees but does not measure."""
        if self.blur.boundary is not BlurBoundary.VALID:
            return x
        return F.pad(x, [-margin for margin in self.blur.margins()])


@with_settings()
def deblur(
    paths: Inputs,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="KERNEL",
            help="gaussian:STD, disk:RADIUS (defocus) or motion:LENGTH,ANGLE, in pixels and degrees (counter-clockwise "
            "from the right), or a file (.npy or a picture). It is scaled to the sum 1; its centre is at (height // 2, "
            "width // 2).",
        ),
    ],
    boundary: Annotated[
        BlurBoundary,
        typer.Option(
            help="What the blur saw beyond the border. valid, for photos: the scene goes on, and that is reconstructed "
            "too (a simulation loses the border). reflect: its mirror image. circular: the opposite border, as in "
            "simulations of the literature; on a photo it fails. zero: black.",
        ),
    ] = BlurBoundary.VALID,
    *,
    settings: Settings,
) -> None:
    """Undo a known blur, in gray or colour."""
    jobs = picture_jobs(paths, settings.recursive)
    run(Deblurring(settings, Blur(parse_kernel(kernel), boundary)), jobs, reads=[Path(kernel)])
