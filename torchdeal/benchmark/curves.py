"""Distances against time, as `speed` measures them, and what follows from them: ratios, tables, words, a plot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from torchdeal.benchmark.reporting.tables import Section, Table, number, power
from torchdeal.benchmark.results import Results, Row, Values

METHODS = {"paper-literal": "paper-literal", "tight": "tight reference", "ours": "ours", "default": "ours, default"}
REFERENCES = ("paper-literal", "tight")
FIXED_POINT = "fixed-point"  # the row that says how the point was found that distances are taken to
THRESHOLDS = {f"seconds_to_{power(distance)}": distance for distance in (1e-2, 1e-3, 1e-4)}  # relative distances
MOST_POINTS = 40  # of a curve that is kept

Curve = list[tuple[float, float]]  # (seconds, true relative distance) after each outer iteration, and at the end


def seconds_to(curve: Curve, distance: float) -> float | None:
    """When the curve is at most `distance` and stays so until its end; None if it does not."""
    reached = None
    for seconds, value in reversed(curve):
        if not value <= distance:
            break
        reached = seconds
    return reached


def curve_values(curve: Curve) -> Values:
    """What a row holds of a curve: the seconds to the distances, its end, and some of its points."""
    step = math.ceil(len(curve) / MOST_POINTS)
    return {
        **{name: seconds_to(curve, distance) for name, distance in THRESHOLDS.items()},
        "total_seconds": curve[-1][0],
        "end_distance": curve[-1][1],
        "curve": curve[::-step][::-1],  # with the last one
    }


@dataclass(frozen=True)
class Runs:
    """All runs of a method in a cell, at least one."""

    method: str
    values: list[Values]

    def seconds(self, threshold: str) -> float | None:
        """The median of the runs; None if one of them never gets there."""
        reached = [values[threshold] for values in self.values if values.get(threshold) is not None]
        return median(reached) if len(reached) == len(self.values) else None

    @property
    def total_seconds(self) -> float:
        """Of a whole run, median."""
        return median(values["total_seconds"] for values in self.values)

    @property
    def end_distance(self) -> float:
        """The largest true distance at the end of a run; NaN where a run has none."""
        ends = [values.get("end_distance", math.nan) for values in self.values]
        return math.nan if any(map(math.isnan, ends)) else max(ends)

    @property
    def stopped(self) -> bool:
        return any(values["stopped"] for values in self.values)

    @property
    def last(self) -> Values:
        return self.values[-1]

    def ratio(self, ours: Runs | None, threshold: str) -> str:
        """How many times longer than ours; "> " for a lower bound; nothing if either never gets there."""
        fast, slow = ours.seconds(threshold) if ours else None, self.seconds(threshold)
        is_bound = slow is None and self.stopped
        slow = self.total_seconds if is_bound else slow
        if not fast or slow is None:
            return ""
        return f"{'> ' if is_bound else ''}{slow / fast:.{1 if slow / fast < 10 else 0}f} x"

    def time(self, ours: Runs | None, threshold: str) -> str:
        """The seconds, and, of a reference, the ratio in brackets."""
        seconds = self.seconds(threshold)
        if seconds is None and not self.stopped:
            return "never"
        text = f"> {number(self.total_seconds)}" if seconds is None else number(seconds)
        factor = self.ratio(ours, threshold) if self.method in REFERENCES else ""
        return f"{text} ({factor})" if factor else text


def runs_of(results: Results, cell: str) -> dict[str, Runs]:
    """What was measured in a cell, in the order of `METHODS`."""
    rows = {method: results.select(cell, method) for method in METHODS}
    return {method: Runs(method, [row.values for row in found]) for method, found in rows.items() if found}


def speed_sections(results: Results) -> Iterator[Section]:
    """A table for each picture, and what it says in words."""
    head = ["method", *(f"s to {power(t)}" for t in THRESHOLDS.values()), "end", "total s", "masks", "CG", "PSNR"]
    for cell in results.cells:
        found = runs_of(results, cell)
        rows = [
            [
                METHODS[runs.method],
                *(runs.time(found.get("ours"), threshold) for threshold in THRESHOLDS),
                f"{runs.end_distance:.1e}",
                number(runs.total_seconds),
                *(str(runs.last[name]) for name in ("iterations", "cg_iterations")),
                f"{runs.last['psnr']:.2f}",
            ]
            for runs in found.values()
        ]
        text = " ".join(_about(row) for row in results.select(cell, FIXED_POINT))
        yield Section(f"Speed: {cell}", text, [Table(head, rows)] if rows else [], notes=list(_notes(results, cell)))


def _about(fixed_point: Row) -> str:
    values = fixed_point.values
    return (
        f"{fixed_point.image}, {values['noisy_psnr']:.2f} dB with noise. Medians of seconds; in brackets how many "
        f"times longer than ours. Distances are to the fixed point computed in {values['dtype']} ({values['status']}), "
        f"itself {_distance(values)} away by its own estimate."
    )


def _notes(results: Results, cell: str) -> Iterator[str]:
    for method, reason in results.reasons.get(cell, {}).items():
        yield f"{METHODS[method]}: not measured: {reason}"
    for runs in runs_of(results, cell).values():
        name, end = METHODS[runs.method], f"{runs.end_distance:.1e}"
        if runs.stopped:
            yield f"{name}: stopped after {number(runs.total_seconds)} s at distance {end}; > marks lower bounds."
        if "status" in runs.last:
            yield f"{name}: {runs.last['status']}, estimated distance {_distance(runs.last)}, true distance {end}."


def _distance(values: Values) -> str:
    return f"{values['estimate']:.1e}" if values.get("estimate") is not None else "unknown"


def plot(results: Results, path: Path) -> None:
    """True distance to the fixed point against time, a panel for each picture. A PDF or PNG file."""
    from torchdeal.benchmark.figures.style import FULL, in_style, page, write

    cells = {cell: found for cell in results.cells if (found := runs_of(results, cell))}
    columns = min(len(cells), 3) or 1
    rows = math.ceil(len(cells) / columns) or 1
    with in_style():
        figure = page(FULL, 0.2 + 1.9 * rows, layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels[len(cells) :]:
            panel.set_visible(False)
        for panel, (cell, found) in zip(panels, cells.items(), strict=False):
            _draw(panel, cell, found)
        panels[0].legend()
        figure.supxlabel("seconds", fontsize=8)
        figure.supylabel("relative distance to the fixed point", fontsize=8)
    write(figure, path)


def _draw(panel: Any, cell: str, found: dict[str, Runs]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    from torchdeal.benchmark.figures.style import BLUE, ORANGE, SKY, VERMILION

    colors = dict(zip(METHODS, (VERMILION, ORANGE, BLUE, SKY), strict=True))
    for method, runs in found.items():
        # the run whose total is the median, or next to it
        curve = sorted(runs.values, key=lambda values: values["total_seconds"])[len(runs.values) // 2]["curve"]
        seconds, distances = zip(*curve, strict=True)
        line = "--" if method == "default" else "-"  # it runs along ours
        panel.loglog(seconds, distances, line, color=colors[method], label=METHODS[method])
        panel.plot(seconds[-1], distances[-1], ">" if runs.stopped else "o", color=colors[method])
    shortest, longest = panel.get_xlim()
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if longest < 100 * shortest else (1,)))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_title(cell)
