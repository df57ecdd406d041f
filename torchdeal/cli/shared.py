"""What all commands have in common: the two consoles, the device, how errors end."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from torchdeal import solvers
from torchdeal.io import files

messages = Console(stderr=True, highlight=False, soft_wrap=True)
output = Console(highlight=False)


class Device(str, Enum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


DeviceChoice = Annotated[Device, typer.Option(help="auto takes CUDA where there is one.")]


def device_name(choice: Device) -> str:
    """The device as torch calls it; raises if it is not there."""
    if choice is Device.auto:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if choice is Device.cuda and not torch.cuda.is_available():
        raise ValueError("no CUDA device is available: use --device cpu")
    if choice is Device.mps and not torch.backends.mps.is_available():
        raise ValueError("no MPS device is available: use --device cpu")
    return choice.value


def complain(kind: str, text: str) -> None:
    colour = {"Warning": "yellow", "Note": "cyan"}.get(kind, "red")
    messages.print(f"[bold {colour}]{kind}:[/bold {colour}] ", end="")
    messages.print(text, markup=False)


def is_foreseeable(error: Exception) -> bool:
    """Whether the message says enough, without a traceback."""
    memory = type(error).__name__ == "OutOfMemoryError" or "not enough memory" in str(error)
    missing_extra = isinstance(error, ImportError) and "pip install" in str(error)
    known = (files.ImageFileError, ValueError, TypeError, OSError, MemoryError)
    return memory or missing_extra or isinstance(error, known)


def progress_bar(quiet: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("iteration {task.fields[iteration]}  residual {task.fields[residual]:.1e}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=messages, transient=True, disable=quiet or not messages.is_terminal)


def reporter(progress: Progress, label: str, tolerance: float) -> Callable[[solvers.Progress], None]:
    """A callback that moves the bar: full when the residual, on a log scale, is well below the tolerance."""
    task = progress.add_task(escape(label), total=1.0, iteration=0, residual=1.0)
    goal = math.log(min(max(0.1 * tolerance, 1e-12), 0.1))

    def report(state: solvers.Progress) -> None:
        residual = float(state.residual.nan_to_num(0).max())
        done = math.log(residual) / goal if residual > 0 else 1.0
        progress.update(task, completed=min(max(done, 0.0), 0.99), iteration=state.iteration, residual=residual)

    return report
