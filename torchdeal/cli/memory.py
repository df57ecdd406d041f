"""Where memory runs out: found before, where it can be, and told in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torchdeal.memory import ASKED, available_memory, is_out_of_memory
from torchdeal.model import DEAL

BYTES = 4  # of a number


class OutOfMemoryError(MemoryError):
    """Its message says at what, how much was asked for, and what to do."""


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """If memory runs out in this block, the error says that it was for this."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, what) from None


def out_of_memory(error: BaseException, what: str) -> OutOfMemoryError:
    asked = ASKED.search(str(error))
    size = f" ({_readable(*asked.groups())} were asked for)" if asked else ""
    elsewhere = "--device cpu, " if re.search("CUDA|cuFFT|MPS|engine", str(error)) else ""
    cause = " (or cuDNN does not work here)" if "engine" in str(error) else ""
    return OutOfMemoryError(f"not enough memory {what}{size}{cause}: use {elsewhere}a smaller input, or a part of it")


def _readable(number: str, unit: str) -> str:
    return _gibibytes(int(number)) if unit == "bytes" else f"{number} {unit}"


def check_memory(model: DEAL, size: int) -> None:
    """Raise if the masks alone of an image with so many values, one for each filter and pixel, are more than there is.

    Linux gives memory away that it does not have, and then ends the process without a word.
    """
    needed, available = BYTES * model.features * size // model.channels, available_memory()
    if available is not None and needed > available:
        raise MemoryError(f"cannot allocate {needed} bytes")


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
