"""Error bars: how many pixels of the truth lie within the intervals that are stated, and where they do not.

If a deviation is right, and errors are normal, 90 % of the pixels are within 1.645 deviations of the truth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, PosedProblem, Save, Say, run_values
from torchdeal.benchmark.images import clean_image, list_images, reported_images, sample_picture
from torchdeal.benchmark.methods import find_method
from torchdeal.benchmark.mri import KNEES_FOR_TUNING, SAMPLINGS, scan
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.simulated import blurred, downsampled, noisy, with_holes
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, Downsample
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.uncertainty import CALIBRATION, PROBES, uncertainty

OURS = "deal"
MOST_IMAGES = 20  # the first of a set, unless --limit says something else
SIZE, QUICK_SIZE = 64, 32
SIGMAS = (5.0, 15.0, 25.0, 50.0)
NOISE = 2.55  # of deblurring, super-resolution and inpainting, on the 0..255 scale
BLUR = 1.6  # deviation of the Gaussian blur, in pixels
HALF_WIDTHS = {50: 0.6745, 90: 1.645, 95: 1.960}  # of intervals that hold so many per cent of a normal variable
EDGES, FLAT = 0.75, 0.5  # quantiles of the gradient: pixels above the first are edges, those up to the second are flat
BLOCK = 8  # pixels per side of the squares in which errors are averaged before they are compared with deviations
PROTOCOL = (
    f"Crops of {SIZE} x {SIZE} (with --quick {QUICK_SIZE} x {QUICK_SIZE}) from the middle of the first {MOST_IMAGES} "
    f"images of each set. Noise {NOISE:g} of 255 where no sigma is named; blur by a Gaussian of deviation {BLUR:g}, "
    "the image mirrored at its border; inpainting: half of the pixels at random; MRI: 4 x, one coil, noise 0.002. "
    f"Sigma and lam by the rule. Deviations from {PROBES} probes. Edges are the quarter of the pixels of an image with "
    "the steepest gradient, flat is the half with the lowest."
)

Measured = Callable[[str, Tensor, int], PosedProblem]


def problems() -> dict[str, Measured]:
    """What is measured of a clean image, by name; the number of the image is a seed."""
    kernel = gaussian_kernel(BLUR)
    blur, halved = Blur(kernel, "reflect"), Downsample(2, kernel, "reflect")
    return {
        **{f"denoising, sigma {s:g}": lambda name, clean, _, s=s: noisy(name, clean, s) for s in SIGMAS},
        "deblurring": lambda name, clean, _: blurred(name, clean, blur, NOISE),
        "super-resolution x2": lambda name, clean, _: downsampled(name, clean, halved, NOISE),
        "inpainting 50 %": partial(with_holes, missing=0.5, noise=NOISE),
        "MRI 4 x": lambda name, clean, seed: scan(name, clean, SAMPLINGS[0], seed),
    }


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A table for each set of images, a line for each problem."""
    for title, images in _sets(options).items():
        for name, measured in problems().items():
            if title in ("BSD68", "MRI-knee") and (title == "MRI-knee") != name.startswith("MRI"):
                continue
            kind = DENOISING if name.startswith(DENOISING) else name.split()[0].strip(",")
            yield Cell(f"{title}, {name}", title, name, kind, 1, partial(_posed, images, measured))


def _sets(options: BenchmarkOptions) -> dict[str, Callable[[], list[tuple[str, Tensor]]]]:
    """Of which set of images: names and crops."""
    size = QUICK_SIZE if options.quick else SIZE
    if options.images or not options.data:
        title = options.images.resolve().name if options.images else "scikit-image"
        paths = options.images_at_most(list_images(options.images)) if options.images else []
        return {title: partial(_crops, paths, size) if paths else lambda: [sample_picture(None, 1, size)]}
    knees = reported_images(list_images(options.folder("test", "MRI-knee")), KNEES_FOR_TUNING)
    paths = {name: list_images(options.folder("test", name)) for name in ("Set12", "BSD68")} | {"MRI-knee": knees}
    return {
        name: partial(_crops, options.images_at_most(found)[: options.limit or MOST_IMAGES], size)
        for name, found in paths.items()
    }


def _crops(paths: Sequence[Path], size: int) -> list[tuple[str, Tensor]]:
    return [(path.stem, clean_image(path, 1, size)) for path in paths]


def _posed(images: Callable[[], list[tuple[str, Tensor]]], measured: Measured) -> list[PosedProblem]:
    return [measured(name, clean, seed) for seed, (name, clean) in enumerate(images())]


