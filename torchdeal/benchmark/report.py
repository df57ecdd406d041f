"""The results of the benchmarks for people: tables (rich) and a plot (matplotlib, imported where it is used)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torchdeal.benchmark.common import check_output
from torchdeal.benchmark.denoising import APART, MANY_ITERATIONS, Level
from torchdeal.benchmark.results import (
    BASELINES,
    METHODS,
    THRESHOLDS,
    Measurement,
    Result,
    growths,
    ratio,
    ratio_at_its_end,
)
from torchdeal.benchmark.speed import PAPER_INNER, TIGHT_INNER
from torchdeal.io.atomic import replacing

PLOT_FORMATS = (".png", ".pdf", ".svg")
NAMED = 5  # images that did not converge, at most; --json has all
# Okabe and Ito's colours, which colour-blind readers tell apart; ours, default runs along ours, so it is dashed.
STYLES = {
    "paper-literal": {"color": "#D55E00"},
    "tight": {"color": "#E69F00"},
    "ours": {"color": "#0072B2", "linewidth": 2.5},
    "default": {"color": "#56B4E9", "linestyle": "--", "linewidth": 2.5},
}


def show(results: Sequence[Result], settings: dict[str, Any], console: Console) -> None:
    """Print a table per problem, what it says in words, and how time and memory grow."""
    console.print(
        f"{_circumstances(settings)} "
        f"Seconds are medians of {settings['repeats']} runs ({settings['baseline_repeats']} of the references); "
        "in brackets how many times longer than ours. End: true relative distance at the end.",
        markup=False,
    )
    for result in results:
        console.print()
        console.print(_table(result))
        for line in _remarks(result):
            console.print(f"  {line}", markup=False)
    if growths(results):
        console.print()
        console.print(_growth_table(results))


def show_denoising(levels: Sequence[Level], settings: dict[str, Any], console: Console) -> None:
    """Print a table with a row per noise level, and what did not converge or depends on the start."""
    weights, crop = settings["weights"], settings["crop"]
    part = f", centres of {crop} x {crop}" if crop else ""
    console.print(
        f"{_circumstances(settings)} Weights {weights['source']} (sha256 {weights['sha256'][:12]}), images of "
        f"{settings['folder']}{part}, tolerance {settings['tolerance']:g}. PSNR (dB) and CG are means over the images, "
        "iterations and seconds medians, distance the largest estimate.",
        markup=False,
    )
    console.print()
    console.print(_denoising_table(levels))
    for level in levels:
        for line in _denoising_remarks(level):
            console.print(f"  sigma {level.sigma:g}: {line}", markup=False)


def check_plot(path: Path) -> None:
    """Raise if the plot cannot be made: better before the work than after."""
    if path.suffix.lower() not in PLOT_FORMATS:
        raise ValueError(f"{path}: unknown format for a plot; use one of {', '.join(PLOT_FORMATS)}")
    check_output(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'torchdeal[benchmark]'") from None


def plot(results: Sequence[Result], settings: dict[str, Any], path: Path) -> None:
    """True distance to the fixed point against time, one panel per problem."""
    from matplotlib.figure import Figure

    columns = min(len(results), 3) or 1
    rows = math.ceil(len(results) / columns) or 1
    figure = Figure(figsize=(6.4 * columns, 4.8 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels:
        panel.set_visible(False)
    for panel, result in zip(panels, results, strict=False):
        panel.set_visible(True)
        _draw(panel, result)
    figure.suptitle(f"{settings['device_name']}, torch {settings['torch']}", fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower().lstrip("."), dpi=120)


def _circumstances(settings: dict[str, Any]) -> str:
    where = f"{settings['device_name']} ({settings['device']}), {settings['threads']} threads"
    return f"torchdeal {settings['torchdeal']}, torch {settings['torch']}, {where}, {settings['date'][:10]}."


def _denoising_table(levels: Sequence[Level]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    headings = ("sigma", "images", "noisy", "PSNR", "converged", "distance")
    for heading in (*headings, "iterations", "most", f"above {MANY_ITERATIONS}", "CG", "s"):
        table.add_column(heading, justify="right", no_wrap=True, style="bold" if heading == "PSNR" else None)
    for level in levels:
        summary = level.summary()
        table.add_row(
            f"{level.sigma:g}",
            str(summary.images),
            f"{summary.noisy_psnr:.2f}",
            f"{summary.psnr:.2f}",
            f"{summary.converged} of {summary.images}",
            _estimate(summary.distance),
            f"{summary.median_iterations:g}",
            str(summary.max_iterations),
            str(summary.many_iterations),
            f"{summary.cg_iterations:.0f}",
            _number(summary.seconds),
        )
    return table


def _denoising_remarks(level: Level) -> list[str]:
    summary, remarks = level.summary(), []
    failed = [f"{row.image} ({row.status})" for row in level.unconverged()]
    if failed:
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        remarks.append(f"not converged: {', '.join(failed[:NAMED])}{more}.")
    if summary.largest_difference is not None:
        remarks.append(
            f"started from the noisy image, {summary.restarts_converged} of {summary.restarts} converged; "
            f"{summary.restarts_apart} of {summary.restarts} answers differ by more than {_power(APART)} from those "
            f"from zero, by {summary.largest_difference:.1e} at most."
        )
    return remarks


def _table(result: Result) -> Table:
    title = f"{result.name} ({result.picture}, noisy {result.noisy_psnr:.2f} dB)"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for threshold in THRESHOLDS:
        table.add_column(f"s to {_power(threshold)}", justify="right", no_wrap=True)
    for heading in ("end", "total s", "masks", "CG", "PSNR", "MB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method in METHODS:
        measured = result.measurement(method)
        if measured:
            table.add_row(*_row(measured, result), style="bold" if method == "ours" else None)
    return table


def _row(measured: Measurement, result: Result) -> list[str]:
    return [
        METHODS[measured.method],
        *(_time(measured, result, threshold) for threshold in THRESHOLDS),
        f"{measured.end_distance:.1e}",
        _number(measured.total_seconds),
        str(measured.iterations),
        str(measured.cg_iterations),
        f"{measured.psnr:.2f}",
        "-" if measured.memory is None else f"{measured.memory / 1e6:.0f}",
    ]


def _time(measured: Measurement, result: Result, threshold: float) -> str:
    seconds = measured.seconds_to(threshold)
    if seconds is not None:
        text = _number(seconds)
    elif measured.stopped:
        text = f"> {_number(measured.total_seconds)}"
    else:
        return "never"
    factor = ratio(measured, result.measurement("ours"), threshold) if measured.method in BASELINES else None
    return f"{text} ({factor})" if factor else text


def _remarks(result: Result) -> list[str]:
    truth, ours = result.truth, result.measurement("ours")
    remarks = [
        f"Distances are to the fixed point computed in {truth.dtype} ({truth.status}, {truth.iterations} masks), "
        f"itself {_estimate(truth.distance)} away by its own estimate.",
        f"The references end CG at ||r|| <= {PAPER_INNER / result.noisy_norm:.1e} ||b|| (paper-literal) and "
        f"{TIGHT_INNER:.1e} ||b|| (tight reference).",
    ]
    for method in BASELINES:
        baseline = result.measurement(method)
        factor = ratio_at_its_end(baseline, ours)
        if baseline and baseline.stopped:
            remarks.append(
                f"{METHODS[method]}: stopped after {_number(baseline.total_seconds)} s at distance "
                f"{baseline.end_distance:.1e}."
            )
        if baseline and ours and factor:
            there = ours.seconds_to(baseline.end_distance)
            moment = "when it is stopped" if baseline.stopped else "when it ends"
            remarks.append(
                f"{METHODS[method]} is at {baseline.end_distance:.1e} {moment}; ours is there, or closer, after "
                f"{_number(there or 0.0)} s: {factor} faster."
            )
    for method in ("ours", "default"):
        measured = result.measurement(method)
        if measured and measured.status:
            remarks.append(
                f"{METHODS[method]}: {measured.status}, estimated distance {_estimate(measured.estimate)}, "
                f"true {measured.end_distance:.1e}."
            )
    return remarks


def _growth_table(results: Sequence[Result]) -> Table:
    table = Table(
        title="Ours, default: exponents of the number of pixels",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
    )
    for heading in ("problem", "sizes", "seconds", "seconds per mask", "memory"):
        table.add_column(heading, justify="left" if heading in ("problem", "sizes") else "right")
    for growth in growths(results):
        exponents = (growth.seconds, growth.seconds_per_iteration, growth.memory)
        table.add_row(
            f"{growth.kind}, sigma {growth.sigma:g}",
            " ".join(map(str, growth.sizes)),
            *("-" if e is None else f"{e:.2f}" for e in exponents),
        )
    return table


def _draw(panel: Any, result: Result) -> None:
    for method, style in STYLES.items():
        measured = result.measurement(method)
        if measured is None:
            continue
        # the run whose total is the median, or next to it
        curve = sorted(measured.curves, key=lambda c: c[-1][0])[len(measured.curves) // 2]
        seconds, distances = zip(*curve, strict=True)
        panel.plot(seconds, distances, label=METHODS[method], **style)
        if measured.status == "CONVERGED":
            label = f"certified: {_estimate(measured.estimate)}"
            panel.plot(seconds[-1], distances[-1], "*", color=style["color"], ms=15, mec="black", label=label)
        elif measured.method in BASELINES:
            marker = ">" if measured.stopped else "o"
            panel.plot(seconds[-1], distances[-1], marker, color=style["color"], ms=7)
    for threshold in THRESHOLDS:
        panel.axhline(threshold, color="gray", linewidth=0.8, linestyle=":", zorder=0)
    panel.set(xscale="log", yscale="log", xlabel="seconds", ylabel="true relative distance to the fixed point")
    panel.set_title(result.name)
    panel.legend(fontsize=8)


def _power(threshold: float) -> str:
    return f"{threshold:.0e}".replace("e-0", "e-")


def _estimate(distance: float | None) -> str:
    return "unknown" if distance is None else f"{distance:.1e}"


def _number(seconds: float) -> str:
    """Three digits, never as a power of ten."""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"
