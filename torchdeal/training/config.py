"""What `deal train` reads: a TOML file with every setting of a run."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torchdeal.model import SIGMA_MAX, Boundary

SCHEDULES = ("cosine", "restarts")
OPERATORS = ("identity", "blur", "inpainting")

T = TypeVar("T")


class ConfigError(ValueError):
    """A setting that cannot be; the message names it and what it should be."""


def setting(default: T, expected: str, holds: Callable[[Any], bool]) -> T:
    """A field of a section: its default, and in words and as a function what it must be."""
    return field(default=default, metadata={"expected": expected, "holds": holds})


def count(default: int) -> int:
    return setting(default, f"from 1 to {2**31 - 1}", lambda value: 1 <= value < 2**31)


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    channels: int = setting(1, "1 (gray) or 3 (colour)", lambda value: value in (1, 3))
    boundary: str = setting("reflect", "reflect or zero", lambda value: value in [b.value for b in Boundary])
    features: int = setting(128, "from 1 to 4096; the paper has 128", lambda value: 1 <= value <= 4096)


@dataclass(frozen=True)
class DataConfig:
    """What it is trained on. Paths are relative to the folder of the config file."""

    train: tuple[str, ...] = setting((), "at least one folder, tar file or image", lambda value: value and all(value))
    validation: tuple[str, ...] = setting((), "folders, tar files or images", all)
    patch: int = setting(128, "at least 16", lambda value: value >= 16)
    batch: int = count(16)


@dataclass(frozen=True)
class TaskConfig:
    """What is measured: `y = H x + noise`. Noise levels are on the 0..255 scale."""

    operator: str = setting("identity", f"one of {', '.join(OPERATORS)}", lambda value: value in OPERATORS)
    kernel: tuple[tuple[float, ...], ...] = ()  # of a blur
    blur_sigma: float = setting(0.0, "at least 0", lambda value: 0 <= value < math.inf)  # or that of a Gaussian, pixels
    known: float = setting(0.5, "above 0 and at most 1", lambda value: 0 < value <= 1)  # share, for inpainting
    sigma: tuple[float, float] = setting(  # the noise level is uniform in this interval
        (0.0, SIGMA_MAX), "two numbers, the lower first, at least 0", lambda value: 0 <= value[0] <= value[1] < math.inf
    )
    validation_sigma: tuple[float, ...] = setting(
        (15.0, 25.0), "numbers of at least 0", lambda value: all(0 <= level < math.inf for level in value)
    )

    def check(self) -> None:
        if self.operator == "blur":
            given = bool(self.kernel) != (self.blur_sigma > 0)
            _require(given, "task.kernel", "rows of numbers (or task.blur_sigma above 0, not both)", self.kernel)
            _require(len({len(row) for row in self.kernel}) <= 1, "task.kernel", "rows of equal length", self.kernel)
            total = sum(sum(row) for row in self.kernel)
            usable = not self.kernel or (math.isfinite(total) and total != 0)
            _require(usable, "task.kernel", "finite numbers whose sum is not 0", self.kernel)


@dataclass(frozen=True)
class IterationConfig:
    """The iterations without gradient before the step that is differentiated.

    Batches are kept, with the points that were reached, and seen again: `visits` times each, once in `pool` steps.
    Only the first visit starts from zero.
    """

    # From this share of the run on: the fewest and most outer iterations of a first visit
    outer: tuple[tuple[float, int, int], ...] = setting(
        ((0.0, 8, 18), (0.6, 12, 24), (0.85, 15, 40)),
        "[[0.0, fewest, most], ...]",
        lambda value: bool(value) and value[0][0] == 0,
    )
    again: tuple[int, int] = setting(  # of later visits
        (2, 4), "fewest and most, at least 1", lambda value: 1 <= value[0] <= value[1]
    )
    visits: int = count(4)
    pool: int = count(16)  # batches

    def check(self) -> None:
        shares = [share for share, _, _ in self.outer]
        _require(shares == sorted(shares), "iterations.outer", "rows with rising shares of the run", self.outer)
        for _, low, high in self.outer:
            _require(1 <= low <= high, "iterations.outer", "fewest and most, at least 1", (low, high))

    def bounds(self, share: float) -> tuple[int, int]:
        """Fewest and most outer iterations of a first visit, at this share of the run."""
        return next((low, high) for start, low, high in reversed(self.outer) if share >= start)


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, its schedule, and the moving average that is kept of the weights."""

    steps: int = count(20_000)
    lr: float = setting(5e-4, "above 0 and finite", lambda value: 0 < value < math.inf)
    final_lr: float = 5e-7
    warmup: int = setting(200, "at least 0", lambda value: value >= 0)
    schedule: str = setting("cosine", " or ".join(SCHEDULES), lambda value: value in SCHEDULES)
    cycle: int = count(10_000)  # steps of the first cycle of "restarts"; each is twice as long as the one before
    betas: tuple[float, float] = setting(
        (0.9, 0.99), "two numbers from 0 to 1", lambda value: all(0 <= beta < 1 for beta in value)
    )
    clip: float = setting(100.0, "above 0", lambda value: value > 0)  # norm of the gradient at most
    ema: float = setting(0.999, "at least 0 and below 1", lambda value: 0 <= value < 1)
    # Train only what the model does at noise levels above this one; at 0 to this level it stays as it is, bit for bit
    above: float = setting(-1.0, f"below {SIGMA_MAX:g}; -1 trains everything", lambda value: value < SIGMA_MAX)

    def check(self) -> None:
        _require(0 <= self.final_lr <= self.lr, "optimiser.final_lr", "from 0 to optimiser.lr", self.final_lr)


