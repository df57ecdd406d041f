"""The way of every reconstruction command: read, pose, solve, write, report.

A command fills in a `Task`: how its files are read, posed as problems, and written. Then it calls `run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial

from torchdeal.cli.jobs import Job, check_degraded
from torchdeal.cli.options import Settings
from torchdeal.cli.report import FileReport, close, show, summarise
from torchdeal.cli.shared import complain, interruptible, is_foreseeable, progress_bar, reporter
from torchdeal.cli.task import Problem, Solved, Task, image_range
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.model import DEAL
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Progress

Models = Callable[[str], DEAL]  # by name; each is loaded once


def run(task: Task, jobs: Sequence[Job]) -> None:
    """Do each job and report it; one that fails does not stop the others."""
    settings = task.settings
    check_degraded(settings.save_degraded, jobs)
    models = cache(partial(load, device=settings.torch_device))
    reports: list[FileReport] = []
    failures: dict[str, str] = {}
    with interruptible():
        for job in jobs:
            try:
                report = restore(job, task, models)
            except Exception as error:
                if not is_foreseeable(error) or (len(jobs) == 1 and not settings.as_json):
                    raise
                source = str(job[0])
                failures[source] = str(error)
                complain("Error", str(error) if source in str(error) else f"{source}: {error}")
                continue
            reports.append(report)
            show(report, quiet=settings.as_json)
    close(reports, failures, settings.as_json)


def restore(job: Job, task: Task, models: Models) -> FileReport:
    """One file: read, pose and solve it frame by frame, write, report.

    The masks of a whole stack would not fit into memory together.
    """
    (source, target), settings, started = job, task.settings, time.perf_counter()
    frames, kind = task.read(source)
    solved: list[Solved] = []
    with progress_bar(settings.as_json) as progress:
        for number, frame in enumerate(frames, 1):
            label = source.name if len(frames) == 1 else f"{source.name} {number}/{len(frames)}"
            problem = task.pose(frame)
            solved.append(solve(problem, settings, models, reporter(progress, label, settings.tolerance)))
    task.write(target, [frame.x for frame in solved], kind)
    if settings.save_degraded:
        simulations = [frame.problem.simulation for frame in solved]
        task.write(settings.save_degraded, [simulation.degraded for simulation in simulations if simulation], kind)
    return summarise(job, solved, settings.torch_device, time.perf_counter() - started)


def solve(problem: Problem, settings: Settings, models: Models, callback: Callable[[Progress], None]) -> Solved:
    """As the settings say, where they do; else by the rules of the library."""
    if problem.noise == 0 and not problem.H.is_identity and None in (settings.lam, settings.model_sigma):
        raise ValueError("--sigma must be above 0: without noise give what the measurements were rounded to")
    channels = problem.y.shape[1] if problem.H.measures_images else 1
    model = settings.model or default_weights(channels, settings.channelwise)
    white = problem.white or image_range(problem.H, problem.y)
    solution = reconstruct(
        problem.y,
        problem.H,
        model=models(model),
        noise=problem.noise,
        sigma=None if settings.model_sigma is None else settings.model_sigma / 255 * white,
        lam=settings.lam,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
        channelwise=settings.channelwise,
        data_range=white,
        callback=callback,
    )
    return Solved(problem, solution, model)
