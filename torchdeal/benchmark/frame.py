"""The frame of all benchmarks: arguments, plan, measurement, JSON after each step, tables at the end.

And what they tell in the same way: where they ran, how a reconstruction ended, numbers for people and for JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import NoneType
from typing import Any, Generic, NoReturn, TextIO, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import torch

import torchdeal
from torchdeal.benchmark.plan import Plan, Settings, add_options, is_argument
from torchdeal.benchmark.tables import Table, number, power  # noqa: F401
from torchdeal.extras import optional
from torchdeal.io.atomic import replacing
from torchdeal.io.files import ImageFileError, check_place
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.io.printable import printable
from torchdeal.solvers import Solution

Say = Callable[[str], None]
P = TypeVar("P", bound=Plan)
R = TypeVar("R")

JSON = "--json"
PLOT_FORMATS = (".png", ".pdf", ".svg")


def environment(device: str) -> Settings:
    """When, with what and where: the settings of every benchmark."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "torchdeal": torchdeal.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": device,
        "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "tf32": False,
    }


def circumstances(settings: Settings) -> str:
    """The same in a sentence."""
    where = f"{settings['device_name']} ({settings['device']}), {settings['threads']} threads"
    return f"torchdeal {settings['torchdeal']}, torch {settings['torch']}, {where}, {settings['date'][:10]}."


def run_details(solution: Solution) -> dict[str, Any]:
    """How a reconstruction ended, for the JSON."""
    return {
        "status": solution.status.name,
        "iterations": int(solution.iterations.max()),
        "distance": known(float(solution.distance.max())),
    }


def known(value: float) -> float | None:
    """None for a number that is not finite."""
    return value if math.isfinite(value) else None


