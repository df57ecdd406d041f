"""What the benchmarks have in common: settings that every JSON records, checks, and numbers that JSON does not have."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import torch

import torchdeal
from torchdeal.solvers import Solution

Say = Callable[[str], None]
Settings = dict[str, Any]


def environment(device: str) -> Settings:
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


def circumstances(settings: Settings) -> str:
    """The same in a sentence."""
    where = f"{settings['device_name']} ({settings['device']}), {settings['threads']} threads"
    return f"torchdeal {settings['torchdeal']}, torch {settings['torch']}, {where}, {settings['date'][:10]}."


def check_output(path: Path) -> None:
    """Raise if no file can be written there: better before the work than after."""
    if path.is_dir():
        raise ValueError(f"{path}: is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; create it first")


def run_details(solution: Solution) -> dict[str, Any]:
    """How a reconstruction ended, for the JSON."""
    return {
        "status": solution.status.name,
        "iterations": int(solution.iterations.max()),
        "distance": known(float(solution.distance.max())),
    }


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


def decoded(kind: Any, value: Any, missing: float) -> Any:
    """What `finite(asdict(...))` was made of, by its type; `missing` is the number that None stands for."""
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{f.name: decoded(kinds[f.name], value[f.name], missing) for f in fields(kind)})  # pyright: ignore
    if value is None:
        return missing if kind is float else None
    elements = get_args(kind)
    if get_origin(kind) is list:
        return [decoded(elements[0], v, missing) for v in value]
    if get_origin(kind) is tuple:
        return tuple(decoded(k, v, missing) for k, v in zip(elements, value, strict=True))
    if NoneType in elements:
        return decoded(elements[0], value, missing)
    return value


def estimate(distance: float | None) -> str:
    """A distance for people."""
    return "unknown" if distance is None else f"{distance:.1e}"


def power(value: float) -> str:
    """A power of ten, such as 1e-3."""
    return f"{value:.0e}".replace("e-0", "e-")


def number(value: float) -> str:
    """Three digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
