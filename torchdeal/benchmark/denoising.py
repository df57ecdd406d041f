"""Denoising: BSD68 in gray, CBSD68 in colour, its images and their centres of 256 x 256; or your own folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, Problem
from torchdeal.benchmark.images import clean_image, list_images, read_image
from torchdeal.benchmark.options import Options
from torchdeal.benchmark.simulated import noisy

SIGMAS = (5.0, 15.0, 25.0, 50.0)
CROP, QUICK_CROP = 256, 96
PROTOCOL = (
    "White noise by numpy.random.RandomState(0) for each image, (1, H, W) or (H, W, 3), not clipped. PSNR of the "
    "answer clipped to 0..1; means over images."
)


def cells(options: Options) -> Iterator[Cell]:
    """A table for each set, a column for each noise level."""
    for title, folder, crop in _sets(options):
        paths = options.images_at_most(list_images(folder))
        channels = 1 if "gray" in title else 3
        for sigma in options.sigmas or SIGMAS:
            problems = partial(_problems, paths, channels, QUICK_CROP if options.quick else crop, sigma)
            place = title.partition(": ")[2]
            yield Cell(f"{place}, sigma {sigma:g}", title, f"sigma {sigma:g}", DENOISING, channels, problems)


def _sets(options: Options) -> list[tuple[str, Path, int | None]]:
    """Titles, folders, and the sides of the squares at the centres of the images."""
    if options.images:
        gray = read_image(list_images(options.images)[0]).shape[1] == 1
        return [(f"{'gray' if gray else 'colour'}: {options.images.resolve().name}", options.images, None)]
    test = options.folder("test")
    colour = test / "CBSD68"
    return [
        ("Denoising, gray: BSD68", test / "BSD68", None),
        ("Denoising, colour: CBSD68", colour, None),
        ("Denoising, colour: CBSD68 crops", colour, CROP),
    ]


def _problems(paths: list[Path], channels: int, crop: int | None, sigma: float) -> list[Problem]:
    return [noisy(path.stem, clean_image(path, channels, crop), sigma) for path in paths]


EXPERIMENT = Comparison("Denoising of gray and colour images beside other denoisers.", cells, PROTOCOL)
