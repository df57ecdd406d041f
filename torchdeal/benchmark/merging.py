"""Results of several machines as one: `python -m torchdeal.benchmark.merging INTO FROM [FROM ...]`.

Folders hold what `deal benchmark --out` wrote. What is in the first stays; what only the others have is added.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchdeal.benchmark.results import Results


def merge(into: Path, others: Sequence[Path]) -> None:
    """Add the results in the other folders to those in the first, which is made if it is not there."""
    joined: dict[str, Results] = {}
    for path in sorted(path for folder in others for path in folder.glob("*.json")):
        found = Results.load(path)
        if found.experiment not in joined:
            target = into / f"{found.experiment}.json"
            joined[found.experiment] = (
                Results.load(target) if target.exists() else Results(found.experiment, found.settings)
            )
        add(joined[found.experiment], found)
    into.mkdir(parents=True, exist_ok=True)
    for results in joined.values():  # only when nothing was refused
        results.save(into)


def add(results: Results, found: Results) -> None:
    """Rows, cells, parameters and reasons that the results lack, with the environments of those rows."""
    for name, one, other in (
        ("experiment", results.experiment, found.experiment),
        ("settings", results.settings, found.settings),
    ):
        if one != other:
            raise ValueError(f"{found.experiment}: results of different {name} cannot be joined")
    for method, weights in found.weights.items():
        kept = results.weights.setdefault(method, {})
        if any(kept.get(kind, sha) != sha for kind, sha in weights.items()):
            raise ValueError(f"{found.experiment}: {method} was measured with different weights")
        kept.update(weights)
    measured = {(row.cell, row.method, row.image, row.variant) for row in results.rows}
    new = [row for row in found.rows if (row.cell, row.method, row.image, row.variant) not in measured]
    first = len(results.environments)
    used = sorted({row.environment for row in new})
    results.environments += [found.environments[place] for place in used]
    for row in new:
        results.add(replace(row, environment=first + used.index(row.environment)))
    for name, place in found.cells.items():
        results.cells[name] = {**place, **results.cells.get(name, {})}
    for cell, methods in found.parameters.items():
        results.parameters[cell] = {**methods, **results.parameters.get(cell, {})}
    for cell, methods in found.reasons.items():
        missing = {name: why for name, why in methods.items() if not results.select(cell, name)}
        results.reasons[cell] = {**missing, **results.reasons.get(cell, {})}


if __name__ == "__main__":
    merge(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
