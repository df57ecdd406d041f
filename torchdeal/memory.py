"""Which errors say that memory ran out, and how much was asked for."""

from __future__ import annotations

import re

SHORT = re.compile(r"out of memory|not enough memory|can't allocate memory|bad_alloc|ALLOC_FAILED", re.IGNORECASE)
ASKED = re.compile(r"allocate (\d[\d.]*) ?(bytes|[KMGTPE]i?B)")  # how NumPy and torch say how much was too much


def is_out_of_memory(error: BaseException) -> bool:
    """Of the computer or of the device; some of torch's are plain RuntimeErrors."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(SHORT.search(str(error))))
