"""The command `deal`: parse, call the library, show.

Each command is a function in the module of its name. The reconstructions among them share their options (`options`)
and one way from file to file (`run`: read, pose, solve, write, report).
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

import torchdeal
from torchdeal.cli import ct, deblur, denoise, info, inpaint, mri, train, upscale
from torchdeal.cli.benchmark import benchmark
from torchdeal.cli.shared import complain, is_foreseeable

app = typer.Typer(
    name="deal",
    help="Image reconstruction by deep attentive least squares (DEAL).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(epilog=denoise.EXAMPLES)(denoise.denoise)
app.command(epilog=deblur.EXAMPLES)(deblur.deblur)
app.command(epilog=upscale.EXAMPLES)(upscale.upscale)
app.command(epilog=inpaint.EXAMPLES)(inpaint.inpaint)
app.command(epilog=mri.EXAMPLES)(mri.mri)
app.command(epilog=ct.EXAMPLES)(ct.ct)
app.command(epilog=train.EXAMPLES)(train.train)
app.add_typer(benchmark, name="benchmark")
app.command()(info.info)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"torchdeal {torchdeal.__version__}")
        raise typer.Exit


@app.callback()
def deal(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Image reconstruction by deep attentive least squares (DEAL)."""


def main() -> None:
    """Entry point: every foreseeable failure becomes one line on stderr and a non-zero exit."""
    warnings.showwarning = lambda message, *_, **__: complain("Warning", str(message))
    try:
        app()
    except Exception as error:
        if not is_foreseeable(error):
            raise
        complain("Error", str(error))
        sys.exit(1)
