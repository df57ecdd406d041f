"""What the speed benchmark finds, distances against time, and what follows from them: ratios, tables, a plot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from torchdeal.benchmark.frame import Table, circumstances, estimate, number, power
from torchdeal.benchmark.plan import Settings
from torchdeal.io.atomic import replacing

METHODS = {"paper-literal": "paper-literal", "tight": "tight reference", "ours": "ours", "default": "ours, default"}
BASELINES = ("paper-literal", "tight")
THRESHOLDS = (1e-2, 1e-3, 1e-4)  # relative distances to the fixed point, to which the time is taken
TIGHT_INNER, TIGHT_OUTER = 1e-6, 1e-6  # relative to ||b||, and the relative change of the image
PAPER_INNER = 1e-4  # ||r|| in CG of the paper, whatever ||b||: the default of `reference_reconstruct`, not squared

# Okabe and Ito's colours, which colour-blind readers tell apart; ours, default runs along ours, so it is dashed.
STYLES = {
    "paper-literal": {"color": "#D55E00"},
    "tight": {"color": "#E69F00"},
    "ours": {"color": "#0072B2", "linewidth": 2.5},
    "default": {"color": "#56B4E9", "linestyle": "--", "linewidth": 2.5},
}

Curve = list[tuple[float, float]]  # (seconds, true relative distance) after each outer iteration, and at the end


@dataclass(frozen=True)
class Target:
    """The fixed point that the distances are taken to: how it was found and what is known about it."""

    dtype: str
    status: str
    distance: float | None  # its own estimated distance from the fixed point; None: not known
    iterations: int
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """One method on one problem, all its repeats."""

    method: str
    curves: list[Curve]  # one per repeat
    iterations: int  # outer iterations (masks) and CG iterations at the end
    cg_iterations: int
    psnr: float
    status: str | None = None  # of ours
    estimate: float | None = None  # the distance that ours estimates
    stopped: bool = False  # by max_seconds

    def seconds_to(self, distance: float) -> float | None:
        """Median of the seconds after which the true distance is and stays at most this; None if it never is."""
        seconds = [seconds_to(curve, distance) for curve in self.curves]
        reached = [s for s in seconds if s is not None]
        return median(reached) if len(reached) == len(seconds) else None

    @property
    def total_seconds(self) -> float:
        """Of a whole run, median."""
        return median(curve[-1][0] for curve in self.curves)

    @property
    def end_distance(self) -> float:
        """The largest true distance at the end of a run."""
        return max(curve[-1][1] for curve in self.curves)

    def __str__(self) -> str:
        seconds = {threshold: self.seconds_to(threshold) for threshold in THRESHOLDS}
        times = [f"{'never' if s is None else f'{s:.3g} s'} to {t:.0e}" for t, s in seconds.items()]
        end = "stopped after" if self.stopped else "ended after"
        return (
            f"{METHODS[self.method]}: {', '.join(times)}; {end} {self.total_seconds:.3g} s at distance "
            f"{self.end_distance:.1e} ({self.iterations} masks, {self.cg_iterations} CG, {self.psnr:.2f} dB)"
        )


@dataclass(frozen=True)
class TimedProblem:
    """One problem and what was measured on it."""

    size: int
    kind: str
    sigma: float
    picture: str
    noisy_psnr: float
    noisy_norm: float  # ||b||
    truth: Target
    measurements: list[Measurement] = field(default_factory=list)

    def measurement(self, method: str) -> Measurement | None:
        """That of the method, None if it was left out."""
        return next((m for m in self.measurements if m.method == method), None)

    @property
    def name(self) -> str:
        """As messages and titles call it."""
        return f"{self.size} x {self.size} {self.kind}, sigma {self.sigma:g}"


@dataclass(frozen=True)
class Ratio:
    """How many times longer a baseline takes; a lower bound where it was stopped on the way."""

    value: float
    is_bound: bool = False

    def __str__(self) -> str:
        return f"{'> ' if self.is_bound else ''}{self.value:.{1 if self.value < 10 else 0}f} x"


def seconds_to(curve: Curve, distance: float) -> float | None:
    """When the curve is at most `distance` and stays so until its end."""
    reached = None
    for seconds, value in reversed(curve):
        if not value <= distance:
            break
        reached = seconds
    return reached


def ratio(baseline: Measurement | None, ours: Measurement | None, distance: float) -> Ratio | None:
    """Seconds of the baseline over ours to this distance; None if either never gets there."""
    fast = ours.seconds_to(distance) if ours else None
    if baseline is None or fast is None:
        return None
    slow = baseline.seconds_to(distance)
    if slow is None:
        return Ratio(baseline.total_seconds / fast, is_bound=True) if baseline.stopped else None
    return Ratio(slow / fast)


def ratio_at_its_end(baseline: Measurement | None, ours: Measurement | None) -> Ratio | None:
    """Seconds of the whole run of the baseline over those that ours takes to the distance at that run's end."""
    fast = ours.seconds_to(baseline.end_distance) if ours and baseline else None
    return Ratio(baseline.total_seconds / fast) if baseline and fast else None


