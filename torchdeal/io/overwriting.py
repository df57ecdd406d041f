"""One rule for every command: what it writes is none of the files that it reads, nor the same file twice."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path


def refuse_overwriting(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raise ValueError if an output is an input or another output, by whatever name, link or hard link."""
    read = {_identity(path) for path in inputs}
    written: dict[Hashable, Path] = {}
    for path in outputs:
        identity = _identity(path)
        if identity in read:
            raise ValueError(f"{path}: would overwrite the input; choose another output")
        if identity in written:
            same = "" if written[identity] == path else f" ({written[identity]} is the same file)"
            raise ValueError(f"{path}: would be written twice{same}; choose another output")
        written[identity] = path


def _identity(path: Path) -> Hashable:
    """Of the file if it exists, whatever leads to it; else of the place where it would be."""
    try:
        status = path.stat()
    except OSError:
        place = Path(os.path.realpath(path))  # unlike `resolve`, also of links that lead in circles
        return str(place).casefold() if _ignores_case(place.parent) else str(place)
    return status.st_dev, status.st_ino


def _ignores_case(folder: Path) -> bool:
    """Whether A.png and a.png are one file there, as by default on macOS and Windows."""
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    other = nearest.with_name(nearest.name.swapcase()) if nearest.name else nearest
    return other != nearest and other.exists() and other.samefile(nearest)
