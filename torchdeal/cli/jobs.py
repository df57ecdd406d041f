"""Which file goes where. What cannot be raises before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchdeal.io import files

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
        for other in sources:
            _refuse_to_overwrite(other, target)
        if not source.is_file():
            raise FileNotFoundError(f"{source}: no such file")
        files.check_format(target)
    if to_folder and not out.exists():
        if not out.parent.is_dir():
            raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")
        out.mkdir()
    for target in targets:
        files.check_writable(target)
    return list(zip(sources, targets, strict=True))


def check_distinct(source: Path, target: Path) -> None:
    if not source.is_file():
        raise FileNotFoundError(f"{source}: no such file")
    _refuse_to_overwrite(source, target)


def check_degraded(path: Path | None, jobs: Sequence[Job]) -> None:
    """The file of --save-degraded."""
    if path is None:
        return
    if len(jobs) > 1:
        raise ValueError("--save-degraded is one file: use it with one input")
    ((source, target),) = jobs
    files.check_writable(path)
    check_distinct(source, path)
    if path.resolve() == target.resolve():
        raise ValueError(f"{path}: --save-degraded is the output; choose another file")


def _refuse_to_overwrite(source: Path, target: Path) -> None:
    if target.exists() and source.exists() and target.samefile(source):
        raise ValueError(f"{target}: would overwrite the input; choose another output")


def _expand(path: Path) -> list[Path]:
    """The images in a folder, or the path itself."""
    if not path.is_dir():
        return [path]
    images = sorted(p for p in path.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not images:
        raise ValueError(f"{path}: no images in this folder ({', '.join(files.SUFFIXES)})")
    return images