def finite(value: Any) -> Any:
    """The same as plain values, with None for numbers that JSON does not have."""
    if is_dataclass(value):
        return {f.name: finite(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return known(value) if isinstance(value, float) else value


def decoded(kind: Any, value: Any, missing: float) -> Any:
    """What `finite(...)` was made of, by its type; `missing` is the number that None stands for."""
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{f.name: decoded(kinds[f.name], value[f.name], missing) for f in fields(kind)})  # pyright: ignore
    if value is None:
        return missing if kind is float else None
    elements = get_args(kind)
    if get_origin(kind) is list:
        return [decoded(elements[0], v, missing) for v in value]
    if get_origin(kind) is tuple:
        return tuple(decoded(k, v, missing) for k, v in zip(elements, value, strict=True))
    if NoneType in elements:
        return decoded(elements[0], value, missing)
    return value


def estimate(distance: float | None) -> str:
    """A distance for people."""
    return "unknown" if distance is None else f"{distance:.1e}"


@dataclass(frozen=True)
class Benchmark(Generic[P, R]):
    """What makes one benchmark different from the others, and the command that all of them are."""

    name: str  # of its module
    plan: type[P]
    result: type[R]  # a dataclass
    measure: Callable[[P, Say], Iterator[list[R]]]  # all results so far, each time that they are worth keeping
    settings: Callable[[P], Settings]  # what the JSON says beside the plan and the environment
    show: Callable[[list[R], Settings], Iterable[str | Table]]
    units: str = "results"  # that are kept one by one
    key: str = "results"  # in the JSON
    derive: Callable[[R], dict[str, Any]] = lambda result: {}  # what a reader of the JSON need not compute
    derive_from_all: Callable[[list[R]], dict[str, Any]] = lambda results: {}
    missing: float = math.nan  # the number that JSON has null for
    plot: Callable[[list[R], Settings, Path], None] | None = None
    tool: str = ""  # what it is for, where it is one of tools/, not of `deal benchmark`

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """The command on a bare machine: what is wrong with the input ends it with one line."""
        prog = f"python tools/{self.name}.py" if self.tool else f"python -m torchdeal.benchmark.{self.name}"
        arguments = sys.argv[1:] if arguments is None else arguments
        try:
            self.run(arguments, prog)
        except (ImageFileError, ImportError, ValueError, OSError, MemoryError) as error:
            tell(f"Error: {error}", sys.stderr)
            if JSON in arguments:
                print(json.dumps({"error": str(error)}))
            sys.exit(getattr(error, "exit_code", 1))

    def run(self, arguments: Sequence[str], prog: str) -> None:
        """Measure and show, or raise what is wrong with the input. Ctrl-C says where the finished units are."""
        parsed = vars(self._parse(arguments, prog))
        given = {name: value for name, value in parsed.items() if value is not None and value != []}
        try:
            results, settings = self._results(given, prog)
            parts = [self.to_json(results, settings)] if "json" in given else self.show(results, settings)
            for part in parts:
                tell(str(part), sys.stdout)
            if self.plot and "plot" in given:
                self.plot(results, settings, given["plot"])
        except KeyboardInterrupt:
            file = given.get("save")
            left = f"the {self.units} that were finished are in {file}" if file else "nothing was kept"
            tell(f"Interrupted: {left}", sys.stderr)
            sys.exit(130)

    def to_json(self, results: list[R], settings: Settings) -> str:
        """All that was measured, and the numbers that follow from it."""
        each = [finite(result) | finite(self.derive(result)) for result in results]
        content = {"format": self._format, "settings": settings, **self.derive_from_all(results), self.key: each}
        return json.dumps(finite(content), indent=1, allow_nan=False)

    def from_json(self, path: Path) -> tuple[list[R], Settings]:
        """What `to_json` wrote."""
        try:
            content = json.loads(path.read_text())
            if content["format"] != self._format:
                raise ValueError
            results = decoded(list[self.result], content[self.key], self.missing)
            list(self.show(results, content["settings"]))  # all that is shown is there
            return results, content["settings"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{path}: does not hold results that deal benchmark {self.name} --save wrote") from None

    @property
    def _format(self) -> str:
        return f"torchdeal-benchmark-{self.name}-1"

    def _parse(self, arguments: Sequence[str], prog: str) -> argparse.Namespace:
        parser = _Parser(prog, description=self.tool, argument_default=argparse.SUPPRESS)
        add_options(parser, self.plan)
        parser.add_argument(JSON, action="store_true", help="print all results as JSON instead of tables")
        parser.add_argument("--save", metavar="FILE", type=Path, help="also write them to a JSON file, as they come")
        parser.add_argument(
            "--from", metavar="FILE", type=Path, help="show the results in a file of --save, measure nothing"
        )
        if self.plot:
            shown = f"draw them to a file ({', '.join(PLOT_FORMATS)})"
            parser.add_argument("--plot", metavar="FILE", type=Path, help=shown)
        known, others = parser.parse_known_args(arguments)
        for word in others:
            if word.startswith("--"):
                parser.error(f"there is no option {word}")
            parser.error(f"there is no place for {word}; a file for the results is --save FILE")
        return known

    def _results(self, given: dict[str, Any], prog: str) -> tuple[list[R], Settings]:
        """Read or measured. What cannot be written, or would replace something that is read, is refused before."""
        file, outputs = given.get("save"), [given[name] for name in ("save", "plot") if name in given]
        if file:
            _check_save(file)
        if "plot" in given:
            _check_plot(given["plot"])
        if "from" in given:
            refuse_overwriting(outputs, [given["from"]])
            results, settings = self.from_json(given["from"])
            self._save(file, results, settings)
            return results, settings
        for item in fields(self.plan):
            if is_argument(item) and item.name not in given:
                raise ValueError(f"give {item.metadata['about']}: {prog} {item.name.upper()}")
        chosen: dict[str, Any] = {item.name: given[item.name] for item in fields(self.plan) if item.name in given}
        plan = self.plan(**chosen)
        refuse_overwriting(outputs, plan.reads() if any(path.exists() for path in outputs) else ())
        return self._measure(plan, file)

    def _measure(self, plan: P, file: Path | None) -> tuple[list[R], Settings]:
        started = time.perf_counter()

        def say(line: str) -> None:
            tell(f"[{time.perf_counter() - started:7.1f} s] {line}", sys.stderr)

        if plan.threads:
            torch.set_num_threads(plan.threads)
        settings, results = plan.recorded() | environment(plan.device) | self.settings(plan), []
        for results in self.measure(plan, say):
            self._save(file, results, settings)
        return results, settings

    def _save(self, file: Path | None, results: list[R], settings: Settings) -> None:
        if file:
            with replacing(file) as temporary:
                temporary.write_text(self.to_json(results, settings) + "\n")


class UsageError(ValueError):
    """Arguments that do not belong to the command."""

    exit_code = 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def tell(text: str, stream: TextIO) -> None:
    """A line, or several; names of files are shown, whatever they hold."""
    print(printable(text, keep="\n"), file=stream, flush=True)


def _check_save(path: Path) -> None:
    if path.suffix.lower() != ".json":
        raise ValueError(f"{path}: results are saved as JSON; take a name that ends in .json, or {JSON} to print them")
    check_place(path)


def _check_plot(path: Path) -> None:
    """Raise if the plot cannot be made: better before the work than after."""
    if path.suffix.lower() not in PLOT_FORMATS:
        raise ValueError(f"{path}: unknown format for a plot; use one of {', '.join(PLOT_FORMATS)}")
    check_place(path)
    optional("matplotlib", "--plot", "benchmark")


def _device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
