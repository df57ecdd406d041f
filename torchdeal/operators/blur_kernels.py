"""Blur kernels: Gaussian, disk, motion, or from a file; all have the sum 1."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.io import files

STEPS = 32  # per pixel, of a motion, and across a disk


def gaussian_kernel(std: float, shift: float = 0.0) -> Tensor:
    """`(n, n)`, n odd, that reaches three standard deviations, its centre moved down and right by `shift` pixels."""
    _check("the standard deviation of a Gaussian kernel", std)
    reach = math.ceil(3 * std + abs(shift))
    profile = torch.exp(-((torch.arange(-reach, reach + 1) - shift) ** 2) / (2 * std**2))
    return torch.outer(profile, profile) / profile.sum() ** 2


def disk_kernel(radius: float, shift: float = 0.0) -> Tensor:
    """Defocus: `(n, n)`, n odd, how much of each pixel a disk covers, its centre moved down and right by `shift`."""
    _check("the radius of a disk kernel", radius)
    reach = max(math.ceil(radius + abs(shift) - 0.5), 0)
    edges = np.arange(-reach, reach + 2) - 0.5 - shift  # of the pixels
    columns = []
    for left in edges[:-1]:
        across = left + (np.arange(STEPS) + 0.5) / STEPS
        half = np.sqrt(np.maximum(radius**2 - across**2, 0))  # the disk reaches from -half to half here
        columns.append(np.diff(np.clip(edges[:, None], -half, half), axis=0).mean(1))
    kernel = np.stack(columns, 1)
    return torch.from_numpy(kernel / kernel.sum()).float()


def motion_kernel(length: float, angle: float) -> Tensor:
    """A straight motion of `length` pixels, in the direction `angle`, in degrees, counter-clockwise from the right."""
    _check("the length of a motion kernel", length)
    if not math.isfinite(angle):
        raise ValueError(f"the angle of a motion kernel must be finite, got {angle:g}")
    steps = max(math.ceil(length * STEPS), 1)
    along = ((np.arange(steps) + 0.5) / steps - 0.5) * length
    reach = math.ceil(length / 2) + 1
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    rows, columns = reach - math.sin(math.radians(angle)) * along, reach + math.cos(math.radians(angle)) * along
    for row_offset in (0, 1):  # each point is shared by the four pixels around it
        for column_offset in (0, 1):
            row, column = np.floor(rows).astype(int) + row_offset, np.floor(columns).astype(int) + column_offset
            share = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column))
            np.add.at(kernel, (row, column), share)
    return torch.from_numpy(_trimmed(kernel / kernel.sum())).float()


def read_kernel(path: Path) -> Tensor:
    """The kernel in an npy file or a picture (colours are averaged), scaled to the sum 1."""
    image = files.read(path)
    values = image.pixels.astype(np.float64)
    if values.ndim == 3:
        values = values[..., : image.colours].mean(-1)
    if values.ndim != 2:
        raise ValueError(f"{path}: a kernel is (height, width), this file has {image.pixels.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: the kernel holds NaN or infinite values")
    if values.sum() <= 0:
        raise ValueError(f"{path}: the values of the kernel add up to {values.sum():g}: the sum must be above 0")
    return torch.from_numpy(values / values.sum()).float()


def parse_kernel(text: str, shift: float = 0.0) -> Tensor:
    """`gaussian:STD`, `disk:RADIUS`, `motion:LENGTH,ANGLE`, or the name of a file. The shift is for the first two."""
    kind, _, numbers = text.partition(":")
    if kind in ("gaussian", "disk", "motion"):
        values = _numbers(numbers)
        if kind == "gaussian" and len(values) == 1:
            return gaussian_kernel(values[0], shift)
        if kind == "disk" and len(values) == 1:
            return disk_kernel(values[0], shift)
        if kind == "motion" and len(values) == 2:
            return motion_kernel(*values)
    elif Path(text).suffix.lower() in files.SUFFIXES:
        return read_kernel(Path(text))
    raise ValueError(
        f"{text}: no such kernel; use gaussian:STD, disk:RADIUS, motion:LENGTH,ANGLE (such as gaussian:1.6, disk:3 or "
        f"motion:15,30), or a file ({', '.join(files.SUFFIXES)})"
    )


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        return []


def _check(name: str, value: float) -> None:
    if not 0 < value <= 1000:  # beyond, a slip of the pen would fill the memory
        raise ValueError(f"{name} must be above 0 and at most 1000 pixels, got {value:g}")


def _trimmed(kernel: np.ndarray) -> np.ndarray:
    """Without an equal number of empty rows, and of columns, on either side, so that the centre stays."""
    for axis in (0, 1):
        used = np.flatnonzero(kernel.sum(1 - axis) > 1e-9)
        margin = min(used[0], kernel.shape[axis] - 1 - used[-1])
        kernel = kernel.take(range(margin, kernel.shape[axis] - margin), axis)
    return kernel
