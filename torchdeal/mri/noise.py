"""The noise in k-space."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchdeal.estimation import deviation
from torchdeal.mri.data import as_kspace, measured_mask

OUTER, FEWEST = 0.02, 500  # share, and least number, of the samples of a coil that are taken for noise


def estimate_noise(
    kspace: Tensor | np.ndarray, mask: Tensor | np.ndarray | None = None, *, centered: bool = False
) -> float:
    """The standard deviation of the noise in the real and in the imaginary part, in the units of the data.

    The image hardly reaches the highest frequencies: the median absolute value of the outermost fiftieth of the samples
    that were measured, over all coils and slices, is that of the noise. It is too high where the image does reach them
    (sharp edges, low resolution, little noise: a picture of 128 x 128 with noise of 1 % of white gets 1.3 times as
    much), and too low where samples were filtered, or filled with zeros that the mask counts as measured. Coils of
    different noise get one number between theirs.

    Args:
        kspace: complex, `(H, W)`, `(coils, H, W)` or `(slices, coils, H, W)`.
        mask: what was measured, `(H, W)` or `(W,)`; by default what is not zero.
        centered: the zero frequency is in the middle, else at [0, 0].
    """
    values = as_kspace(kspace)
    measured = measured_mask(values, mask)
    radius = _radius((values.shape[-2], values.shape[-1]), centered)[measured]
    if not len(radius):
        raise ValueError("the k-space is zero: there is no noise to estimate")
    number = min(max(round(OUTER * len(radius)), FEWEST), len(radius))
    outer = radius >= radius.topk(number).values[-1]
    samples = values[..., measured.to(values.device)][..., outer.to(values.device)]
    return deviation(torch.view_as_real(samples.to(torch.complex128)))


def _radius(size: tuple[int, int], centered: bool) -> Tensor:
    """Of each frequency, relative to the highest one of its direction."""
    rows, columns = (torch.fft.fftfreq(length, dtype=torch.float64) for length in size)
    radius = torch.hypot(rows[:, None], columns[None])
    return torch.fft.fftshift(radius) if centered else radius
