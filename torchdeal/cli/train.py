"""`deal train`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchdeal.cli.shared import Device, DeviceChoice, complain, device_name, messages, print_json, say

if TYPE_CHECKING:
    from torchdeal.training.state import RunState

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal train configs/gray.toml --data images/ --output run[/bold]\n\n"
    "[bold]deal train configs/fine-tune.toml --data images/ --from gray-light --output run[/bold]   "
    "(fine-tune the bundled weights)\n\n"
    "[bold]deal train mine.toml --output run --resume[/bold]   (go on where a run was stopped)\n\n"
    "[bold]torchrun --nproc-per-node 4 -m torchdeal.training mine.toml --output run[/bold]   (several GPUs)"
)


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="All settings; see configs/ and docs/training.md.")
    ],
    folder: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="For checkpoints, weights and the log.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Weights to start from: bundled ones, or a file. Default: new ones.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the output folder.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Where the paths in the config begin. Default: the folder of the config.")
    ] = None,
    device: DeviceChoice = Device.auto,
    seconds: Annotated[float | None, typer.Option(help="Stop after this long, to be resumed.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard logs, to FOLDER/tensorboard.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON at the end, instead of text.")] = False,
) -> None:
    """Train weights, or fine-tune those that exist, for denoising or another task."""
    from torchdeal import training
    from torchdeal.training.board import Board
    from torchdeal.training.run import EXIT_CODES

    options = training.Options(config, folder, start, resume, device_name(device), seconds=seconds, data=data)
    board = Board(folder / "tensorboard") if tensorboard else None
    with _bar() as bar, contextlib.closing(board) if board else contextlib.nullcontext():
        try:
            state, reason = training.train(options, _listener(bar, board))
        except training.DivergedError as error:
            raise ValueError(str(error)) from None
    _close(folder, state, reason, as_json)
    raise typer.Exit(EXIT_CODES.get(reason or "", 0))


def _close(folder: Path, state: RunState, reason: str | None, as_json: bool) -> None:
    """Say how it ended, and where the weights are."""
    last, best = folder / "last.safetensors", folder / "best.safetensors"
    if as_json:
        weights = {"last": str(last), "best": str(best) if state.best_step is not None else None}
        print_json({**asdict(state), **weights, "stopped": reason})
    elif reason:
        complain("Stopped", f"at step {state.step} ({reason}); go on with --resume")
    else:
        say(f"{last}: {state.step} steps, {state.seconds / 60:.1f} minutes")
        if state.best_psnr is not None:
            say(f"{best}: best on the validation images at step {state.best_step}, {state.best_psnr:.3f} dB")


def _bar() -> Progress:
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=messages, disable=not messages.is_terminal)


def _listener(bar: Progress, board: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Reports move the bar in a terminal; they are lines where the output goes to a file, as all else is."""
    from torchdeal.training import Event, Example, Report

    task = bar.add_task("training", total=None, state="")

    def listen(event: Event) -> None:
        if board:
            board(event)
        if isinstance(event, Report) and messages.is_terminal:
            state = (
                f"loss {event.loss:.2f}  PSNR {event.psnr:.2f} dB  {event.iterations:.1f} outer, "
                f"{event.cg_iterations:.0f} CG  {event.steps_per_second:.1f} steps/s"
            )
            bar.update(task, completed=event.step, total=event.steps, state=state)
        elif not isinstance(event, Example):
            bar.console.print(str(event), markup=False)

    return listen
