"""Which file goes where. What cannot be raises before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchdeal.cli.options import Settings
from torchdeal.io import files
from torchdeal.io.overwriting import refuse_overwriting

Job = tuple[Path, Path]  # input, output


def one_job(source: Path, target: Path) -> list[Job]:
    """For commands from one file to another."""
    check_distinct(source, target)
    return [(source, target)]


def picture_jobs(paths: list[Path]) -> list[Job]:
    """For commands with the arguments `IN... OUT`. Makes the folder OUT where there are several inputs."""
    if len(paths) < 2:
        raise ValueError("give at least one input and then the output: IN... OUT")
    *inputs, out = paths
    sources = [file for path in inputs for file in _expand(path)]
    to_folder = len(sources) > 1 or inputs[0].is_dir() or out.is_dir()
    if to_folder and out.exists() and not out.is_dir():
        raise ValueError(f"{out}: there are several inputs, so the output must be a folder")
    targets = [out / source.name if to_folder else out for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if targets.count(target) > 1:
            raise ValueError(f"{target}: two inputs have this name; write them to different folders")
        if not source.is_file():
            raise FileNotFoundError(f"{source}: no such file")
        files.check_format(target)
    refuse_overwriting(targets, sources)
    if to_folder and not out.exists():
        if not out.parent.is_dir():
            raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")
        out.mkdir()
    for target in targets:
        files.check_writable(target)
    return list(zip(sources, targets, strict=True))


def check_outputs(jobs: Sequence[Job], settings: Settings, reads: Sequence[Path]) -> None:
    """Raise if something that is to be written, also by --save-degraded, is something that is read."""
    outputs = [target for _, target in jobs]
    if settings.save_degraded is not None:
        if len(jobs) > 1:
            raise ValueError("--save-degraded is one file: use it with one input")
        outputs.append(settings.save_degraded)
        files.check_writable(settings.save_degraded)
    weights = [] if settings.model is None else [Path(settings.model)]
    refuse_overwriting(outputs, [*(source for source, _ in jobs), *reads, *weights])


def check_distinct(source: Path, target: Path) -> None:
    if not source.is_file():
        raise FileNotFoundError(f"{source}: no such file")
    refuse_overwriting([target], [source])


def _expand(path: Path) -> list[Path]:
    """The images in a folder, or the path itself."""
    if not path.is_dir():
        return [path]
    images = sorted(p for p in path.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not images:
        raise ValueError(f"{path}: no images in this folder ({', '.join(files.SUFFIXES)})")
    return images
