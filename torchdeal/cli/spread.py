"""--dask: tiles and files on workers of Dask, which may be on other machines."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchdeal
from torchdeal.cli.jobs import Job
from torchdeal.cli.options import Settings
from torchdeal.cli.report import FileReport
from torchdeal.cli.shared import complain, waiting
from torchdeal.io.checkpoint import BUNDLED, checksum, load
from torchdeal.model import DEAL

if TYPE_CHECKING:
    from torchdeal.cli.run import Task
    from torchdeal.scale.cluster import Cluster

MODELS_KEPT = 4  # loaded in a worker


@contextmanager
def cluster_of(settings: Settings) -> Iterator[Cluster | None]:
    """The workers that --dask names; None without."""
    if settings.dask is None:
        yield None
        return
    from torchdeal.scale.cluster import open_cluster

    with open_cluster(settings.dask, settings.device.value) as cluster:
        for library in ("distributed", "distributed.client", "tornado"):  # what matters of it is said in our words
            logging.getLogger(library).setLevel(logging.CRITICAL)
        some = "1 worker" if cluster.workers == 1 else f"{cluster.workers} workers"
        complain("Note", f"{some} of Dask" + (f", to be watched at {cluster.dashboard}" if cluster.dashboard else ""))
        yield cluster


def files_on(cluster: Cluster, jobs: Sequence[Job], task: Task) -> Iterator[tuple[Job, FileReport | Exception]]:
    """Each file in turn with its report, or with why it failed. A worker reads a file and writes its output."""
    if len(jobs) == 1:
        complain("Note", f"{jobs[0][0]}: one picture goes to one worker; with --tile its tiles are shared")
    sent = replace(task, settings=_everywhere(task.settings))

    def begin(job: Job) -> Any:
        source, target = (Path(os.path.abspath(path)) for path in job)
        return cluster.submit(restore_there, torchdeal.__version__, (source, target), sent, cluster.threads)

    done = 0
    with waiting(task.settings.as_json, "files") as told:
        for job, (found, heard) in cluster.in_order(begin, jobs):
            for text in heard:
                warnings.warn(f"{job[0]}: {text}", stacklevel=2)
            done += 1
            told(f"{done} of {len(jobs)}")
            if isinstance(found, FileReport):
                found = replace(found, input=str(job[0]), output=str(job[1]))
            yield job, found


def restore_there(version: str, job: Job, task: Task, threads: int | None) -> tuple[FileReport | Exception, list[str]]:
    """On a worker: one file, from reading to writing; what became of it, and what was warned of."""
    from torchdeal.cli.run import restore
    from torchdeal.scale.remote import check_version, device_here, one_at_a_time

    check_version(version)
    with one_at_a_time(threads, task.settings.device.value), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        try:
            if not job[0].exists():
                raise FileNotFoundError(f"{job[0]}: a worker does not see this file: workers need the same folders")
            models = partial(_model, device=device_here(task.settings.device.value))
            found: FileReport | Exception = restore(job, task, models)
        except Exception as error:
            found = error
    return found, [str(warning.message) for warning in heard]


def _model(name: str, device: str) -> DEAL:
    return _loaded(name, checksum(name), device)


@lru_cache(MODELS_KEPT)
def _loaded(name: str, digest: str, device: str) -> DEAL:
    """Once for a file as it is: a worker may live longer than that."""
    return load(name, device=device)


def _everywhere(settings: Settings) -> Settings:
    """With paths that do not depend on where one is, and without progress bars."""
    paths = {item.name: getattr(settings, item.name) for item in fields(settings)}
    changed: dict[str, Any] = {name: Path(os.path.abspath(p)) for name, p in paths.items() if isinstance(p, Path)}
    if settings.model is not None and settings.model not in BUNDLED:
        changed["model"] = os.path.abspath(settings.model)
    return replace(settings, **changed, as_json=True, dask=None)
