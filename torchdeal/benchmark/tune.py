"""Automatic parameters: what `reconstruct(y, H, noise=...)` loses against the best sigma and lam of each image.

The best pair is found with the clean image at hand, on a grid that is solved in batches. So it is nothing that a user
could have, but no choice can be better than it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, PIXELS_AT_ONCE, Cell, PosedProblem, Save, Say
from torchdeal.benchmark.ct import FOR_TUNING, NOISE, reduced
from torchdeal.benchmark.images import clean_image, list_images, reported_images, sample_picture
from torchdeal.benchmark.methods import find_method
from torchdeal.benchmark.mri import KNEES_FOR_TUNING, Sampling, scan
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.simulated import blurred, downsampled, noisy, sinogram, with_holes
from torchdeal.estimation import default_parameters
from torchdeal.metrics import psnr
from torchdeal.model import DEAL, SIGMA_MAX
from torchdeal.operators import Blur, Downsample, Radon
from torchdeal.operators.blur_kernels import gaussian_kernel, motion_kernel
from torchdeal.reconstruct import reconstruct

OURS = "deal"
SIZE, QUICK_SIZE = 126, 36  # multiples of 2 and 3
MOST_IMAGES = 8  # of a problem, unless --limit says something else
SIGMAS = (5.0, 6.5, 9.0, 13.0, 18.0, 25.0, 35.0, 50.0)  # on the 0..255 scale
SIGMA_FACTORS = (0.6, 0.7, 0.84, 1.0, 1.19, 1.4)  # of the true one, in denoising
STRENGTHS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)  # times the lam of the rule for that sigma
QUICK_SIGMAS, QUICK_STRENGTHS = (15.0,), (1.4,)
CLOSE = 0.5  # dB
PHOTOGRAPHS, KNEES, CHESTS = "BSD68", "MRI-knee", "CT"
PROTOCOL = (
    f"Crops of {SIZE} x {SIZE} (with --quick {QUICK_SIZE} x {QUICK_SIZE}) from the middle of the images: photographs "
    "of BSD68, knees (every second pixel, averaged; 4 x with 8 % and 8 x with 4 % of the columns in the middle, one "
    "coil, noise 0.002), chest slices (noise of 1 % of the largest projection). Noise of the others on the 0..255 "
    "scale, as named. The grid has the sigma of the rule and its lam, too, so that losses are at least 0."
)

Measured = Callable[[str, Tensor, int], PosedProblem]


def problems() -> dict[str, tuple[str, Measured]]:
    """Of which set of images, and what is measured of one of them; the number of the image is a seed."""
    small, wide, motion = gaussian_kernel(1.2), gaussian_kernel(1.6), motion_kernel(9, 30)
    halved, third = Downsample(2, small), Downsample(3, wide)
    quarter, eighth = Sampling("4x", 4, 0.08, 1), Sampling("8x", 8, 0.04, 1)
    return {
        "denoising, sigma 25": (PHOTOGRAPHS, lambda name, clean, _: noisy(name, clean, 25.0)),
        "motion blur, noise 2.55": (PHOTOGRAPHS, lambda name, clean, _: blurred(name, clean, Blur(motion), 2.55)),
        "Gaussian blur, noise 7.65": (PHOTOGRAPHS, lambda name, clean, _: blurred(name, clean, Blur(wide), 7.65)),
        "super-resolution x2, noise 2.55": (PHOTOGRAPHS, lambda name, x, _: downsampled(name, x, halved, 2.55)),
        "super-resolution x3, noise 7.65": (PHOTOGRAPHS, lambda name, x, _: downsampled(name, x, third, 7.65)),
        "inpainting, 50 % missing, noise 5": (PHOTOGRAPHS, partial(with_holes, missing=0.5, noise=5.0)),
        "inpainting, 80 % missing, noise 2": (PHOTOGRAPHS, partial(with_holes, missing=0.8, noise=2.0)),
        "MRI 4x": (KNEES, lambda name, clean, seed: scan(name, clean, quarter, seed)),
        "MRI 8x": (KNEES, lambda name, clean, seed: scan(name, clean, eighth, seed)),
        "CT, 60 angles": (CHESTS, lambda name, clean, _: sinogram(name, clean, _radon(60, clean.shape[-1]), NOISE)),
        "CT, 30 angles": (CHESTS, lambda name, clean, _: sinogram(name, clean, _radon(30, clean.shape[-1]), NOISE)),
    }


@cache
def _radon(angles: int, size: int) -> Radon:
    return Radon(np.arange(angles) * (180 / angles), size)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A line for each problem."""
    for name, (source, measured) in problems().items():
        kind = DENOISING if name.startswith(DENOISING) else "inverse"
        yield Cell(name, "Automatic parameters", name, kind, 1, partial(_posed, options, source, measured))