@dataclass(frozen=True)
class LossConfig:
    """`||x_K - x||^2 + gamma / N ||M(x_K) - M(x_{K-1})||^2 + gamma TV2(splines) + slowness max(q^2 - good^2, 0)`.

    The first three terms are those of the paper. In the last one q is by how much T shrinks, near the fixed point, what
    it shrinks least, and good is `contraction`: the smaller q is, the fewer iterations a reconstruction takes.
    """

    gamma: float = setting(1e-4, "at least 0", lambda value: 0 <= value < math.inf)
    slowness: float = setting(0.0, "at least 0", lambda value: 0 <= value < math.inf)
    contraction: float = setting(0.8, "at least 0 and below 1", lambda value: 0 <= value < 1)  # that is good enough
    remember: bool = False  # whether q is looked for where an earlier visit of the batch found it: a sharper penalty
    occasional: int = count(4)  # the second and the last term in one of so many steps, and as many times as large


@dataclass(frozen=True)
class RunConfig:
    """The rest."""

    seed: int = setting(0, "from 0 to 2147483647", lambda value: 0 <= value < 2**31)
    report_every: int = count(50)  # steps
    save_every: int = count(1000)
    validate_every: int = count(2000)


@dataclass(frozen=True)
class Config:
    """All settings of a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    iterations: IterationConfig = field(default_factory=IterationConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def check(self) -> None:
        """Raise ConfigError for what cannot be."""
        for part in dataclasses.fields(self):
            section = getattr(self, part.name)
            for entry in dataclasses.fields(section):
                value, rule = getattr(section, entry.name), entry.metadata
                if rule:
                    _require(rule["holds"](value), f"{part.name}.{entry.name}", rule["expected"], value)
            if hasattr(section, "check"):  # what concerns several settings
                section.check()


def read_config(path: Path) -> Config:
    """The settings in a TOML file; what it does not name has its default."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # pyright: ignore[reportMissingImports]
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise ConfigError(f"{path}: {what}; give a config file, such as those in configs/")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file; give a config file, such as those in configs/") from None
    except (OSError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML ({error})") from None
    try:
        return parse_config(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(content: dict[str, Any]) -> Config:
    """The settings in tables of plain values, as TOML and JSON have them."""
    config = _parse(Config, content, "")
    config.check()
    return config


def _parse(kind: Any, value: Any, name: str) -> Any:
    """The value as that type, or ConfigError."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"{name or 'the file'} should be a table")
        hints = typing.get_type_hints(kind)
        prefix = f"{name}." if name else ""
        unknown = [key for key in value if key not in hints]
        if unknown:
            raise ConfigError(f"there is no setting {prefix}{unknown[0]}: {name or 'the file'} has {', '.join(hints)}")
        return kind(**{key: _parse(hints[key], entry, prefix + key) for key, entry in value.items()})
    if typing.get_origin(kind) is tuple and isinstance(value, (list, tuple)):
        parts = typing.get_args(kind)
        parts = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        if len(parts) == len(value):
            return tuple(_parse(part, entry, name) for part, entry in zip(parts, value, strict=True))
    elif type(value) is kind or (kind is float and type(value) is int):  # a bool is not a number here
        return kind(value)
    raise ConfigError(f"{name} should be {_words(kind)}, got {value!r}")


def _words(kind: Any, several: bool = False) -> str:
    if kind is bool:
        return "true or false"
    if isinstance(kind, types.GenericAlias):
        parts = typing.get_args(kind)
        content = _words(parts[0], several=True) if parts[-1] is Ellipsis else f"{len(parts)} values"
        return f"{'lists' if several else 'a list'} of {content}"
    name = {int: "whole number", float: "number", str: "text"}.get(kind, kind.__name__)
    return f"{name}s" if several else f"a {name}"


def _require(holds: bool, name: str, expected: str, got: Any) -> None:
    if not holds:
        raise ConfigError(f"{name} should be {expected}, got {got!r}")
