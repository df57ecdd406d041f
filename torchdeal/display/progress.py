"""A bar that shows how far a run is: in terminals by rich, in notebooks as HTML, which needs no further package."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchdeal.solvers import Progress

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

Callback = Callable[[Progress], None]
PAUSE = 0.1  # seconds between two pictures of the bar in a notebook


class Advance:
    """How far a run is, from 0 to 1: where its residual is, on a logarithmic scale, between 1 and the tolerance."""

    def __init__(self, tolerance: float):
        self._goal = math.log(min(max(0.1 * tolerance, 1e-12), 0.1))  # done when it is well below the tolerance

    def __call__(self, state: Progress) -> tuple[float, float]:
        """The share that is done, below 1, and the residual of the sample that is furthest away."""
        residual = float(state.residual.nan_to_num(0).max())
        done = math.log(residual) / self._goal if residual > 0 else 1.0
        return (state.run + min(max(done, 0.0), 0.99)) / state.runs, residual


def columns() -> tuple[ProgressColumn, ...]:
    """Of a bar of rich whose tasks have the fields `iteration` and `residual`."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    numbers = TextColumn("iteration {task.fields[iteration]}  residual {task.fields[residual]:.1e}")
    return TextColumn("{task.description}"), BarColumn(), numbers, TimeElapsedColumn()


@contextmanager
def progress_shown(wanted: bool, tolerance: float, callback: Callback | None) -> Iterator[Callback | None]:
    """The callback of a run; where it is wanted, one that also moves a bar, which stays there when the run ends."""
    if not wanted:
        yield callback
        return
    with _bar(Advance(tolerance)) as move:

        def both(state: Progress) -> None:
            move(state)
            if callback:
                callback(state)

        yield both


@contextmanager
def _bar(advance: Advance) -> Iterator[Callback]:
    from rich.console import Console

    console = Console(stderr=True)
    with _in_notebook(advance) if console.is_jupyter else _in_terminal(advance, console) as move:
        yield move


@contextmanager
def _in_terminal(advance: Advance, console: Any) -> Iterator[Callback]:
    from rich import progress

    with progress.Progress(*columns(), console=console) as bar:
        task = bar.add_task("reconstruct", total=1.0, iteration=0, residual=1.0)

        def move(state: Progress) -> None:
            done, residual = advance(state)
            bar.update(task, completed=done, iteration=state.iteration, residual=residual)

        yield move
        bar.update(task, completed=1.0)


@contextmanager
def _in_notebook(advance: Advance) -> Iterator[Callback]:
    """Without ipywidgets, which the bars of rich need there."""
    from IPython.display import HTML, DisplayHandle

    started = shown = time.monotonic()
    handle = DisplayHandle()
    handle.display(HTML(_line(0.0, 0, 1.0, 0.0)))
    latest = 0, 1.0

    def move(state: Progress) -> None:
        nonlocal shown, latest
        done, residual = advance(state)
        latest, now = (state.iteration, residual), time.monotonic()
        if now - shown >= PAUSE:
            shown = now
            handle.update(HTML(_line(done, *latest, now - started)))

    yield move
    handle.update(HTML(_line(1.0, *latest, time.monotonic() - started)))


def _line(done: float, iteration: int, residual: float, seconds: float) -> str:
    words = f"iteration {iteration}, residual {residual:.1e}, {seconds:.1f} s"
    return f'<progress value="{done:.3f}" max="1" style="width:16em"></progress> <code>{words}</code>'
