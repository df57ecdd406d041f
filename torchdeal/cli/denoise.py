"""`deal denoise`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import typer
from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Inputs, Settings, with_settings
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.run import Problem, run
from torchdeal.operators import Identity
from torchdeal.reconstruction import Reconstruction
from torchdeal.scale.local import LocalOperator, local

LIKE = 0.5  # of the content of a frame, without its noise: a neighbour that differs by less is like it

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]\n\n"
    "[bold]deal denoise brain.nii.gz clean.nii.gz[/bold]   (slice by slice; one noise level for all)\n\n"
    "[bold]deal denoise series/ denoised/[/bold]   (a folder with the slices of a DICOM series)\n\n"
    "[bold]deal denoise noisy.tif clean.tif --noise-map levels.npy[/bold]\n\n"
    "[bold]deal denoise dim.tif clean.tif --noise-model poisson --gain 8.5 --read-noise 2[/bold]\n\n"
    "[bold]deal denoise scan.ome.zarr clean.ome.zarr --sigma 10[/bold]   (of any size, in tiles)\n\n"
    "[bold]deal denoise clean.png denoised.png --sigma 25 --simulate --save-degraded noisy.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Denoising(PictureTask):
    made = "denoised"
    warm_start: bool = field(default=True, kw_only=True)

    def pose(self, frame: Tensor) -> Problem:
        return self.problem(frame, Identity(), degraded_by="noisy", leave_clean=self.settings.lam is None)

    def begun_with(self, problem: Problem, before: Reconstruction) -> Problem:
        """Neighbours that are alike need fewer iterations so (docs/notes/2026-11-stacks.md); others may need more."""
        if not self.warm_start or problem.noise_kind is not None or before.x.shape != problem.y.shape:
            return problem
        y, noise = problem.y, problem.noise**2
        other = float((y - before.x).square().mean()) - noise
        content = float((y - y.mean()).square().mean()) - noise
        return replace(problem, start=before) if other < LIKE**2 * content else problem

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        return local(Identity())


@with_settings(without=("model_sigma", "parameters"))
def denoise(
    paths: Inputs,
    warm_start: Annotated[
        bool,
        typer.Option(
            help="On the CPU, begin each frame of a stack with the result of the frame before, if they are alike. The "
            "result is the same within the tolerance, and takes fewer iterations."
        ),
    ] = True,
    *,
    settings: Settings,
) -> None:
    """Remove noise from images (PNG, JPEG, WebP, BMP, TIFF, npy; 8 bit, 16 bit, float) and scans (NIfTI, DICOM)."""
    run(Denoising(settings, warm_start=warm_start), picture_jobs(paths, settings.recursive))
