"""Plans: what is to be measured. A field is declared once: it is the attribute, the option and its check."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import torch

from torchdeal.io.files import SUFFIXES
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

Settings = dict[str, Any]  # of a run, as its JSON has them
MOST_THREADS = 1024  # torch does not survive many more


def option(
    default: Any,
    about: str,
    *,
    flag: str | None = None,
    least: int | None = None,
    most: int | None = None,
    positive: bool = False,
    **more: Any,
) -> Any:
    """A field that is an option: `--max-seconds` for `max_seconds`, `--size`, to be repeated, for the tuple `sizes`.

    Args:
        default: of the field. Where it is True, the option, whose flag must say so, makes it False.
        about: for the help; the default is added.
        flag: the option, where it is another.
        least: smaller numbers are refused.
        most: larger ones.
        positive: numbers that are not finite and above 0 are refused.
        more: for `add_argument`.
    """
    checks = {"least": least, "most": most, "positive": positive}
    return field(default=default, metadata={"about": about, "flag": flag, "argparse": more, **checks})


def argument(about: str, more: str = "") -> Any:
    """A field that must be given, without a name; `more` is only for the help."""
    return field(metadata={"about": about, "more": more, "flag": None})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every plan has. Raises ValueError for what cannot be measured."""

    DEVICES: ClassVar[tuple[str, ...]] = ("auto", "cpu", "cuda")

    device: str = option("auto", "auto takes CUDA where there is one")
    threads: int | None = option(None, "CPU threads; by default those of torch", least=1, most=MOST_THREADS)

    def __post_init__(self) -> None:
        if self.device == "auto":
            object.__setattr__(self, "device", "cuda" if torch.cuda.is_available() else "cpu")
        available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
        if self.device in available and not available[self.device]():
            raise ValueError(f"no {self.device.upper()} device is available: use --device cpu")
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):  # as a parser collects them
                object.__setattr__(self, item.name, tuple(value))
            for number in value if isinstance(value, (list, tuple)) else [value]:
                if number is not None:
                    _check(item, number)

    def recorded(self) -> Settings:
        """For the JSON. Paths by name: they mean nothing on another machine. Weights are told with their checksum."""
        return {item.name: _recorded(getattr(self, item.name)) for item in fields(self) if item.name != "model"}

    def reads(self) -> Iterator[Path]:
        """The files that are read, or could be: all images and kernels in a folder and those below it."""
        for value in (getattr(self, item.name) for item in fields(self)):
            if isinstance(value, Path):
                yield value
                below = (path for pattern in ("*", "*/*", "*/*/*") for path in value.glob(pattern))
                yield from (path for path in below if path.suffix.lower() in (*SUFFIXES, ".npz"))
        if getattr(self, "model", None):
            yield Path(self.model)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True, kw_only=True)
class SolvingPlan(Plan):
    """The same where one may choose when to stop."""

    tolerance: float = option(DEFAULT_TOLERANCE, "on the estimated relative distance to the fixed point", positive=True)
    max_iterations: int = option(DEFAULT_MAX_ITERATIONS, "outer iterations at most", least=1)


def add_options(parser: argparse.ArgumentParser, plan: type[Plan]) -> None:
    """All that the fields of the plan declare; their defaults are left to the plan."""
    kinds, shared = get_type_hints(plan), {item.name for item in fields(SolvingPlan)}
    for item in sorted(fields(plan), key=lambda item: item.name in shared):  # what others have too comes last
        about, kind = item.metadata["about"], kinds[item.name]
        element = next((k for k in get_args(kind) if k is not NoneType), kind)
        several = get_origin(kind) is tuple
        if is_argument(item):
            settings = {"metavar": item.name.upper(), "nargs": "*" if several else "?", "default": None}
            parser.add_argument(item.name, type=element, help=about + item.metadata["more"], **settings)
            continue
        settings = {"dest": item.name, "help": about, **item.metadata["argparse"]}
        if item.name == "device":
            settings["choices"] = plan.DEVICES
        if kind is bool:
            settings["action"] = "store_false" if item.default else "store_true"
        else:
            settings = {"type": element, **settings}
            if "choices" not in settings:
                settings["metavar"] = _flag(item).lstrip("-").upper()
        if several and "type" not in item.metadata["argparse"]:
            settings = {"action": "append", **settings}
            settings["help"] += "; may be repeated"
        if kind is not bool and item.default not in (None, ()):
            shown = item.default if isinstance(item.default, tuple) else [item.default]
            separator = " " if settings.get("action") else ","
            settings["help"] += f" (default: {separator.join(map(str, shown))})"
        parser.add_argument(_flag(item), **settings)


def is_argument(item: Field[Any]) -> bool:
    """Whether the field must be given."""
    return item.default is MISSING


def _flag(item: Field[Any]) -> str:
    name = item.name.removesuffix("s") if isinstance(item.default, tuple) else item.name
    return item.metadata["flag"] or f"--{name.replace('_', '-')}"


def _recorded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_recorded(v) for v in value]
    return value.resolve().name if isinstance(value, Path) else value


def _check(item: Field[Any], number: Any) -> None:
    name, least, most = _flag(item).lstrip("-"), item.metadata.get("least"), item.metadata.get("most")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    if item.metadata.get("positive") and not 0 < number < math.inf:
        raise ValueError(f"{name} must be finite and above 0, got {number:g}")
