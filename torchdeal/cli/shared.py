"""What all commands have in common: what they print and how, the device, which errors are told in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any

import torch
import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from torchdeal import solvers
from torchdeal.choice import Choice
from torchdeal.cli.memory import OutOfMemoryError, out_of_memory
from torchdeal.display.progress import Advance, columns
from torchdeal.io import files
from torchdeal.io.printable import printable
from torchdeal.memory import is_out_of_memory

COLOURS = {"Warning": "yellow", "Note": "cyan"}  # of messages; else red


class Terminal(Console):
    """Prints what files and their names hold as text: a terminal obeys none of it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)


messages = Terminal(stderr=True, highlight=False, emoji=False, soft_wrap=True)
output = Terminal(highlight=False, emoji=False)


class Device(str, Enum):
    """Where to compute."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"


class WeightsSize(Choice):
    """Which of the bundled weights."""

    LIGHT = "light"
    FULL = "full"


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
    """One line on stderr."""
    colour = COLOURS.get(kind, "red")
    messages.print(f"[bold {colour}]{kind}:[/bold {colour}] ", end="")
    messages.print(printable(text), markup=False)


def say(text: str) -> None:
    """One line on stdout."""
    output.print(printable(text), soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """On stdout, as `json_text` has it."""
    print(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """In ASCII, on one line unless it is indented; numbers that JSON has no word for are null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str, type(None))) else str(value)


def is_foreseeable(error: BaseException) -> bool:
    """Whether the message says enough, without a traceback."""
    known = isinstance(error, (files.ImageFileError, ValueError, TypeError, OSError))
    missing_extra = isinstance(error, ImportError) and "pip install" in str(error)
    return known or missing_extra or is_out_of_memory(error)


def in_words(error: BaseException) -> str:
    """What a user is told of a foreseeable error."""
    if is_out_of_memory(error) and not isinstance(error, OutOfMemoryError):
        error = out_of_memory(error, "for this")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def progress_bar(quiet: bool) -> Progress:
    return Progress(*columns(), console=messages, transient=True, disable=quiet or not messages.is_terminal)


@contextmanager
def waiting(quiet: bool, what: str) -> Iterator[Callable[[str], None]]:
    """A line with a clock while something is computed. What is yielded says how far it is."""
    parts = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*parts, console=messages, transient=True, disable=quiet or not messages.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda stage: progress.update(task, description=f"{what}: {stage}")


def reporter(progress: Progress, label: str, tolerance: float) -> Callable[[solvers.Progress], None]:
    """A callback that moves the bar."""
    task = progress.add_task(escape(printable(label)), total=1.0, iteration=0, residual=1.0)
    advance = Advance(tolerance)

    def report(state: solvers.Progress) -> None:
        done, residual = advance(state)
        progress.update(task, completed=done, iteration=state.iteration, residual=residual)

    return report
