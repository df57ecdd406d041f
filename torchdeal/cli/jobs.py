"""Which file goes where. What cannot be raises before any work is done."""

from __future__ import annotations

import mimetypes
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from torchdeal.cli.options import Settings
from torchdeal.cli.shared import complain
from torchdeal.io import dicom, files
from torchdeal.io.formats import NIFTI, suffix_of
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.scale.sources import is_zarr

Job = tuple[Path, Path]  # input, output

SLICE = "slices of DICOM"
TOLD = 5  # kinds of things that were left out, at most


def one_job(source: Path, target: Path) -> list[Job]:
    """For commands from one file to another."""
    if is_zarr(source):
        raise ValueError(f"{source}: a Zarr store, which this command does not take; save the picture as TIFF or npy")
    _check_input(source)
    return [(source, target)]


def picture_jobs(paths: list[Path], recursive: bool = False) -> list[Job]:
    """For commands with the arguments `IN... OUT`. Folders that OUT does not have yet are made when they are needed."""
    if len(paths) < 2:
        raise ValueError("give at least one input and then the output: IN... OUT")
    *inputs, out = paths
    to_folder = len(inputs) > 1 or _is_folder(inputs[0]) or _is_folder(out)
    for path in inputs:
        if not path.is_dir():
            _check_input(path)
    if to_folder:
        check_folder(out, "there are several inputs" if len(inputs) > 1 else "the input is a folder")
        found = [(path, out / place) for given in inputs for path, place in _pictures(given, out, recursive)]
    elif out.suffix:
        found = [(inputs[0], out)]
        _check_writable_place(out)
        if not out.parent.is_dir():
            raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")
    else:
        raise ValueError(f"{out}: no such folder, nor the name of a picture; create the folder, or add a suffix")
    times = Counter(target for _, target in found)
    for target in times:
        if times[target] > 1:
            raise ValueError(f"{target}: two inputs have this name; write them to different folders")
    for source, target in found:
        if is_zarr(target):
            continue
        if _is_folder(source):
            _check_future_folder(target)
        elif not to_folder or not dicom.is_dicom(source):  # whose files need no suffix
            files.check_format(target)
            _check_future_place(target)
    return found


def is_done(job: Job) -> bool:
    """Whether its output exists; of a series in a folder, all slices."""
    source, target = job
    return (
        all((target / file.name).exists() for file in dicom.pictures_in(source))
        if _is_folder(source)
        else target.exists()
    )


def pictures_in(inputs: Sequence[Path], recursive: bool) -> list[Path]:
    """The files that are given, and the pictures in the folders among them."""
    for path in inputs:
        if not path.is_dir():
            _check_input(path)
    nowhere = Path(os.devnull)
    found = [path for given in inputs for path, _ in _pictures(given, nowhere, recursive)]
    return [path for path in found if not is_zarr(path)]


def check_outputs(jobs: Sequence[Job], settings: Settings, reads: Sequence[Path]) -> None:
    """Raise if something that is to be written, also by options, is something that is read, or no file."""
    outputs = [target for _, target in jobs]
    for option, path in (("--save-degraded", settings.save_degraded), ("--error-bars", settings.error_bars)):
        if path is None:
            continue
        if len(jobs) > 1:
            raise ValueError(f"{option} is one file: use it with one input")
        outputs.append(path)
        files.check_writable(path)
    weights = [] if settings.model is None else [Path(settings.model)]
    refuse_overwriting(outputs, [*(source for source, _ in jobs), *reads, *weights])
    for source, target in jobs:
        _check_stores_apart(source, target)
    folders = {target for source, target in jobs if _is_folder(source)}
    for path in outputs:
        if path.exists() and path not in folders:
            _check_writable_place(path)


def _check_stores_apart(source: Path, target: Path) -> None:
    """A store is a folder, which is replaced as a whole."""
    if is_zarr(source) or is_zarr(target):
        one, other = source.resolve(), target.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            raise ValueError(f"{target}: lies around or inside the input {source}; choose another output")


def _check_input(path: Path) -> None:
    if is_zarr(path) and path.exists():
        return
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: a folder, pipe or device; give a file")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")


def _is_folder(path: Path) -> bool:
    """Of pictures, or of slices: a Zarr store, which is one picture, is none."""
    return path.is_dir() and not is_zarr(path)


