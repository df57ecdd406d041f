"""The way of every reconstruction command: read, pose, solve, write, report.

A command fills in a `Task`: how its files are read, posed as problems, and written. Then it calls `run`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Generic, TypeVar

import typer
from torch import Tensor

from torchdeal.cli.error_bars import write_error_bars
from torchdeal.cli.jobs import Job, check_outputs
from torchdeal.cli.memory import check_memory, memory_for
from torchdeal.cli.options import Settings
from torchdeal.cli.report import FileReport, Outcome, certificates, close, show, summarise
from torchdeal.cli.shared import complain, in_words, is_foreseeable, progress_bar, reporter, waiting
from torchdeal.estimation import estimate_range
from torchdeal.fidelity import NoiseModel
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.model import DEAL
from torchdeal.noise import NoiseLevel
from torchdeal.operators import Operator
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Progress, Solution

Models = Callable[[str], DEAL]  # by name; each is loaded once
Frame = TypeVar("Frame")
Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a simulation began with, and the degraded image that the result is compared with, of the same size."""

    clean: Tensor
    degraded: Tensor
    degraded_by: str
    white: float = 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """`y = H x + noise`."""

    y: Tensor
    H: Operator
    noise: float  # its standard deviation, in the units of y
    noise_kind: Tensor | NoiseModel | None = None  # what `reconstruct` is told where it is not white: `noise` is a mean
    estimated: bool = False  # whether the noise is
    level: NoiseLevel | None = None  # the estimate with its interval, where that is known
    leave: bool = False  # y is the answer already
    white: float | None = None  # the value of white in x; None: the range of a rough reconstruction
    keep: Callable[[Tensor], Tensor] = lambda x: x  # the part of x that is wanted
    simulation: Simulation | None = None


@dataclass(frozen=True, eq=False)
class Solved:
    """A problem with its solution."""

    problem: Problem
    solution: Solution
    model: str

    @property
    def x(self) -> Tensor:
        """What was asked for."""
        return self.problem.keep(self.solution.x)


@dataclass(frozen=True, eq=False)
class Task(ABC, Generic[Frame, Kind]):
    """What a command does in its own way."""

    settings: Settings

    @abstractmethod
    def read(self, path: Path) -> tuple[Sequence[Frame], Kind]:
        """The frames of a file, mostly one, and what `write` must know of it."""

    @abstractmethod
    def pose(self, frame: Frame) -> Problem:
        """What is to be solved."""

    @abstractmethod
    def write(self, path: Path, images: Sequence[Tensor], kind: Kind) -> Sequence[str] | None:
        """Write an image `(1, C, H, W)` for each frame, into one file; a sentence for each thing it could not keep."""

    def check_target(self, path: Path, frames: Sequence[Frame], kind: Kind) -> None:
        """Raise, before any work, if the format of this file cannot hold the result."""

    def in_tiles(self, job: Job, models: Models) -> bool:
        """Whether the file is to be solved part by part."""
        return False

    def restore_in_tiles(self, job: Job, models: Models) -> FileReport:
        """That."""
        raise NotImplementedError


def run(task: Task, jobs: Sequence[Job], reads: Sequence[Path] = ()) -> None:
    """Do each job and report it; one that fails does not stop the others, Ctrl-C ends with exit code 130.

    Args:
        task: what the command does in its own way.
        jobs: which file goes where.
        reads: further files that the command reads. They are not to be overwritten either.
    """
    settings = task.settings
    check_outputs(jobs, settings, [*reads, *filter(None, [settings.noise_map])])
    done = [job for job in jobs if settings.skip_existing and job[1].exists()]
    if done:
        complain("Note", f"{len(done)} of {len(jobs)} are skipped: their outputs exist")
    outcome = Outcome(skipped=[str(target) for _, target in done])
    models = cache(partial(load, device=settings.torch_device))
    try:
        if settings.model is not None:
            models(settings.model)  # one that is not there would fail each file
        for job in (job for job in jobs if job not in done):
            _attempt(job, task, models, outcome, alone=len(jobs) == 1)
    except (KeyboardInterrupt, SystemExit) as stop:
        complain("Interrupted", "files that were not finished are as they were")
        close(outcome, settings.as_json, stopped=True)
        if isinstance(stop, SystemExit):
            raise
        raise typer.Exit(130) from None
    close(outcome, settings.as_json)


