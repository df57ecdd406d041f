"""Parameters of methods: those that ship with the package, and those that are best on tuning images.

What is reported is never among the tuning images. `python -m torchdeal.benchmark.tuning OUT ...` makes the parameters
that were chosen for the results in these folders those that ship.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

from torchdeal.benchmark.core import Cell, Method, Say, answers, batches
from torchdeal.benchmark.methods import OurSolver
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import finer, grid, parameters
from torchdeal.benchmark.results import Results, Values
from torchdeal.io.atomic import replacing

SHIPPED = Path(__file__).with_name("parameters.json")
MOST_ROUNDS = 4  # through all parameters
REFINEMENTS = 2  # of the grid of values, each of which halves its steps
TUNED = ("denoising", "superres", "deblur", "mri", "ct")  # experiments with tuning images; others take over from these
ROUGH = {"tolerance": 2e-3, "max_iterations": 60}  # of ours while parameters are looked for


def known_parameters(experiment: str, group: str, name: str, method: Method) -> dict[str, Values]:
    """`{name: parameters}` as they ship; empty where none were chosen for it yet."""
    if not grid(method):
        return {}
    chosen = _shipped().get(experiment, {}).get(group, {}).get(name)
    return {} if chosen is None else {name: chosen}


def tuned_parameters(method: Method, cell: Cell, options: BenchmarkOptions, say: Say, start: Values) -> Values:
    """The best on the tuning images of the cell, by PSNR, near the start; empty for a method without parameters."""
    if not grid(method) or cell.tuning is None:
        return {}
    problems = cell.tuning()

    def score(values: Values) -> float:
        trial = replace(method, **values)
        trial = replace(trial, **ROUGH) if isinstance(trial, OurSolver) else trial
        levels = []
        for batch in batches(problems, options.device):
            found = answers(trial, batch, cell, options.device)
            levels += [cell.score(x, problem.clean) for (x, _), problem in zip(found, batch, strict=True)]
        say(f"tuning {cell.tuned_as or cell.name}: {values}: {fmean(levels):.3f} dB")
        return fmean(levels)

    tried: dict[tuple[float, ...], float] = {}

    def remembered(values: Values) -> float:
        key = tuple(values.values())
        if key not in tried:
            tried[key] = score(values)
        return tried[key]

    values, best = grid(method), {**parameters(method), **start}
    for _ in range(1 + REFINEMENTS):
        best = best_parameters(remembered, values, best)
        values = finer(method, values)
    return best


def best_parameters(score: Callable[[Values], float], values: dict[str, tuple[float, ...]], start: Values) -> Values:
    """Walk uphill along one parameter after the other, until none can be improved.

    Each step goes to the next value of the grid. The scores should have one peak.
    """
    places = {name: _nearest(values[name], start[name]) for name in values}

    def scored(*indices: int) -> float:
        return score({name: values[name][index] for name, index in zip(values, indices, strict=True)})

    for _ in range(MOST_ROUNDS):
        before = dict(places)
        for name in places:
            _climb(name, places, len(values[name]), scored)
        if places == before:
            break
    return {name: values[name][index] for name, index in places.items()}


def _climb(name: str, places: dict[str, int], length: int, scored: Callable[..., float]) -> None:
    """Move `places[name]` to a peak: uphill in the direction that goes up."""

    def at(index: int) -> float:
        return scored(*{**places, name: index}.values())

    for direction in (1, -1):
        moved = False
        while 0 <= places[name] + direction < length and at(places[name] + direction) > at(places[name]):
            places[name] += direction
            moved = True
        if moved:
            return


def _nearest(values: tuple[float, ...], wanted: float) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index] - wanted))


@cache
def _shipped() -> dict[str, dict[str, dict[str, Values]]]:
    return json.loads(SHIPPED.read_text()) if SHIPPED.is_file() else {}


def ship(folders: list[Path]) -> None:
    """Take over the parameters of all results in the folders; those of other cells and methods stay."""
    kept = _shipped()
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        results = Results.load(path)
        if results.experiment not in TUNED:
            continue
        for group, methods in results.parameters.items():
            chosen = {name: values for name, values in methods.items() if values}
            if chosen:
                kept.setdefault(results.experiment, {}).setdefault(group, {}).update(chosen)
    with replacing(SHIPPED) as temporary:
        temporary.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    ship([Path(name) for name in sys.argv[1:]])
