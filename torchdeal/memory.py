"""How much memory there is, which errors say that it ran out, and how much was asked for."""

from __future__ import annotations

import re
from pathlib import Path

SHORT = re.compile(r"out of memory|not enough memory|can't allocate memory|bad_alloc|ALLOC_FAILED", re.IGNORECASE)
MEMORY, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")  # of Linux; the second is that of a container
ASKED = re.compile(r"allocate (\d[\d.]*) ?(bytes|[KMGTPE]i?B)")  # how NumPy and torch say how much was too much


def is_out_of_memory(error: BaseException) -> bool:
    """Of the computer or of the device; some of torch's are plain RuntimeErrors."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(SHORT.search(str(error))))


def available_memory() -> int | None:
    """In bytes, with what can be swapped, within the limit of a container; None where the system does not say."""
    try:
        lines = dict(line.split(":") for line in MEMORY.read_text().splitlines())
        free = sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(free, int(LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
