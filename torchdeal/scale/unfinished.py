"""A run that may be stopped at any time: what is done lies in a folder beside the output, until all of it is.

The folder has the name of the output and `.partial`. It holds the settings of the run, what became of each tile, and
the tiles. Each of these files is either whole or absent.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchdeal.io.atomic import replacing

SUFFIX = ".partial"
SETTINGS, JOURNAL = "run.json", "tiles.jsonl"
OF_INPUT = {"bytes", "files"}  # settings that say what the input is, and not where


class Unfinished:
    """The folder of a run, new or to go on with.

    Args:
        target: the output.
        settings: all that the result depends on; of a run that is resumed they must be the same.
        resume: go on with what is there. Else there must be nothing.
    """

    def __init__(self, target: Path, settings: dict[str, Any], resume: bool):
        self.folder = target.with_name(target.name + SUFFIX)
        settings = json.loads(json.dumps(settings))
        kept = self._settings()
        if kept is not None and not resume:
            raise ValueError(
                f"{self.folder}: an unfinished run is there: go on with it by --resume, or remove the folder"
            )
        if kept is not None and kept != settings:
            different = [name for name in {**kept, **settings} if kept.get(name) != settings.get(name)]
            if set(different) <= OF_INPUT:
                raise ValueError(
                    f"{self.folder}: the input has changed since this run began: remove the folder, and begin anew"
                )
            told = ", ".join(f"{name} {kept.get(name)} is now {settings.get(name)}" for name in different)
            raise ValueError(f"{self.folder}: begun with other settings ({told}): use the same, or remove it")
        self.folder.mkdir(exist_ok=True)
        if kept is None:
            with replacing(self.folder / SETTINGS) as temporary:
                temporary.write_text(json.dumps(settings, indent=1))

    def _settings(self) -> dict[str, Any] | None:
        return begun_settings(self.folder)

    def note(self, entry: dict[str, Any]) -> None:
        """What became of a tile, for the report; the tile itself says that it is done."""
        with (self.folder / JOURNAL).open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def noted(self) -> Iterator[dict[str, Any]]:
        """What `note` was told so far; a line that was cut off is left out."""
        path = self.folder / JOURNAL
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """What failed before a tile was done leaves nothing behind."""
        if kind is not None and not (self.folder / JOURNAL).exists() and self.folder.exists():
            self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def begun_settings(folder: Path) -> dict[str, Any] | None:
    """Of the run whose folder this is; None: it has not begun."""
    path = folder / SETTINGS
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"{path}: damaged; remove {folder} and begin anew") from None


def take_place(made: Path, target: Path) -> None:
    """Let a file or folder become the output; a folder that was there is gone only when this one is in its place."""
    target = Path(os.path.realpath(target))  # links are followed
    if not target.is_dir():
        os.replace(made, target)
        return
    old = target.with_name(f".{target.name}.old")
    if old.exists():  # of a run that ended in this moment
        shutil.rmtree(old)
    os.replace(target, old)
    os.replace(made, target)
    shutil.rmtree(old)
