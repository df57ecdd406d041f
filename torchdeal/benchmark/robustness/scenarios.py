"""The problems of `robustness`, a few of each other experiment, and what is changed in them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.core import Cell, PosedProblem, middle
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.robustness.mistakes import Mistake, turned_kernel, wider_kernel, wrong_angles, wrong_maps

IMAGES = 4
QUICK_SIDE = 48
PERTURBATION = 1e-3  # relative to the measurements


@dataclass(frozen=True)
class Setting:
    """Problems of another experiment, and how their operator can be wrong."""

    name: str
    experiment: str
    cells: str  # a pattern of their names
    mistakes: dict[str, Mistake] = field(default_factory=dict)
    all_questions: bool = True  # else only the wrong operators

    def cell(self, options: BenchmarkOptions) -> Cell:
        """The cells of the experiment as one, with this name."""
        few = replace(options, limit=options.limit or (1 if options.quick else IMAGES), images=None, sigmas=())
        module = import_module(f"torchdeal.benchmark.{self.experiment}")
        found = [cell for cell in module.cells(few) if fnmatchcase(cell.name, self.cells)]

        def problems() -> list[PosedProblem]:
            each = (problem for cell in found for problem in cell.problems())
            kept = [replace(problem, variant="") for problem in each if problem.variant in ("", "kernel 1")]
            return [_smaller(problem) for problem in kept] if options.quick else kept

        return replace(
            found[0], name=self.name, tuned_as=found[0].tuned_as or found[0].name, problems=problems, tuning=None
        )


WIDER = "kernel 5 % wider"
SETTINGS = (
    Setting("denoising, sigma 25", "denoising", "BSD68, sigma 25"),
    Setting("denoising, sigma 50", "denoising", "BSD68, sigma 50"),
    Setting(
        "deblurring",
        "deblur",
        "image *, kernel 1, noise 2.55",
        {WIDER: wider_kernel, "kernel turned by 2 degrees": turned_kernel},
    ),
    Setting("super-resolution x2", "superres", "x2, noise 2.55", {WIDER: wider_kernel}),
    Setting("MRI 4x, one coil", "mri", "4x single coil, knee"),
    Setting("MRI 8x, 15 coils", "mri", "8x * coils, knee", {"coil maps off by 5 %": wrong_maps}, False),
    Setting("CT, 60 angles", "ct", "60 angles", {"angles off by 0.2 degrees": wrong_angles}, False),
)


@dataclass(frozen=True)
class Trial(PosedProblem):
    """A problem with something changed; its variant says what."""

    start: Tensor | None = None  # zero

    @classmethod
    def of(cls, problem: PosedProblem, variant: str, **changed: Any) -> Trial:
        return cls(**{**vars(problem), "variant": variant, **changed})


def _smaller(problem: PosedProblem) -> PosedProblem:
    """The centre of noisy images; other measurements cannot be cut."""
    if not problem.operator.is_identity:
        return problem
    return replace(
        problem, **{name: middle(getattr(problem, name), QUICK_SIDE).contiguous() for name in ("clean", "y")}
    )


def starting_point(name: str, problem: PosedProblem) -> Tensor | None:
    """The first iterate of that name, `(1, C, H, W)`."""
    shape, draws = tuple(problem.clean.shape), np.random.RandomState(0)
    if name == "uniform":
        return torch.from_numpy(draws.uniform(size=shape)).float()
    if name == "normal":
        return torch.from_numpy(draws.normal(size=shape)).float()
    return {"zero": None, "adjoint": problem.operator.adjoint(problem.y), "truth": problem.clean}[name]


def perturbation(y: Tensor, seed: int) -> Tensor:
    """White, of a thousandth of the norm of the measurements, and only where something was measured."""
    draws = np.random.RandomState(seed)
    e = torch.from_numpy(draws.normal(size=tuple(y.shape))).to(y.real.dtype)
    if y.is_complex():
        e = torch.complex(e, torch.from_numpy(draws.normal(size=tuple(y.shape))).to(e))
    e = e * (y != 0)
    return e * (PERTURBATION * y.norm() / e.norm())
