"""What the benchmarks have in common: settings that every JSON records, and files written all or nothing."""

from __future__ import annotations

import hashlib
import math
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchdeal
from torchdeal.io import files
from torchdeal.io.atomic import replacing
from torchdeal.io.checkpoint import BUNDLED, bundled_path

Say = Callable[[str], None]


def environment(device: str) -> dict[str, Any]:
    """When, with what and where: the settings of every benchmark."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "torchdeal": torchdeal.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": device,
        "device_name": _device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "tf32": False,
    }


def weights_checksum(source: str) -> str:
    """The SHA-256 of what `load` reads for this source."""
    path = bundled_path(source) if source in BUNDLED else Path(source)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_device(device: str) -> None:
    """Raise if the device is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("no CUDA device is available: use --device cpu")


def check_least(plan: Any, **least: int) -> None:
    """Raise if one of these fields of the plan is below its least value; None is not."""
    for name, bound in least.items():
        value = getattr(plan, name)
        if value is not None and value < bound:
            raise ValueError(f"{name.replace('_', '-')} must be at least {bound}, got {value}")


def check_positive(name: str, value: float) -> None:
    """Raise if the value is not finite and above 0."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be finite and above 0, got {value:g}")


@contextmanager
def one_line_errors(output: Path, units: str) -> Iterator[None]:
    """What is wrong with the input ends the program with one line; Ctrl-C says where the finished units are."""
    try:
        yield
    except (files.ImageFileError, ImportError, ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print(f"Interrupted: the {units} that were finished are in {output}", file=sys.stderr)
        sys.exit(130)


def check_output(path: Path) -> None:
    """Raise if no file can be written there: better before the work than after."""
    if path.is_dir():
        raise ValueError(f"{path}: is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; create it first")


def write_text(path: Path, text: str) -> None:
    """All of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text + "\n")


def known(value: float) -> float | None:
    """None for a number that is not finite."""
    return value if math.isfinite(value) else None


def finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return known(value) if isinstance(value, float) else value


def _device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
