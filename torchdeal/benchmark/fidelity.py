"""Noise that is not white and Gaussian: what it gains to say so, beside plain least squares that know its mean square.

Noise models were chosen on Set12; BSD68 has no part in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison, describe
from torchdeal.benchmark.core import DENOISING, Cell, PosedProblem, Save, Say, run_values
from torchdeal.benchmark.images import clean_image, list_images, sample_picture
from torchdeal.benchmark.methods import find_method
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.reporting.tables import Best, Section, Table
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.simulated import IDENTITY
from torchdeal.fidelity import Impulse, NoiseModel, Poisson
from torchdeal.operators import Blur, Operator
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.simulate import measure, measure_counts, measure_impulses

PLAIN, OURS = "least-squares", "noise-model"
MOST_IMAGES = 20  # the first of a set, unless --limit says something else
SIZE, QUICK_SIZE = 128, 32
PEAKS = (4, 10, 30, 100)  # photons for white
READ_PEAK, READ = 30, 0.05  # Poisson with reading noise
LEVELS = 5 / 255, 50 / 255  # of a map, from the left to the right
OTHERS, SHARE = 10 / 255, 0.2  # noise of the other pixels, and the share of impulses
BLUR = 0.7  # deviation of the Gaussian blur, in pixels: with a wider one, blur and not noise limits what can be had
PROTOCOL = (
    f"Crops of {SIZE} x {SIZE} (with --quick {QUICK_SIZE} x {QUICK_SIZE}) from the middle of the first {MOST_IMAGES} "
    f"images of each set, as they are, or blurred by a Gaussian of deviation {BLUR:g}, the image mirrored at its "
    f"border. Map: Gaussian noise whose deviation grows from {LEVELS[0] * 255:g} of 255 at the left to "
    f"{LEVELS[1] * 255:g} at the right. Photons: so many where the image is white; where it is said, with Gaussian "
    f"noise of {READ:g} of white. Impulses: {SHARE:.0%} of the pixels are black or white, the others have Gaussian "
    f"noise of {OTHERS * 255:g} of 255. Plain least squares are told the mean square of the true noise. Sigma and lam "
    "by the rule; in denoising of Gaussian noise and photons those that were learned."
)
EXPLAINED = (
    "Mean PSNR in dB, with the noise as its model describes it, and with plain least squares that know one number, the "
    "mean square of the true noise. The least gain is that of the image that gains least."
)


@dataclass(frozen=True)
class NoisyProblem(PosedProblem):
    """With what is known of its noise; `noise` is the root of its mean square."""

    told: Tensor | NoiseModel | None = None


Measured = Callable[[Tensor, Operator, int], tuple[Tensor, Tensor | NoiseModel]]


def _map(clean: Tensor, H: Operator, seed: int) -> tuple[Tensor, Tensor]:
    y = H.forward(clean)
    levels = torch.linspace(*LEVELS, y.shape[-1]).expand_as(y).contiguous()
    return y + levels * (measure(clean, H, 1.0, seed) - y), levels


def _photons(clean: Tensor, H: Operator, seed: int, *, peak: int, read: float = 0.0) -> tuple[Tensor, NoiseModel]:
    return measure_counts(clean, H, 1 / peak, read, seed), Poisson(1 / peak, read)


def _impulses(clean: Tensor, H: Operator, seed: int) -> tuple[Tensor, NoiseModel]:
    return measure_impulses(clean, H, OTHERS, SHARE, seed=seed), Impulse(OTHERS)


KINDS: dict[str, Measured] = {
    "map": _map,
    **{f"{peak} photons": partial(_photons, peak=peak) for peak in PEAKS},
    f"{READ_PEAK} photons, reading noise": partial(_photons, peak=READ_PEAK, read=READ),
    "impulses": _impulses,
}

QUICK_KINDS = ("map", "10 photons", "impulses")


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A table for each set of images, a line for each noise."""
    operators = {DENOISING: IDENTITY, "blur": Blur(gaussian_kernel(BLUR), "reflect")}
    for title, images in _sets(options).items():
        for name, operator in operators.items():
            for kind, measured in KINDS.items():
                if options.quick and kind not in QUICK_KINDS:
                    continue
                problems = partial(_posed, images, operator, measured)
                yield Cell(f"{title}, {name}, {kind}", title, f"{name}, {kind}", name, 1, problems)


