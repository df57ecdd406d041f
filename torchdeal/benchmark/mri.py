"""MRI: k-space simulated from knee images, one coil at 4 x and 15 coils at 8 x.

The paper's images are those of fastMRI, which may not be passed on: a user who has them puts the `.h5` files into
`DATA/fastmri/PD` and `DATA/fastmri/PDFS`. What everyone else can measure are the images in `DATA/test/MRI-knee`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import Cell, PosedProblem, middle
from torchdeal.benchmark.images import clean_image, list_images, reported_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable, package
from torchdeal.benchmark.simulated import kspace
from torchdeal.mri.read import read_kspace
from torchdeal.operators import Fourier, MultiCoilFourier
from torchdeal.simulate import random_columns

NOISE = 0.002
SIDE, QUICK_SIDE = 320, 64  # of the square of which PSNR is taken
COILS = 15
KNEES_FOR_TUNING, FASTMRI_FOR_TUNING = 5, 10  # the first ones
CONTRASTS = ("PD", "PDFS")
PROTOCOL = (
    "Real images, the largest value 1, k-space by the orthonormal Fourier transform, whole columns at random (4 x with "
    "8 %, 8 x with 4 % in the middle), noise 0.002 on real and imaginary part by numpy.random.RandomState(0), PSNR of "
    "the centre of 320 x 320. Knee images: coils simulated on a ring; parameters chosen on the first 5, the others "
    "reported. fastMRI: the middle slices, magnitude of all coils; parameters chosen on the first 10 files, the next "
    "50 reported."
)


@dataclass(frozen=True)
class Sampling:
    """How much is measured, by how many coils."""

    name: str
    acceleration: int
    centre: float
    coils: int


SAMPLINGS = (Sampling("4x single coil", 4, 0.08, 1), Sampling(f"8x {COILS} coils", 8, 0.04, COILS))


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A column for each set of images and each way of sampling."""
    for sampling in SAMPLINGS:
        knees = list_images(options.folder("test", "MRI-knee"))
        reported_images(knees, KNEES_FOR_TUNING)  # there are some
        read = partial(_knee, side=QUICK_SIDE if options.quick else None)
        yield _cell(options, "knee", sampling, knees, KNEES_FOR_TUNING, read)
        for contrast in CONTRASTS:
            paths = sorted(options.folder("fastmri", contrast).glob("*.h5"))
            yield _cell(options, contrast, sampling, paths, FASTMRI_FOR_TUNING, _fastmri)


def _cell(
    options: BenchmarkOptions,
    images: str,
    sampling: Sampling,
    paths: list[Path],
    for_tuning: int,
    read: Callable[[Path], Tensor],
) -> Cell:
    reported = options.images_at_most(paths[for_tuning : for_tuning + 50])
    return Cell(
        name=f"{sampling.name}, {images}",
        table=f"MRI: {'knee images' if images == 'knee' else 'fastMRI'}",
        column=f"{sampling.name}, {images}",
        kind="mri",
        channels=1,
        problems=partial(_problems, reported, sampling, read, first=for_tuning),
        tuning=partial(_problems, paths[:for_tuning], sampling, read),
        centre=SIDE,
    )


def _problems(
    paths: list[Path], sampling: Sampling, read: Callable[[Path], Tensor], first: int = 0
) -> list[PosedProblem]:
    if not paths:
        raise Unavailable(
            "the files of fastMRI are licensed: put your copy into DATA/fastmri/PD and DATA/fastmri/PDFS, "
            f"more than {FASTMRI_FOR_TUNING} files each; parameters are chosen on the first {FASTMRI_FOR_TUNING}"
        )
    return [scan(path.stem, read(path), sampling, seed) for seed, path in enumerate(paths, start=first)]


def scan(name: str, clean: Tensor, sampling: Sampling, seed: int) -> PosedProblem:
    """What a scanner would measure of an image `(1, 1, H, W)`; the seed chooses the columns."""
    clean = clean / clean.max().clamp_min(1 / 255)
    size = (clean.shape[-2], clean.shape[-1])
    mask = random_columns(size, sampling.acceleration, sampling.centre, seed, exact=False)
    operator = Fourier(mask, centered=True)
    if sampling.coils > 1:
        operator = MultiCoilFourier(ring_of_coils(sampling.coils, size), mask, centered=True)
    return kspace(name, clean, operator, NOISE)


def ring_of_coils(coils: int, size: tuple[int, int]) -> Tensor:
    """Sensitivities `(coils, H, W)` of coils around the image: they fall with the distance, the phase turns with it.

    Their squares sum to 1 at each pixel.
    """
    down, right = (torch.linspace(-1, 1, length) for length in size)
    maps = []
    for coil in range(coils):
        angle = 2 * math.pi * coil / coils
        across = right[None] - 1.5 * math.cos(angle)
        along = down[:, None] - 1.5 * math.sin(angle)
        maps.append(torch.polar(1 / (across.square() + along.square()), torch.atan2(along, across)))
    stacked = torch.stack(maps)
    return stacked / stacked.abs().square().sum(0).sqrt()


def _knee(path: Path, side: int | None) -> Tensor:
    clean = clean_image(path, 1)
    return middle(clean, side).contiguous() if side else clean


def _fastmri(path: Path) -> Tensor:
    """The magnitude of all coils, of the middle slice, `(1, 1, H, W)`."""
    package("h5py", "reading HDF5 files", "mri")
    scan = read_kspace(path)
    images = Fourier(centered=scan.centered, real=False).adjoint(scan.kspace[None])
    return images.abs().square().sum(1, keepdim=True).sqrt().float()


EXPERIMENT = Comparison("MRI from few columns of k-space.", cells, PROTOCOL)
