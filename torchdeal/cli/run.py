"""The way of every reconstruction command: read, pose, solve, write, report.

A command fills in a `Task`: how its files are read, posed as problems, and written. Then it calls `run`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
import typer
from torch import Tensor

from torchdeal.cli.frames import check_finite, restored
from torchdeal.cli.jobs import Job, check_outputs, is_done
from torchdeal.cli.memory import check_memory
from torchdeal.cli.options import Settings
from torchdeal.cli.report import FileReport, Outcome, close, show
from torchdeal.cli.shared import complain, in_words, is_foreseeable
from torchdeal.cli.spread import cluster_of, files_on
from torchdeal.estimation import estimate_range
from torchdeal.fidelity import Impulse, NoiseModel, Poisson
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.model import DEAL
from torchdeal.noise import NoiseLevel
from torchdeal.operators import Identity, Operator
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.scale.batches import batch_size
from torchdeal.scale.stacks import sample_of
from torchdeal.solvers import Progress, Solution

if TYPE_CHECKING:
    from torchdeal.scale.cluster import Cluster

__all__ = ["Models", "Problem", "Simulation", "Solved", "Task", "check_finite", "image_range", "run", "solve"]

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
    start: Reconstruction | None = None  # a first guess


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

    def without_problem(self) -> Solved:
        """What a report needs: the image, and how the run went."""
        of_run = {item.name: getattr(self.solution, item.name) for item in fields(Solution)}
        nothing = self.problem.y.new_empty(0, *self.problem.y.shape[1:])  # a slice would keep all of it
        problem = replace(self.problem, y=nothing, H=Identity(), noise_kind=None, start=None)
        return replace(self, problem=problem, solution=Solution(**of_run))

    def without_images(self) -> Solved:
        """What a report needs where the image is kept elsewhere: those of a whole stack would be too many."""
        bare = self.without_problem()
        nothing = bare.problem.y
        problem = replace(bare.problem, keep=lambda x: x)
        return replace(bare, problem=problem, solution=replace(bare.solution, x=nothing, path=()))


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

    def for_stack(self, frames: Sequence[Frame], kind: Kind) -> Task[Frame, Kind]:
        """The same task, knowing what all frames of a file have in common."""
        return self

    def begun_with(self, problem: Problem, before: Reconstruction) -> Problem:
        """The problem, with the answer for the frame before as a first guess where that helps."""
        return problem

    def check_target(self, path: Path, frames: Sequence[Frame], kind: Kind) -> None:
        """Raise, before any work, if the format of this file cannot hold the result."""

    def in_tiles(self, job: Job, models: Models) -> bool:
        """Whether the file is to be solved part by part."""
        return False

    def restore_in_tiles(self, job: Job, models: Models, cluster: Cluster | None = None) -> FileReport:
        """That, here or on a cluster; for tasks that may say so."""
        raise ValueError(f"{job[0]}: this command does not work in tiles")


def run(task: Task, jobs: Sequence[Job], reads: Sequence[Path] = ()) -> None:
    """Do each job and report it; one that fails does not stop the others, Ctrl-C ends with exit code 130.

    Args:
        task: what the command does in its own way.
        jobs: which file goes where.
        reads: further files that the command reads. They are not to be overwritten either.
    """
    settings = task.settings
    check_outputs(jobs, settings, [*reads, *filter(None, [settings.noise_map])])
    done = [job for job in jobs if settings.skip_existing and is_done(job)]
    if done:
        complain("Note", f"{len(done)} of {len(jobs)} are skipped: their outputs exist")
    outcome = Outcome(skipped=[str(target) for _, target in done])
    models = cache(partial(load, device=settings.torch_device))
    try:
        if settings.model is not None:
            models(settings.model)  # one that is not there would fail each file
        pending = [job for job in jobs if job not in done]
        with cluster_of(settings) as cluster:
            for job, found in _all_restored(pending, task, models, cluster):
                _record(job, found, outcome, settings.as_json, alone=len(jobs) == 1)
    except (KeyboardInterrupt, SystemExit) as stop:
        complain("Interrupted", "files that were not finished are as they were")
        close(outcome, settings.as_json, stopped=True)
        if isinstance(stop, SystemExit):
            raise
        raise typer.Exit(130) from None
    close(outcome, settings.as_json)


def restore(job: Job, task: Task, models: Models) -> FileReport:
    """One file: read, pose and solve it, write, report."""
    ((_, found),) = _all_restored([job], task, models)
    if isinstance(found, Exception):
        raise found
    return found


def _all_restored(
    jobs: Sequence[Job], task: Task, models: Models, cluster: Cluster | None = None
) -> Iterator[tuple[Job, FileReport | Exception]]:
    """In tiles, on a cluster, or in batches. What is wrong with a file is said in its turn."""
    together = partial(solve_together, settings=task.settings, models=models)

    def way(job: Job) -> bool | Exception:
        try:
            return task.in_tiles(job, models)
        except Exception as error:
            return error

    for in_tiles, some in itertools.groupby(jobs, way):
        if in_tiles is False and cluster is not None:
            yield from files_on(cluster, list(some), task)
            continue
        if in_tiles is False:
            yield from restored(some, task, together, partial(_most, task.settings, models))
            continue
        for job in some:
            try:
                if isinstance(in_tiles, Exception):
                    raise in_tiles
                yield job, task.restore_in_tiles(job, models, cluster)
            except Exception as error:
                yield job, error


def _record(job: Job, found: FileReport | Exception, outcome: Outcome, quiet: bool, alone: bool) -> None:
    if isinstance(found, FileReport):
        outcome.results.append(found)
        show(found, quiet)
        return
    if not is_foreseeable(found) or (alone and not quiet):
        raise found
    source, reason = str(job[0]), in_words(found)
    outcome.failures[source] = reason
    complain("Error", reason if source in reason else f"{source}: {reason}")


def solve(problem: Problem, settings: Settings, models: Models, callback: Callable[[Progress], None]) -> Solved:
    """As the settings say, where they do; else by the rules of the library."""
    return solve_together([problem], callback, settings=settings, models=models)[0]


def _most(settings: Settings, models: Models, problem: Problem) -> int:
    """How many problems like this one are solved together."""
    if settings.batch is not None or settings.torch_device == "cpu":
        return settings.batch or 1
    image = problem.H.adjoint(problem.y)
    return batch_size(image[0, 0].numel(), models(_model_for(problem, settings)).features, settings.torch_device)


def solve_together(
    problems: Sequence[Problem], callback: Callable[[Progress], None], *, settings: Settings, models: Models
) -> list[Solved]:
    """The same for problems of one kind: one operator, measurements of one shape. Each has its own noise and white."""
    first = problems[0]
    if first.noise == 0 and not first.H.is_identity and None in (settings.lam, settings.model_sigma):
        raise ValueError("--sigma must be above 0: without noise give what the measurements were rounded to")
    model = _model_for(first, settings)
    if first.leave:
        return [Solved(problem, Solution.at_once(problem.y), model) for problem in problems]
    if settings.torch_device == "cpu":
        check_memory(models(model), first.H.adjoint(first.y).numel() * len(problems))
    whites = [problem.white or image_range(problem.H, problem.y) for problem in problems]
    white = max(whites)  # of the batch, which has one
    times = [white / own for own in whites]
    solution = reconstruct(
        first.y if len(problems) == 1 else torch.cat([p.y * t for p, t in zip(problems, times, strict=True)]),
        first.H,
        model=models(model),
        noise=_noise_of(problems, times),
        sigma=None if settings.model_sigma is None else settings.model_sigma / 255 * white,
        lam=settings.lam,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
        channelwise=settings.channelwise,
        symmetries=settings.symmetries,
        data_range=white,
        start=first.start,  # of a problem that is alone
        callback=callback,
    )
    if len(problems) == 1:
        return [Solved(first, solution, model)]
    image_format = solution.posed()[0].image_format
    formats = [replace(image_format, data_range=own) for own in whites]
    return [Solved(p, sample_of(solution, i, formats[i]), model) for i, p in enumerate(problems)]


def _model_for(problem: Problem, settings: Settings) -> str:
    channels = problem.y.shape[1] if problem.H.measures_images else 1
    return settings.model or default_weights(channels, settings.channelwise)


def _noise_of(problems: Sequence[Problem], times: Sequence[float]) -> Any:
    """What `reconstruct` is told of a batch whose measurements were multiplied: a number or kind for each of them."""
    if len(problems) == 1:
        (problem,) = problems
        return problem.noise if problem.noise_kind is None else problem.noise_kind
    kinds: list[Any] = [problem.noise_kind for problem in problems]
    if isinstance(kinds[0], Poisson):
        gains, reads = ([getattr(k, name) * t for k, t in zip(kinds, times, strict=True)] for name in ("gain", "read"))
        return Poisson(gains, reads)
    if isinstance(kinds[0], Impulse):
        return Impulse([kind.sigma * t for kind, t in zip(kinds, times, strict=True)])
    if isinstance(kinds[0], Tensor):
        return torch.cat([kind * t for kind, t in zip(kinds, times, strict=True)])
    return [problem.noise * t for problem, t in zip(problems, times, strict=True)]


def image_range(H: Operator, y: Tensor) -> float:
    """That of a rough reconstruction: what is white to the model, whatever the units of the measurements."""
    return float(estimate_range(H, H.adjoint(y)).max())
