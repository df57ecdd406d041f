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
    """A kernel `(h, w)` stretched and turned about its centre, with a larger rim; its sum stays.

    By cubic convolution (Keys 1981), which keeps the widths of small kernels; other interpolation would blur them.
    """
    height, width = kernel.shape
    rim = 2 + math.ceil((abs(stretch - 1) + abs(math.radians(degrees))) * max(height, width))
    rows, columns = (torch.arange(length + 2 * rim) - (length // 2 + rim) for length in kernel.shape)
    down, right = (places.flatten() for places in torch.meshgrid(rows, columns, indexing="ij"))
    cosine, sine = math.cos(math.radians(degrees)) / stretch, math.sin(math.radians(degrees)) / stretch
    # Where the values come from: turned back, and shrunk.
    from_row = _cubic((cosine * down + sine * right)[:, None] - (torch.arange(height) - height // 2))
    from_column = _cubic((cosine * right - sine * down)[:, None] - (torch.arange(width) - width // 2))
    found = torch.einsum("ph,pw,hw->p", from_row, from_column, kernel.cpu()).view(len(rows), len(columns))
    return (found * (kernel.sum().cpu() / found.sum())).to(kernel)


def _cubic(distance: Tensor) -> Tensor:
    """The weight of a value at a distance."""
    d = distance.abs()
    near, far = 1.5 * d**3 - 2.5 * d**2 + 1, -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2
    return torch.where(d < 1, near, torch.where(d < 2, far, 0.0))


def _with_kernel(operator: Operator, change: Callable[[Tensor], Tensor]) -> Operator:
    if isinstance(operator, Downsample):
        assert isinstance(operator.blur, Blur)
        return Downsample(operator.scale, change(operator.blur.kernel), operator.blur.boundary, operator.size)
    assert isinstance(operator, Blur)
    return Blur(change(operator.kernel), operator.boundary)
