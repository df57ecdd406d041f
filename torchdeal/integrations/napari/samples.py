"""Sample data: pictures of scikit-image with noise, and a stack of planes."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchdeal.extras import optional

NOISE = 25.0  # standard deviation, where white is 255
SIDE = 256
PLANES = 5
LayerData = tuple[np.ndarray, dict[str, Any], str]


def camera() -> list[LayerData]:
    """In gray."""
    return [(_noisy(_data().camera()[:SIDE, 100 : 100 + SIDE]), {"name": "camera, noisy"}, "image")]


def astronaut() -> list[LayerData]:
    """In colour."""
    return [(_noisy(_data().astronaut()[:SIDE, 120 : 120 + SIDE]), {"name": "astronaut, noisy", "rgb": True}, "image")]


def stack() -> list[LayerData]:
    """Coins, and the same a little further in each plane: `(PLANES, H, W)` in 16 bits, with a size of voxels."""
    coins = _data().coins()
    planes = np.stack([coins[4 * shift : 4 * shift + 128, 3 * shift : 3 * shift + 128] for shift in range(PLANES)])
    noisy = _noisy(planes).astype(np.uint16) * 257
    return [(noisy, {"name": "coins, noisy", "scale": (2.0, 0.5, 0.5)}, "image")]


def _data() -> Any:
    return optional("skimage.data", "a sample picture", "napari")


def _noisy(clean: np.ndarray) -> np.ndarray:
    values = clean + np.random.default_rng(0).normal(0, NOISE, clean.shape)
    return values.clip(0, 255).round().astype(np.uint8)