def _check_writable_place(path: Path) -> None:
    if not is_zarr(path):  # a folder, which is looked at when its turn comes
        files.check_place(path)


def check_folder(out: Path, why: str) -> None:
    """Raise if results cannot go into this folder, which may still have to be made."""
    if is_zarr(out):
        raise ValueError(f"{out}: {why}, so the output must be a folder, and this is the name of a Zarr store")
    if out.is_dir():
        return
    looks_like_a_picture = suffix_of(out) in (*files.SUFFIXES, *files.VOLUMES) or (
        mimetypes.guess_type(out)[0] or ""
    ).startswith("image/")
    if out.exists() or looks_like_a_picture:
        raise ValueError(f"{out}: {why}, so the output must be a folder, and this is the name of a file")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")


def _check_future_place(target: Path) -> None:
    """As `files.check_place`, where the folder may still have to be made."""
    nearest = next(folder for folder in target.parents if folder.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest}: not a folder, so {target} cannot be written; choose another output")
    files.check_place(nearest / target.name if nearest != target.parent else target)


def _check_future_folder(target: Path) -> None:
    nearest = next(folder for folder in (target, *target.parents) if folder.exists())
    if not nearest.is_dir():
        raise ValueError(f"{nearest}: not a folder, so {target} cannot be written; choose another output")
    if not os.access(nearest, os.W_OK):
        raise files.ImageFileError(f"{target}: no permission to write into {nearest}")


def _pictures(given: Path, out: Path, recursive: bool) -> list[tuple[Path, Path]]:
    """A file, or those of a folder that are pictures, each with its place in the output. Tells what is left out."""
    if not _is_folder(given):
        return [(given, Path(given.name))]
    found, left_out = look_through(given, out, recursive)
    told = _told(left_out)
    if not found:
        formats = ", ".join((*files.SUFFIXES, *files.VOLUMES))
        raise ValueError(f"{given}: no images in this folder ({formats}){told and f'; there are {told}'}")
    if told:
        complain("Note", f"{given}: left out {told}")
    return [(path, path.relative_to(given)) for path in found]


def _raise(error: OSError) -> None:
    raise error


def look_through(
    given: Path, out: Path, recursive: bool, onerror: Callable[[OSError], None] = _raise
) -> tuple[list[Path], Counter[str]]:
    """The pictures in a folder, without those in `out`, and how many others there are, by what they are.

    Files of DICOM in a folder are slices of a series: the folder itself is what is read. A Zarr store is a picture.
    """
    found: list[Path] = []
    left_out: Counter[str] = Counter()
    for place, folders, names in os.walk(given, onerror=onerror):  # does not follow links to folders: no circles
        stores = [name for name in sorted(folders) if is_zarr(Path(place, name)) and not name.startswith(".")]
        found += [Path(place, name) for name in stores]
        others = sorted(set(folders) - set(stores))
        reasons = {name: _why_not_entered(Path(place, name), out, recursive) for name in others}
        folders[:] = [name for name, reason in reasons.items() if reason is None]
        kinds = {name: _why_not_read(Path(place, name)) for name in sorted(names)}
        found += [Path(place, name) for name, kind in kinds.items() if kind is None]
        if SLICE in kinds.values():
            found.append(Path(place))
        left_out.update(reason for reason in (*reasons.values(), *kinds.values()) if reason and reason != SLICE)
    return found, left_out


def _why_not_entered(folder: Path, out: Path, recursive: bool) -> str | None:
    """None: it is; an empty text: nobody expects it."""
    if out.is_dir() and folder.samefile(out):
        return ""
    if folder.name.startswith("."):
        return "hidden"
    if not recursive:
        return "in folders (--recursive reads them)"
    return "links to folders" if folder.is_symlink() else None


def _why_not_read(path: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    if not path.is_file():
        return "pipes, devices or broken links"
    suffix = suffix_of(path)
    if suffix in (*files.SUFFIXES, *NIFTI):
        return None
    return SLICE if dicom.is_dicom(path) else suffix or "without a suffix"


def _told(left_out: Counter[str]) -> str:
    kinds = [f"{count} {kind}" for kind, count in left_out.most_common(TOLD)]
    more = left_out.total() - sum(count for _, count in left_out.most_common(TOLD))
    return ", ".join(kinds + [f"{more} others"] * bool(more))
