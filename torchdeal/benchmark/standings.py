"""Tables of methods and cells: means, differences with intervals, how runs ended, beside the values of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from torchdeal.benchmark.results import Results
from torchdeal.benchmark.tables import Section, Table


def comparison_sections(results: Results) -> Iterator[Section]:
    """A section for each table of an experiment."""
    for title, columns in results.tables().items():
        rows = []
        for method in results.methods(list(columns)):
            found = [results.select(cell, method) for cell in columns]
            rows.append([method, *(f"{fmean(r.values['psnr'] for r in cell):.2f}" if cell else "" for cell in found)])
        yield Section(title, tables=[Table(["method", *columns.values()], rows)])