def _sets(options: BenchmarkOptions) -> dict[str, Callable[[], list[tuple[str, Tensor]]]]:
    """Of which set of images: names and crops."""
    size = QUICK_SIZE if options.quick else SIZE
    if options.images or not options.data:
        title = options.images.resolve().name if options.images else "scikit-image"
        paths = options.images_at_most(list_images(options.images)) if options.images else []
        return {title: partial(_crops, paths, size) if paths else lambda: [sample_picture(None, 1, size)]}
    paths = {name: list_images(options.folder("test", name)) for name in ("Set12", "BSD68")}
    return {
        name: partial(_crops, options.images_at_most(found)[: options.limit or MOST_IMAGES], size)
        for name, found in paths.items()
    }


def _crops(paths: Sequence[Path], size: int) -> list[tuple[str, Tensor]]:
    return [(path.stem, clean_image(path, 1, size)) for path in paths]


def _posed(
    images: Callable[[], list[tuple[str, Tensor]]], operator: Operator, measured: Measured
) -> list[PosedProblem]:
    found: list[PosedProblem] = []
    for seed, (name, clean) in enumerate(images()):
        y, told = measured(clean, operator, seed)
        rms = float((y - operator.forward(clean)).square().mean().sqrt())
        found.append(NoisyProblem(name, clean, y, operator, rms, told=told))
    return found


class Fidelity(Comparison):
    """What is told about the noise takes the place of methods."""

    def names(self) -> list[str]:
        return [PLAIN, OURS]

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """The images that are missing."""
        found = find_method("deal-rule" if cell.kind != DENOISING else "deal", cell, options)
        for name in options.methods or self.names():
            results.weights.setdefault(name, {}).update(found.weights)
            measured = {row.image for row in results.select(cell.name, name)}
            for problem in cell.problems():
                if problem.image in measured:
                    continue
                assert isinstance(problem, NoisyProblem)
                values = _values(problem, problem.told if name == OURS else problem.noise, cell, found.model, options)
                results.add(Row(cell.name, problem.image, name, values, environment=len(results.environments) - 1))
                save()
                say(f"{cell.name}, {name}, {problem.image}: {describe(values)}")

    def sections(self, results: Results) -> Iterator[Section]:
        for title, columns in results.tables().items():
            lines = [line for cell, name in columns.items() if (line := _line(results, name, cell))]
            head = ["noise", "images", "least squares", "noise model", "gain", "least gain", "times as long"]
            yield Section(f"Other noise: {title}", EXPLAINED, [Table(head, lines)] if lines else [])


def _values(
    problem: NoisyProblem, told: float | Tensor | NoiseModel | None, cell: Cell, model, options: BenchmarkOptions
) -> dict:
    limits = {"tolerance": options.tolerance, "max_iterations": options.max_iterations}
    started = time.perf_counter()
    y, operator = problem.y.to(options.device), problem.operator.to(options.device)
    rec = reconstruct(y, operator, model=model, noise=told, data_range=1.0, **limits)
    x = rec.x.cpu()  # a GPU has finished then
    (run,) = run_values(rec)
    return {"psnr": cell.score(x, problem.clean), "seconds": time.perf_counter() - started, **run}


def _line(results: Results, name: str, cell: str) -> list[str]:
    """Of the images that were measured in both ways."""
    plain, ours = ({row.image: row.values for row in results.select(cell, method)} for method in (PLAIN, OURS))
    images = [image for image in plain if image in ours]
    if not images:
        return []
    pairs = [(plain[image], ours[image]) for image in images]
    levels = [fmean(values["psnr"] for values in column) for column in zip(*pairs, strict=True)]
    gains = [more["psnr"] - less["psnr"] for less, more in pairs]
    times = math.exp(fmean(math.log(more["seconds"] / less["seconds"]) for less, more in pairs))
    shown = [f"{level:.2f}" for level in levels]
    shown = [Best(text) if level == max(levels) else text for text, level in zip(shown, levels, strict=True)]
    return [name, str(len(images)), *shown, f"{fmean(gains):+.2f}", f"{min(gains):+.2f}", f"{times:.1f}"]


EXPERIMENT = Fidelity("Noise that is not white and Gaussian, beside plain least squares.", cells, PROTOCOL)
