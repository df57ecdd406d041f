"""What a command fills in: how its files become problems, and their solutions files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torch import Tensor

from torchdeal.cli.options import Settings
from torchdeal.estimation import estimate_range
from torchdeal.operators import Operator
from torchdeal.solvers import Solution

Frame = TypeVar("Frame")
Kind = TypeVar("Kind")


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a simulation began with, and the degraded image that the result is compared with, of the same size."""

    clean: Tensor
    degraded: Tensor
    degraded_by: str
    white: float = 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """`y = H x + noise`."""

    y: Tensor
    H: Operator
    noise: float  # its standard deviation, in the units of y
    estimated: bool = False  # whether the noise is
    white: float | None = None  # the value of white in x; None: the range of a rough reconstruction
    keep: Callable[[Tensor], Tensor] = lambda x: x  # the part of x that is wanted
    simulation: Simulation | None = None


@dataclass(frozen=True, eq=False)
class Solved:
    """A problem with its solution."""

    problem: Problem
    solution: Solution
    model: str

    @property
    def x(self) -> Tensor:
        """What was asked for."""
        return self.problem.keep(self.solution.x)


@dataclass(frozen=True, eq=False)
class Task(ABC, Generic[Frame, Kind]):
    """What a command does in its own way."""

    settings: Settings

    @abstractmethod
    def read(self, path: Path) -> tuple[Sequence[Frame], Kind]:
        """The frames of a file, mostly one, and what `write` must know of it."""

    @abstractmethod
    def pose(self, frame: Frame) -> Problem:
        """What is to be solved."""

    @abstractmethod
    def write(self, path: Path, images: Sequence[Tensor], kind: Kind) -> None:
        """Write an image `(1, C, H, W)` for each frame, into one file."""


def image_range(H: Operator, y: Tensor) -> float:
    """That of a rough reconstruction: what is white to the model, whatever the units of the measurements."""
    return float(estimate_range(H, H.adjoint(y)).max())
