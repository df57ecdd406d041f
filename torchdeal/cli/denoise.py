"""`deal denoise`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Inputs, Settings, with_settings
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.run import Problem, run
from torchdeal.operators import Identity
from torchdeal.scale.local import LocalOperator, local

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal denoise noisy.png clean.png --sigma 25[/bold]\n\n"
    "[bold]deal denoise photos/ denoised/[/bold]   (a folder; the noise level is estimated)\n\n"
    "[bold]deal denoise a.tif b.tif out/ --sigma 10 --json[/bold]\n\n"
    "[bold]deal denoise noisy.tif clean.tif --noise-map levels.npy[/bold]\n\n"
    "[bold]deal denoise dim.tif clean.tif --noise-model poisson --gain 8.5 --read-noise 2[/bold]\n\n"
    "[bold]deal denoise scan.ome.zarr clean.ome.zarr --sigma 10[/bold]   (of any size, in tiles)\n\n"
    "[bold]deal denoise clean.png denoised.png --sigma 25 --simulate --save-degraded noisy.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Denoising(PictureTask):
    def pose(self, frame: Tensor) -> Problem:
        return self.problem(frame, Identity(), degraded_by="noisy", leave_clean=self.settings.lam is None)

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        return local(Identity())


@with_settings(without=("model_sigma", "parameters"))
def denoise(paths: Inputs, *, settings: Settings) -> None:
    """Remove noise from images (PNG, JPEG, WebP, BMP, TIFF, npy; 8 bit, 16 bit, float)."""
    run(Denoising(settings), picture_jobs(paths, settings.recursive))
