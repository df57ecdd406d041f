"""What `deal train` reads: a TOML file with every setting of a run."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchdeal.model import SIGMA_MAX, Boundary

SCHEDULES = ("cosine", "restarts")
OPERATORS = ("identity", "blur", "inpainting")


class ConfigError(ValueError):
    """A setting that cannot be; the message names it and what it should be."""


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    channels: int = 1
    boundary: str = "reflect"
    features: int = 128

    def check(self) -> None:
        _require(self.channels in (1, 3), "model.channels", "1 (gray) or 3 (colour)", self.channels)
        _require(self.boundary in [b.value for b in Boundary], "model.boundary", "reflect or zero", self.boundary)
        _require(1 <= self.features <= 4096, "model.features", "from 1 to 4096; the paper has 128", self.features)


@dataclass(frozen=True)
class DataConfig:
    """What it is trained on. Paths are relative to the folder of the config file."""

    train: tuple[str, ...] = ()  # folders, tar files or images
    validation: tuple[str, ...] = ()
    patch: int = 128
    batch: int = 16

    def check(self) -> None:
        _require(bool(self.train), "data.train", "at least one folder, tar file or image", list(self.train))
        _require(self.patch >= 16, "data.patch", "at least 16", self.patch)
        _require(self.batch >= 1, "data.batch", "at least 1", self.batch)


@dataclass(frozen=True)
class TaskConfig:
    """What is measured: `y = H x + noise`."""

    operator: str = "identity"
    kernel: tuple[tuple[float, ...], ...] = ()  # of a blur
    blur_sigma: float = 0.0  # or the standard deviation of a Gaussian one, in pixels
    known: float = 0.5  # share of the pixels that inpainting knows
    sigma: tuple[float, float] = (0.0, SIGMA_MAX)  # noise level, uniform in this interval, on the 0..255 scale
    validation_sigma: tuple[float, ...] = (15.0, 25.0)

    def check(self) -> None:
        _require(self.operator in OPERATORS, "task.operator", f"one of {', '.join(OPERATORS)}", self.operator)
        low, high = self.sigma
        _require(0 <= low <= high < math.inf, "task.sigma", "two numbers, the lower first, at least 0", self.sigma)
        _require(0 <= self.blur_sigma < math.inf, "task.blur_sigma", "at least 0", self.blur_sigma)
        if self.operator == "blur":
            given = bool(self.kernel) != (self.blur_sigma > 0)
            _require(given, "task.kernel", "rows of numbers (or task.blur_sigma above 0, not both)", self.kernel)
            _require(len({len(row) for row in self.kernel}) <= 1, "task.kernel", "rows of equal length", self.kernel)
        _require(0 < self.known <= 1, "task.known", "above 0 and at most 1", self.known)
        _require(all(s >= 0 for s in self.validation_sigma), "task.validation_sigma", "at least 0", "a negative one")


@dataclass(frozen=True)
class IterationConfig:
    """The iterations without gradient before the step that is differentiated.

    Batches are kept, with the points that were reached, and seen again: `visits` times each, once in `pool` steps.
    Only the first visit starts from zero.
    """

    # From this share of the run on: the fewest and most outer iterations of a first visit
    outer: tuple[tuple[float, int, int], ...] = ((0.0, 8, 18), (0.6, 12, 24), (0.85, 15, 40))
    again: tuple[int, int] = (2, 4)  # of later visits
    visits: int = 4
    pool: int = 16  # batches

    def check(self) -> None:
        _require(
            bool(self.outer) and self.outer[0][0] == 0, "iterations.outer", "[[0.0, fewest, most], ...]", self.outer
        )
        shares = [share for share, _, _ in self.outer]
        _require(shares == sorted(shares), "iterations.outer", "rows with rising shares of the run", self.outer)
        for _, low, high in self.outer:
            _require(1 <= low <= high, "iterations.outer", "fewest and most, at least 1", (low, high))
        _require(1 <= self.again[0] <= self.again[1], "iterations.again", "fewest and most, at least 1", self.again)
        _require(self.visits >= 1, "iterations.visits", "at least 1", self.visits)
        _require(self.pool >= 1, "iterations.pool", "at least 1", self.pool)

    def bounds(self, share: float) -> tuple[int, int]:
        """Fewest and most outer iterations of a first visit, at this share of the run."""
        return next((low, high) for start, low, high in reversed(self.outer) if share >= start)


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, its schedule, and the moving average that is kept of the weights."""

    steps: int = 20_000
    lr: float = 5e-4
    final_lr: float = 5e-7
    warmup: int = 200
    schedule: str = "cosine"
    cycle: int = 10_000  # steps of the first cycle of "restarts"; each is twice as long as the one before
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 100.0  # norm of the gradient at most
    ema: float = 0.999

    def check(self) -> None:
        _require(self.steps >= 1, "optimiser.steps", "at least 1", self.steps)
        _require(0 < self.lr < math.inf, "optimiser.lr", "above 0", self.lr)
        _require(0 <= self.final_lr <= self.lr, "optimiser.final_lr", "from 0 to optimiser.lr", self.final_lr)
        _require(self.warmup >= 0, "optimiser.warmup", "at least 0", self.warmup)
        _require(self.schedule in SCHEDULES, "optimiser.schedule", " or ".join(SCHEDULES), self.schedule)
        _require(self.cycle >= 1, "optimiser.cycle", "at least 1", self.cycle)
        _require(all(0 <= beta < 1 for beta in self.betas), "optimiser.betas", "two numbers from 0 to 1", self.betas)
        _require(self.clip > 0, "optimiser.clip", "above 0", self.clip)
        _require(0 <= self.ema < 1, "optimiser.ema", "at least 0 and below 1", self.ema)


