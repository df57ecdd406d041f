"""Experiments that are tables of methods and cells: what is missing in the results is measured, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from torch import Tensor

from torchdeal.benchmark.core import Cell, Method, PosedProblem, Save, Say, answers, batches
from torchdeal.benchmark.methods import OURS, TUNED_AS, check_names, default_methods, find_method, with_parameters
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers import DENOISERS, SOLVERS
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.pictures import keep_pictures
from torchdeal.benchmark.reporting.standings import comparison_sections
from torchdeal.benchmark.reporting.tables import Section
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.tuning import known_parameters, tuned_parameters
from torchdeal.io.checkpoint import checksum


@dataclass(frozen=True)
class Comparison:
    """An experiment that is a table of methods and cells."""

    about: str
    cells: Callable[[BenchmarkOptions], Iterator[Cell]]
    protocol: str

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        check_names(options.methods, self.names())
        self._check_data(options)
        return {
            "protocol": self.protocol,
            "quick": options.quick,
            "limit": options.limit,
            "tolerance": options.tolerance,
            "max_iterations": options.max_iterations,
            "images": options.images and options.images.resolve().name,
            "model": options.model and checksum(options.model),  # None: the bundled ones
        }

    def names(self) -> list[str]:
        """Of all methods that it can have."""
        return list(dict.fromkeys([*OURS, *DENOISERS, *SOLVERS]))

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        for cell in self._chosen(options):
            results.cells[cell.name] = {"table": cell.table, "column": cell.column}
            self.measure(cell, options, results, save, say)

    def _chosen(self, options: BenchmarkOptions) -> list[Cell]:
        cells = {cell.name: cell for cell in self.cells(options)}
        return [cells[name] for name in options.chosen(list(cells))]

    def _check_data(self, options: BenchmarkOptions) -> None:
        """Raise for files that are missing or damaged. The cells of a table mostly have the same images."""
        first = {cell.table: cell for cell in reversed(self._chosen(options))}
        for cell in first.values():
            with suppress(Unavailable):
                cell.problems()

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """What is missing in a cell."""
        Measuring(cell, options, results, save, say).run()

    def sections(self, results: Results) -> Iterator[Section]:
        return comparison_sections(results)


@dataclass
class Measuring:
    """One cell: its problems, and each method on them."""

    cell: Cell
    options: BenchmarkOptions
    results: Results
    save: Save
    say: Say
    pictured: Sequence[str] = ()  # images whose answers are kept

    def run(self) -> None:
        """Whatever is missing."""
        try:
            problems = self.cell.problems()
        except Unavailable as error:
            self._leave_out("deal", error)
            return
        self.results.cells[self.cell.name]["problems"] = len(problems)
        self.pictured = list(dict.fromkeys(problem.image for problem in problems))[: self.options.pictures]
        for name in self.options.methods or default_methods(self.cell.kind, self.options.quick):
            measured = {(row.image, row.variant) for row in self.results.select(self.cell.name, name)}
            missing = [problem for problem in problems if (problem.image, problem.variant) not in measured]
            try:
                if missing:
                    self._measure(name, missing)
            except Unavailable as error:
                self._leave_out(name, error)

    def _leave_out(self, name: str, error: Unavailable) -> None:
        self.results.reasons.setdefault(self.cell.name, {})[name] = str(error)
        self.save()
        self.say(f"{self.cell.name}, {name}: {error}")

    def _measure(self, name: str, problems: list[PosedProblem]) -> None:
        method = find_method(name, self.cell, self.options)
        method = self._with_parameters(name, method)
        self._note_weights(name, getattr(method, "weights", {}))
        for batch in batches(problems, self.options.device):
            self._add(name, batch, answers(method, batch, self.cell, self.options.device))
            self.save()
        rows = self.results.select(self.cell.name, name)
        levels = [row.values.get("psnr", math.nan) for row in rows]  # infinite ones do not come back from a file
        self.say(f"{self.cell.name}, {name}: {fmean(levels):.2f} dB, the mean over {len(levels)}")

    def _note_weights(self, name: str, weights: dict[str, str]) -> None:
        kept = self.results.weights.setdefault(name, {})
        if any(kept.get(kind, sha) != sha for kind, sha in weights.items()):
            raise ValueError(f"{name} was measured with other weights before: take another --out")
        kept.update(weights)

    def _with_parameters(self, name: str, method: Method) -> Method:
        """Those that were chosen before, else those of the package, else those that are best on the tuning images."""
        group, source = self.cell.tuned_as or self.cell.name, TUNED_AS.get(name, name)
        kept = self.results.parameters.setdefault(group, {})
        known = known_parameters(self.results.experiment, group, source, method)
        if source not in kept and not self.options.tune:
            kept.update(known)
        if source not in kept and self.cell.tuning and not self.options.quick:
            tuned = method if source == name else find_method(source, self.cell, self.options)
            kept[source] = tuned_parameters(tuned, self.cell, self.options, self.say, known.get(source, {}))
            self.save()
        return with_parameters(method, kept.get(source, {}))

    def _add(self, name: str, batch: Sequence[PosedProblem], found: list[tuple[Tensor, Values]]) -> None:
        for problem, (x, values) in zip(batch, found, strict=True):
            level = self.cell.score(x, problem.clean)
            place = len(self.results.environments) - 1
            row = Row(self.cell.name, problem.image, name, {"psnr": level, **values}, problem.variant, place)
            self.results.add(row)
            label = ", ".join(filter(None, [self.cell.name, name, problem.image, problem.variant]))
            self.say(f"{label}: {describe(row.values)}")
            if problem.image in self.pictured:
                keep_pictures(self.options, self.results.experiment, row, x, problem)


def describe(values: Values) -> str:
    """A row for people."""
    run = f", {values['status']}, {values['iterations']} iterations" if "status" in values else ""
    return f"{values['psnr']:.2f} dB{run}, {values['seconds']:.3g} s"
