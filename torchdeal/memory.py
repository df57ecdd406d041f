"""How much memory there is, which errors say that it ran out, and how much was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import torch

# The last is what torch says where no algorithm of cuDNN finds the room that it needs.
SHORT = re.compile(
    r"out of memory|not enough memory|can't allocate memory|bad_alloc|ALLOC_FAILED|unable to find an engine",
    re.IGNORECASE,
)
MEMORY, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")  # of Linux; the second is that of a container
ASKED = re.compile(r"allocate (\d[\d.]*) ?(bytes|[KMGTPE]i?B)")  # how NumPy and torch say how much was too much


def is_out_of_memory(error: BaseException) -> bool:
    """Of the computer or of the device; some of torch's are plain RuntimeErrors."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(SHORT.search(str(error))))


def memory_of(device: torch.device | str) -> int | None:
    """In bytes, what a reconstruction on this device can use; None where that is not known."""
    if torch.device(device).type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return available_memory()


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
