"""`deal benchmark ...`: its arguments are read by a parser that needs no more than Python (see `benchmark/options`)."""

from __future__ import annotations

import typer


def benchmark(context: typer.Context) -> None:
    """Measure, on this machine, what the documents claim, beside other methods."""
    from torchdeal.benchmark.command import run

    run(context.args, "deal benchmark")
