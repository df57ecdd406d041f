"""Simulated measurements, and the plain answers that reconstructions are compared with."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.operators import Operator, Radon


def measure(clean: Tensor, H: Operator, noise: float, seed: int = 0) -> Tensor:
    """`H x + noise`, the same each time. The noise is the standard deviation, of real and of imaginary parts."""
    y = H.forward(clean)
    draw = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(seed))
    # torch gives real and imaginary part together the deviation 1
    return y + noise * (math.sqrt(2) if y.is_complex() else 1.0) * draw


def measure_counts(clean: Tensor, H: Operator, gain: float, read: float = 0.0, seed: int = 0) -> Tensor:
    """`H x` as counted photons, of which each adds `gain`, with the noise of reading them, the same each time."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.poisson(H.forward(clean).clamp_min(0) / gain, generator=generator)
    return gain * counts + read * torch.randn(counts.shape, dtype=counts.dtype, generator=generator)


def measure_impulses(
    clean: Tensor, H: Operator, noise: float, share: float = 0.1, white: float = 1.0, seed: int = 0
) -> Tensor:
    """`H x + noise`, of which a share is black or white instead (salt and pepper), the same each time."""
    y = measure(clean, H, noise, seed)
    draw = torch.rand(y.shape, generator=torch.Generator().manual_seed(seed + 1)).to(y)
    y = torch.where(draw < share / 2, 0.0, y)
    return torch.where(draw > 1 - share / 2, white, y)


def random_columns(
    size: tuple[int, int], acceleration: float, centre: float, seed: int = 0, *, exact: bool = True
) -> Tensor:
    """A mask of whole columns of k-space, bool `(H, W)`, the zero frequency in the middle.

    Args:
        size: height and width.
        acceleration: `W / acceleration` columns are measured.
        centre: share of all columns that is measured in the middle; the others are chosen at random.
        seed: of what is random.
        exact: as many columns as that, else as many in the mean, each for itself, as in the masks of fastMRI.
    """
    height, width = size
    if not 1 <= acceleration <= width:
        raise ValueError(f"the acceleration must be from 1 to the number of columns, {width}, got {acceleration:g}")
    if not 0 <= centre <= 1 / acceleration:
        raise ValueError(
            f"the share in the centre must be from 0 to 1 / acceleration = {1 / acceleration:.3g}, got {centre:g}"
        )
    middle = round(width * centre)
    first = (width - middle + 1) // 2
    columns = torch.zeros(width, dtype=torch.bool)
    columns[first : first + middle] = True
    if exact:
        others = (~columns).nonzero().flatten()
        order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
        columns[others[order[: round(width / acceleration) - middle]]] = True
    else:
        share = (width / acceleration - middle) / max(width - middle, 1)
        columns |= torch.from_numpy(np.random.RandomState(seed).uniform(size=width) < share)
    return columns.expand(height, width).clone()


def filtered_back_projection(y: Tensor, H: Radon) -> Tensor:
    """Of a sinogram `(1, 1, angles, bins)`, with the ramp filter, by scikit-image.

    That makes squares: the image is the middle of one.
    """
    height, width = H.size
    side = max(height, width)
    transform = optional("skimage.transform", "filtered back-projection", "demo")
    square = transform.iradon(y[0, 0].double().numpy().T, theta=H.angles.numpy(), output_size=side, circle=False)
    top, left = side // 2 - height // 2, side // 2 - width // 2
    return torch.from_numpy(square[top : top + height, left : left + width]).to(y)[None, None]


def bicubic(y: Tensor, scale: int, kernel: Tensor | None = None) -> Tensor:
    """Images `(B, C, H, W)`, `scale` times larger, by Keys' cubic interpolation.

    Pixel `(i, j)` of y lies at `(scale i, scale j)`, where `Downsample` takes it; or, given the blur kernel, at the
    centre of mass of what was averaged.
    """
    rows, columns = (
        _cubic_weights(length, scale, 0.0 if kernel is None else _centre_of_mass(kernel, axis)).to(y)
        for axis, length in enumerate(y.shape[-2:])
    )
    return rows @ y @ columns.T


def _centre_of_mass(kernel: Tensor, axis: int) -> float:
    """Of a kernel of a convolution, along an axis, relative to its middle."""
    weights = kernel.sum(1 - axis)
    return float((weights * (len(weights) // 2 - torch.arange(len(weights)))).sum())


def _cubic_weights(length: int, scale: int, centre: float) -> Tensor:
    """`(scale * length, length)`; beyond the border the last pixel is repeated."""
    places = ((torch.arange(scale * length) - centre) / scale).clamp(-1, length)
    nearby = torch.arange(-3, length + 3)
    distance = (places[:, None] - nearby).abs()
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    return torch.zeros(scale * length, length).index_add(1, nearby.clamp(0, length - 1), weights)
