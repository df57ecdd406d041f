"""`deal mri`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from torchdeal.cli.jobs import one_job
from torchdeal.cli.options import PICTURE_NOISE, SIMULATION, TILES, Settings, with_settings
from torchdeal.cli.pictures import GraySimulation
from torchdeal.cli.run import Problem, Simulation, Task, run
from torchdeal.io import files
from torchdeal.io.arrays import check_scale
from torchdeal.mri import (
    KSpace,
    centre_crop,
    check_result_path,
    espirit_maps,
    estimate_noise,
    read_kspace,
    read_maps,
    write_image,
)
from torchdeal.mri.data import ALL, MIDDLE
from torchdeal.operators import Fourier, MultiCoilFourier, Operator
from torchdeal.simulate import measure, random_columns

SIMULATED_SIGMA = 0.002  # of a picture in 0..1, as in the experiments of the paper
ACCELERATION, CENTRE = 4.0, 0.08  # of a simulation
ESPIRIT = "espirit"
UNCROPPED = (sys.maxsize, sys.maxsize)  # a part that is larger than any image

Slice = tuple[KSpace, float]  # one slice of a scan, (coils, H, W), and the noise in all slices

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal mri scan.h5 knee.png[/bold]   (the middle slice; maps and noise are estimated)\n\n"
    "[bold]deal mri kspace.npz image.nii.gz --slice all --sigma 1e-6[/bold]\n\n"
    "[bold]deal mri clean.png image.png --simulate --acceleration 4 --save-degraded zero_filled.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class ScanTask(Task[Slice, None]):
    """From k-space to the magnitude of the image."""

    index: int | str  # of the slice, middle, or all
    centered: bool
    maps: str | None
    real: bool
    size: tuple[int, int] | None  # None: what the file says

    def read(self, path: Path) -> tuple[Sequence[Slice], None]:
        scan = read_kspace(path, index=self.index, centered=self.centered)
        check_scale(path, float(scan.kspace.abs().max()))
        sigma = self.settings.sigma
        noise = estimate_noise(scan.kspace, scan.mask, centered=scan.centered) if sigma is None else sigma
        maps = _given_maps(self.maps, scan)
        slices = scan.kspace if scan.kspace.ndim == 4 else scan.kspace[None]
        own_maps = maps if maps is not None and maps.ndim == 4 else [maps] * len(slices)
        return [(replace(scan, kspace=k, maps=m), noise) for k, m in zip(slices, own_maps, strict=True)], None

    def pose(self, frame: Slice) -> Problem:
        scan, noise = frame
        size = self.size or scan.image_size or UNCROPPED
        if not bool(scan.kspace.any()):  # a slice beyond the object: no coil can be told from another
            scan = replace(scan, kspace=scan.kspace[:1], maps=None)
        return Problem(
            scan.kspace[None],
            _operator(scan, self.real),
            noise,
            estimated=self.settings.sigma is None,
            keep=lambda x: centre_crop(x.abs(), size),
        )

    def check_target(self, path: Path, frames: Sequence[Slice], kind: None) -> None:
        check_result_path(path, len(frames))

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        write_image(path, torch.cat(list(images)))


@dataclass(frozen=True, eq=False)
class SimulatedScan(GraySimulation):
    acceleration: float
    centre: float
    real: bool

    def pose(self, frame: Tensor) -> Problem:
        settings, size = self.settings, (frame.shape[-2], frame.shape[-1])
        sampled = random_columns(size, self.acceleration, self.centre, settings.seed)
        H = Fourier(sampled, centered=True, real=self.real)
        noise = SIMULATED_SIGMA if settings.sigma is None else settings.sigma
        y = measure(frame, H, noise, settings.seed)
        simulation = Simulation(frame, H.adjoint(y).abs(), "zero-filled")
        return Problem(y, H, noise, white=1.0, keep=torch.abs, simulation=simulation)

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        if path.suffix.lower() in files.SUFFIXES:
            super().write(path, images, kind)
        else:
            write_image(path, images[0])


@with_settings(
    without=("batch", "channelwise", "data_range", "quality", "recursive", *PICTURE_NOISE, *TILES),
    sigma_help="Standard deviation of the noise in the real and in the imaginary part, in the units of the k-space. "
    "Default: estimated; 0.002 with --simulate, where white is 1.",
)
def mri(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Cartesian k-space: fastMRI .h5, ISMRMRD .h5 or .mrd, .npy, or .npz with kspace, mask and maps; "
            "with --simulate a picture.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The magnitude: .png (maximum is white), .tif, .npy, .nii, .nii.gz.")
    ],
    slice_index: Annotated[
        str, typer.Option("--slice", metavar="SLICE", help="A number from 0, middle, or all (.tif, .npy, .nii).")
    ] = MIDDLE,
    maps: Annotated[
        str | None,
        typer.Option(
            metavar="MAPS",
            help="Coil sensitivities: espirit, or a file (.npy, complex, of the shape of the k-space). "
            "Default: those in FILE, else espirit.",
        ),
    ] = None,
    real: Annotated[
        bool | None,
        typer.Option("--real/--complex", help="What the image is. Default: complex; real with --simulate."),
    ] = None,
    crop: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Middle part to write: HEIGHTxWIDTH, such as 320x256, or one number for a square, or none. "
            "Default: what FILE says.",
        ),
    ] = None,
    corner: Annotated[
        bool, typer.Option("--corner", help="In .npy and .npz the zero frequency is at [0, 0], not in the middle.")
    ] = False,
    acceleration: Annotated[
        float, typer.Option(rich_help_panel=SIMULATION, help="One of so many columns is measured, at random.")
    ] = ACCELERATION,
    centre: Annotated[
        float, typer.Option(rich_help_panel=SIMULATION, help="The share of columns that is measured in the middle.")
    ] = CENTRE,
    *,
    settings: Settings,
) -> None:
    """Reconstruct an image from undersampled k-space, of one coil or several."""
    size = _crop_size(crop)
    if settings.simulate:
        if (slice_index, maps, crop, corner) != (MIDDLE, None, None, False):
            raise ValueError("--slice, --maps, --crop and --corner are for k-space: leave them out with --simulate")
        task = SimulatedScan(settings, acceleration, centre, real is not False)
    else:
        if (acceleration, centre) != (ACCELERATION, CENTRE):
            raise ValueError("--acceleration and --centre are for simulations: use them with --simulate")
        task = ScanTask(settings, _index(slice_index), not corner, maps, bool(real), size)
    check_result_path(target)
    run(task, one_job(source, target), reads=[] if maps in (None, ESPIRIT) else [Path(maps)])


def _operator(scan: KSpace, real: bool) -> Operator:
    if len(scan.kspace) == 1 and scan.maps is None:
        return Fourier(scan.mask, centered=scan.centered, real=real)
    maps = scan.maps if scan.maps is not None else espirit_maps(scan.kspace, scan.mask, centered=scan.centered)
    return MultiCoilFourier(maps, scan.mask, centered=scan.centered, real=real)


def _given_maps(maps: str | None, scan: KSpace) -> Tensor | None:
    """From a file, or None where they are to be estimated."""
    if maps is None:
        return scan.maps
    if maps == ESPIRIT:
        return None
    if not Path(maps).is_file():
        raise ValueError(f"{maps}: no such file; give --maps a file, or {ESPIRIT}")
    return read_maps(maps, scan)


def _index(text: str) -> int | str:
    if text in (MIDDLE, ALL):
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--slice must be a number, middle or all, not {text}") from None


def _crop_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    if text == "none":
        return UNCROPPED
    try:
        numbers = [int(number) for number in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise ValueError(
            f"--crop must be HEIGHTxWIDTH, such as 320x256, or one number for a square, or none, not {text}"
        )
    return numbers[0], numbers[-1]
