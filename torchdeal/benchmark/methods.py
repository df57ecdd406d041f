"""Ours and the competitors by name, behind one interface: that of the competitors (see `peers/base.py`).

A denoiser is called with noisy images and their sigma; a solver with measurements, operator and noise. Ours return a
`Solution`, which also says how the run went; competitors the images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.core import DENOISING, Cell, Method
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers import DENOISERS, PREFIX, SOLVERS, find_denoiser, find_solver
from torchdeal.benchmark.peers.base import Unavailable, need_channels, tunable
from torchdeal.estimation import default_parameters
from torchdeal.io.checkpoint import checksum, load
from torchdeal.model import DEAL, SYMMETRIES
from torchdeal.operators import Operator
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Solution

OURS = {
    "deal": "ours, sigma and lam chosen on the tuning images",
    "deal-light": "the same with the light weights",
    "deal-rule": "ours, sigma and lam from the noise alone",
    "deal-paper": "ours, sigma and lam of the paper",
    "deal-mean": f"ours, the mean over {SYMMETRIES} symmetries",
}
TUNED_AS = {"deal-light": "deal", "deal-mean": "deal"}  # takes the parameters of the other
SLOW = ("mmr", "epll", "deal-mean")  # minutes for an image on a CPU
BUNDLED = {1: "gray", 3: "color"}  # weights by the channels of the images


@dataclass(frozen=True, eq=False)
class OurDenoiser:
    """`lam` is what was learned for the noise level."""

    model: DEAL
    weights: dict[str, str]
    tolerance: float
    max_iterations: int
    symmetries: int = 1

    def __call__(self, noisy: Tensor, sigma: float) -> Solution:
        # strong noise takes the values far out of 0..1
        return reconstruct(noisy, model=self.model, sigma=sigma / 255, data_range=1.0, **_limits(self))


@dataclass(frozen=True, eq=False)
class OurSolver:
    """With a sigma on the 0..255 scale, and so many times the lam that the rule has for that sigma and the noise."""

    model: DEAL
    weights: dict[str, str]
    tolerance: float
    max_iterations: int
    symmetries: int = 1
    sigma: float = tunable(15.0, 4.0, 5.0, 7.0, 10.0, 12.5, 15.0, 20.0, 28.0, 40.0, 50.0)
    strength: float = tunable(1.0, *(2.0 ** (k / 2) for k in range(-8, 9)))

    def __call__(self, y: Tensor, H: Operator, noise: float) -> Solution:
        return self._solve(y, H, sigma=self.sigma / 255, lam=self.strength * self.rule_lam(y, H, noise))

    def rule_lam(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        """`(B,)`."""
        with torch.no_grad():
            like = H.adjoint(y)
            levels = (torch.full((len(like),), value, device=like.device) for value in (255 * noise, self.sigma))
            return default_parameters(self.model.weights(), H, like, *levels)[1].flatten()

    def _solve(self, y: Tensor, H: Operator, **knobs: Any) -> Solution:
        return reconstruct(y, H, model=self.model, data_range=1.0, **_limits(self), **knobs)


@dataclass(frozen=True, eq=False)
class OursByRule(OurSolver):
    """As a user has it who knows the noise, and tunes nothing."""

    sigma: float = 0.0  # not parameters here
    strength: float = 1.0

    def __call__(self, y: Tensor, H: Operator, noise: float) -> Solution:
        return self._solve(y, H, noise=noise)


@dataclass(frozen=True, eq=False)
class OursAsInPaper(OurSolver):
    """With sigma and lam that the paper states."""

    sigma: float = 0.0
    strength: float = 1.0
    lam: float = 0.0

    def __call__(self, y: Tensor, H: Operator, noise: float) -> Solution:
        return self._solve(y, H, sigma=self.sigma / 255, lam=self.lam)


def _limits(method: OurDenoiser | OurSolver) -> dict[str, Any]:
    return {name: getattr(method, name) for name in ("tolerance", "max_iterations", "symmetries")}


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise for a name that is no method of the experiment."""
    for name in names:
        if name not in known and not name.startswith(PREFIX):
            raise Unavailable(f"there is no method {name} here; choose from {', '.join(known)}, {PREFIX}CLASS")


def default_methods(kind: str, quick: bool) -> list[str]:
    """Ours, and all competitors for this kind of problem."""
    ours = ["deal", "deal-light", "deal-mean"] if kind == DENOISING else list(OURS)
    registry = DENOISERS if kind == DENOISING else SOLVERS
    others = [name for name, peer in registry.items() if kind in peer.problems]
    return [name for name in (*ours, *others) if not (quick and name in SLOW)]


def find_method(name: str, cell: Cell, options: BenchmarkOptions) -> Method:
    """The method for the problems of a cell. Raises `Unavailable` where it cannot run."""
    if name in OURS:
        return _ours(name, cell, options)
    registry, find = (DENOISERS, find_denoiser) if cell.kind == DENOISING else (SOLVERS, find_solver)
    known = name in registry or name.startswith(PREFIX)
    if not known or cell.kind not in find(name).problems:
        raise Unavailable(f"not for {cell.kind}")
    peer = find(name)
    need_channels(cell.channels, peer.channels, name)
    return peer.make(options.peers_dir, cell.channels, options.device)


def with_parameters(method: Method, values: dict[str, float]) -> Method:
    """The same method with these parameters."""
    return replace(method, **values) if values else method


def _ours(name: str, cell: Cell, options: BenchmarkOptions) -> Method:
    if name not in default_methods(cell.kind, quick=False):
        raise Unavailable(f"not for {cell.kind}")
    source = _weights(name, cell.channels, options)
    known = {"gray" if cell.channels == 1 else "color": checksum(source)}
    model = _loaded(source, options.device)
    if model.channels != cell.channels:
        raise Unavailable(f"{Path(source).name} is for images of {model.channels} channels")
    made: Callable[..., Method] = OurDenoiser if cell.kind == DENOISING else OurSolver
    if name == "deal-rule":
        made = OursByRule
    if name == "deal-paper":
        if cell.paper is None:
            raise Unavailable("the paper states no sigma and lam for it")
        made = partial(OursAsInPaper, sigma=cell.paper[0], lam=cell.paper[1])
    return made(model, known, options.tolerance, options.max_iterations, SYMMETRIES if name == "deal-mean" else 1)


def _weights(name: str, channels: int, options: BenchmarkOptions) -> str:
    if channels not in BUNDLED:
        raise Unavailable(f"there are no weights for {channels} channels")
    if name == "deal-light":
        return f"{BUNDLED[channels]}-light"
    return options.model or BUNDLED[channels]


@cache
def _loaded(source: str, device: str) -> DEAL:
    return load(source, device=device)
