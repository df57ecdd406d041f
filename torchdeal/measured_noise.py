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
from torchdeal.solvers import sample_norms

FEWEST_BINS = 4  # that have third differences
LEAST = 1e-3  # of the range of the measurements: about what rounding to 8 bits adds


def estimate_measured_noise(operator: Operator, y: Tensor) -> Tensor:
    """The standard deviation of the noise in each sample, `(B,)`, in the units of y; images have white at 1.

    That of pictures is measured in flat places, that of k-space at its edge, that of sinograms in third differences.
    Raises ValueError for other measurements.
    """
    if y.is_complex() and isinstance(operator, Identity | Blur | Downsample | Mask):
        parts = [estimate_measured_noise(operator, part) for part in (y.real, y.imag)]
        return torch.stack(parts).square().mean(0).sqrt()
    if isinstance(operator, Identity):
        return y.real.new_tensor(estimate_sigma(y, data_range=1.0))
    if isinstance(operator, Blur | Downsample):
        return y.new_tensor(estimate_sigma(y, data_range=1.0)).clamp_min(LEAST)
    if isinstance(operator, Mask):
        known = torch.broadcast_to(operator.mask != 0, y.shape)
        if not bool(known.flatten(1).any(1).all()):
            raise ValueError("everything is masked: there is nothing to reconstruct from")
        known = known.all(1)
        levels = [known_noise_level(y[index : index + 1], known[index]).sigma for index in range(len(y))]
        return y.new_tensor(levels).clamp_min(LEAST)
    if isinstance(operator, Fourier | MultiCoilFourier):
        return _of_kspace(operator if isinstance(operator, Fourier) else operator.fourier, y)
    if isinstance(operator, Radon | FanBeam):
        if y.shape[-1] < FEWEST_BINS:
            raise ValueError(f"the noise of {y.shape[-1]} bins cannot be estimated: give noise, its standard deviation")
        return _at_least(y.new_tensor([estimate_sinogram_noise(sample) for sample in y]), y.abs().flatten(1).amax(1))
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
    typical = sample_norms(y) / y[0].numel() ** 0.5  # the largest value is that of the mean of the image
    return _at_least(y.real.new_tensor(levels), typical)


def _at_least(levels: Tensor, size: Tensor) -> Tensor:
    """A small part of the size of the measurements; of nothing measured, that of 1."""
    return torch.maximum(levels, LEAST * torch.where(size > 0, size, 1.0))
