"""Any denoiser or reconstructor of DeepInverse by name, `deepinv:DRUNet`, with weights that a user has.

The weights are what DeepInverse itself reads or writes by `torch.save(model.state_dict(), path)`: a file
`deepinv_DRUNet_gray.pth` or `deepinv_DRUNet_color.pth` in the folder of weights. Nothing is downloaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
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
ALIASES = {"GSPnP": "GSDRUNet"}  # the gradient-step denoiser by the name of its paper
CHANNELS = ("in_channels", "out_channels", "img_channels", "in_nc", "in_chans", "channels")  # as models call them
LONGEST_REASON = 300  # characters


@dataclass(frozen=True, eq=False)
class DeepInverseDenoiser:
    """DeepInverse has sigma in the units of the image."""

    name: str
    model: Any

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        with _reasons(self.name):  # detached: a gradient-step denoiser turns gradients of what it is given on
            return self.model(noisy.detach(), sigma=sigma / 255).detach().to(noisy)


@dataclass(frozen=True, eq=False)
class DeepInverseSolver:
    """A reconstructor, which is given H as linear physics with Gaussian noise."""

    name: str
    model: Any
    physics: ModuleType
    noise_factor: float = tunable(1.0, 0.5, 0.7, 1.0, 1.4, 2.0)  # what it is told, relative to what there is

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        physics = self.physics.LinearPhysics(
            A=lambda x, **_: H.forward(x),
            A_adjoint=lambda y, **_: H.adjoint(y),
            img_size=tuple(H.adjoint(y).shape[1:]),
            noise_model=self.physics.GaussianNoise(sigma=self.noise_factor * noise),
            device=y.device,
        )
        # One by one where that can be: not all reconstructors take batches.
        parts = y.detach().split(1) if H.batch is None else [y.detach()]
        with _reasons(self.name):
            return torch.cat([self.model(part, physics).detach() for part in parts])


def deepinverse_denoiser(name: str) -> Peer[PeerDenoiser]:
    """The entry for `deepinv:NAME`."""

    def make(peers_dir: Path | None, channels: int, device: str) -> PeerDenoiser:
        return _denoiser(name, _model(name, peers_dir, channels, device))

    return Peer(make, PAPER, ("denoising",))


def deepinverse_solver(name: str) -> Peer[PeerSolver]:
    """The entry for `deepinv:NAME`: a reconstructor, or else a denoiser as plug-and-play."""

    def make(peers_dir: Path | None, channels: int, device: str) -> PeerSolver:
        model = _model(name, peers_dir, channels, device)
        deepinv = package("deepinv", name, EXTRA)
        if isinstance(model, deepinv.models.Reconstructor):
            return DeepInverseSolver(name, model, deepinv.physics)
        return PlugAndPlay(_denoiser(name, model))

    return Peer(make, PAPER, ("deblur", "superres", "mri", "ct"))


def _denoiser(name: str, model: Any) -> DeepInverseDenoiser:
    if "sigma" not in inspect.signature(model.forward).parameters:
        raise Unavailable(f"{name} is no denoiser that is told the noise level")
    return DeepInverseDenoiser(name, model)


def _model(name: str, peers_dir: Path | None, channels: int, device: str) -> Any:
    """The model of that name, in inference mode, with its weights."""
    deepinv = package("deepinv", name, EXTRA)
    short = name.removeprefix(PREFIX)
    make = getattr(deepinv.models, ALIASES.get(short, short), None)
    if not callable(make):
        raise Unavailable(f"{name}: DeepInverse has no model of that name")
    settings = _settings(make, channels, device)
    trained = "pretrained" in inspect.signature(make).parameters
    if trained:
        settings["pretrained"] = str(_weights(name, peers_dir, channels))
    with _reasons(name):
        model: Any = make(**settings)
        if not isinstance(model, torch.nn.Module):
            raise Unavailable(f"{name} is no model")
        if not trained and any(True for _ in model.parameters()):  # or it would be measured with random weights
            state = torch.load(_weights(name, peers_dir, channels), map_location=device, weights_only=True)
            model.load_state_dict(state.get("state_dict", state))
        return model.to(device).eval()


def _settings(make: Callable, channels: int, device: str) -> dict[str, Any]:
    """What is known of the images, by the names that the model has for it."""
    known = inspect.signature(make).parameters
    # One model may be for images of several kinds: its default is no number then, and stays.
    settings: dict[str, Any] = {key: channels for key in CHANNELS if key in known and type(known[key].default) is int}
    settings |= {"color": channels == 3} if "color" in known else {}
    return settings | ({"device": device} if "device" in known else {})


@contextmanager
def _reasons(name: str) -> Iterator[None]:
    """What a model of others raises, weights of another model, say, or an operator that it is not for, is a reason."""
    try:
        yield
    except (Unavailable, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unavailable(f"{name}: {reason[:LONGEST_REASON]}") from error


def _weights(name: str, peers_dir: Path | None, channels: int) -> Path:
    file = f"deepinv_{name.removeprefix(PREFIX)}_{KINDS.get(channels, channels)}"
    for suffix in SUFFIXES if peers_dir else ():
        path = Path(peers_dir or "") / f"{file}{suffix}"
        if path.is_file():
            return path
    raise Unavailable(f"{name} needs its weights as {file}{SUFFIXES[0]} in the folder of --peers-dir")
