"""Denoising: BSD68 in gray, CBSD68 in colour, its images and their centres of 256 x 256; or your own folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, PosedProblem, middle
from torchdeal.benchmark.images import clean_image, list_images, read_image, training_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.simulated import noisy

SIGMAS = (5.0, 15.0, 25.0, 50.0)
CROP, QUICK_CROP = 256, 96
PROTOCOL = (
    "White noise by numpy.random.RandomState(0) for each image, (1, H, W) or (H, W, 3), not clipped. PSNR of the "
    "answer clipped to 0..1; means over images. Competitors with parameters: these are chosen on four training images."
)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A table for each set, a column for each noise level."""
    for title, folder, channels, crop in _sets(options):
        paths = options.images_at_most(list_images(folder))
        for sigma in options.sigmas or SIGMAS:
            place = title.partition(": ")[2]
            kind = "gray" if channels == 1 else "colour"
            yield Cell(
                name=f"{place}, sigma {sigma:g}",
                table=title,
                column=f"sigma {sigma:g}",
                kind=DENOISING,
                channels=channels,
                problems=partial(_problems, paths, channels, crop, options.quick, sigma),
                tuning=partial(_tuning, options.data / "train", channels, sigma) if options.data else None,
                tuned_as=f"{kind}, sigma {sigma:g}",
            )


def _sets(options: BenchmarkOptions) -> list[tuple[str, Path, int, int | None]]:
    """Titles, folders, channels, and the sides of the squares at the centres of the images."""
    if options.images:
        channels = read_image(list_images(options.images)[0]).shape[1]
        kind = "gray" if channels == 1 else "colour"
        return [(f"{kind}: {options.images.resolve().name}", options.images, channels, None)]
    test = options.folder("test")
    colour = test / "CBSD68"
    return [
        ("Denoising, gray: BSD68", test / "BSD68", 1, None),
        ("Denoising, colour: CBSD68", colour, 3, None),
        ("Denoising, colour: CBSD68 crops", colour, 3, CROP),
    ]


def _problems(paths: list[Path], channels: int, crop: int | None, quick: bool, sigma: float) -> list[PosedProblem]:
    images = {path.stem: clean_image(path, channels, None if quick else crop) for path in paths}
    if quick:  # small images are good enough for a trial
        images = {name: middle(image, QUICK_CROP).contiguous() for name, image in images.items()}
    return [noisy(name, image, sigma) for name, image in images.items()]


def _tuning(folder: Path, channels: int, sigma: float) -> list[PosedProblem]:
    images = enumerate(training_images(folder, channels))
    return [noisy(f"{index}", middle(clean, CROP).contiguous(), sigma) for index, clean in images]


EXPERIMENT = Comparison("Denoising of gray and colour images beside other denoisers.", cells, PROTOCOL)
