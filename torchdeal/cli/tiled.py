"""Pictures that are larger than the memory, and Zarr stores: solved in tiles, from file to file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchdeal.cli.jobs import Job
from torchdeal.cli.memory import memory_for
from torchdeal.cli.options import NoiseKind, NoisePer, Settings
from torchdeal.cli.report import FileReport
from torchdeal.cli.run import Models, Problem
from torchdeal.cli.shared import complain, waiting
from torchdeal.io.checkpoint import default_weights
from torchdeal.io.files import TIFF, ImageFileError
from torchdeal.io.formats import ImageFile, check_amount
from torchdeal.scale.large import TiledRun, run_tiles, sample
from torchdeal.scale.local import LocalOperator
from torchdeal.scale.room import fits
from torchdeal.scale.sources import Source, is_zarr, open_source
from torchdeal.scale.tiled import Plan, check_target, file_target
from torchdeal.scale.tiles import Shared
from torchdeal.scale.unfinished import SUFFIX, Unfinished, begun_settings
from torchdeal.solvers import Status

if TYPE_CHECKING:
    from torchdeal.cli.pictures import PictureTask
    from torchdeal.scale.cluster import Cluster

LAZY = (*TIFF, ".npy")  # files of which a part can be read


def wants_tiles(task: PictureTask, job: Job, models: Models) -> bool:
    """Whether tiles are asked for, or the picture is a Zarr store, or too large for the memory."""
    wanted = _wants_tiles(task, job, models)
    if not wanted and task.settings.overlap is not None:
        raise ValueError("--overlap is for pictures that are solved in tiles: give --tile, too")
    return wanted


def _wants_tiles(task: PictureTask, job: Job, models: Models) -> bool:
    settings = task.settings
    if any(is_zarr(path) for path in job) or settings.tile or (settings.resume and _begun(job[1]) is not None):
        return True
    if settings.tile == 0 or job[0].suffix.lower() not in LAZY or _not_in_tiles(settings):
        return False
    try:
        source = open_source(job[0])
        scale = task.magnification
    except (ImageFileError, ValueError, ImportError):  # that is told where the file is read as a whole
        return False
    pixels = math.prod(source.layout.size) * scale**2
    try:
        check_amount(job[0], source.layout.shape)
    except ImageFileError:
        return True
    return not fits(models(_model(settings, source)), pixels)


def restore_in_tiles(task: PictureTask, job: Job, models: Models, cluster: Cluster | None = None) -> FileReport:
    """One file: what its pictures share is found, then tile after tile is solved and kept."""
    (path, target), settings, started = job, task.settings, time.perf_counter()
    unfit = _not_in_tiles(settings)
    if unfit:
        remedy = "convert it to TIFF or npy" if any(map(is_zarr, job)) else "use --tile 0 for a picture that fits"
        raise ValueError(f"{unfit} cannot be done in tiles: leave it out, or {remedy}")
    source = open_source(path)
    if source.image.is_volume:
        raise ValueError(f"{path}: a scan is solved slice by slice: leave out --tile, and write no Zarr store")
    operator = task.local_operator(source.layout.size)
    target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target, source, operator.scale)
    known: dict[int, Problem] = {}
    knobs = _knobs(settings, source, operator, models)
    plan = Plan(source, knobs, _side(settings, source, target), settings.overlap)
    shared = plan.for_each(_noise_of_each(task, source, operator, knobs, known))
    begun = Unfinished(target, plan.settings(data_range=settings.data_range), settings.resume)
    try:
        with begun as unfinished, memory_for(f"for tiles of {plan.core} pixels (--tile)"):
            made = file_target(
                target, source, plan.core, operator.scale, unfinished, settings.quality, settings.data_range or 1.0
            )
            with waiting(settings.as_json, path.name) as told:
                run = run_tiles(
                    source,
                    made,
                    plan.core,
                    shared,
                    unfinished=unfinished,
                    told=lambda done, of: told(f"tile {done} of {of}"),
                    engine=cluster.solve if cluster else None,
                    together=cluster.together if cluster else None,
                )
    except (KeyboardInterrupt, SystemExit):
        if begun.folder.exists():
            complain("Note", f"{target}: the tiles that are done are kept in {begun.folder}; go on by --resume")
        raise
    if not known:  # all tiles were there: only the file was missing
        shared(0)
    seconds = time.perf_counter() - started
    return _report(job, settings, known, run, seconds, {"side": plan.core, "overlap": run.overlap}, source)


def _begun(target: Path) -> dict[str, Any] | None:
    """The settings of a run that was stopped."""
    return begun_settings(target.with_name(target.name + SUFFIX))


def _side(settings: Settings, source: Source, target: Path) -> int | None:
    """Of the tiles: as asked for, or as in the run that is resumed; None: what fits into the memory."""
    if settings.tile == 0:
        return max(source.layout.size)
    begun = _begun(target) if settings.resume else None
    return settings.tile or (begun or {}).get("tile")


def _not_in_tiles(settings: Settings) -> str:
    """An option that says something about the picture as a whole, if there is one."""
    options = {
        "--simulate": settings.simulate,
        "--error-bars": settings.error_bars,
        "--certificate": settings.certificate,
        "--noise-map": settings.noise_map,
        "--noise-per stack": settings.noise_per is NoisePer.STACK,
        f"--noise-model {settings.noise_model.value}": settings.noise_model is not NoiseKind.GAUSSIAN,
    }
    return next((option for option, given in options.items() if given), "")


def _knobs(settings: Settings, source: Source, operator: LocalOperator, models: Models) -> Shared:
    """What the settings say; on the 0..255 scale."""
    return Shared(
        models(_model(settings, source)),
        operator,
        white=255.0,
        sigma=settings.model_sigma,
        lam=settings.lam,
        noise=settings.sigma,
        tolerance=settings.tolerance,
        max_iterations=settings.max_iterations,
        channelwise=settings.channelwise,
        symmetries=settings.symmetries,
    )


def _noise_of_each(
    task: PictureTask, source: Source, operator: LocalOperator, knobs: Shared, known: dict[int, Problem]
) -> Callable[[int], Shared]:
    """Of each picture: its noise and its white, as they would be found in the picture as a whole."""

    def with_noise(plane: int) -> Shared:
        picture, image_format = task.on_common_scale(ImageFile(sample(source, plane)))
        unit = image_format.data_range  # of the pixels, for 1 on the 0..255 scale
        problem = known[plane] = task.pose_sample(picture, operator)
        white = problem.white or knobs.white
        return replace(
            knobs,
            white=white * unit,
            noise=problem.noise * unit,
            sigma=None if knobs.sigma is None else knobs.sigma / 255 * white * unit,
            leave=problem.leave,
        )

    return with_noise


def _model(settings: Settings, source: Source) -> str:
    return settings.model or default_weights(source.layout.colours, settings.channelwise)


def _report(
    job: Job,
    settings: Settings,
    known: dict[int, Problem],
    run: TiledRun,
    seconds: float,
    tiles: dict[str, int],
    source: Source,
) -> FileReport:
    problems = list(known.values())
    levels = [problem.level for problem in problems if problem.level]
    worst = next((name for name in run.statuses if name != Status.CONVERGED.name), Status.CONVERGED.name)
    failed = run.statuses.total() - run.statuses[Status.CONVERGED.name]
    left = sum(problem.leave for problem in problems)
    notes = [*run.notes]
    if left:
        which = "the picture is" if source.layout.planes == 1 else f"{left} of {source.layout.planes} pictures are"
        notes.append(f"no noise is certain (it may be detail), so {which} left unchanged; to denoise it, give --sigma")
    return FileReport(
        input=str(job[0]),
        output=str(job[1]),
        model=_model(settings, source),
        device=settings.torch_device,
        sigma=float(f"{sum(problem.noise for problem in problems) / len(problems):.4g}"),
        estimated=problems[0].estimated,
        sigma_low=min(level.low for level in levels) if levels else None,
        sigma_high=max(level.high for level in levels) if levels else None,
        status=worst,
        converged=not failed,
        iterations=run.iterations,
        cg_iterations=run.cg_iterations,
        distance=run.distance if math.isfinite(run.distance) else None,
        seconds=round(seconds, 3),
        frames=source.layout.planes,
        unchanged=left == len(problems),
        notes=notes,
        tiles={"number": run.tiles, "resumed": run.resumed, "not_converged": failed, **tiles},
    )