@dataclass(frozen=True)
class LossConfig:
    """`||x_K - x||^2 + gamma / N ||M(x_K) - M(x_{K-1})||^2 + gamma TV2(splines) + slowness max(q^2 - good^2, 0)`.

    The first three terms are those of the paper. In the last one q is by how much T shrinks, near the fixed point, what
    it shrinks least, and good is `contraction`: the smaller q is, the fewer iterations a reconstruction takes.
    """

    gamma: float = 1e-4
    slowness: float = 0.0
    contraction: float = 0.8  # that is good enough
    occasional: int = 4  # the second and the last term in one of so many steps, and as many times as large

    def check(self) -> None:
        _require(0 <= self.gamma < math.inf, "loss.gamma", "at least 0", self.gamma)
        _require(0 <= self.slowness < math.inf, "loss.slowness", "at least 0", self.slowness)
        _require(0 <= self.contraction < 1, "loss.contraction", "at least 0 and below 1", self.contraction)
        _require(self.occasional >= 1, "loss.occasional", "at least 1", self.occasional)


@dataclass(frozen=True)
class RunConfig:
    """The rest."""

    seed: int = 0
    report_every: int = 50  # steps
    save_every: int = 1000
    validate_every: int = 2000

    def check(self) -> None:
        for name in ("report_every", "save_every", "validate_every"):
            _require(getattr(self, name) >= 1, f"run.{name}", "at least 1", getattr(self, name))
        _require(0 <= self.seed < 2**31, "run.seed", "from 0 to 2147483647", self.seed)


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
            getattr(self, part.name).check()


def read_config(path: Path) -> Config:
    """The settings in a TOML file; what it does not name has its default."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib  # pyright: ignore[reportMissingImports]
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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
    if typing.get_origin(kind) is tuple:
        return _parse_tuple(kind, value, name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{name} should be {_words(kind)}, got {value!r}")
    return value


def _parse_tuple(kind: Any, value: Any, name: str) -> tuple:
    parts = typing.get_args(kind)
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{name} should be {_words(kind)}, got {value!r}")
    if parts[-1] is Ellipsis:
        return tuple(_parse(parts[0], entry, name) for entry in value)
    if len(value) != len(parts):
        raise ConfigError(f"{name} should be {_words(kind)}, got {value!r}")
    return tuple(_parse(part, entry, name) for part, entry in zip(parts, value, strict=True))


def _words(kind: Any, several: bool = False) -> str:
    if isinstance(kind, types.GenericAlias):
        parts = typing.get_args(kind)
        content = _words(parts[0], several=True) if parts[-1] is Ellipsis else f"{len(parts)} values"
        return f"{'lists' if several else 'a list'} of {content}"
    name = {int: "whole number", float: "number", str: "text"}.get(kind, kind.__name__)
    return f"{name}s" if several else f"a {name}"


def _require(holds: bool, name: str, expected: str, got: Any) -> None:
    if not holds:
        raise ConfigError(f"{name} should be {expected}, got {got!r}")
