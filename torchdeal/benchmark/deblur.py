"""Deblurring: three gray images, two motion kernels, two noise levels. Parameters are chosen on the rest of Set12."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import Cell, PosedProblem
from torchdeal.benchmark.images import clean_image, list_images, named_image
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.simulated import blurred, read_kernel
from torchdeal.operators import Blur

KERNELS_FILE, KERNELS = "Levin09.npz", (1, 3)
IMAGES = {"01": "C.man", "02": "House", "05": "Monarch"}
PAPER = {2.55: (15.0, 0.5), 7.65: (15.0, 2.5)}  # noise on the 0..255 scale: sigma on that scale, and lam
TUNING_CROP, QUICK_CROP = 256, 64
PROTOCOL = (
    "Set12, circular motion blur (Levin et al. 2009, kernels 1 and 3), rounded to 8 bits, then white noise by "
    "numpy.random.RandomState(0). PSNR of 8-bit images. Parameters are chosen for each kernel and noise level on the "
    "other nine images of Set12."
)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A column for each image, kernel and noise level."""
    for noise in PAPER:
        for number in KERNELS:
            operator = _blur(options.folder("kernels", KERNELS_FILE), number)
            size = "x".join(map(str, operator.kernel.shape[-2:]))
            for image in options.images_at_most(list(IMAGES)):
                yield Cell(
                    name=f"image {image}, kernel {number}, noise {noise:g}",
                    table=f"Deblurring, noise {noise:g}",
                    column=f"{IMAGES[image]}, {size}",
                    kind="deblur",
                    channels=1,
                    problems=partial(_problems, options, [image], operator, noise),
                    tuning=partial(_tuning, options, operator, noise),
                    tuned_as=f"kernel {number}, noise {noise:g}",
                    paper=PAPER[noise],
                    eight_bit=True,
                )


def _problems(
    options: BenchmarkOptions, images: Sequence[str], operator: Blur, noise: float, crop: int | None = None
) -> list[PosedProblem]:
    folder = options.folder("test", "Set12")
    crop = QUICK_CROP if options.quick else crop
    return [blurred(name, clean_image(named_image(folder, name), 1, crop), operator, noise) for name in images]


def _tuning(options: BenchmarkOptions, operator: Blur, noise: float) -> list[PosedProblem]:
    """The other images."""
    others = [path.stem for path in list_images(options.folder("test", "Set12")) if path.stem not in IMAGES]
    return _problems(options, others, operator, noise, TUNING_CROP)


@cache
def _blur(path: Path, number: int) -> Blur:
    return Blur(read_kernel(path, number))


EXPERIMENT = Comparison("Deblurring of gray images.", cells, PROTOCOL)