class ErrorBars(Comparison):
    """Instead of answers, how far they are from the truth, and how far they say they are."""

    def names(self) -> list[str]:
        return [OURS]

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        return {**super().settings(options), "calibration": CALIBRATION}

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """The images that are missing."""
        measured = {row.image for row in results.select(cell.name, OURS)}
        method = find_method(OURS, cell, options)
        results.weights.setdefault(OURS, {}).update(method.weights)
        for problem in cell.problems():
            if problem.image in measured:
                continue
            values = _measured(problem, cell, method.model, options)
            results.add(Row(cell.name, problem.image, OURS, values, environment=len(results.environments) - 1))
            save()
            say(f"{cell.name}, {problem.image}: {values['all 90']:.1%} of the pixels in the 90 % interval")

    def sections(self, results: Results) -> Iterator[Section]:
        for title, columns in results.tables().items():
            lines = [line for cell, name in columns.items() if (line := _line(results, name, [cell]))]
            denoising = [cell for cell, name in columns.items() if name.startswith(DENOISING)]
            if len(denoising) > 1:
                lines.insert(len(denoising), _line(results, "denoising, all of these", denoising))
            head = ["problem", "images", *(f"{level} %" for level in HALF_WIDTHS), "90 %, edges", "90 %, flat"]
            head += ["factor for 90 %", "correlation, squares", "rank correlation", "cost"]
            yield Section(f"Error bars: {title}", EXPLAINED, [Table(head, lines)] if lines else [])


EXPLAINED = (
    "Share of the pixels whose true value is within the interval that is stated: 50, 90 and 95 % are right. The factor "
    "is what the deviations of an image would have to be multiplied by to cover 90 %, the mean over the images. "
    f"Correlations are those of deviation and error: of their mean squares in squares of {BLOCK} x {BLOCK} pixels, and "
    "of the ranks of pixels. Cost is the time for the deviations, in reconstructions."
)


def _measured(problem: PosedProblem, cell: Cell, model: Any, options: BenchmarkOptions) -> Values:
    known = {"sigma" if cell.kind == DENOISING else "noise": problem.noise, "data_range": 1.0}
    limits = {"tolerance": options.tolerance, "max_iterations": options.max_iterations}
    y, operator = problem.y.to(options.device), problem.operator.to(options.device)
    started = time.perf_counter()
    rec: Reconstruction = reconstruct(y, operator, model=model, **known, **limits)
    solved = time.perf_counter()
    deviation = uncertainty(rec).cpu()
    done = time.perf_counter()
    (run,) = run_values(rec)
    x = rec.x.cpu()
    return {
        "psnr": psnr(x, problem.clean),
        **run,
        **coverage(x - problem.clean, deviation, problem.clean),
        "seconds": solved - started,
        "cost": (done - solved) / (solved - started),
    }


def coverage(error: Tensor, deviation: Tensor, clean: Tensor) -> Values:
    """Shares of pixels within the intervals, in all of the image and in its parts, and how well both go together."""
    ratio = error.abs() / deviation
    steepness = torch.hypot(*torch.gradient(clean, dim=(-2, -1)))
    edges, flat = (torch.quantile(steepness.flatten(), level) for level in (EDGES, FLAT))
    regions = {"all": ratio, "edges": ratio[steepness > edges], "flat": ratio[steepness <= flat]}
    shares = {
        f"{name} {level}": float((there < width).double().mean()) if there.numel() else None
        for name, there in regions.items()
        for level, width in HALF_WIDTHS.items()
    }
    squares = [F.avg_pool2d(values.square(), BLOCK).sqrt().flatten() for values in (deviation, error)]
    ranks = [values.abs().flatten().argsort().argsort().double() for values in (deviation, error)]
    return {
        **shares,
        "factor": float(torch.quantile(ratio.flatten(), 0.9)) / HALF_WIDTHS[90],
        "squares": float(torch.corrcoef(torch.stack(squares))[0, 1]),
        "ranks": float(torch.corrcoef(torch.stack(ranks))[0, 1]),
    }


def _line(results: Results, name: str, cells: Sequence[str]) -> list[str]:
    """Means over the images of some cells."""
    rows = [row.values for cell in cells for row in results.select(cell, OURS)]
    if not rows:
        return []

    def mean(key: str) -> float | None:
        found = [row[key] for row in rows if row.get(key) is not None]
        return fmean(found) if found else None

    shares = [mean(key) for key in (*(f"all {level}" for level in HALF_WIDTHS), "edges 90", "flat 90")]
    others = [mean(key) for key in ("factor", "squares", "ranks", "cost")]
    shown = [*("?" if share is None else f"{share:.1%}" for share in shares)]
    return [name, str(len(rows)), *shown, *("?" if value is None else number(value) for value in others)]


EXPERIMENT = ErrorBars("Error bars: how many pixels of the truth lie within the stated intervals.", cells, PROTOCOL)
