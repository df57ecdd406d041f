"""Steady under load: what a second thread brings, what a busy neighbour costs, and what two pictures at once do.

Each run is in a process of its own. All situations have their first run, then all their second, and so on: what else
the machine does in the meantime is then shared fairly.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from torchdeal.benchmark.alone import fresh_processes, run_alone
from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, Save, Say, answers
from torchdeal.benchmark.methods import find_method
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.standings import not_measured
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.speed import SIGMA, circumstances, noisy_sample

SIZES, QUICK_SIZES = (128, 256), (32,)
METHODS = ("deal", "deal-light")
WARM_UP = 2  # outer iterations before the run that counts
MOST_SECONDS = 900.0  # of a run
PROTOCOL = (
    "Each run in a process of its own, after a few iterations to warm up; medians. The busy process is a loop of "
    "Python that never waits. Two at once: the time until both are done, beside twice the time of one."
)


@dataclass(frozen=True)
class Situation:
    """What else happens while a picture is reconstructed."""

    threads: int | None = None  # None: all
    busy: int = 0  # processes that never wait
    at_once: int = 1  # pictures, in a process each


SITUATIONS = {
    "one thread": Situation(threads=1),
    "all threads": Situation(),
    "beside a busy process": Situation(busy=1),
    "two at once": Situation(at_once=2),
}


class Load(Comparison):
    """Instead of many images, one image in several situations."""

    def names(self) -> list[str]:
        return list(METHODS)

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        return {**super().settings(options), **circumstances(replace(options, device="cpu"))}

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """The runs that are missing."""
        options = replace(options, device="cpu", threads=torch.get_num_threads())  # a new process would have others
        (problem,), place = cell.problems(), len(results.environments) - 1
        for name in options.methods or METHODS:
            measured = {row.variant for row in results.select(cell.name, name)}
            for variant, situation in _runs(1 if options.quick else options.repeats):
                if variant in measured:
                    continue
                try:
                    values = seconds_in(situation, name, cell, options)
                except Unavailable as error:
                    results.reasons.setdefault(cell.name, {})[name] = str(error)
                    say(f"{cell.name}, {name}: {error}")
                    break
                results.weights.setdefault(name, {}).update(values.pop("weights"))
                results.add(Row(cell.name, problem.image, name, values, variant, place))
                save()
                say(f"{cell.name}, {name}, {variant}: {number(values['seconds'])} s")

    def sections(self, results: Results) -> Iterator[Section]:
        for cell in results.cells:
            rows = [_line(results, cell, method) for method in METHODS if results.select(cell, method)]
            images = ", ".join({row.image: None for row in results.rows if row.cell == cell})
            tables = [Table(["method, seconds", *SITUATIONS], rows)] if rows else []
            about = f"{images}, {_threads(results)}"
            yield Section(f"Load: {cell}", about, tables, notes=not_measured(results, cell))


def cells(options: BenchmarkOptions) -> Iterator[Cell]:
    """A picture in some sizes."""
    for size in QUICK_SIZES if options.quick else SIZES:
        name = f"{size} x {size} gray, sigma {SIGMA:g}"
        yield Cell(name, "Load", name, DENOISING, 1, partial(noisy_sample, options, 1, size, SIGMA))


def _runs(repeats: int) -> Iterator[tuple[str, Situation]]:
    """Each situation in turn, again and again."""
    for run in range(1, repeats + 1):
        for name, situation in SITUATIONS.items():
            yield f"{name}, run {run}", situation


def seconds_in(situation: Situation, name: str, cell: Cell, options: BenchmarkOptions) -> Values:
    """One run of a method; of several at once the slowest."""
    options = replace(options, threads=situation.threads or options.threads)
    start = fresh_processes().Barrier(situation.at_once)
    run = partial(run_alone, timed, name, cell, options, start, most_seconds=MOST_SECONDS)
    with busy(situation.busy), ThreadPoolExecutor(situation.at_once) as waiting:
        found = [one.result() for one in [waiting.submit(run) for _ in range(situation.at_once)]]
    return max(found, key=lambda values: values["seconds"])


def timed(name: str, cell: Cell, options: BenchmarkOptions, start: Any) -> Values:
    """A run, begun when all processes that share `start` are ready, in a process that does nothing else."""
    torch.set_num_threads(options.threads or 1)
    problems = cell.problems()
    answers(find_method(name, cell, replace(options, max_iterations=WARM_UP)), problems, cell, "cpu")
    method = find_method(name, cell, options)
    start.wait(MOST_SECONDS)
    ((_, values),) = answers(method, problems, cell, "cpu")
    kept = {key: values[key] for key in ("seconds", "iterations")}
    return {**kept, "threads": options.threads, "weights": getattr(method, "weights", {})}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that never wait, while it lasts."""
    processes = [fresh_processes().Process(target=_never_wait, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _never_wait() -> None:
    while True:
        pass


def _line(results: Results, cell: str, method: str) -> list[str]:
    """Medians, and what they say."""
    rows = results.select(cell, method)
    found = {
        name: [row.values["seconds"] for row in rows if row.variant.startswith(f"{name}, ")] for name in SITUATIONS
    }
    alone, idle, beside, both = (median(seconds) if seconds else None for seconds in found.values())
    return [
        label(method),
        _cell(alone),
        _cell(idle, alone and idle and alone / idle, "faster"),
        _cell(beside, beside and idle and beside / idle, "idle"),
        _cell(both, both and idle and both / (2 * idle), "in turn"),
    ]


def _cell(seconds: float | None, ratio: float | None = None, of: str = "") -> str:
    if seconds is None:
        return ""
    return f"{number(seconds)} ({ratio:.2f} x {of})" if ratio else number(seconds)


def _threads(results: Results) -> str:
    return f"{results.settings.get('threads', '?')} threads"


EXPERIMENT = Load("Threads, a busy neighbour, and two pictures at once, on the CPU.", cells, PROTOCOL)
