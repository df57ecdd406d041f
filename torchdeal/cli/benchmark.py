"""`deal benchmark ...`: each benchmark reads its own arguments."""

from __future__ import annotations

from importlib import import_module

import typer

from torchdeal.benchmark import BENCHMARKS

benchmark = typer.Typer(help="Measure, on this machine, what the documents claim.", no_args_is_help=True)


def _forward(context: typer.Context) -> None:
    name = context.info_name
    module = import_module(f"torchdeal.benchmark.{name}")
    module.BENCHMARK.run(context.args, f"deal benchmark {name}")


for _name, _about in BENCHMARKS.items():
    benchmark.command(
        _name,
        help=_about,
        add_help_option=False,  # --help is that of the parser
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_forward)
