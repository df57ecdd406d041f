"""Files that another program writes into a folder: which of them are complete, and which were done before."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdeal.cli.jobs import look_through
from torchdeal.cli.shared import json_text

JOURNAL = "deal-watch.jsonl"  # in the folder of the results


@dataclass(frozen=True)
class Version:
    """What tells one content of a file from another. Numbers of inodes do not: network drives may change them."""

    size: int
    modified: int  # in nanoseconds

    @classmethod
    def of(cls, path: Path) -> Version | None:
        """None: the file is not to be seen (any more)."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Sighting:
    """A version of a file, and when it was first seen."""

    version: Version
    since: float


class Arrivals:
    """The pictures in a folder, and since when each is as it is. The folder is looked at, again and again.

    The clock of whoever writes the files does not matter: a file has settled if it did not change between two looks.
    """

    def __init__(
        self,
        folder: Path,
        out: Path,
        recursive: bool,
        settle: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Remember nothing yet.

        Args:
            folder: where files arrive.
            out: where results go. What is in there is no arrival.
            recursive: whether to look into folders, too.
            settle: for how many seconds a file must stay as it is.
            clock: in seconds.
        """
        self._folder, self._out, self._recursive = folder, out, recursive
        self._settle, self._clock = settle, clock
        self._seen: dict[Path, Sighting] = {}

    def look(self, unreadable: Callable[[OSError], None]) -> list[tuple[Path, Version]]:
        """Files that have settled, the oldest first. `unreadable` hears of folders that cannot be read."""
        now = self._clock()
        found, _ = look_through(self._folder, self._out, self._recursive, unreadable)
        pictures = (
            path for path in found if not path.is_dir()
        )  # a series of DICOM is a folder: when is that complete?
        versions = {path: version for path in pictures if (version := Version.of(path)) is not None}
        self._seen = {path: self._sighting(path, version, now) for path, version in versions.items()}
        settled = [(path, seen.version) for path, seen in self._seen.items() if now - seen.since >= self._settle]
        return sorted(settled, key=lambda pair: (pair[1].modified, pair[0]))

    @property
    def files(self) -> int:
        """How many there were at the last look, settled or not."""
        return len(self._seen)

    def _sighting(self, path: Path, version: Version, now: float) -> Sighting:
        before = self._seen.get(path)
        return before if before is not None and before.version == version else Sighting(version, now)


class Journal:
    """A line of JSON for each file that was done, kept beside the results: a restart goes on from there."""

    def __init__(self, out: Path):
        """Read what is there. Lines that are none of ours, or cut off, say nothing."""
        self.path = out / JOURNAL
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        self._unended = bool(text) and not text.endswith("\n")
        self._versions = dict(pair for line in text.splitlines() if (pair := _entry(line)) is not None)

    def is_done(self, place: Path, version: Version, target: Path) -> bool:
        """Whether the result is there, and of this version.

        What the journal does not know, such as results of `deal denoise`, is judged by its time, as `make` does.
        """
        made = Version.of(target)
        if made is None:
            return False
        known = self._versions.get(str(place))
        return made.modified >= version.modified if known is None else known == version

    def add(self, place: Path, version: Version, report: dict[str, Any]) -> None:
        """Raises OSError where it cannot be written."""
        entry = {"place": str(place), "size": version.size, "modified": version.modified}
        self._versions[str(place)] = version
        line = "\n" * self._unended + json_text(entry | report) + "\n"
        with self.path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._unended = False


def _entry(line: str) -> tuple[str, Version] | None:
    try:
        values = json.loads(line)
        return values["place"], Version(values["size"], values["modified"])
    except (ValueError, KeyError, TypeError):
        return None
