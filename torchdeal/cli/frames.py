"""The frames of all files of a command, in batches: posed when they are needed, solved together, written in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchdeal.cli.error_bars import write_error_bars
from torchdeal.cli.jobs import Job
from torchdeal.cli.memory import memory_for
from torchdeal.cli.options import Settings
from torchdeal.cli.report import FileReport, certificates, summarise
from torchdeal.cli.shared import progress_bar, reporter, waiting
from torchdeal.reconstruction import Reconstruction
from torchdeal.scale.batches import Batches, kind_of
from torchdeal.solvers import Progress

if TYPE_CHECKING:  # run.py imports this module
    from torchdeal.cli.run import Problem, Solved, Task

Solve = Callable[[Sequence["Problem"], Callable[[Progress], None]], Sequence["Solved"]]  # of one kind, together


def restored(
    jobs: Iterable[Job], task: Task, solve: Solve, most: Callable[[Problem], int]
) -> Iterator[tuple[Job, FileReport | Exception]]:
    """Each file in turn with its report, or with why it failed.

    Args:
        jobs: which file goes where.
        task: what the command does in its own way.
        solve: for problems of one kind.
        most: how many problems like this one are solved together.
    """
    settings = task.settings

    def size(piece: Piece) -> int:
        return 1 if piece.problem is None else most(piece.problem)

    batches = Batches(partial(_kind, settings), size, partial(_solved, settings, solve))
    for piece, answer in batches.answers(_pieces(jobs, task)):
        file = piece.file
        if file.ended:
            continue
        try:
            if isinstance(answer, Exception):
                raise answer
            file.take(answer, piece.name)
            if len(file.solved) == len(file.frames):
                file.ended = True
                yield file.job, file.finish()
        except Exception as error:
            file.ended = True
            yield file.job, error


@dataclass(eq=False)
class OpenFile:
    """A file that is being worked on."""

    job: Job
    task: Task  # knows what the frames have in common
    frames: Sequence[Any]
    kind: Any
    seconds: float = 0.0  # its share of the time
    solved: list[Solved] = field(default_factory=list)
    latest: Reconstruction | None = None  # the answer for the frame before, where frames are solved one by one
    ended: bool = False  # it is written, or it failed

    @classmethod
    def of(cls, job: Job, task: Task) -> OpenFile:
        """Read, so far as that does not wait for the frames."""
        (source, target), settings, started = job, task.settings, time.perf_counter()
        with memory_for(f"to read {source}"):
            frames, kind = task.read(source)
            for path in filter(None, (target, settings.save_degraded)):
                task.check_target(path, frames, kind)
            task = task.for_stack(frames, kind)
        return cls(job, task, frames, kind, time.perf_counter() - started)

    def of_several(self, number: int) -> str:
        """Which frame, from 1, where there are more."""
        return f" {number}/{len(self.frames)}" if len(self.frames) > 1 else ""

    def pose(self, number: int) -> Piece:
        started = time.perf_counter()
        of_several = self.of_several(number)
        with memory_for(f"to reconstruct {self.job[0]}{of_several}"):
            problem = self.task.pose(self.frames[number - 1])
            if self.latest is not None and not problem.leave:
                problem = self.task.begun_with(problem, self.latest)
        self.seconds += time.perf_counter() - started
        return Piece(self, of_several, problem)

    def take(self, answer: tuple[Solved, float], name: str) -> None:
        """The next frame, and its share of the time. The problems of a long stack would fill the memory."""
        solved, seconds = answer
        check_finite(solved, name)
        settings = self.task.settings
        self.seconds += seconds
        one_by_one = (settings.batch or 1) == 1 and settings.torch_device == "cpu"
        self.latest = solved.solution if one_by_one and isinstance(solved.solution, Reconstruction) else None
        self.solved.append(solved if settings.error_bars or settings.certificate else solved.without_problem())

    def finish(self) -> FileReport:
        """Write, and report."""
        (source, target), settings, started = self.job, self.task.settings, time.perf_counter()
        self.latest = None
        with memory_for(f"to write {target}"):
            notes = _write(self.task, target, self.solved, self.kind)
        if settings.error_bars:
            with memory_for(f"for the error bars of {source}"), waiting(settings.as_json, "error bars") as told:
                write_error_bars(settings.error_bars, self.solved, lambda done, of: told(f"solve {done} of {of}"))
        seconds = self.seconds + time.perf_counter() - started
        report = summarise(self.job, self.solved, settings.torch_device, seconds, notes)
        if not settings.certificate:
            return report
        with memory_for(f"for the certificate of {source}"), waiting(settings.as_json, "certificate") as told:
            return replace(report, certificates=certificates(self.solved, told))


@dataclass(frozen=True, eq=False)
class Piece:
    """A frame of a file as a problem, or why there is none."""

    file: OpenFile
    of_several: str = ""
    problem: Problem | None = None
    error: Exception | None = None

    @property
    def name(self) -> str:
        return f"{self.file.job[0]}{self.of_several}"

    @property
    def label(self) -> str:
        """The name without its folder."""
        return f"{self.file.job[0].name}{self.of_several}"


def _pieces(jobs: Iterable[Job], task: Task) -> Iterator[Piece]:
    """All frames of all files, one after the other; of a file that failed there are no more."""
    for job in jobs:
        file = OpenFile(job, task, (), None)
        try:
            file = OpenFile.of(job, task)
            for number in range(1, len(file.frames) + 1):
                if not file.ended:
                    yield file.pose(number)
        except Exception as error:
            yield Piece(file, error=error)


def _kind(settings: Settings, piece: Piece) -> Hashable:
    """Equal for what can be solved together; None for what cannot."""
    problem = piece.problem
    if problem is None:
        return None
    if problem.noise_kind is not None and (settings.error_bars or settings.certificate):
        return None  # its answer would not hold its problem
    return kind_of_problem(problem)


def kind_of_problem(problem: Problem) -> Hashable:
    """The same of a problem by itself."""
    if problem.leave or problem.start is not None:
        return None
    if not problem.H.measures_images:  # coils of each slice have maps of their own
        return None
    y = problem.y
    return tuple(y.shape), y.dtype, kind_of(problem.H), type(problem.noise_kind), problem.noise == 0


def _solved(settings: Settings, solve: Solve, pieces: Sequence[Piece]) -> list[tuple[Solved, float]]:
    """Each with its share of the time."""
    for piece in pieces:
        if piece.error is not None:
            raise piece.error
    problems = [piece.problem for piece in pieces if piece.problem is not None]
    several = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    started = time.perf_counter()
    with progress_bar(settings.as_json) as progress:
        callback = reporter(progress, f"{pieces[0].label}{several}", settings.tolerance)
        with memory_for(f"to reconstruct {pieces[0].name}") if len(pieces) == 1 else nullcontext():
            solved = solve(problems, callback)
    share = (time.perf_counter() - started) / len(pieces)
    return [(one, share) for one in solved]


def _write(task: Task, target: Path, solved: Sequence[Solved], kind: Any) -> Sequence[str]:
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
