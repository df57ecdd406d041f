"""Noise, sigma and lam that nobody gave."""

import numpy as np
import pytest
import torch
from conftest import picture

import torchdeal as td
from torchdeal.measured_noise import estimate_measured_noise
from torchdeal.mri.calibration import estimate_noise
from torchdeal.noise import estimate_sigma, estimate_sinogram_noise
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, Matrix, MultiCoilFourier, Radon

SIZE, NOISE = 64, 0.05


def drawn(y, noise=NOISE, seed=0):
    draws = torch.from_numpy(np.random.RandomState(seed).normal(0, noise, (2, *y.shape))).float()
    return y + (torch.complex(*draws) if y.is_complex() else draws[0])


def holes():
    return torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(0)) > 0.3


@pytest.mark.parametrize(
    "H",
    [
        Identity(),
        Blur(torch.ones(3, 3) / 9),
        Downsample(2, torch.ones(3, 3) / 9),
        Mask(holes()),
        Mask(torch.stack([holes()[None], holes().flip(0)[None]])),
        Fourier(),
        Fourier(holes(), centered=True, real=False),
        Fourier(torch.stack([holes()[None], holes().flip(0)[None]]), centered=True),
        MultiCoilFourier(torch.ones(2, SIZE, SIZE, dtype=torch.complex64), holes()),
        Radon(np.arange(40) * 4.5, SIZE),
    ],
    ids=lambda H: type(H).__name__,
)
def test_the_noise_of_known_measurements_is_found(H):
    smooth = torch.linspace(0.2, 0.6, SIZE).expand(2, 1, SIZE, SIZE).contiguous()
    clean = H.forward(smooth.to(torch.complex64) if isinstance(H, Fourier) and not H.real else smooth)
    noise = NOISE * (20 if isinstance(H, Radon) else 1)
    y = drawn(clean, noise)
    y[1] = clean[1] + 2 * (y[1] - clean[1])
    if isinstance(H, Fourier | MultiCoilFourier | Mask):
        y = y * (H.forward(torch.ones_like(smooth)) != 0 if isinstance(H, Mask) else 1)
    found = estimate_measured_noise(H, y)
    torch.testing.assert_close(found, torch.tensor([noise, 2 * noise]), rtol=0.2, atol=0)


def test_what_is_not_known_is_refused():
    H = Matrix(torch.eye(16 * 16), (1, 16, 16))
    with pytest.raises(ValueError, match="Matrix: the noise of its measurements cannot be estimated: give noise"):
        td.reconstruct(torch.rand(1, 16 * 16), H)


@pytest.mark.parametrize("scale", [1, 255])
def test_denoising_without_sigma(gray, scale):
    noisy = drawn(picture(size=48)).numpy()[0, 0]
    y = noisy if scale == 1 else (255 * noisy).round().clip(0, 255).astype(np.uint8)
    rec = td.reconstruct(y, model=gray, max_iterations=2)
    assert float(rec.sigma) == pytest.approx(estimate_sigma(y)[0], rel=1e-5)


@pytest.mark.parametrize("automatic", [None, "auto"])
def test_all_is_found_for_pictures_kspace_and_sinograms(gray, automatic):
    x = picture(size=48)
    limits = {"model": gray, "data_range": 1.0, "max_iterations": 2}
    for H, noise_of in (
        (Blur(torch.ones(3, 3) / 9), lambda y: estimate_sigma(y)[0]),
        (Fourier(), lambda y: estimate_noise(y[0])),
        (Radon(np.arange(30) * 6.0, 48), lambda y: estimate_sinogram_noise(y)),
    ):
        y = drawn(H.forward(x))
        rec = td.reconstruct(y, H, sigma=automatic, lam=automatic, noise=automatic, **limits)
        told = td.reconstruct(y, H, noise=noise_of(y), **limits)
        torch.testing.assert_close((rec.sigma, rec.lam), (told.sigma, told.lam), rtol=1e-4, atol=0)


def test_nothing_is_estimated_where_both_are_given(gray):
    H = Matrix(torch.eye(24 * 24), (1, 24, 24))
    rec = td.reconstruct(torch.rand(1, 24 * 24), H, model=gray, sigma=0.1, lam=1.0, data_range=1.0, max_iterations=2)
    assert (float(rec.sigma), float(rec.lam)) == pytest.approx((0.1, 1.0))
    assert rec.equation.noise is None


def test_another_word_is_refused(gray):
    with pytest.raises(TypeError, match="sigma must be a number or one number per sample, not 'best'"):
        td.reconstruct(torch.rand(1, 1, 24, 24), model=gray, sigma="best")
