"""How well noise is estimated: `estimate_sigma` and its interval on clean pictures with noise of known levels.

`python tools/noise_estimates.py FOLDER... [--sigma N ...] [--crop N] [--rounded] [--jpeg QUALITY]` adds white noise
to each picture, the same every time. A picture brings noise of its own, so small levels cannot be met. The interval
should hold the level that was added, and hold 0 where none was.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from PIL import Image
from torch import Tensor

from torchdeal.benchmark.frame import Benchmark, Say, Settings, Table, circumstances, number
from torchdeal.benchmark.images import draw_noise, list_images, read_image
from torchdeal.benchmark.plan import Plan, argument, option
from torchdeal.io.images import to_tensor
from torchdeal.noise import LEAST_SIDE, noise_levels

WHITE = 255.0
SIGMAS = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0)
CLEAN = 1.0  # errors are relative to the level, but to this one at least


@dataclass(frozen=True, kw_only=True)
class NoisePlan(Plan):
    """Which pictures, and what is done to them."""

    folders: tuple[Path, ...] = argument("folders of clean pictures")
    sigmas: tuple[float, ...] = option(SIGMAS, "noise level on the 0..255 scale", least=0)
    crop: int | None = option(None, "side of the square to take from the centre of each picture", least=LEAST_SIDE)
    limit: int | None = option(None, "take only the first so many pictures of each folder", least=1)
    rounded: bool = option(False, "round to 8 bits after the noise was added, and clip")
    jpeg: int | None = option(None, "the same, and save as JPEG of this quality", least=1)

    def paths(self) -> list[Path]:
        """The pictures."""
        return [path for folder in self.folders for path in list_images(folder)[: self.limit]]


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


def measure(plan: NoisePlan, say: Say) -> Iterator[list[Estimated]]:
    """One picture after the other."""
    found: list[Estimated] = []
    paths = plan.paths()
    for index, path in enumerate(paths):
        clean = read_image(path)
        if plan.crop is not None:
            clean = _centre(clean, plan.crop)
        for sigma in plan.sigmas:
            noisy = _spoilt(clean, sigma, plan)
            started = time.perf_counter()
            (level,) = noise_levels(noisy * WHITE, data_range=WHITE)
            seconds = time.perf_counter() - started
            found.append(Estimated(path.name, sigma, level.sigma, level.low, level.high, seconds))
        say(f"{index + 1} of {len(paths)}, {path.name}")
        yield found


def _centre(image: Tensor, side: int) -> Tensor:
    """Of `(1, C, H, W)`, or all of it where it is smaller."""
    top, left = (max(length - side, 0) // 2 for length in image.shape[-2:])
    return image[..., top : top + side, left : left + side]


def _spoilt(clean: Tensor, sigma: float, plan: NoisePlan) -> Tensor:
    """With noise, and what else is asked for."""
    noisy = clean + draw_noise(clean, sigma)
    if not plan.rounded and plan.jpeg is None:
        return noisy
    pixels = (noisy * WHITE).round().clamp(0, WHITE)
    if plan.jpeg is None:
        return pixels / WHITE
    file = io.BytesIO()
    array = pixels[0].permute(1, 2, 0).numpy().astype(np.uint8)
    Image.fromarray(array.squeeze(-1) if array.shape[-1] == 1 else array).save(file, "JPEG", quality=plan.jpeg)
    return to_tensor(np.asarray(Image.open(file)))[0]


def show(results: Sequence[Estimated], settings: Settings) -> Iterator[str | Table]:
    """A row for each noise level."""
    yield f"{circumstances(settings)}\n"
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


BENCHMARK = Benchmark(
    "noise_estimates", NoisePlan, Estimated, measure, lambda plan: {}, show, units="pictures", tool=__doc__ or ""
)

if __name__ == "__main__":
    BENCHMARK.main()
