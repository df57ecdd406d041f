"""All backends compute the same: the direct one, itself checked against numpy, is the measure."""

from dataclasses import replace

import pytest
import torch
from conftest import noisy, picture, relative, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdeal as td
from torchdeal.backends import DirectBackend, FFTBackend, choose_backend
from torchdeal.backends.cpu import fft, mask
from torchdeal.model import Boundary
from torchdeal.model.spline import even_spline
from torchdeal.operators import Blur


def assembled(backend: FFTBackend, tiles):
    """The masks `(pairs, h, w, 2)` of groups of filters, of the tiles of a batch, as one tensor `(B, N, H, W)`."""
    across, features = len(backend.columns), len(backend.weights.filters[-1])
    samples = [
        torch.cat([torch.cat(whole[i : i + across], 2) for i in range(0, len(whole), across)], 1)
        for whole in ([torch.cat(groups) for groups in sample] for sample in tiles)
    ]
    signs = torch.tensor([1, -1])  # the second of each pair has a minus
    return (torch.stack(samples) * signs).movedim(-1, 2).flatten(1, 2)[:, :features]


def compare(model, x, sigma, tolerance, boundary=None):
    with torch.no_grad():
        weights = replace(model.weights(), boundary=boundary or model.boundary)
        alpha = weights.alpha(sigma.to(x.dtype))
        direct, fast = DirectBackend(weights), FFTBackend(weights, *x.shape[-2:])
        expected, tiles = direct.squared_mask(x, alpha), fast.squared_mask(x, alpha)
        assert relative(assembled(fast, tiles), expected) < tolerance
        p = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(5))
        assert relative(fast.penalty(p, tiles), direct.penalty(p, expected)) < tolerance
        energy = torch.rand(expected.shape[1], x.shape[1], dtype=x.dtype, generator=torch.Generator().manual_seed(6))
        for found, true in zip(fast.mask_sums(tiles, energy), direct.mask_sums(expected, energy), strict=True):
            assert relative(found, true) < tolerance


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(15, 70),
    width=st.integers(15, 70),
    channels=st.sampled_from([1, 3]),
    batch=st.integers(1, 3),
    tile=st.sampled_from([16, 31, 264]),
    seed=st.integers(0, 9),
    boundary=st.sampled_from(["reflect", "zero"]),
)
def test_fft_equals_direct(height, width, channels, batch, tile, seed, boundary):
    before, fft.TILE = fft.TILE, tile
    try:
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)
        model = small_model(channels, boundary, features=5, seed=seed)
        compare(model, x, 50 * torch.rand(batch, generator=generator), 1e-10)
    finally:
        fft.TILE = before


def test_masks_of_every_size():
    """Sizes decide into how many bands a tile is cut, and so how much room a band needs."""
    with torch.no_grad():
        weights = small_model(features=2, dtype=torch.float32).weights()
        alpha = weights.alpha(torch.tensor([25.0]))
        for height in range(15, 140):
            for width in (53, 67, 96):
                tiles = FFTBackend(weights, height, width).squared_mask(torch.rand(1, 1, height, width), alpha)
                assert torch.cat(tiles[0][0]).shape == (1, height, width, 2)


@pytest.mark.parametrize("boundary", Boundary)
@pytest.mark.parametrize(("name", "image"), [("gray", "camera"), ("color", "astronaut")])
def test_fft_equals_direct_with_trained_weights(name, image, boundary):
    compare(td.load(name), noisy(picture(image, 50), 20), torch.tensor([20.0]), 2e-5, boundary)


@pytest.mark.parametrize("size", [(1, 1), (3, 20), (89, 7)])
def test_zero_boundary_allows_any_size(size):
    x = torch.rand(1, 1, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    compare(small_model(boundary="zero"), x, torch.tensor([20.0]), 1e-10)


@pytest.mark.parametrize("boundary", Boundary)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_zeros(monkeypatch, channels, boundary):
    """Their masks are the same everywhere, and found without transforms; in tiles of two sizes."""
    monkeypatch.setattr(fft, "TILE", 17)
    x = torch.zeros(2, channels, 40, 33, dtype=torch.float64)
    compare(small_model(channels, boundary, features=5), x, torch.tensor([20.0, 5.0]), 1e-10)


@torch.no_grad()
def test_images_of_zeros_within_a_transform_of_torch():
    weights = small_model(features=5).weights()
    x, alpha = torch.zeros(1, 1, 24, 24, dtype=torch.float64), weights.alpha(torch.tensor([20.0]))
    backend = choose_backend(weights, x, "fft")
    expected = backend.penalty(x + 1, backend.squared_mask(x, alpha))
    found, _ = torch.func.jvp(lambda z: backend.penalty(z + 1, backend.squared_mask(z, alpha)), (x,), (x,))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("boundary", Boundary)
def test_fft_takes_any_memory_layout(boundary):
    x = torch.rand(40, 33, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).permute(3, 2, 1, 0)
    compare(small_model(3, boundary), x, torch.tensor([20.0, 5.0]), 1e-10)


def test_a_second_mask_leaves_the_first_as_it_was():
    with torch.no_grad():
        weights = small_model().weights()
        backend, alpha = FFTBackend(weights, 20, 20), weights.alpha(torch.tensor([20.0], dtype=torch.float64))
        first = backend.squared_mask(torch.zeros(1, 1, 20, 20, dtype=torch.float64), alpha)[0][0][0]
        kept = first.clone()
        backend.squared_mask(torch.rand(1, 1, 20, 20, dtype=torch.float64), alpha)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spline_without_gradient(dtype):
    values = torch.rand(31, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x = torch.tensor([0, 0.05, 0.1, 1.234, 2.95, 3, 3.1, 17, 1e12, torch.nan], dtype=dtype)
    result, expected = mask.spline(10 * x, mask.linear_pieces(values)), even_spline(x, values)
    torch.testing.assert_close(result, expected, equal_nan=True)


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
    assert isinstance(choose_backend(zero, image), FFTBackend)
    assert isinstance(choose_backend(reflecting, image, "direct"), DirectBackend)
    with pytest.raises(ValueError, match="no backend 'cudnn': choose one of direct, fft"):
        choose_backend(reflecting, image, "cudnn")
