"""Operators that are slightly wrong: what a reconstruction is told, where something a little different was measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.operators import Blur, Downsample, MultiCoilFourier, Operator, Radon

WIDER, TURN = 1.05, 2.0  # of kernels; the turn in degrees
MAPS_OFF = 0.05  # relative, the root of the mean square over pixels and coils
BUMPS = 4  # the error of the maps is as smooth as so many random numbers on a side
ANGLES_OFF = 0.2  # degrees, standard deviation

Mistake = Callable[[Operator], Operator]


def wider_kernel(operator: Operator) -> Operator:
    """The kernel stretched by 5 %."""
    return _with_kernel(operator, lambda kernel: resampled(kernel, stretch=WIDER))


def turned_kernel(operator: Operator) -> Operator:
    """The kernel turned by 2 degrees."""
    return _with_kernel(operator, lambda kernel: resampled(kernel, degrees=TURN))


def wrong_maps(operator: Operator) -> Operator:
    """Coil sensitivities times 1 plus a smooth complex error of 5 %."""
    assert isinstance(operator, MultiCoilFourier)
    maps, fourier = operator.maps, operator.fourier
    draws = torch.from_numpy(np.random.RandomState(0).normal(size=(2, maps.shape[-3], BUMPS, BUMPS))).to(maps.real)
    smooth = F.interpolate(draws, size=maps.shape[-2:], mode="bicubic", align_corners=True)
    error = torch.complex(smooth[0], smooth[1])
    error = error * (MAPS_OFF / error.abs().square().mean().sqrt())
    return MultiCoilFourier(maps * (1 + error), fourier.mask, centered=fourier.centered, real=operator.real)


def wrong_angles(operator: Operator) -> Operator:
    """Angles that are off by 0.2 degrees, each by itself."""
    assert isinstance(operator, Radon)
    errors = torch.from_numpy(np.random.RandomState(0).normal(0, ANGLES_OFF, len(operator.angles)))
    angles = operator.angles + errors.to(operator.angles)
    return Radon(angles, operator.size, bins=operator.bins, center=operator.center)


def resampled(kernel: Tensor, *, stretch: float = 1.0, degrees: float = 0.0) -> Tensor:
    """A kernel `(h, w)` stretched and turned about its centre, by bicubic interpolation; its sum stays."""
    height, width = kernel.shape
    rim = 1 + math.ceil((max(stretch, 1) - 1) * max(height, width) + abs(math.radians(degrees)) * max(height, width))
    padded = F.pad(kernel, (rim,) * 4)
    rows, columns = (torch.arange(length, dtype=kernel.dtype) for length in padded.shape)
    down, right = rows[:, None] - (height // 2 + rim), columns[None] - (width // 2 + rim)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Where the values come from: turned back, and shrunk.
    from_down = (cosine * down + sine * right) / stretch + height // 2 + rim
    from_right = (cosine * right - sine * down) / stretch + width // 2 + rim
    limits = [2 / (length - 1) for length in padded.shape]
    grid = torch.stack([from_right * limits[1] - 1, from_down * limits[0] - 1], -1)
    found = F.grid_sample(padded[None, None], grid[None], mode="bicubic", align_corners=True)[0, 0].clamp_min(0)
    return found * (kernel.sum() / found.sum())


def _with_kernel(operator: Operator, change: Callable[[Tensor], Tensor]) -> Operator:
    if isinstance(operator, Downsample):
        assert isinstance(operator.blur, Blur)
        return Downsample(operator.scale, change(operator.blur.kernel), operator.blur.boundary, operator.size)
    assert isinstance(operator, Blur)
    return Blur(change(operator.kernel), operator.boundary)