def _posed(options: BenchmarkOptions, source: str, measured: Measured) -> list[PosedProblem]:
    return [measured(name, clean, seed) for seed, (name, clean) in enumerate(_images(options, source))]


def _images(options: BenchmarkOptions, source: str) -> list[tuple[str, Tensor]]:
    """Names and crops."""
    size = QUICK_SIZE if options.quick else SIZE
    if options.images or not options.data:
        found = options.images_at_most(list_images(options.images)) if options.images else []
        paths = found[: options.limit or MOST_IMAGES]
        return [(path.stem, clean_image(path, 1, size)) for path in paths] or [sample_picture(None, 1, size)]
    paths = list_images(options.folder("test", source))
    paths = reported_images(paths, {KNEES: KNEES_FOR_TUNING, CHESTS: FOR_TUNING}.get(source, 0))
    paths = options.images_at_most(paths)[: options.limit or MOST_IMAGES]
    return [(path.stem, _crop(path, source, size)) for path in paths]


def _crop(path: Path, source: str, size: int) -> Tensor:
    if source == CHESTS:
        return reduced(clean_image(path, 1), size)
    if source == KNEES:
        return F.avg_pool2d(clean_image(path, 1, 2 * size), 2)
    return clean_image(path, 1, size)


class AutomaticParameters(Comparison):
    """Instead of methods, one method with all parameters."""

    def names(self) -> list[str]:
        return [OURS]

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """The images that are missing."""
        measured = {row.image for row in results.select(cell.name, OURS)}
        method = find_method(OURS, cell, options)
        results.weights.setdefault(OURS, {}).update(method.weights)
        for problem in cell.problems():
            if problem.image in measured:
                continue
            values = Trying(method.model, problem, options).values()
            results.add(Row(cell.name, problem.image, OURS, values, environment=len(results.environments) - 1))
            save()
            say(
                f"{cell.name}, {problem.image}: sigma {values['sigma']:.3g}, {values['psnr']:.2f} dB; best sigma "
                f"{values['best_sigma']:.3g}, lam x {values['best_strength']:.3g}, {values['best']:.2f} dB"
            )

    def sections(self, results: Results) -> Iterator[Section]:
        rows = {cell: results.select(cell, OURS) for cell in results.cells}
        lines = [_line(cell, found) for cell, found in rows.items() if found]
        every = [row for found in rows.values() for row in found]
        if len(lines) > 1:
            lines.append(_line("all", every))
        head = ["problem", "images", "automatic", "best pair", "loss", "at most", f"within {CLOSE:g} dB"]
        head += ["sigma", "best sigma", "best lam, times", "converged", "cost"]
        yield Section("Automatic parameters", EXPLAINED, [Table(head, lines)] if lines else [])


EXPLAINED = (
    "PSNR in dB with the sigma and lam that are chosen automatically, and with the best pair for each image; means. "
    "Loss: the difference, its mean and its largest value. Sigmas are medians, on the 0..255 scale. The best lam "
    "is divided by what the rule would have for the best sigma. Cost: seconds for choosing and reconstructing, as a "
    "multiple of reconstructing alone; the median."
)


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    columns = {key: [row.values[key] for row in rows] for key in ("psnr", "best", "sigma", "best_sigma")}
    losses = [best - level for best, level in zip(columns["best"], columns["psnr"], strict=True)]
    return [
        *(name, str(len(rows)), f"{fmean(columns['psnr']):.2f}", f"{fmean(columns['best']):.2f}"),
        *(f"{fmean(losses):.2f}", f"{max(losses):.2f}", f"{sum(loss <= CLOSE for loss in losses)} of {len(rows)}"),
        *(f"{median(columns['sigma']):.3g}", f"{median(columns['best_sigma']):.3g}"),
        f"{median(row.values['best_strength'] for row in rows):.2g}",
        f"{sum(row.values['status'] == 'CONVERGED' for row in rows)} of {len(rows)}",
        f"{median(row.values['cost'] for row in rows):.2f}",
    ]


