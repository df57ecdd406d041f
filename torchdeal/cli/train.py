"""`deal train`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from torchdeal.cli.shared import Device, DeviceChoice, complain, device_name, messages, output

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal train configs/gray.toml --data images/ --output run[/bold]\n\n"
    "[bold]deal train mine.toml --from gray --output run[/bold]   (fine-tune the bundled weights)\n\n"
    "[bold]deal train mine.toml --output run --resume[/bold]   (go on where a run was stopped)\n\n"
    "[bold]torchrun --nproc-per-node 4 -m torchdeal.training mine.toml --output run[/bold]   (several GPUs)"
)


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="All settings; see configs/ and docs/training.md.")
    ],
    folder: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="For checkpoints, weights and the log.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Weights to start from: gray, color, or a file. Default: new ones.")
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
) -> None:
    """Train weights, or fine-tune those that exist, for denoising or another task."""
    from torchdeal import training
    from torchdeal.training.board import Board
    from torchdeal.training.run import EXIT_CODES
    from torchdeal.training.terminal import Display, joined

    options = training.Options(config, folder, start, resume, device_name(device), seconds=seconds, data=data)
    board = Board(folder / "tensorboard") if tensorboard else None
    with Display(messages) as display, contextlib.closing(board) if board else contextlib.nullcontext():
        listeners = [display.listener()] + ([board.listener()] if board else [])
        try:
            state, reason = training.train(options, joined(*listeners))
        except training.DivergedError as error:
            raise ValueError(str(error)) from None
    if reason:
        complain("Stopped", f"at step {state.step} ({reason}); go on with --resume")
        raise typer.Exit(EXIT_CODES.get(reason, 0))
    output.print(f"{folder / 'last.safetensors'}: {state.step} steps, {state.seconds / 60:.1f} minutes", markup=False)
    if state.best_psnr is not None:
        best = f"best on the validation images at step {state.best_step}, {state.best_psnr:.3f} dB"
        output.print(f"{folder / 'best.safetensors'}: {best}", markup=False)
