"""Any denoiser or reconstructor of DeepInverse by name, `deepinv:DRUNet`, with weights that a user has."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from torchdeal.benchmark.peers.base import (
    Peer,
    PeerDenoiser,
    PeerSolver,
    Unavailable,
    inference,
    package,
    tunable,
)
from torchdeal.benchmark.peers.plug_and_play import PlugAndPlay
from torchdeal.operators import Operator

PREFIX = "deepinv:"
EXTRA = "deepinv"
PAPER = "Tachella et al., DeepInverse: A Python package for solving imaging inverse problems with deep learning, 2025"
SUFFIXES = (".pth", ".pth.tar", ".ckpt", ".pt")
KINDS = {1: "gray", 3: "color"}


@dataclass(frozen=True, eq=False)
class DeepInverseDenoiser:
    """DeepInverse has sigma in the units of the image."""

    model: Any

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        return self.model(noisy, sigma / 255)


@dataclass(frozen=True, eq=False)
class DeepInverseSolver:
    """A reconstructor, which is given H as linear physics with Gaussian noise."""

    model: Any
    physics: ModuleType
    noise_factor: float = tunable(1.0, 0.5, 0.7, 1.0, 1.4, 2.0)  # what it is told, relative to what there is

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        physics = self.physics.LinearPhysics(
            A=H.forward,
            A_adjoint=H.adjoint,
            noise_model=self.physics.GaussianNoise(sigma=self.noise_factor * noise),
        )
        return self.model(y, physics)


def deepinverse_denoiser(name: str) -> Peer[PeerDenoiser]:
    """The entry for `deepinv:NAME`."""

    def make(peers_dir: Path | None, channels: int, device: str) -> PeerDenoiser:
        return DeepInverseDenoiser(_model(name, peers_dir, channels, device))

    return Peer(make, PAPER, ("denoising",))


def deepinverse_solver(name: str) -> Peer[PeerSolver]:
    """The entry for `deepinv:NAME`: a reconstructor, or else a denoiser as plug-and-play."""

    def make(peers_dir: Path | None, channels: int, device: str) -> PeerSolver:
        model = _model(name, peers_dir, channels, device)
        deepinv = package("deepinv", name, EXTRA)
        if isinstance(model, deepinv.models.Reconstructor):
            return DeepInverseSolver(model, deepinv.physics)
        return PlugAndPlay(DeepInverseDenoiser(model))

    return Peer(make, PAPER, ("deblur", "superres", "mri", "ct"))


def _model(name: str, peers_dir: Path | None, channels: int, device: str) -> Any:
    """The model of that class, in inference mode. Nothing is downloaded."""
    deepinv = package("deepinv", name, EXTRA)
    kind = getattr(deepinv.models, name.removeprefix(PREFIX), None)
    if not inspect.isclass(kind):
        raise Unavailable(f"{name}: DeepInverse has no model of that name")
    known = inspect.signature(kind).parameters
    given: dict[str, Any] = {"in_channels": channels, "out_channels": channels, "device": device}
    if "pretrained" in known:
        given["pretrained"] = str(_weights(name, peers_dir, channels))
    try:
        model: Any = kind(**{key: value for key, value in given.items() if key in known})
    except (RuntimeError, TypeError, OSError) as error:  # weights of another model, or settings that it must be given
        raise Unavailable(f"{name}: {error}") from None
    return model.to(device).eval() if hasattr(model, "eval") else model


def _weights(name: str, peers_dir: Path | None, channels: int) -> Path:
    file = f"deepinv_{name.removeprefix(PREFIX)}_{KINDS.get(channels, channels)}"
    for suffix in SUFFIXES if peers_dir else ():
        path = Path(peers_dir or "") / f"{file}{suffix}"
        if path.is_file():
            return path
    raise Unavailable(f"{name} needs its weights as {file}{SUFFIXES[0]} in the folder of --peers-dir")