class Trying:
    """One problem with many parameters."""

    def __init__(self, model: DEAL, problem: PosedProblem, options: BenchmarkOptions):
        self.model, self.problem, self.options = model, problem, options
        self.y, self.operator = problem.y.to(options.device), problem.operator.to(options.device)

    def values(self) -> Values:
        """Of a row."""
        self._solve(self.y, noise=self.problem.noise)  # what is done once takes time
        automatic, with_choice = self._timed(noise=self.problem.noise)
        sigma, lam = float(automatic.sigma), float(automatic.lam)
        _, alone = self._timed(sigma=sigma, lam=lam)
        level = self._level(automatic.x)
        grid = [(255 * sigma, 1.0, level), *self._grid(255 * sigma)]
        best_sigma, best_strength, best = max(grid, key=lambda point: point[2])
        return {
            **{"psnr": level, "sigma": 255 * sigma, "lam": lam, "status": automatic.status.name},
            **{"iterations": int(automatic.iterations), "cost": with_choice / alone},
            **{"best": best, "best_sigma": best_sigma, "best_strength": best_strength},
        }

    def _timed(self, **knobs: Any) -> tuple[Any, float]:
        started = time.perf_counter()
        found = self._solve(self.y, **knobs)
        if self.options.device == "cuda":
            torch.cuda.synchronize()
        return found, time.perf_counter() - started

    def _solve(self, y: Tensor, **knobs: Any) -> Any:
        limits = {"tolerance": self.options.tolerance, "max_iterations": self.options.max_iterations}
        return reconstruct(y, self.operator, model=self.model, data_range=1.0, **limits, **knobs)

    def _level(self, x: Tensor) -> float:
        return psnr(x.cpu(), self.problem.clean)

    def _grid(self, automatic: float) -> Iterator[tuple[float, float, float]]:
        """Sigma on the 0..255 scale, strength, and PSNR, for all of the grid."""
        pairs = list(product(self._sigmas(automatic), QUICK_STRENGTHS if self.options.quick else STRENGTHS))
        together = max(1, PIXELS_AT_ONCE[self.options.device] // self.problem.clean.numel())
        for first in range(0, len(pairs), together):
            some = pairs[first : first + together]
            sigma, strength = torch.tensor(some, device=self.options.device).T
            y = self.y.expand(len(some), *self.y.shape[1:]).contiguous()
            found = self._solve(y, sigma=sigma / 255, lam=strength * self._rule_lam(y, sigma))
            yield from ((*pair, self._level(x)) for pair, x in zip(some, found.x.split(1), strict=True))

    def _sigmas(self, automatic: float) -> Sequence[float]:
        if self.operator.is_identity:
            factors = SIGMA_FACTORS[2:4] if self.options.quick else SIGMA_FACTORS
            return [255 * self.problem.noise * factor for factor in factors]
        return [automatic, *(QUICK_SIGMAS if self.options.quick else SIGMAS)]

    @torch.no_grad()
    def _rule_lam(self, y: Tensor, sigma: Tensor) -> Tensor:
        weights = self.model.weights()
        if self.operator.is_identity:
            return weights.lam(sigma.clamp_max(SIGMA_MAX)).flatten()
        noise = torch.full_like(sigma, 255 * self.problem.noise)
        return default_parameters(weights, self.operator, self.operator.adjoint(y), noise, sigma)[1].flatten()


EXPERIMENT = AutomaticParameters("Sigma and lam without tuning, beside the best pair.", cells, PROTOCOL)
