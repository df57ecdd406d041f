"""The noise in measurements, where nobody said how much there is: estimated, for operators of which enough is known."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdeal.noise import estimate_sigma, estimate_sinogram_noise, known_noise_level
from torchdeal.operators import (
    Blur,
    Downsample,
    FanBeam,
    Fourier,
    Identity,
    Mask,
    MultiCoilFourier,
    Operator,
    Radon,
)

LEAST = 1e-3  # of the range of the measurements: about what rounding to 8 bits adds


def estimate_measured_noise(operator: Operator, y: Tensor) -> Tensor:
    """The standard deviation of the noise in each sample, `(B,)`, in the units of y; images have white at 1.

    That of pictures is measured in flat places, that of k-space at its edge, that of sinograms in third differences.
    Raises ValueError for other measurements.
    """
    if isinstance(operator, Identity):
        return y.real.new_tensor(estimate_sigma(y, data_range=1.0))
    if isinstance(operator, Blur | Downsample):
        return y.new_tensor(estimate_sigma(y, data_range=1.0)).clamp_min(LEAST)
    if isinstance(operator, Mask):
        known = torch.broadcast_to(operator.mask != 0, y.shape).all(1)
        levels = [known_noise_level(y[index : index + 1], known[index]).sigma for index in range(len(y))]
        return y.new_tensor(levels).clamp_min(LEAST)
    if isinstance(operator, Fourier | MultiCoilFourier):
        return _of_kspace(operator if isinstance(operator, Fourier) else operator.fourier, y)
    if isinstance(operator, Radon | FanBeam):
        levels = y.new_tensor([estimate_sinogram_noise(sample) for sample in y])
        return torch.maximum(levels, LEAST * y.abs().flatten(1).amax(1))
    raise ValueError(
        f"{operator.known_as()}: the noise of its measurements cannot be estimated: give noise, its standard deviation"
    )


def _of_kspace(fourier: Fourier, y: Tensor) -> Tensor:
    from torchdeal.mri.calibration import estimate_noise  # needed here alone

    levels = []
    for index, sample in enumerate(y):
        mask = fourier.mask
        if mask is not None and mask.ndim == 4:
            mask = mask[index % len(mask), 0]
        levels.append(estimate_noise(sample, mask, centered=fourier.centered))
    return y.real.new_tensor(levels)
