"""What a decibel costs: seconds and peak memory of each method on the same problems and machine, in one run.

Each method runs in a process of its own, so that the memory is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.alone import PeakMemory, run_alone
from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, PosedProblem, Save, Say, answers, middle
from torchdeal.benchmark.images import clean_image, list_images
from torchdeal.benchmark.methods import TUNED_AS, default_methods, find_method, with_parameters
from torchdeal.benchmark.mri import CONTRASTS, KNEES_FOR_TUNING, SAMPLINGS, Sampling, scan
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.paper import PAPER
from torchdeal.benchmark.peers.base import Unavailable, package, parameters
from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.standings import not_measured
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.speed import SIGMA, circumstances, noisy_sample
from torchdeal.benchmark.tuning import known_parameters

PICTURES = {"256 x 256 gray": (1, 256), "512 x 512 gray": (1, 512), "256 x 256 colour": (3, 256)}
QUICK_PICTURES = {"64 x 64 gray": (1, 64), "64 x 64 colour": (3, 64)}
SCAN, QUICK_SCAN = 320, 64
TUNED_ON = {1: "gray, sigma 25", 3: "colour, sigma 25"}  # what the parameters in `denoising` are chosen for

ROUGH = "deal-1e-2"  # deal at a tolerance that is enough for a preview
ROUGH_TOLERANCE = 1e-2
LONG = 60.0  # seconds of a run that is not repeated
MOST_SECONDS = 1800.0  # of all runs of a method
PROTOCOL = (
    "Each method in a process of its own: one run to warm up, then the others, of which the median is taken; where the "
    f"first takes more than {LONG:g} s on a CPU, it is the only one. Memory: the most that the process held beyond "
    "Python, torch and the problem, so that weights and packages of the method count (up to 20 MiB are code of torch "
    "that is read when it is first used); with CUDA the memory on the GPU."
)


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """Denoising of pictures, and two scans."""
    for name, (channels, size) in (QUICK_PICTURES if options.quick else PICTURES).items():
        problems = partial(noisy_sample, options, channels, size, SIGMA)
        title = f"denoising {name}, sigma {SIGMA:g}"
        yield Cell(title, "Time", title, DENOISING, channels, problems, tuned_as=TUNED_ON[channels])
    size = QUICK_SCAN if options.quick else SCAN
    for sampling in SAMPLINGS:
        problems = partial(_simulated_scan, options, sampling, size)
        title = f"MRI {sampling.name}, {size} x {size}"
        yield Cell(title, "Time", title, "mri", 1, problems, tuned_as=f"{sampling.name}, knee")


def _simulated_scan(options: BenchmarkOptions, sampling: Sampling, size: int) -> list[PosedProblem]:
    if options.data is None:
        return [scan("phantom", _phantom(size), sampling, seed=0)]
    knees = list_images(options.folder("test", "MRI-knee"))
    path = knees[min(KNEES_FOR_TUNING, len(knees) - 1)]  # not one that parameters were chosen on
    return [scan(path.stem, middle(clean_image(path, 1), size).contiguous(), sampling, seed=KNEES_FOR_TUNING)]


def _phantom(size: int) -> Tensor:
    data, transform = (package(f"skimage.{part}", "the phantom", "demo") for part in ("data", "transform"))
    picture = transform.resize(data.shepp_logan_phantom(), (size, size), anti_aliasing=True)
    return torch.from_numpy(picture).float()[None, None]


class Time(Comparison):
    """Instead of many images, one image many times."""

    def names(self) -> list[str]:
        return [*super().names(), ROUGH]

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        return {**super().settings(options), **circumstances(options)}

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """One method after the other."""
        (problem,) = cell.problems()
        options = replace(options, threads=torch.get_num_threads())  # a new process would have others
        for name in options.methods or _default_methods(cell.kind, options.quick):
            if results.select(cell.name, name):
                continue
            try:
                values = run_alone(timed, name, cell, options, most_seconds=MOST_SECONDS)
            except Unavailable as error:
                results.reasons.setdefault(cell.name, {})[name] = str(error)
                say(f"{cell.name}, {name}: {error}")
            else:
                results.parameters.setdefault(cell.name, {})[name] = values.pop("parameters")
                results.weights.setdefault(name, {}).update(values.pop("weights"))
                results.add(Row(cell.name, problem.image, name, values, environment=len(results.environments) - 1))
                say(f"{cell.name}, {name}: {values['psnr']:.2f} dB, {number(values['seconds'])} s, {_mib(values)} MiB")
            save()

    def sections(self, results: Results) -> Iterator[Section]:
        for cell in results.cells:
            images = ", ".join({row.image: None for row in results.rows if row.cell == cell})
            tables = [*_measured(results, cell), *_reported(cell)]
            yield Section(f"Time: {cell}", images, tables, notes=not_measured(results, cell))


def _default_methods(kind: str, quick: bool) -> list[str]:
    """Ours, and all competitors."""
    names = [name for name in default_methods(kind, quick) if name not in ("deal-rule", "deal-paper", "deal-mean")]
    return [names[0], ROUGH, *names[1:]] if kind == DENOISING else names


def timed(name: str, cell: Cell, options: BenchmarkOptions) -> Values:
    """All runs of a method, in a process that does nothing else."""
    torch.set_num_threads(options.threads or 1)
    (problem,) = cell.problems()
    memory = PeakMemory(options.device)
    base, options = ("deal", replace(options, tolerance=ROUGH_TOLERANCE)) if name == ROUGH else (name, options)
    method = find_method(base, cell, options)
    known = known_parameters(cell.kind, cell.tuned_as, TUNED_AS.get(base, base), method)
    method = with_parameters(method, *known.values()) if known else method

    def run() -> tuple[Tensor, Values]:
        return answers(method, [problem], cell, options.device)[0]

    runs = [run()]
    is_long = options.device == "cpu" and runs[0][1]["seconds"] > LONG  # on a GPU it is kernels that are compiled
    if not is_long and not options.quick:
        runs = [run() for _ in range(options.repeats)]
    seconds = [values["seconds"] for _, values in runs]
    x, values = runs[-1]
    return {
        "psnr": cell.score(x, problem.clean),
        **{key: value for key, value in values.items() if key != "batch"},
        "seconds": median(seconds),
        "fastest": min(seconds),
        "runs": len(seconds),
        "memory_mib": memory.mib(),
        "threads": torch.get_num_threads(),
        "parameters": parameters(method),
        "weights": getattr(method, "weights", {}),
    }


def _measured(results: Results, cell: str) -> list[Table]:
    """The best first."""
    rows = sorted((row for row in results.rows if row.cell == cell), key=lambda row: -row.values["psnr"])
    ours = next((row.values["seconds"] for row in rows if row.method == "deal"), None)
    lines = [
        [
            label(row.method),
            f"{row.values['psnr']:.2f}",
            number(row.values["seconds"]),
            f"{row.values['seconds'] / ours:.2g} x" if ours else "",
            _mib(row.values),
            str(row.values.get("iterations", "")),
        ]
        for row in rows
    ]
    return [Table(["method", "PSNR", "seconds", "times DEAL", "memory, MiB", "iterations"], lines)] if lines else []


def _reported(cell: str) -> list[Table]:
    """The paper's times for this way of sampling, in a table of their own."""
    columns = {
        contrast: PAPER["time"][f"{sampling.name}, {contrast}"]
        for sampling in SAMPLINGS
        for contrast in CONTRASTS
        if cell.startswith(f"MRI {sampling.name},")
    }
    methods = dict.fromkeys(method for column in columns.values() for method in column)
    rows = [[method, *(number(column[method]) for column in columns.values())] for method in methods]
    title = "As the paper reports it, not measured here: seconds for a fastMRI image on one V100"
    return [Table(["method", *columns], rows, title, quoted=True)] if columns else []


def _mib(values: Values) -> str:
    return "?" if values.get("memory_mib") is None else number(values["memory_mib"])


EXPERIMENT = Time("Seconds and memory of each method on the same problem.", cells, PROTOCOL)
