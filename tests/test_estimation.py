import numpy as np
import pytest
import torch
from conftest import picture
from skimage import data

from torchdeal.estimation import (
    LAM_FACTOR,
    default_parameters,
    estimate_known_sigma,
    estimate_range,
    estimate_sigma,
    estimate_sinogram_noise,
    gain,
)
from torchdeal.operators import Blur, Fourier, Identity, Mask, Radon


@pytest.mark.parametrize("sigma", [5, 15, 25, 50])
def test_estimate_on_a_smooth_picture(sigma):
    rng = np.random.default_rng(0)
    row, column = np.mgrid[0:128, 0:128] / 128
    image = 0.5 + 0.3 * np.sin(5 * row) * np.cos(4 * column) + sigma / 255 * rng.normal(size=(128, 128))
    assert estimate_sigma(image)[0] * 255 == pytest.approx(sigma, rel=0.05)


@pytest.mark.parametrize("name", ["camera", "coins", "astronaut", "coffee"])
@pytest.mark.parametrize("sigma", [15, 30])
def test_estimate_on_photographs(name, sigma):
    image = getattr(data, name)()[:256, :256] / 255
    image = image + sigma / 255 * np.random.default_rng(0).normal(size=image.shape)
    # photographs bring noise of their own: coins about 9
    assert 0.95 * sigma < estimate_sigma(image)[0] * 255 < (sigma**2 + 10**2) ** 0.5


def test_units_and_batches():
    rng = np.random.default_rng(0)
    image = (128 + 20 * rng.normal(size=(64, 64))).round().clip(0, 255).astype(np.uint8)
    assert estimate_sigma(image)[0] == pytest.approx(20, rel=0.1)
    batch = torch.stack([torch.from_numpy(rng.normal(0.5, s, (1, 64, 64))) for s in (0.02, 0.1)])
    assert estimate_sigma(batch) == pytest.approx([0.02, 0.1], rel=0.1)


def test_noise_free():
    assert estimate_sigma(np.full((64, 64), 0.5))[0] == pytest.approx(0, abs=1e-6)


def test_too_small():
    with pytest.raises(ValueError, match="too small"):
        estimate_sigma(np.zeros((10, 40)))


@pytest.mark.parametrize("sigma", [0.02, 0.1])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_noise_of_the_known_pixels(sigma, share):
    """Of a smooth picture, where it is exact; values of pixels that are not known do not count."""
    generator = torch.Generator().manual_seed(0)
    row, column = torch.meshgrid(torch.linspace(0, 3, 128), torch.linspace(0, 2, 128), indexing="ij")
    noise = sigma * torch.randn(2, 3, 128, 128, generator=generator)
    known = torch.rand(128, 128, generator=generator) < share
    image = torch.where(known, 0.5 + 0.3 * torch.sin(row) * torch.cos(column) + noise, 100 * noise)
    assert estimate_known_sigma(image, known) == pytest.approx(sigma, rel=0.03)


def test_noise_of_the_known_pixels_of_a_photograph():
    """Its texture counts as noise too, but for little."""
    image = picture(size=128) + 0.04 * torch.randn(1, 1, 128, 128, generator=torch.Generator().manual_seed(0))
    known = torch.rand(128, 128, generator=torch.Generator().manual_seed(1)) < 0.7
    assert 0.04 <= estimate_known_sigma(image, known) < (0.04**2 + 0.02**2) ** 0.5


def test_too_few_known_neighbours():
    alone = torch.zeros(64, 64, dtype=torch.bool)
    alone[::2, ::2] = True
    with pytest.raises(ValueError, match="give sigma, or on the command line give --sigma"):
        estimate_known_sigma(torch.rand(1, 1, 64, 64), alone)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_noise_of_a_sinogram(share):
    """Of a disc and a smaller one in it, with noise of this share of the largest value."""
    row, column = torch.meshgrid(*[torch.arange(128) - 63.5] * 2, indexing="ij")
    image = (torch.hypot(row, column) < 55).float() + (torch.hypot(row - 9, column + 20) < 15).float()
    clean = Radon(torch.linspace(0, 180, 31)[:-1], (128, 128)).forward(image[None, None])
    sigma = share * float(clean.max())
    noisy = clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    assert estimate_sinogram_noise(noisy) == pytest.approx(sigma, rel=0.1)
    assert estimate_sinogram_noise(clean) < 0.2 * 0.01 * float(clean.max())


def test_the_rule_for_inverse_problems(gray):
    weights, like = gray.weights(), torch.zeros(2, 1, 32, 32)
    noise = torch.tensor([2.55, 7.65])
    sigma, lam = default_parameters(weights, Blur(torch.ones(5, 5) / 25), like, noise)
    assert float(sigma[0]) < float(sigma[1]) <= 50
    torch.testing.assert_close(lam.flatten(), LAM_FACTOR * weights.lam(sigma).flatten() * (noise / sigma) ** 2)


def test_the_rule_follows_the_scale_of_the_operator(gray):
    H, like = Blur(torch.ones(5, 5) / 25), torch.zeros(1, 1, 32, 32)
    sigma, lam = default_parameters(gray.weights(), H, like, torch.tensor([2.55]))
    scaled_sigma, scaled_lam = default_parameters(gray.weights(), 1000.0 * H, like, torch.tensor([2550.0]))
    torch.testing.assert_close(scaled_sigma, sigma)
    torch.testing.assert_close(scaled_lam, 1e6 * lam)


def test_gain_is_the_mean_diagonal_and_each_sample_has_its_own():
    mask = torch.zeros(2, 1, 16, 16)
    mask[0, :, :4], mask[1] = 1, 0.5
    torch.testing.assert_close(gain(Mask(mask), torch.zeros(2, 1, 16, 16)), torch.tensor([0.5, 0.5]))
    alone = gain(Blur(torch.rand(3, 3, generator=torch.Generator().manual_seed(0))), torch.zeros(1, 1, 16, 16))
    H = Blur(torch.rand(3, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(gain(H, torch.zeros(3, 1, 16, 16)), alone.expand(3))


@pytest.mark.parametrize("factor", [1e-12, 1.0, 4000.0])
def test_range_of_an_image(factor):
    x = factor * picture(size=48)
    H = Fourier(torch.ones(48, 48))
    measured = estimate_range(H, H.adjoint(H.forward(x)))
    assert float(measured) == pytest.approx(float(x.max() - x.min()), rel=0.1)


def test_the_range_of_nothing_is_one():
    assert float(estimate_range(Identity(), torch.zeros(1, 1, 16, 16))) == 1.0
