"""Denoisers without learning: BM3D, total variation, non-local means, wavelets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.peers.base import each_picture, inference, package, tunable
from torchdeal.benchmark.total_variation import minimise_total_variation
from torchdeal.operators import Identity

EXTRA = "peers"
PATCH, REACH = 5, 10  # of non-local means, pixels
SHIFTS = 3  # of wavelets, pixels: without them the grid is seen


@dataclass(frozen=True, eq=False)
class BM3D:
    """By the package `bm3d` of its authors, with as many threads as torch has: times can be compared."""

    bm3d: ModuleType

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        function = self.bm3d.bm3d if noisy.shape[1] == 1 else self.bm3d.bm3d_rgb
        profile = self.bm3d.BM3DProfile()
        profile.num_threads = torch.get_num_threads()
        return each_picture(lambda picture: function(picture, sigma / 255, profile), noisy)


@dataclass(frozen=True, eq=False)
class TVDenoiser:
    """`argmin_x 0.5 ||x - y||^2 + strength sigma / 255 TV(x)`."""

    strength: float = tunable(0.6, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0)

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        weight = self.strength * sigma / 255
        return minimise_total_variation(noisy, Identity(), weight, norm=1.0, start=noisy).x


@dataclass(frozen=True, eq=False)
class NonLocalMeans:
    """By scikit-image, with patches of 5 x 5 pixels up to 10 pixels away; `width` is that of the kernel, in sigmas."""

    restoration: ModuleType
    width: float = tunable(0.7, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        options: dict[str, Any] = {"patch_size": PATCH, "patch_distance": REACH, "fast_mode": True}
        options |= {"sigma": sigma / 255, "h": self.width * sigma / 255, "channel_axis": _axis(noisy)}
        return each_picture(partial(self.restoration.denoise_nl_means, **options), noisy)


@dataclass(frozen=True, eq=False)
class Wavelets:
    """Soft thresholds by BayesShrink, means over shifts of the image; by scikit-image."""

    restoration: ModuleType

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        options = {"sigma": sigma / 255, "method": "BayesShrink", "rescale_sigma": True, "channel_axis": _axis(noisy)}

        def shrunk(picture: np.ndarray) -> np.ndarray:
            shifts = list(product(range(SHIFTS + 1), repeat=2))
            moved = (np.roll(picture, shift, (0, 1)) for shift in shifts)
            results = (self.restoration.denoise_wavelet(image, **options) for image in moved)
            back = [
                np.roll(image, (-down, -right), (0, 1)) for image, (down, right) in zip(results, shifts, strict=True)
            ]
            return np.mean(back, axis=0)

        return each_picture(shrunk, noisy)


def make_bm3d(peers_dir: Path | None, channels: int, device: str) -> BM3D:
    """Computed on the CPU."""
    return BM3D(package("bm3d", "BM3D", EXTRA))


def make_non_local_means(peers_dir: Path | None, channels: int, device: str) -> NonLocalMeans:
    """Computed on the CPU."""
    return NonLocalMeans(package("skimage.restoration", "non-local means", EXTRA))


def make_wavelets(peers_dir: Path | None, channels: int, device: str) -> Wavelets:
    """Computed on the CPU."""
    package("pywt", "wavelet denoising", EXTRA)
    return Wavelets(package("skimage.restoration", "wavelet denoising", EXTRA))


def _axis(images: Tensor) -> int | None:
    return None if images.shape[1] == 1 else -1
