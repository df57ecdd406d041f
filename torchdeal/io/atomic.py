"""Writing files all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place if the block succeeds, and vanishes if it does not.

    Where `path` is a link, the file that it leads to is replaced, and the link stays.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".torchdeal-", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # what the old file has, or a plain `open` gives; mkstemp gives 0600
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
