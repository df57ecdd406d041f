"""Files with sigma and lam, as `deal tune` writes them and --parameters reads them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torchdeal.io.atomic import replacing

LARGEST = 2**24  # bytes; a real one has a few thousand


def write_parameters(path: Path, about: dict[str, Any]) -> None:
    """With sigma, on the 0..255 scale, lam, and how they were found."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(about, indent=1) + "\n")


def read_parameters(path: Path, command: str | None = None) -> tuple[float, float]:
    """Sigma on the 0..255 scale, and lam. Raises ValueError for any other file, or one for another command."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; deal tune writes one")
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError
        held = json.loads(path.read_text())
        sigma, lam = (float(held[name]) for name in ("sigma", "lam"))
        if not (0 <= sigma < math.inf and 0 < lam < math.inf):
            raise ValueError
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ValueError(f"{path}: no parameters: deal tune writes files with sigma and lam") from None
    if command and held.get("problem", command) != command:
        found_for = held["problem"]
        raise ValueError(
            f"{path}: these parameters were found for deal {found_for}, not for deal {command}: leave --parameters "
            "out, or find others with deal tune"
        )
    return sigma, lam
