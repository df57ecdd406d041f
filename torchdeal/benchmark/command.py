"""`deal benchmark EXPERIMENT`: measure what is missing, keep it as it comes, and write the report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TextIO

import torch

from torchdeal.benchmark import EXPERIMENTS
from torchdeal.benchmark.core import Experiment, Say
from torchdeal.benchmark.options import ALL, FIGURES, REPORT, BenchmarkOptions, parse
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.pictures import PICTURES
from torchdeal.benchmark.reporting.report import print_tables, write_report
from torchdeal.benchmark.results import Results, environment, plain
from torchdeal.io.files import ImageFileError
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.io.printable import printable

JSON = "--json"
WRITTEN = (".json", ".csv", ".md", ".html")


def main(arguments: Sequence[str] | None = None, prog: str = "python -m torchdeal.benchmark") -> None:
    """The command on a bare machine: what is wrong with the input ends it with one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        run(arguments, prog)
    except (ImageFileError, ImportError, ValueError, OSError, MemoryError) as error:
        tell(f"Error: {error}", sys.stderr)
        if JSON in arguments:
            print(json.dumps({"error": str(error)}))
        sys.exit(getattr(error, "exit_code", 1))


def run(arguments: Sequence[str], prog: str) -> None:
    """Measure and show, or raise what is wrong with the input. Ctrl-C says where the finished rows are."""
    name, options, as_json = parse(arguments, prog, EXPERIMENTS)
    say = _timed_lines()
    try:
        files = [options.out / f"{one}.json" for one in _measured(name, options, say)]
    except KeyboardInterrupt:
        tell(f"Interrupted: what was measured is in {options.out}; go on with --resume", sys.stderr)
        sys.exit(130)
    loaded = [Results.load(path) for path in files]
    if files:  # before anything is printed: with --json, an error must stand alone
        write_report(options.out)
    if as_json:
        found = {path.stem: json.loads(path.read_text()) for path in files}
        tell(json.dumps(found if name in (ALL, REPORT) else found.get(name), indent=1), sys.stdout)
    else:
        for results in loaded:
            print_tables(results, lambda text: tell(text, sys.stdout))
    if files:
        tell(f"The report is {options.out / 'report.html'}, and {options.out / 'report.md'}.", sys.stderr)


def _measured(name: str, options: BenchmarkOptions, say: Say) -> list[str]:
    """The experiments whose results are in the folder now."""
    if name == REPORT:
        return [one for one in EXPERIMENTS if (options.out / f"{one}.json").is_file()] or _nothing(options.out)
    chosen = [one for one in EXPERIMENTS if one not in (ALL, REPORT)] if name == ALL else [name]
    _spare_inputs(chosen, options)
    if options.threads:
        torch.set_num_threads(options.threads)
    prepared = {}
    for one in (one for one in chosen if one != FIGURES):  # what is refused is refused before anything is measured
        with _left_out(one, name == ALL, say):
            prepared[one] = _prepared(one, options)
    options.out.mkdir(parents=True, exist_ok=True)
    for one, (experiment, results) in prepared.items():
        results.environments.append(environment(options.device))
        with _left_out(one, name == ALL, say):
            experiment.run(options, results, lambda results=results: results.save(options.out), say)
        results.save(options.out)
    if FIGURES in chosen:
        _draw(options, say)
    return list(prepared)


@contextmanager
def _left_out(name: str, among_others: bool, say: Say) -> Iterator[None]:
    """One of many experiments may be impossible, such as with other methods than it has: that is told."""
    try:
        yield
    except Unavailable as error:
        if not among_others:
            raise
        say(f"{name}: {error}")


def _spare_inputs(names: Sequence[str], options: BenchmarkOptions) -> None:
    """Raise ValueError if an output would take the place of an input."""
    results = [options.out / f"{name}{suffix}" for name in names for suffix in (".json", ".csv")]
    refuse_overwriting([*results, options.out / "report.md", options.out / "report.html"], _inputs(options))
    for folder in filter(None, (options.images, options.data)):
        if folder.resolve().is_relative_to((options.out / PICTURES).resolve()):
            raise ValueError(f"{folder}: this is where pictures of results go; choose another --out")


def _inputs(options: BenchmarkOptions) -> Iterator[Path]:
    """The files that may be read. Results may lie in the same folders."""
    if options.model:
        yield Path(options.model)
    deep = [
        (options.images, "*"),
        (options.also, "*"),
        (options.peers_dir, "*"),
        (options.data, "*/*"),
        (options.data, "*/*/*"),
    ]
    for folder, pattern in deep:
        found = folder.glob(pattern) if folder else ()
        yield from (path for path in found if path.suffix not in WRITTEN and path.is_file())


def _prepared(name: str, options: BenchmarkOptions) -> tuple[Experiment, Results]:
    """The experiment and the results to go on with."""
    experiment: Experiment = import_module(f"torchdeal.benchmark.{name}").EXPERIMENT
    fresh = Results(name, plain(experiment.settings(options)))
    path = options.out / f"{name}.json"
    if not path.exists():
        return experiment, fresh
    if not options.resume:
        raise ValueError(f"{path} is there already: go on with it by --resume, or take another --out")
    kept = Results.load(path)
    if kept.experiment != name:
        raise ValueError(f"{path} holds results of {kept.experiment}: take another --out")
    if kept.settings != fresh.settings:
        names = kept.settings | fresh.settings
        different = [key for key in names if kept.settings.get(key) != fresh.settings.get(key)]
        raise ValueError(f"{path} was measured with another {' and '.join(different)}: take another --out")
    return experiment, kept


def _draw(options: BenchmarkOptions, say: Say) -> None:
    from torchdeal.benchmark.figures import draw_all

    draw_all(options.out / FIGURES, device=options.device, quick=options.quick, say=say)


def _nothing(folder: Path) -> list[str]:
    raise ValueError(f"{folder}: there are no results of deal benchmark in this folder; see --out")


def _timed_lines() -> Say:
    started = time.perf_counter()

    def say(line: str) -> None:
        tell(f"[{time.perf_counter() - started:7.1f} s] {line}", sys.stderr)

    return say


def tell(text: str, stream: TextIO) -> None:
    """A line, or several; names of files are shown, whatever they hold."""
    print(printable(text, keep="\n"), file=stream, flush=True)
