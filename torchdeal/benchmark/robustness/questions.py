"""What the rows of `robustness` say: a table for each question, with the values of all images below it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.standings import not_measured
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row
from torchdeal.solvers import Status

# Variants of rows
RIGHT = "as it is"
NOISES = {"noise -30 %": 0.7, "noise +30 %": 1.3}
START, STARTS = "start ", ("zero", "uniform", "normal", "adjoint", "truth")
STRICT = "strict"
PERTURBED, WORST = "perturbed ", "perturbed where it matters most"

OURS = "deal"
Rows = dict[str, list[Row]]  # by variant, the images in one order

START_TEXT = (
    "The same problem from five first iterates: zero, uniform noise, normal noise, the adjoint of the measurements, "
    "and the clean image. Under each start: the distance of its answer to that from zero, relative, the largest of all "
    "images. PSNR is that from zero, a mean; the spread is the largest difference between the starts for one image, in "
    "dB. Iterations are means, in the order of the starts."
)
PERTURBED_TEXT = (
    "Measurements with a change e of a thousandth of their norm. The ratio is ||x(y + e) - x(y)|| / ||e||, for white "
    "changes (mean and largest) and for a change in the direction that matters most. The bound is the norm of the "
    "derivative dx/dy = (A + K)^-1 H^T of the answer at the fixed point, by Lanczos iterations: no small change moves "
    "the answer more. With frozen masks, for one step of the iteration, it is ||A^-1 H^T||. The theorem of the paper "
    "divides that by 1 - q, with q the measured contraction; it says nothing where q is not below 1. All are the "
    "largest of the images. The bound is computed for one image of each problem, on a CPU only for small ones."
)
NOISE_TEXT = (
    "The noise level is stated 30 % too low and 30 % too high. PSNR with the right level, and how much it changes, in "
    "dB; means over images. Levels above 50 are beyond the training. Where there is little noise, as in MRI, ours "
    "takes a least level instead, and nothing changes."
)
LONGER_TEXT = (
    "The run to the usual tolerance beside one to a hundredth of it (with --quick a tenth). PSNR is a mean. The drop "
    "is the most that the longer run loses, in dB, against the best of its own earlier iterates; the largest of all "
    "images."
)
OPERATOR_TEXT = (
    "The method is told an operator that is slightly wrong. PSNR with the right one, and how much it changes, in dB; "
    "means over images."
)


def robustness_sections(results: Results) -> Iterator[Section]:
    """A section for each question that was asked."""
    for title, text, tables in (
        ("Five starts", START_TEXT, _starts),
        ("Perturbed measurements", PERTURBED_TEXT, _perturbed),
        ("A wrong noise level", NOISE_TEXT, _noises),
        ("More iterations", LONGER_TEXT, _longer),
        ("A wrong operator", OPERATOR_TEXT, _operators),
    ):
        table, details = tables(results)
        if table.rows:
            notes = _left_out(results, [row[0] for row in table.rows]) if tables in (_noises, _operators) else []
            yield Section(title, text, [table], [details] if details.rows else [], notes=notes)


def _left_out(results: Results, cells: list[str]) -> list[str]:
    """Why a method is missing for one of these problems, or for one noise level of it."""
    return [f"{cell}: {note}" for cell in dict.fromkeys(cells) for note in not_measured(results, cell)]


def _rows(results: Results, cell: str, method: str) -> Rows:
    """By variant, the images in the order of their names; without answers that are no numbers."""
    found: Rows = {}
    for row in sorted(results.select(cell, method), key=lambda row: row.image):
        if math.isfinite(row.values.get("psnr", math.nan)):
            found.setdefault(row.variant, []).append(row)
    return found


def _starts(results: Results) -> tuple[Table, Table]:
    rows, details = [], []
    for cell in results.cells:
        found = _rows(results, cell, OURS)
        starts = {start: found.get(f"{START}{start}", []) for start in STARTS}
        if not all(starts.values()):
            continue
        every = [row for each in starts.values() for row in each]
        rows.append(
            [
                *(cell, _converged(every), f"{_mean(starts['zero'], 'psnr'):.2f}", f"{_spread(every):.3f}"),
                *(f"{_most(starts[start], 'apart'):.1e}" for start in STARTS[1:]),
                ", ".join(f"{_mean(each, 'iterations'):.0f}" for each in starts.values()),
            ]
        )
        details += [
            [cell, row.image, row.variant.removeprefix(START), *_run(row), f"{row.values['apart']:.1e}"]
            for row in every
        ]
    head = ["problem", "converged", "PSNR", "spread", *STARTS[1:], "iterations"]
    return Table(head, rows), Table(["problem", "image", "start", "status", "iterations", "PSNR", "distance"], details)


def _perturbed(results: Results) -> tuple[Table, Table]:
    rows, details = [], []
    for cell in results.cells:
        found = _rows(results, cell, OURS)
        strict = found.get(STRICT, [])
        white = [row for variant, each in found.items() if _is_white(variant) for row in each]
        if not strict or not white:
            continue
        worst = found.get(WORST, [])
        ratios = [row.values["ratio"] for row in white]
        rows.append(
            [
                *(cell, _converged(strict + white + worst), number(fmean(ratios)), number(max(ratios))),
                *(_known(worst, "ratio"), _known(strict, "gain"), _known(strict, "frozen_gain"), _theorem(strict)),
            ]
        )
        details += [[cell, row.image, row.variant, number(row.values["ratio"])] for row in white + worst]
    head = ["problem", "converged", "white, mean", "white, largest", "worst direction", "bound", "frozen masks"]
    return Table([*head, "theorem"], rows), Table(["problem", "image", "change", "ratio"], details)


def _noises(results: Results) -> tuple[Table, Table]:
    rows, details = [], []
    for cell, method, found in _compared(results):
        changes = [_change(found, variant) for variant in NOISES]
        if any(change is not None for change in changes):
            rows.append([cell, label(method), f"{_mean(found[RIGHT], 'psnr'):.2f}", *map(_decibels, changes)])
            details += _level_rows(cell, method, found, [RIGHT, *NOISES])
    head = ["problem", "method", "right", *(name.removeprefix("noise ") for name in NOISES)]
    return Table(head, rows), Table(["problem", "method", "image", "told", "PSNR"], details)


def _longer(results: Results) -> tuple[Table, Table]:
    rows, details = [], []
    for cell in results.cells:
        found = _rows(results, cell, OURS)
        if not found.get(STRICT) or not found.get(RIGHT):
            continue
        usual, strict = found[RIGHT], found[STRICT]
        rows.append(
            [
                *(cell, _converged(usual), f"{_mean(usual, 'iterations'):.0f}", f"{_mean(usual, 'psnr'):.3f}"),
                *(_converged(strict), f"{_mean(strict, 'iterations'):.0f}", f"{_mean(strict, 'psnr'):.3f}"),
                f"{_most(strict, 'drop'):.3f}",
            ]
        )
        details += [[cell, row.image, "usual", *_run(row), ""] for row in usual]
        details += [[cell, row.image, "longer", *_run(row), f"{row.values['drop']:.3f}"] for row in strict]
    head = ["problem", "converged", "iterations", "PSNR", "longer: converged", "iterations", "PSNR", "drop"]
    return Table(head, rows), Table(["problem", "image", "run", "status", "iterations", "PSNR", "drop"], details)


def _operators(results: Results) -> tuple[Table, Table]:
    rows, details = [], []
    compared = list(_compared(results))
    for cell in results.cells:
        here = [(method, found) for name, method, found in compared if name == cell]
        wrong = dict.fromkeys(variant for _, found in here for variant in found if _is_mistake(variant))
        for variant in wrong:
            for method, found in here:
                right = f"{_mean(found[RIGHT], 'psnr'):.2f}"
                rows.append([cell, variant, label(method), right, _decibels(_change(found, variant))])
        details += [row for method, found in here for row in _level_rows(cell, method, found, [RIGHT, *wrong]) if wrong]
    head = ["problem", "what is wrong", "method", "right", "change"]
    return Table(head, rows), Table(["problem", "method", "image", "told", "PSNR"], details)


def _compared(results: Results) -> Iterator[tuple[str, str, Rows]]:
    """All problems and methods that were run with what is right."""
    for cell in results.cells:
        for method in results.methods([cell]):
            found = _rows(results, cell, method)
            if found.get(RIGHT):
                yield cell, method, found


def _is_white(variant: str) -> bool:
    return variant.startswith(PERTURBED) and variant != WORST


def _is_mistake(variant: str) -> bool:
    return variant not in (RIGHT, STRICT, *NOISES) and not variant.startswith((START, PERTURBED))


def _change(found: Rows, variant: str) -> float | None:
    """The mean change of PSNR over the images that have both."""
    right = {row.image: row.values["psnr"] for row in found[RIGHT]}
    changes = [row.values["psnr"] - right[row.image] for row in found.get(variant, []) if row.image in right]
    return fmean(changes) if changes else None


def _level_rows(cell: str, method: str, found: Rows, variants: list[str]) -> list[list[str]]:
    each = (row for variant in variants for row in found.get(variant, []))
    return [[cell, label(method), row.image, row.variant, f"{row.values['psnr']:.2f}"] for row in each]


def _converged(rows: list[Row]) -> str:
    return f"{sum(row.values['status'] == Status.CONVERGED.name for row in rows)} of {len(rows)}"


def _run(row: Row) -> list[str]:
    return [row.values["status"], str(row.values["iterations"]), f"{row.values['psnr']:.3f}"]


def _mean(rows: list[Row], name: str) -> float:
    return fmean(row.values[name] for row in rows)


def _most(rows: list[Row], name: str) -> float:
    return max(row.values[name] for row in rows)


def _spread(rows: list[Row]) -> float:
    """The largest difference of PSNR within an image."""
    levels: dict[str, list[float]] = {}
    for row in rows:
        levels.setdefault(row.image, []).append(row.values["psnr"])
    return max(max(each) - min(each) for each in levels.values())


def _known(rows: list[Row], name: str) -> str:
    values = [row.values[name] for row in rows if name in row.values]
    return number(max(values)) if values else "-"


def _theorem(strict: list[Row]) -> str:
    """`||A^-1 H^T|| / (1 - q)`; nothing where q was not measured, or is not below 1."""
    values = [row.values for row in strict if "frozen_gain" in row.values]
    bounds = [value["frozen_gain"] / (1 - value["contraction"]) for value in values if value.get("contraction", 1) < 1]
    return number(max(bounds)) if bounds else "-"


def _decibels(change: float | None) -> str:
    return "-" if change is None else f"{change:+.2f}"
