"""CT: parallel-beam projections of chest slices. All of this protocol is ours: the paper has no CT."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import Cell, PosedProblem, middle
from torchdeal.benchmark.images import clean_image, list_images, reported_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.simulated import sinogram
from torchdeal.operators import Radon

ANGLES = (60, 30)
NOISE = 0.01  # relative to the largest value of the sinogram
SIZE, QUICK_SIZE = 256, 48
FOR_TUNING = 2  # the first slices
PROTOCOL = (
    "Chest slices of 512 x 512, averaged to 256 x 256, parallel beams, angles evenly over 180 degrees, white noise of "
    "1 % of the largest projection by numpy.random.RandomState(0). Parameters are chosen on the first two slices, the "
    "others are reported."
)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A column for each number of angles."""
    paths = list_images(options.folder("test", "CT"))
    reported = reported_images(paths, FOR_TUNING)
    size = QUICK_SIZE if options.quick else SIZE
    for angles in ANGLES:
        yield Cell(
            name=f"{angles} angles",
            table="CT: chest slices",
            column=f"{angles} angles",
            kind="ct",
            channels=1,
            problems=partial(_problems, options.images_at_most(reported), angles, size),
            tuning=partial(_problems, paths[:FOR_TUNING], angles, size),
        )


def _problems(paths: list[Path], angles: int, size: int) -> list[PosedProblem]:
    operator = _radon(angles, size)
    return [sinogram(path.stem, reduced(clean_image(path, 1), size), operator, NOISE) for path in paths]


def reduced(clean: Tensor, size: int) -> Tensor:
    """The square at the centre, pixels averaged in blocks; continued by its mirror image if it is smaller."""
    block = max(1, min(clean.shape[2:]) // size)
    square = F.avg_pool2d(middle(clean, block * size), block)
    down, right = (size - length for length in square.shape[2:])
    return F.pad(square, (0, right, 0, down), mode="reflect")


@cache
def _radon(angles: int, size: int) -> Radon:
    return Radon(np.arange(angles) * (180 / angles), size)


EXPERIMENT = Comparison("CT from few angles.", cells, PROTOCOL)
