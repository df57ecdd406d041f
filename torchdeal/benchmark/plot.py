"""The plot of the speed benchmark, by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchdeal.benchmark.common import Settings, estimate
from torchdeal.benchmark.curves import BASELINES, METHODS, THRESHOLDS, TimedProblem
from torchdeal.io.atomic import replacing

# Okabe and Ito's colours, which colour-blind readers tell apart; ours, default runs along ours, so it is dashed.
STYLES = {
    "paper-literal": {"color": "#D55E00"},
    "tight": {"color": "#E69F00"},
    "ours": {"color": "#0072B2", "linewidth": 2.5},
    "default": {"color": "#56B4E9", "linestyle": "--", "linewidth": 2.5},
}


def plot(problems: Sequence[TimedProblem], settings: Settings, path: Path) -> None:
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
