"""Measurements simulated from clean images, by the protocols of the paper.

Noise starts anew for every image, from `numpy.random.RandomState(0)`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.core import PosedProblem
from torchdeal.benchmark.images import draw_noise
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, MultiCoilFourier, Radon

IDENTITY = Identity()


def noisy(image: str, clean: Tensor, sigma: float) -> PosedProblem:
    """White noise, on the 0..255 scale."""
    return PosedProblem(image, clean, clean + draw_noise(clean, sigma), IDENTITY, sigma / 255)


def blurred(image: str, clean: Tensor, operator: Blur, noise: float) -> PosedProblem:
    """Blur, rounded to 8 bits, then noise, on the 0..255 scale."""
    rounded = (operator.forward(clean).clamp(0, 1) * 255).round() / 255
    return PosedProblem(image, clean, rounded + draw_noise(rounded, noise), operator, noise / 255)


def downsampled(image: str, clean: Tensor, operator: Downsample, noise: float, variant: str = "") -> PosedProblem:
    """Blur and every so-manieth pixel, then noise, on the 0..255 scale."""
    y = operator.forward(clean)
    return PosedProblem(image, clean, y + draw_noise(y, noise), operator, noise / 255, variant)


def with_holes(image: str, clean: Tensor, seed: int, *, missing: float, noise: float) -> PosedProblem:
    """This share of the pixels is missing, at random by the seed; the others have noise, on the 0..255 scale."""
    known = torch.from_numpy(np.random.RandomState(seed).random_sample(tuple(clean.shape[-2:])) >= missing)
    operator, measured = Mask(known.float()), noisy(image, clean, noise)
    return PosedProblem(image, clean, operator.forward(measured.y), operator, measured.noise)


def kspace(image: str, clean: Tensor, operator: Fourier | MultiCoilFourier, noise: float) -> PosedProblem:
    """Sampled k-space with noise on real and imaginary part, where it is sampled."""
    y = operator.forward(clean)
    mask = operator.mask if isinstance(operator, Fourier) else operator.fourier.mask
    draws = np.random.RandomState(0).normal(0, noise, (2, *y.shape)).astype(np.float32)
    noise_there = torch.complex(*torch.from_numpy(draws)) * (1 if mask is None else mask)
    return PosedProblem(image, clean, y + noise_there, operator, noise)


def sinogram(image: str, clean: Tensor, operator: Radon, share: float) -> PosedProblem:
    """Projections with noise of this share of the largest one."""
    y = operator.forward(clean)
    noise = share * float(y.max())
    draws = np.random.RandomState(0).normal(0, noise, tuple(y.shape)).astype(np.float32)
    return PosedProblem(image, clean, y + torch.from_numpy(draws), operator, noise)


def read_kernel(path: Path, number: int) -> np.ndarray:
    """The blur kernel with this number, float32. Raises ValueError where it is missing."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; it should hold the blur kernels k0, k1, ...")
    try:
        with np.load(path) as archive:
            if f"k{number}" not in archive:
                raise ValueError(f"{path}: there is no kernel {number}")
            return archive[f"k{number}"].astype(np.float32)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
