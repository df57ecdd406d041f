"""How close an image is to the truth."""

from __future__ import annotations

import numpy as np

from torchdeal.extras import optional


def psnr(image: np.ndarray, clean: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of an image in 0..1, clipped."""
    with np.errstate(divide="ignore"):  # of the truth itself it is infinite
        return float(-10 * np.log10(np.mean((image.clip(0, 1) - clean) ** 2)))


def ssim(image: np.ndarray, clean: np.ndarray) -> float:
    """Structural similarity of images in 0..1, clipped, `(H, W)` or `(H, W, C)`, by scikit-image."""
    metrics = optional("skimage.metrics", "SSIM", "demo")
    channel_axis = -1 if clean.ndim == 3 else None
    return float(metrics.structural_similarity(image.clip(0, 1), clean, data_range=1.0, channel_axis=channel_axis))