def _attempt(job: Job, task: Task, models: Models, outcome: Outcome, alone: bool) -> None:
    quiet = task.settings.as_json
    try:
        report = restore(job, task, models)
    except Exception as error:
        if not is_foreseeable(error) or (alone and not quiet):
            raise
        source, reason = str(job[0]), in_words(error)
        outcome.failures[source] = reason
        complain("Error", reason if source in reason else f"{source}: {reason}")
    else:
        outcome.results.append(report)
        show(report, quiet)


def restore(job: Job, task: Task, models: Models) -> FileReport:
    """One file: read, pose and solve it frame by frame, write, report.

    The masks of a whole stack would not fit into memory together.
    """
    if task.in_tiles(job, models):
        return task.restore_in_tiles(job, models)
    (source, target), settings, started = job, task.settings, time.perf_counter()
    with memory_for(f"to read {source}"):
        frames, kind = task.read(source)
    for path in filter(None, (target, settings.save_degraded)):
        task.check_target(path, frames, kind)
    solved: list[Solved] = []
    with progress_bar(settings.as_json) as progress:
        for number, frame in enumerate(frames, 1):
            of_several = f" {number}/{len(frames)}" if len(frames) > 1 else ""
            callback = reporter(progress, f"{source.name}{of_several}", settings.tolerance)
            with memory_for(f"to reconstruct {source}{of_several}"):
                solved.append(solve(task.pose(frame), settings, models, callback))
            check_finite(solved[-1], f"{source}{of_several}")
    with memory_for(f"to write {target}"):
        notes = _write(task, target, solved, kind)
    if settings.error_bars:
        with memory_for(f"for the error bars of {source}"), waiting(settings.as_json, "error bars") as told:
            write_error_bars(settings.error_bars, solved, lambda done, of: told(f"solve {done} of {of}"))
    report = summarise(job, solved, settings.torch_device, time.perf_counter() - started, notes)
    if not settings.certificate:
        return report
    with memory_for(f"for the certificate of {source}"), waiting(settings.as_json, "certificate") as told:
        return replace(report, certificates=certificates(solved, told))


def _write(task: Task[Frame, Kind], target: Path, solved: Sequence[Solved], kind: Kind) -> Sequence[str]:
    target.parent.mkdir(parents=True, exist_ok=True)  # a folder within that of the output
    notes = task.write(target, [frame.x for frame in solved], kind)
    if task.settings.save_degraded:
        simulations = [frame.problem.simulation for frame in solved]
        degraded = [simulation.degraded for simulation in simulations if simulation]
        task.write(task.settings.save_degraded, degraded, kind)
    return notes or ()


def check_finite(solved: Solved, name: str) -> None:
    """A result that holds NaN would be written as black, and look like one."""
    if not bool(solved.x.isfinite().all()):
        raise ValueError(
            f"{name}: the result holds NaN or infinite values ({solved.solution.status.name}), so nothing is written; "
            "check the measurements and --sigma"
        )


def solve(problem: Problem, settings: Settings, models: Models, callback: Callable[[Progress], None]) -> Solved:
    """As the settings say, where they do; else by the rules of the library."""
    if problem.noise == 0 and not problem.H.is_identity and None in (settings.lam, settings.model_sigma):
        raise ValueError("--sigma must be above 0: without noise give what the measurements were rounded to")
    channels = problem.y.shape[1] if problem.H.measures_images else 1
    model = settings.model or default_weights(channels, settings.channelwise)
    if problem.leave:
        return Solved(problem, Solution.at_once(problem.y), model)
    if settings.torch_device == "cpu":
        check_memory(models(model), problem.H.adjoint(problem.y).numel())
    white = problem.white or image_range(problem.H, problem.y)
    solution = reconstruct(
        problem.y,
        problem.H,
        model=models(model),
        noise=problem.noise if problem.noise_kind is None else problem.noise_kind,
        sigma=None if settings.model_sigma is None else settings.model_sigma / 255 * white,
        lam=settings.lam,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
        channelwise=settings.channelwise,
        data_range=white,
        callback=callback,
    )
    return Solved(problem, solution, model)


def image_range(H: Operator, y: Tensor) -> float:
    """That of a rough reconstruction: what is white to the model, whatever the units of the measurements."""
    return float(estimate_range(H, H.adjoint(y)).max())
