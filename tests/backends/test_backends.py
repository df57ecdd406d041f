"""All backends compute the same: the direct one, itself checked against numpy, is the measure."""

import pytest
import torch
from conftest import noisy, picture, relative, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdeal as td
from torchdeal.backends import DirectBackend, FFTBackend, choose_backend, fft
from torchdeal.operators import Blur


def assembled(backend: FFTBackend, tiles):
    """The tiles of a batch as one tensor `(B, N, H, W)`."""
    across = len(backend.columns)
    samples = [
        torch.cat([torch.cat(sample[i : i + across], 2) for i in range(0, len(sample), across)], 1) for sample in tiles
    ]
    return torch.stack(samples)


def compare(model, x, sigma, tolerance):
    with torch.no_grad():
        weights = model.weights()
        alpha = weights.alpha(sigma.to(x.dtype))
        direct, fast = DirectBackend(weights), FFTBackend(weights, *x.shape[-2:])
        expected, tiles = direct.squared_mask(x, alpha), fast.squared_mask(x, alpha)
        assert relative(assembled(fast, tiles), expected) < tolerance
        p = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(5))
        assert relative(fast.penalty(p, tiles), direct.penalty(p, expected)) < tolerance


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(15, 70),
    width=st.integers(15, 70),
    channels=st.sampled_from([1, 3]),
    batch=st.integers(1, 3),
    tile=st.sampled_from([16, 31, 264]),
    seed=st.integers(0, 9),
)
def test_fft_equals_direct(height, width, channels, batch, tile, seed):
    before, fft.TILE = fft.TILE, tile
    try:
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)
        compare(small_model(channels, features=5, seed=seed), x, 50 * torch.rand(batch, generator=generator), 1e-10)
    finally:
        fft.TILE = before


@pytest.mark.parametrize(("name", "image"), [("gray", "camera"), ("color", "astronaut")])
def test_fft_equals_direct_with_trained_weights(name, image):
    compare(td.load(name), noisy(picture(image, 50), 20), torch.tensor([20.0]), 2e-5)


@pytest.mark.parametrize("sigma", [5, 25])
def test_reconstructions_agree(gray, sigma):
    y = noisy(picture("camera", 40), sigma)
    results = [td.reconstruct(y, model=gray, sigma=sigma / 255, backend=name) for name in ("direct", "fft")]
    assert all(r.converged for r in results)
    assert relative(results[0].x, results[1].x) < 1e-3


def test_deblurring_agrees(gray):
    H = Blur(torch.ones(5, 5) / 25)
    y = noisy(H.forward(picture("camera", 40)), 2.55)
    options = {"model": gray, "sigma": 15 / 255, "lam": 0.5}
    direct, fast = (td.reconstruct(y, H, backend=name, **options).x for name in ("direct", "fft"))
    assert relative(direct, fast) < 1e-3


def test_choice():
    image = torch.zeros(1, 1, 20, 20)
    with torch.no_grad():
        reflecting, zero = small_model().weights(), small_model(boundary="zero").weights()
    assert isinstance(choose_backend(reflecting, image), FFTBackend)
    assert isinstance(choose_backend(zero, image), DirectBackend)
    assert isinstance(choose_backend(reflecting, image, "direct"), DirectBackend)
    with pytest.raises(ValueError, match="boundary='reflect'"):
        choose_backend(zero, image, "fft")
    with pytest.raises(ValueError, match="no backend 'cudnn': choose one of direct, fft"):
        choose_backend(reflecting, image, "cudnn")


@pytest.mark.parametrize("size", [1, 15, 27, 88, 280, 288, 1001])
def test_fast_sizes(size):
    fast = fft.fast_size(size)
    assert fast >= size
    assert fast % 2 == 0
    for prime in (2, 3, 5):
        while fast % prime == 0:
            fast //= prime
    assert fast == 1
