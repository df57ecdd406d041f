"""What was measured, as a tidy table: a row for each problem and method, beside all that is needed to repeat it.

The JSON has one row a line under `rows`, with the names of their fields under `columns`, so that
`pandas.DataFrame(content["rows"], columns=content["columns"])` is the table. The CSV beside it is the same table.
"""

from __future__ import annotations

import csv
import json
import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchdeal
from torchdeal.io.atomic import replacing

FORMAT = "torchdeal-results-1"
DIGITS = 6  # of numbers in the table: more than any of them is known to
KEYS = ("cell", "image", "variant", "method", "environment")

Values = dict[str, Any]  # numbers, texts or None, by their names


@dataclass(frozen=True)
class Row:
    """One method on one problem."""

    cell: str
    image: str
    method: str
    values: Values  # psnr, seconds, status, ...
    variant: str = ""  # where a cell has an image several times, such as with several kernels
    environment: int = 0  # which of `Results.environments`


@dataclass
class Results:
    """All rows of an experiment, and their circumstances."""

    experiment: str
    settings: dict[str, Any]  # of the protocol: equal for all rows
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)  # table and column of each, and how many problems
    weights: dict[str, dict[str, str]] = field(default_factory=dict)  # of methods: their files and checksums
    parameters: dict[str, dict[str, Values]] = field(default_factory=dict)  # of cell and method: what was chosen
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)  # of cell and method: why there is no row
    environments: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keep a row; it is the word that counts about a method that could not run before."""
        self.rows.append(row)
        self.reasons.get(row.cell, {}).pop(row.method, None)

    def select(self, cell: str, method: str) -> list[Row]:
        """The rows of a method in a cell."""
        return [row for row in self.rows if row.cell == cell and row.method == method]

    def methods(self, cells: Iterator[str] | list[str] | None = None) -> list[str]:
        """Those that were measured in any of the cells, or have a reason why not, in that order."""
        chosen = set(self.cells if cells is None else cells)
        measured = dict.fromkeys(row.method for row in self.rows if row.cell in chosen)
        left_out = dict.fromkeys(m for cell, why in self.reasons.items() if cell in chosen for m in why)
        return list(measured | left_out)

    def tables(self) -> dict[str, dict[str, str]]:
        """Title of each table: its cells, and the heads of their columns."""
        found: dict[str, dict[str, str]] = {}
        for name, place in self.cells.items():
            found.setdefault(place["table"], {})[name] = place["column"]
        return found

    def save(self, folder: Path) -> None:
        """`EXPERIMENT.json` and `EXPERIMENT.csv`, each replaced as a whole."""
        for suffix, write in ((".json", self._write_json), (".csv", self._write_csv)):
            with replacing(folder / f"{self.experiment}{suffix}") as temporary:
                write(temporary)

    @classmethod
    def load(cls, path: Path) -> Results:
        """What `save` wrote. Raises ValueError for anything else."""
        try:
            content = json.loads(path.read_text())
            if content.pop("format") != FORMAT:
                raise ValueError
            columns, lines = content.pop("columns"), content.pop("rows")
            if tuple(columns[: len(KEYS)]) != KEYS:
                raise ValueError
            rows = [_row(dict(zip(columns, line, strict=True))) for line in lines]
            return _checked(cls(**content, rows=rows))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{path}: does not hold results that deal benchmark wrote") from None

    def _columns(self) -> list[str]:
        return [*KEYS, *dict.fromkeys(name for row in self.rows for name in row.values)]

    def _lines(self) -> Iterator[list[Any]]:
        names = self._columns()[len(KEYS) :]
        for row in self.rows:
            yield [*_keys(row), *(plain(row.values.get(name)) for name in names)]

    def _write_json(self, path: Path) -> None:
        head = {
            "format": FORMAT,
            "experiment": self.experiment,
            **{name: getattr(self, name) for name in _HEAD},
            "columns": self._columns(),
        }
        text = json.dumps(plain(head), indent=1, allow_nan=False).removesuffix("\n}")
        lines = ",\n".join(json.dumps(line, allow_nan=False) for line in self._lines())
        path.write_text(f'{text},\n "rows": [\n{lines}\n]}}\n')

    def _write_csv(self, path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:  # names may be no text
            writer = csv.writer(file)
            writer.writerow(self._columns())
            writer.writerows(self._lines())


_HEAD = ("settings", "cells", "weights", "parameters", "reasons", "environments")


def environment(device: str) -> dict[str, Any]:
    """When, with what and where."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "torchdeal": torchdeal.__version__,
        "source": source_checksum(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": device,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "tf32": False,
    }


@cache
def source_checksum() -> str:
    """Of the Python files of the package: it tells rows of one version apart that different code has measured."""
    digest, root = sha256(), Path(torchdeal.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def device_name(device: str) -> str:
    """Of the card, or of the processor."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _row(entries: dict[str, Any]) -> Row:
    cell, image, variant, method, place = (entries.pop(name) for name in KEYS)
    return Row(cell, image, method, {k: v for k, v in entries.items() if v is not None}, variant, place)


def _checked(results: Results) -> Results:
    """The results, or ValueError if a part of them is not what it should be."""
    parts = [getattr(results, name) for name in _HEAD if name not in ("settings", "environments")]
    tables = [results.settings, *parts, *(entry for part in parts for entry in part.values()), *results.environments]
    names = [results.experiment, *(name for row in results.rows for name in _keys(row)[:-1])]
    right = (
        all(isinstance(table, dict) for table in tables)
        and all(isinstance(name, str) for name in names)
        and all(isinstance(row.environment, int) for row in results.rows)
        and all({"table", "column"} <= place.keys() for place in results.cells.values())
    )
    if not right:
        raise ValueError
    return results


def _keys(row: Row) -> tuple[str, str, str, str, int]:
    return row.cell, row.image, row.variant, row.method, row.environment


def plain(value: Any) -> Any:
    """The same as JSON has it: numbers to some digits, None for those that it does not have."""
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
