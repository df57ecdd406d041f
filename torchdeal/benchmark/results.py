"""What the speed benchmark measures, what follows from it, and its JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from torchdeal.benchmark.common import finite

METHODS = {"paper-literal": "paper-literal", "tight": "tight reference", "ours": "ours", "default": "ours, default"}
BASELINES = ("paper-literal", "tight")
THRESHOLDS = (1e-2, 1e-3, 1e-4)  # relative distances to the fixed point, to which the time is taken
FORMAT = "torchdeal-benchmark-speed-1"

Curve = list[tuple[float, float]]  # (seconds, true relative distance) after each outer iteration, and at the end


@dataclass(frozen=True)
class Truth:
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
    estimate: float | None = None  # the distance that ours certifies
    stopped: bool = False  # by max_seconds
    memory: int | None = None  # bytes at the peak, above what the weights and the import take

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


@dataclass(frozen=True)
class Result:
    """One problem and what was measured on it."""

    size: int
    kind: str
    sigma: float
    picture: str
    noisy_psnr: float
    noisy_norm: float  # ||b||
    truth: Truth
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


@dataclass(frozen=True)
class Growth:
    """Exponents p in `value ~ pixels^p`, for ours at the default tolerance; None where unknown."""

    kind: str
    sigma: float
    sizes: list[int]
    seconds: float | None
    seconds_per_iteration: float | None  # the number of iterations varies with the picture
    memory: float | None


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


def growth_exponent(sizes: Sequence[int], values: Sequence[float | None]) -> float | None:
    """The least-squares slope of log(value) over log(pixels); None without two sizes or where a value is missing."""
    known = [v for v in values if v is not None and v > 0]
    if len(set(sizes)) < 2 or len(known) < len(values):
        return None
    return float(np.polyfit(2 * np.log(sizes), np.log(known), 1)[0])


def growths(results: Sequence[Result]) -> list[Growth]:
    """Of each kind and sigma, over the sizes that were measured."""
    found = []
    for kind, sigma in dict.fromkeys((r.kind, r.sigma) for r in results):
        series = [(r.size, r.measurement("default")) for r in results if (r.kind, r.sigma) == (kind, sigma)]
        measured = [(size, m) for size, m in series if m is not None]
        sizes = [size for size, _ in measured]
        if len(set(sizes)) > 1:
            seconds = [m.total_seconds for _, m in measured]
            per_iteration = [m.total_seconds / m.iterations for _, m in measured]
            memory = [m.memory for _, m in measured]
            exponents = (growth_exponent(sizes, values) for values in (seconds, per_iteration, memory))
            found.append(Growth(kind, sigma, sizes, *exponents))
    return found


def describe(measured: Measurement) -> str:
    """One line of plain text."""
    times = ", ".join(f"{_seconds(measured.seconds_to(t))} to {t:.0e}" for t in THRESHOLDS)
    end = "stopped after" if measured.stopped else "ended after"
    memory = "" if measured.memory is None else f", {measured.memory / 1e6:.0f} MB"
    return (
        f"{METHODS[measured.method]}: {times}; {end} {_seconds(measured.total_seconds)} at distance "
        f"{measured.end_distance:.1e} ({measured.iterations} masks, {measured.cg_iterations} CG, "
        f"{measured.psnr:.2f} dB{memory})"
    )


def to_json(results: Sequence[Result], settings: dict[str, Any]) -> str:
    """All that was measured, and the numbers that follow from it."""
    content = {
        "format": FORMAT,
        "settings": settings,
        "problems": [{**asdict(r), **_derived(r)} for r in results],
        "growth": [asdict(g) for g in growths(results)],
    }
    return json.dumps(finite(content), indent=1, allow_nan=False)


def from_json(path: Path) -> tuple[list[Result], dict[str, Any]]:
    """What `to_json` wrote."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError
        return [_result(problem) for problem in content["problems"]], content["settings"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: does not hold results of deal benchmark speed --json") from None


def _derived(result: Result) -> dict[str, Any]:
    """What a reader of the JSON need not compute; `from_json` does not look at it."""
    ours = result.measurement("ours")
    summary = {
        m.method: {
            "seconds_to": {f"{t:.0e}": m.seconds_to(t) for t in THRESHOLDS},
            "total_seconds": m.total_seconds,
            "end_distance": m.end_distance,
        }
        for m in result.measurements
    }
    ratios: dict[str, Any] = {}
    for m in result.measurements:
        if m.method in BASELINES:
            found = {f"{t:.0e}": ratio(m, ours, t) for t in THRESHOLDS} | {"its end": ratio_at_its_end(m, ours)}
            ratios[m.method] = {goal: asdict(r) if r else None for goal, r in found.items()}
    return {"summary": summary, "ratios": ratios}


def _result(content: dict[str, Any]) -> Result:
    measurements = []
    for m in content["measurements"]:
        curves = [[(s, math.inf if d is None else d) for s, d in curve] for curve in m["curves"]]
        measurements.append(Measurement(**{**m, "curves": curves}))
    names = ("size", "kind", "sigma", "picture", "noisy_psnr", "noisy_norm")
    return Result(**{n: content[n] for n in names}, truth=Truth(**content["truth"]), measurements=measurements)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g} s"
