"""How close an image is to the truth."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from torchdeal.extras import optional

Image = np.ndarray | Tensor
SSIM_WINDOW = 7  # pixels, of scikit-image


def psnr(image: Image, clean: Image, *, eight_bit: bool = False) -> float:
    """Peak signal-to-noise ratio in dB of an image in 0..1, clipped; with `eight_bit` also rounded to 8 bits."""
    values = _array(image).clip(0, 1)
    values = (values * 255).round() / 255 if eight_bit else values
    return decibels(float(np.mean((values - _array(clean)) ** 2)))


def decibels(squared_error: float) -> float:
    """The PSNR that belongs to a mean squared error of images in 0..1: infinite for 0."""
    return math.inf if squared_error == 0 else -10 * math.log10(squared_error)  # not a number stays so


def ssim(image: np.ndarray, clean: np.ndarray) -> float:
    """Structural similarity of images in 0..1, clipped, `(H, W)` or `(H, W, C)`, by scikit-image."""
    metrics = optional("skimage.metrics", "SSIM", "demo")
    if min(clean.shape[:2]) < SSIM_WINDOW:
        raise ValueError(f"SSIM needs an image of at least {SSIM_WINDOW} x {SSIM_WINDOW} pixels")
    channel_axis = -1 if clean.ndim == 3 else None
    return float(metrics.structural_similarity(image.clip(0, 1), clean, data_range=1.0, channel_axis=channel_axis))


def _array(image: Image) -> np.ndarray:
    return np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image, dtype=np.float64)
