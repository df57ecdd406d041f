"""What the measuring tools share: --json and --save, results that are kept as they come, one line for what is wrong."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from torchdeal.benchmark.reporting.tables import Table, number
from torchdeal.benchmark.results import environment
from torchdeal.io.atomic import replacing
from torchdeal.io.checkpoint import checksum
from torchdeal.io.files import ImageFileError, check_place
from torchdeal.io.printable import printable

Say = Callable[[str], None]
Given = argparse.Namespace


def arguments_of(name: str, about: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all of these tools have."""
    parser = argparse.ArgumentParser(
        prog=f"python tools/{name}.py", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=at_least(1), help="CPU threads; by default those of torch")
    parser.add_argument("--json", action="store_true", help="print all results as JSON instead of tables")
    parser.add_argument("--save", metavar="FILE", type=Path, help="also write them to a JSON file, as they come")
    return parser


def at_least(least: float) -> Callable[[str], float]:
    """The type of an option: a finite number that is not smaller; whole if `least` is."""

    def parsed(text: str) -> float:
        value = type(least)(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return value

    parsed.__name__ = "number"  # argparse says so: invalid number value
    return parsed


def show_all(results: Sequence[Any]) -> Iterator[Table]:
    """A column for each field, a row for each result: for those that are made of numbers and texts."""
    cells = [[v if isinstance(v, str) else "-" if v is None else number(v) for v in astuple(r)] for r in results]
    yield Table([item.name.replace("_", " ") for item in fields(results[0])], cells)


@dataclass(frozen=True)
class Tool:
    """What makes one tool different from the others, and the command that all of them are."""

    parser: argparse.ArgumentParser
    measure: Callable[[Given, Say], Iterator[list[Any]]]  # all so far, dataclasses, to be kept
    show: Callable[[list[Any]], Iterable[str | Table]] = show_all
    summarise: Callable[[list[Any]], dict[str, Any]] = lambda results: {}  # for the JSON

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Measure and show. What is wrong with the input ends it with one line."""
        given = self.parser.parse_args(arguments)
        try:
            results, settings = self._measured(given)
        except (ImageFileError, ImportError, ValueError, OSError) as error:
            sys.exit(f"Error: {printable(str(error))}")
        except KeyboardInterrupt:
            tell(f"Interrupted: {f'what was finished is in {given.save}' if given.save else 'nothing was kept'}")
            sys.exit(130)
        for part in [self._json(results, settings)] if given.json else self.show(results):
            print(printable(str(part), keep="\n"))

    def _measured(self, given: Given) -> tuple[list[Any], dict[str, Any]]:
        if given.save:
            if given.save.suffix.lower() != ".json":
                raise ValueError(f"{given.save}: results are saved as JSON; take a name that ends in .json")
            check_place(given.save)
        torch.set_num_threads(given.threads or torch.get_num_threads())
        settings = {**_recorded(vars(given)), **environment(given.device)}
        if "kind" in given:
            settings["weights"] = {given.kind: checksum(given.kind)}
        started, results = time.perf_counter(), []
        for results in self.measure(given, lambda line: tell(f"[{time.perf_counter() - started:7.1f} s] {line}")):
            if given.save:
                with replacing(given.save) as temporary:
                    temporary.write_text(self._json(results, settings) + "\n")
        return results, settings

    def _json(self, results: list[Any], settings: dict[str, Any]) -> str:
        each = [asdict(result) for result in results]
        content = {"settings": settings, **self.summarise(results), "results": each}
        return json.dumps(_finite(content), indent=1, allow_nan=False)


def tell(line: str) -> None:
    """For people, beside the results."""
    print(printable(line), file=sys.stderr, flush=True)


def _recorded(value: Any) -> Any:
    """Paths by name: they mean nothing on another machine."""
    if isinstance(value, dict):
        return {name: _recorded(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_recorded(entry) for entry in value]
    return value.resolve().name if isinstance(value, Path) else value


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
