"""The command `deal`: parse, call the library, show.

Each command is a function in the module of its name. The reconstructions among them share their options (`options`)
and one way from file to file (`run`: read, pose, solve, write, report).
"""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

import torchdeal
from torchdeal.cli import app as page
from torchdeal.cli import ct, deblur, denoise, explain, info, inpaint, mri, process, serve, train, tune, upscale, watch
from torchdeal.cli.benchmark import benchmark
from torchdeal.cli.shared import complain, in_words, is_foreseeable, messages, print_json

app = typer.Typer(
    name="deal",
    help="Image reconstruction by deep attentive least squares (DEAL).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(epilog=denoise.EXAMPLES)(denoise.denoise)
app.command(epilog=deblur.EXAMPLES)(deblur.deblur)
app.command(epilog=upscale.EXAMPLES)(upscale.upscale)
app.command(epilog=inpaint.EXAMPLES)(inpaint.inpaint)
app.command(epilog=mri.EXAMPLES)(mri.mri)
app.command(epilog=ct.EXAMPLES)(ct.ct)
app.command(epilog=watch.EXAMPLES)(watch.watch)
app.command(epilog=explain.EXAMPLES)(explain.explain)
app.command(epilog=tune.EXAMPLES)(tune.tune)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(
    add_help_option=False,  # --help is that of its own parser
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(benchmark)
app.command(name="app", epilog=page.EXAMPLES)(page.app)
app.command(epilog=serve.EXAMPLES)(serve.serve)
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
    """Entry point: whatever happens ends in words and an exit code, with --json in JSON."""
    try:
        with process.a_command():
            sys.exit(_exit_code(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


def _exit_code(arguments: list[str]) -> int:
    try:
        if "" in arguments:  # an empty path would be the folder that one is in
            raise ValueError("an argument is empty: give a name, or leave it out")
        return app(arguments, prog_name="deal", standalone_mode=False) or 0
    except typer.Abort:
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):  # of typer: the command line is not one of ours
            return _tell_usage(error, arguments)
        told = in_words(error) if is_foreseeable(error) else f"{type(error).__name__}: {error}"
        _tell(told, arguments)
        if not is_foreseeable(error):
            raise
        return getattr(error, "exit_code", 1)


def _tell_usage(error: Any, arguments: list[str]) -> int:
    """What would be right, then what is wrong."""
    if type(error).__name__ == "NoArgsIsHelpError":  # typer has shown the help
        return error.exit_code
    if error.ctx is not None:
        messages.print(error.ctx.get_usage(), markup=False)
        messages.print(f"Try '{error.ctx.command_path} --help' for help.", markup=False)
    _tell(error.format_message(), arguments)
    return error.exit_code


def _tell(text: str, arguments: list[str]) -> None:
    complain("Error", text)
    if "--json" in arguments:
        with contextlib.suppress(OSError):  # the error may be that nothing can be printed
            print_json({"error": text})
