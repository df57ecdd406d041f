"""What belongs to a person at the page: a folder with the files, the order, the questions. It is removed afterwards."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from torchdeal.app.errands import BusyError, Errand
from torchdeal.app.uploads import PART, Upload

TOKEN = re.compile(r"[0-9a-f]{32}")  # made by the page, of 128 random bits: nobody can guess the one of another
MOST_VISITS = 64
MINUTES = 15


@dataclass(eq=False)
class Guest:
    """One page that is open."""

    folder: Path
    uploads: dict[str, Upload] = field(default_factory=dict)  # by their role: picture, kernel, mask
    order: Errand | None = None
    questions: dict[str, Errand] = field(default_factory=dict)  # about the result of the order
    seen: float = field(default_factory=time.monotonic)

    @property
    def busy(self) -> bool:
        return any(not errand.ended for errand in self._errands())

    def keep(self, role: str, upload: Upload) -> None:
        """In place of the one before, whose file is removed. Another picture ends what is done with the old one."""
        if role == "picture":
            self.forget_order()
            for path in [*self.folder.glob(f"{PART}*"), *self.folder.glob("result.*")]:
                path.unlink(missing_ok=True)
        old = self.uploads.get(role)
        self.uploads[role] = upload
        if old is not None and old.path != upload.path:
            old.path.unlink(missing_ok=True)

    def forget_order(self) -> None:
        for errand in self._errands():
            errand.cancel()
        self.order = None
        self.questions.clear()

    def end(self) -> None:
        self.forget_order()
        self.uploads.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _errands(self) -> list[Errand]:
        return [*filter(None, [self.order]), *self.questions.values()]


class Visits:
    """All of them, in a folder that goes away with this process."""

    def __init__(self, minutes: float = MINUTES):
        self._root = tempfile.TemporaryDirectory(prefix="deal-app-", ignore_cleanup_errors=True)
        self._open: dict[str, Guest] = {}
        self._lock = threading.Lock()
        self._seconds = 60 * minutes

    @property
    def root(self) -> Path:
        return Path(self._root.name)

    def find(self, token: str) -> Guest | None:
        """The visit, which is then known to go on."""
        visit = self._open.get(token)
        if visit is not None:
            visit.seen = time.monotonic()
        return visit

    def begin(self, token: str) -> Guest:
        """The visit of this token, a new one if there is none. Raises BusyError if there are too many."""
        with self._lock:
            visit = self.find(token)
            if visit is None:
                if len(self._open) >= MOST_VISITS:
                    raise BusyError("Too many pages are open. Try again in a few minutes.")
                visit = self._open[token] = Guest(Path(tempfile.mkdtemp(dir=self.root)))
        return visit

    def end(self, token: str) -> None:
        with self._lock:
            visit = self._open.pop(token, None)
        if visit is not None:
            visit.end()

    def tidy(self) -> None:
        """End those of whom nothing was heard for long."""
        now = time.monotonic()
        old = [token for token, visit in list(self._open.items()) if now - visit.seen > self._seconds]
        for token in old:
            self.end(token)

    def close(self) -> None:
        for token in list(self._open):
            self.end(token)
        self._root.cleanup()
