"""Commands: each runs in a folder of its own, and must leave everything there in order."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from torchdeal.fuzz.inputs import File

EXIT_CODES = (0, 1, 2)
OLD = b"what an output file held before"


@dataclass(frozen=True)
class Command:
    """A command line and the files that it finds."""

    arguments: tuple[str, ...]
    files: tuple[tuple[str, File], ...]
    links: tuple[tuple[str, str, str], ...] = ()  # kind (hard, symbolic), name, what it leads to
    old: tuple[str, ...] = ()  # outputs that are there already

    def __str__(self) -> str:
        return " ".join(["deal", *map(repr, self.arguments)])

    def replaceable(self) -> set[str]:
        """The files that are no inputs of it."""
        given = [
            a
            for a, option in zip(self.arguments[:-1], ("", *self.arguments), strict=False)
            if option != "--save-degraded"
        ]
        unread = {name for name, _ in self.files if name not in given}
        return unread | set(self.old) | {name for _, name, to in self.links if to in unread}

    def prepare(self, folder: Path) -> None:
        """Make its files."""
        (folder / "folder").mkdir()
        for name, file in self.files:
            file.write(folder / name)
        for kind, name, to in self.links:
            (os.link if kind == "hard" else os.symlink)(folder / to, folder / name)
        for name in self.old:
            if not (folder / name).exists():
                (folder / name).write_bytes(OLD)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class FaultError(AssertionError):
    """Something that must not happen, and did."""


def check(command: Command, folder: Path) -> Ended:
    """Run it in an empty folder; raises FaultError for what must not happen."""
    command.prepare(folder)
    before = _contents(folder)
    ended = run(command.arguments, folder)
    after = _contents(folder)
    _check_words(ended, as_json="--json" in command.arguments)
    _check_files(before, after, command, succeeded=ended.code == 0)
    if ended.code == 0:
        written = {name for name in after if after[name] != before.get(name)}
        for name in written - {to for _, _, to in command.links}:  # of another suffix, as a link may be
            _check_output(folder / name)
        _check_uniform(command, folder, written)
    return ended


def run(arguments: tuple[str, ...], folder: Path) -> Ended:
    """`deal ...` in this process, in a folder; whatever it raises is a fault."""
    from torchdeal import cli

    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
    patches = [mock.patch.object(sys, "argv", ["deal", *arguments])]
    patches += [mock.patch.object(sys, name, stream) for name, stream in streams.items()]
    code, here = 0, Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            for patch in patches:
                stack.enter_context(patch)
            cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:
        raise FaultError(f"a traceback: {type(error).__name__}: {error}") from error
    finally:
        os.chdir(here)
    return Ended(code, *(_text(stream) for stream in streams.values()))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _contents(folder: Path) -> dict[str, str]:
    """A checksum for each file below."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _check_words(ended: Ended, as_json: bool) -> None:
    if ended.code not in EXIT_CODES:
        raise FaultError(f"exit code {ended.code}")
    if "Traceback" in ended.out + ended.err:
        raise FaultError(f"a traceback: {ended.err}")
    if ended.code and not ended.err.strip():
        raise FaultError("failed without a word")
    raw = [c for c in ended.out + ended.err if (ord(c) < 32 and c != "\n") or 0x202A <= ord(c) <= 0x202E]
    if raw:
        raise FaultError(f"control characters in what is printed: {raw}")
    if as_json and (ended.code != 2 or ended.out):
        _check_json(ended)


def _check_json(ended: Ended) -> None:
    def refuse(constant: str) -> None:
        raise FaultError(f"{constant} in the JSON report")

    try:
        report = json.loads(ended.out, parse_constant=refuse)
    except ValueError as error:
        raise FaultError(f"not JSON ({error}): {ended.out!r}") from error
    for result in report.get("results", ()):
        if result["converged"] != (result["status"] == "CONVERGED"):
            raise FaultError(f"the status is not true: {result}")
        if result["converged"] and result["distance"] is None:
            raise FaultError(f"converged at an unknown distance: {result}")


def _check_files(before: dict[str, str], after: dict[str, str], command: Command, succeeded: bool) -> None:
    gone = before.keys() - after.keys()
    if gone:
        raise FaultError(f"files are gone: {gone}")
    replaceable = command.replaceable() if succeeded else set()
    changed = {name for name in before if before[name] != after[name]} - replaceable
    if changed:
        raise FaultError(f"files were changed: {changed}")
    new = after.keys() - before.keys()
    if new and not succeeded:
        raise FaultError(f"failed, but left {new}")
    if any(Path(name).suffix == ".tmp" for name in new):
        raise FaultError(f"temporary files were left: {new}")


def _pixels(path: Path) -> np.ndarray:
    """Of a file, by its library: not by our own reader."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix in (".tif", ".tiff"):
        import tifffile

        return tifffile.imread(path)
    if path.suffix in (".nii", ".gz"):
        import nibabel

        return np.asarray(nibabel.load(path).dataobj)  # type: ignore[attr-defined]
    from PIL import Image

    return np.asarray(Image.open(path))


def _check_output(path: Path) -> None:
    try:
        pixels = _pixels(path)
    except Exception as error:
        raise FaultError(f"{path.name}: the output cannot be read ({error})") from error
    if not np.isfinite(pixels).all():
        raise FaultError(f"{path.name}: NaN was written")


def _check_uniform(command: Command, folder: Path, written: set[str]) -> None:
    """A picture of one value has nothing to remove: it stays as it is."""
    (source, file), *others = command.files
    target = command.arguments[-1]
    if others or file.array.content != "uniform" or target not in written or "--simulate" in command.arguments:
        return
    old, new = (_pixels(folder / name).astype(float) for name in (source, target))
    comparable = old.shape == new.shape and Path(target).suffix == file.suffix
    if comparable and abs(new - old).max() > 0.02 * abs(old).max() + 1:
        raise FaultError(f"a uniform picture of {old.flat[0]} became {new.min()}..{new.max()}")


@contextlib.contextmanager
def folder_for(command: Command, keep: Path | None = None) -> Iterator[Path]:
    """An empty folder, which is kept below `keep`, with the command line, if there was a fault."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="torchdeal-fuzz-"))
    try:
        yield folder
    except FaultError:
        if keep is not None:
            saved = keep / folder.name
            shutil.copytree(folder, saved, symlinks=True)
            (saved / "command.txt").write_text(str(command) + "\n")
        raise
    finally:
        shutil.rmtree(folder)
