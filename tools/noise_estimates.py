"""How well noise is estimated: `estimate_sigma` and its interval on clean pictures with noise of known levels.

`python tools/noise_estimates.py FOLDER... [--sigma N ...] [--crop N] [--rounded] [--jpeg QUALITY]` adds white noise
to each picture, the same every time. A picture brings noise of its own, so small levels cannot be met. The interval
should hold the level that was added, and hold 0 where none was.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from frame import Given, Say, Tool, arguments_of, at_least
from PIL import Image
from torch import Tensor

from torchdeal.benchmark.core import middle
from torchdeal.benchmark.images import draw_noise, list_images, read_image
from torchdeal.benchmark.reporting.tables import Table, number
from torchdeal.io.images import to_tensor
from torchdeal.noise import LEAST_SIDE, noise_levels

WHITE = 255.0
SIGMAS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0)
CLEAN = 1.0  # errors are relative to the level, but to this one at least


@dataclass(frozen=True)
class Estimated:
    """One picture at one noise level, on the 0..255 scale."""

    image: str
    sigma: float
    estimate: float
    low: float
    high: float
    seconds: float

    @property
    def error(self) -> float:
        """Relative, but for small levels."""
        return abs(self.estimate - self.sigma) / max(self.sigma, CLEAN)


def measure(given: Given, say: Say) -> Iterator[list[Estimated]]:
    """One picture after the other."""
    found: list[Estimated] = []
    paths = [path for folder in given.folders for path in list_images(folder)[: given.limit]]
    for index, path in enumerate(paths):
        clean = read_image(path)
        if given.crop is not None:
            clean = middle(clean, given.crop)
        for sigma in given.sigma:
            noisy = _spoilt(clean, sigma, given)
            started = time.perf_counter()
            (level,) = noise_levels(noisy * WHITE, data_range=WHITE)
            seconds = time.perf_counter() - started
            found.append(Estimated(path.name, sigma, level.sigma, level.low, level.high, seconds))
        say(f"{index + 1} of {len(paths)}, {path.name}")
        yield found


def _spoilt(clean: Tensor, sigma: float, given: Given) -> Tensor:
    """With noise, and what else is asked for."""
    noisy = clean + draw_noise(clean, sigma)
    if not given.rounded and given.jpeg is None:
        return noisy
    pixels = (noisy * WHITE).round().clamp(0, WHITE)
    if given.jpeg is None:
        return pixels / WHITE
    file = io.BytesIO()
    array = pixels[0].permute(1, 2, 0).numpy().astype(np.uint8)
    Image.fromarray(array.squeeze(-1) if array.shape[-1] == 1 else array).save(file, "JPEG", quality=given.jpeg)
    return to_tensor(np.asarray(Image.open(file)))[0]


def show(results: Sequence[Estimated]) -> Iterator[Table]:
    """A row for each noise level."""
    head = ["sigma", "pictures", "median", "smallest", "largest", "median error", "9 of 10 below"]
    head += ["in the interval", "low, median", "high, median", "s"]
    levels = sorted({row.sigma for row in results})
    yield Table(head, [_cells([row for row in results if row.sigma == sigma]) for sigma in levels])


def _cells(rows: list[Estimated]) -> list[str]:
    estimates, errors = [row.estimate for row in rows], sorted(row.error for row in rows)
    within = sum(row.low <= row.sigma <= row.high for row in rows)
    numbers = [median(estimates), min(estimates), max(estimates)]
    shares = [median(errors), errors[int(0.9 * (len(errors) - 1))]]
    ends = [median(row.low for row in rows), median(row.high for row in rows)]
    return [
        f"{rows[0].sigma:g}",
        str(len(rows)),
        *map(number, numbers),
        *(f"{share:.1%}" for share in shares),
        f"{within} of {len(rows)}",
        *map(number, ends),
        f"{fmean(row.seconds for row in rows):.2f}",
    ]


def _arguments() -> argparse.ArgumentParser:
    parser = arguments_of("noise_estimates", __doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of clean pictures")
    parser.add_argument("--sigma", nargs="+", type=at_least(0.0), default=SIGMAS, help="noise levels, 0..255")
    parser.add_argument("--crop", type=at_least(LEAST_SIDE), help="side of the square at the centre of each picture")
    parser.add_argument("--limit", type=at_least(1), help="only the first so many pictures of each folder")
    parser.add_argument("--rounded", action="store_true", help="round to 8 bits after the noise was added, and clip")
    parser.add_argument("--jpeg", type=at_least(1), metavar="QUALITY", help="the same, and save as JPEG")
    return parser


TOOL = Tool(_arguments(), measure, show)

if __name__ == "__main__":
    TOOL.main()
