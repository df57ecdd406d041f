"""How the tools show plain results, and what they record of their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from typing import Any

from torchdeal.benchmark.frame import Settings, Table, circumstances, number
from torchdeal.io.checkpoint import checksum


def bundled_weights(plan: Any) -> Settings:
    """The settings of a plan that has only a `kind` of weights."""
    return {"weights": {plan.kind: checksum(plan.kind)}}


def show_all(results: Sequence[Any], settings: Settings) -> Iterator[str | Table]:
    """A column for each field, a row for each result: for those that are made of numbers and texts."""
    yield f"{circumstances(settings)}\n"
    cells = [[v if isinstance(v, str) else "-" if v is None else number(v) for v in astuple(r)] for r in results]
    yield Table([item.name.replace("_", " ") for item in fields(results[0])], cells)
