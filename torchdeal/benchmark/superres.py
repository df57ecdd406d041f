"""Super-resolution of colour images: two factors, three noise levels, four blur kernels that are averaged.

Parameters are chosen on images of the training set.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import Cell, PosedProblem, middle
from torchdeal.benchmark.images import clean_image, list_images, training_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.simulated import downsampled, read_kernel
from torchdeal.operators import Downsample

KERNELS_FILE, KERNELS = "kernels_12.npz", (0, 1, 2, 3)
SCALES = (2, 3)
PAPER = {2.55: (15.0, 0.28), 7.65: (15.0, 2.5), 12.75: (15.0, 5.5)}  # noise on the 0..255 scale: sigma and lam
CROP, QUICK_CROP = 256, 48
PROTOCOL = (
    "Centres of CBSD68, 256 x 256 (255 for x3), circular blur by isotropic Gaussians of deviation 0.7, 1.2, 1.6, 2.0, "
    "every s-th pixel, white noise by numpy.random.RandomState(0). Means over images and kernels. Parameters are "
    "chosen for each factor and noise level on four training images, one for each kernel."
)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A column for each factor and noise level."""
    for scale in SCALES:
        side = (QUICK_CROP if options.quick else CROP) // scale * scale
        operators = {number: Downsample(scale, _kernel(options, number)) for number in KERNELS}
        if options.quick:
            operators = {1: operators[1]}
        for noise in PAPER:
            yield Cell(
                name=f"x{scale}, noise {noise:g}",
                table="Super-resolution, colour: CBSD68 crops",
                column=f"x{scale}, noise {noise:g}",
                kind="superres",
                channels=3,
                problems=partial(_problems, options, operators, noise, side),
                tuning=partial(_tuning, options, operators, noise, side),
                paper=PAPER[noise],
            )


def _problems(
    options: BenchmarkOptions, operators: dict[int, Downsample], noise: float, side: int
) -> list[PosedProblem]:
    paths = options.images_at_most(list_images(options.folder("test", "CBSD68")))
    images = {path.stem: clean_image(path, 3, side) for path in paths}
    return [
        downsampled(name, clean, operator, noise, f"kernel {number}")
        for number, operator in operators.items()
        for name, clean in images.items()
    ]


def _tuning(options: BenchmarkOptions, operators: dict[int, Downsample], noise: float, side: int) -> list[PosedProblem]:
    """Each image with one of the kernels."""
    images = training_images(options.folder("train"), 3)
    numbers = list(operators)
    return [
        downsampled(f"{index}", middle(clean, side).contiguous(), operators[numbers[index % len(numbers)]], noise)
        for index, clean in enumerate(images)
    ]


def _kernel(options: BenchmarkOptions, number: int):
    return read_kernel(options.folder("kernels", KERNELS_FILE), number)


EXPERIMENT = Comparison("Super-resolution of colour images.", cells, PROTOCOL)
