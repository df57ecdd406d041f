"""Pictures for the tests of tiles."""

import numpy as np
import torch

from torchdeal.io.checkpoint import load

LIGHT = "gray-light"


def noisy(height, width, sigma=15.0, seed=0):
    """Edges, a slope and fine stripes, with noise; uint8."""
    rows, columns = np.mgrid[:height, :width]
    clean = 90 + 60.0 * ((rows - height / 2) ** 2 + (columns - width / 3) ** 2 < (height / 4) ** 2)
    clean += 0.3 * columns + 20 * (((rows // 3) % 2 == 0) & (columns > 0.7 * width))
    noise = np.random.default_rng(seed).standard_normal(clean.shape)
    return np.clip(clean + sigma * noise, 0, 255).astype(np.uint8)


def light():
    return load(LIGHT)


def differences(found, whole):
    """Root mean square relative to that of the whole, and the largest, of a white of 255."""
    found, whole = np.asarray(found, float), np.asarray(whole, float)
    away = found - whole
    return np.sqrt((away**2).mean() / (whole**2).mean()), np.abs(away).max()


def as_image(array):
    return torch.from_numpy(np.asarray(array, np.float32) / 255)[None, None]
