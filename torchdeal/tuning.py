"""Choosing the noise level from the data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdeal.images import to_tensor

PATCH = 7


def estimate_sigma(image: Any, *, data_range: float | None = None) -> list[float]:
    """The standard deviation of white Gaussian noise in each image of a batch, in the units of the data.

    Image structure lives in a few principal components of small patches; the others hold noise alone, and their
    variances are all sigma^2. From the largest down, components are dropped until the mean of the rest equals their
    median, as it does for noise (the criterion of Chen, Zhu and Heng, ICCV 2015).
    """
    tensor, image_format = to_tensor(image, data_range=data_range)
    if min(tensor.shape[-2:]) < 2 * PATCH:
        raise ValueError(f"the image is too small to estimate its noise: at least {2 * PATCH} x {2 * PATCH} is needed")
    return [_noise_level(sample.double()) * image_format.data_range for sample in tensor]


def _noise_level(image: Tensor) -> float:
    """Of one image `(C, H, W)`: the mean over its channels, whose noise is taken to be equal."""
    levels = []
    for channel in image:
        patches = channel.unfold(0, PATCH, 1).unfold(1, PATCH, 1).reshape(-1, PATCH * PATCH)
        patches = patches - patches.mean(0)
        variances = torch.linalg.eigvalsh(patches.T @ patches / len(patches))  # ascending
        count = len(variances)
        while count > 1 and variances[:count].mean() > variances[:count].median():
            count -= 1
        levels.append(float(variances[:count].mean().clamp_min(0).sqrt()))
    return sum(levels) / len(levels)