def summary(problem: TimedProblem) -> dict[str, Any]:
    """Seconds to each distance, and ratios, for the JSON."""
    ours = problem.measurement("ours")
    times = {
        m.method: {
            "seconds_to": {f"{t:.0e}": m.seconds_to(t) for t in THRESHOLDS},
            "total_seconds": m.total_seconds,
            "end_distance": m.end_distance,
        }
        for m in problem.measurements
    }
    ratios = {
        m.method: {f"{t:.0e}": ratio(m, ours, t) for t in THRESHOLDS} | {"its end": ratio_at_its_end(m, ours)}
        for m in problem.measurements
        if m.method in BASELINES
    }
    return {"summary": times, "ratios": ratios}


def show(problems: list[TimedProblem], settings: Settings) -> Iterator[str | Table]:
    """A table per problem, what it says in words."""
    yield (
        f"{circumstances(settings)} "
        f"Seconds are medians of {settings['repeats']} runs ({settings['baseline_repeats']} of the references); "
        "in brackets how many times longer than ours. End: true relative distance at the end."
    )
    head = ["method", *(f"s to {power(t)}" for t in THRESHOLDS), "end", "total s", "masks", "CG", "PSNR"]
    for problem in problems:
        title = f"\n{problem.name} ({problem.picture}, noisy {problem.noisy_psnr:.2f} dB)\n"
        measured = [problem.measurement(method) for method in METHODS]
        yield Table(head, [_row(m, problem) for m in measured if m], title)
        yield from (f"  {remark}" for remark in _remarks(problem))


def _row(measured: Measurement, problem: TimedProblem) -> list[str]:
    return [
        METHODS[measured.method],
        *(_time(measured, problem, threshold) for threshold in THRESHOLDS),
        f"{measured.end_distance:.1e}",
        number(measured.total_seconds),
        str(measured.iterations),
        str(measured.cg_iterations),
        f"{measured.psnr:.2f}",
    ]


def _time(measured: Measurement, problem: TimedProblem, threshold: float) -> str:
    seconds = measured.seconds_to(threshold)
    if seconds is None and not measured.stopped:
        return "never"
    text = f"> {number(measured.total_seconds)}" if seconds is None else number(seconds)
    factor = ratio(measured, problem.measurement("ours"), threshold) if measured.method in BASELINES else None
    return f"{text} ({factor})" if factor else text


def _remarks(problem: TimedProblem) -> Iterator[str]:
    truth, ours = problem.truth, problem.measurement("ours")
    yield (
        f"Distances are to the fixed point computed in {truth.dtype} ({truth.status}, {truth.iterations} masks), "
        f"itself {estimate(truth.distance)} away by its own estimate."
    )
    yield (
        f"The references end CG at ||r|| <= {PAPER_INNER / problem.noisy_norm:.1e} ||b|| (paper-literal) and "
        f"{TIGHT_INNER:.1e} ||b|| (tight reference)."
    )
    for m in filter(None, map(problem.measurement, METHODS)):
        label, end = METHODS[m.method], f"{m.end_distance:.1e}"
        factor = ratio_at_its_end(m, ours) if m.method in BASELINES else None
        if m.stopped:
            yield f"{label}: stopped after {number(m.total_seconds)} s at distance {end}."
        if ours and factor:
            there = number(ours.seconds_to(m.end_distance) or 0.0)
            moment = "when it is stopped" if m.stopped else "when it ends"
            yield f"{label} is at {end} {moment}; ours is there, or closer, after {there} s: {factor} faster."
        if m.status:
            yield f"{label}: {m.status}, estimated distance {estimate(m.estimate)}, true {end}."


def plot(problems: list[TimedProblem], settings: Settings, path: Path) -> None:
    """True distance to the fixed point against time, one panel per problem."""
    from matplotlib.figure import Figure

    columns = min(len(problems), 3) or 1
    rows = math.ceil(len(problems) / columns) or 1
    figure = Figure(figsize=(6.4 * columns, 4.8 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, problem in zip(panels, problems, strict=False):
        _draw(panel, problem)
    for panel in panels[len(problems) :]:
        panel.set_visible(False)
    figure.suptitle(f"{settings['device_name']}, torch {settings['torch']}", fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower().lstrip("."), dpi=120)


def _draw(panel: Any, problem: TimedProblem) -> None:
    for method, style in STYLES.items():
        measured = problem.measurement(method)
        if measured is None:
            continue
        # the run whose total is the median, or next to it
        curve = sorted(measured.curves, key=lambda c: c[-1][0])[len(measured.curves) // 2]
        seconds, distances = zip(*curve, strict=True)
        panel.plot(seconds, distances, label=METHODS[method], **style)
        if measured.status == "CONVERGED":
            label = f"estimated: {estimate(measured.estimate)}"
            panel.plot(seconds[-1], distances[-1], "*", color=style["color"], ms=15, mec="black", label=label)
        elif measured.method in BASELINES:
            marker = ">" if measured.stopped else "o"
            panel.plot(seconds[-1], distances[-1], marker, color=style["color"], ms=7)
    for threshold in THRESHOLDS:
        panel.axhline(threshold, color="gray", linewidth=0.8, linestyle=":", zorder=0)
    panel.set(xscale="log", yscale="log", xlabel="seconds", ylabel="true relative distance to the fixed point")
    panel.set_title(problem.name)
    panel.legend(fontsize=8)
