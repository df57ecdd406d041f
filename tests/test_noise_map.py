"""Denoising where the noise is not the same everywhere."""

import numpy as np
import pytest
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur

MODEL = small_model(features=5, dtype=torch.float32)


@pytest.mark.parametrize("backend", ["fft", "direct"])
def test_a_map_that_is_the_same_everywhere_is_one_number(backend):
    y = noisy(picture(size=20), 20)
    expected = td.reconstruct(y, model=MODEL, sigma=20 / 255, tolerance=1e-4, backend=backend)
    found = td.reconstruct(y, model=MODEL, sigma=torch.full((20, 20), 20 / 255), tolerance=1e-4, backend=backend)
    assert found.converged
    assert relative(found.x, expected.x) < 3e-4


def test_both_backends_see_the_same_map():
    """On more than one tile of the masks, of an odd number of filters."""
    y = noisy(picture(size=48), 20)[..., :21, :]
    levels = torch.linspace(2, 40, 21 * 48).view(21, 48) / 255
    fft, direct = (td.reconstruct(y, model=MODEL, sigma=levels, backend=name).x for name in ("fft", "direct"))
    assert relative(fft, direct) < 1e-5


def two_levels(size=48, low=8.0, high=40.0):
    levels = np.full((size, size), low)
    levels[:, size // 2 :] = high
    clean = picture(size=size)[0, 0].double().numpy() * 255
    return clean, levels, clean + levels * np.random.default_rng(0).normal(size=levels.shape)


def test_a_map_is_better_than_any_one_number(gray):
    clean, levels, y = two_levels()
    by_map = td.denoise(y, sigma=levels, model=gray, data_range=255.0)
    for one in (8.0, 24.0, 40.0):
        by_one = td.denoise(y, sigma=one, model=gray, data_range=255.0)
        assert np.linalg.norm(by_map - clean) < 0.95 * np.linalg.norm(by_one - clean)


def test_pixels_without_noise_are_kept(gray):
    _, levels, y = two_levels(size=32, low=0.0, high=20.0)
    result = td.denoise(y, sigma=levels, model=gray, data_range=255.0)
    assert np.abs(result - y)[:, :16].max() < 0.02
    assert np.abs(result - y)[:, 16:].mean() > 5


def test_a_map_is_no_list_of_levels_though_it_has_as_many():
    image, levels = torch.rand(64, 1, 8, 8), torch.linspace(0.05, 0.2, 64).view(8, 8)
    model = small_model(dtype=torch.float32)
    of_all = td.reconstruct(image, model=model, sigma=levels, max_iterations=2).x
    of_last = td.reconstruct(image[63:], model=model, sigma=levels, max_iterations=2).x
    assert relative(of_all[63:], of_last) < 1e-4


def test_one_level_per_sample_may_be_a_column():
    image, levels = torch.rand(3, 1, 16, 16), torch.tensor([0.05, 0.1, 0.2])
    model = small_model(dtype=torch.float32)
    flat = td.reconstruct(image, model=model, sigma=levels, max_iterations=2).x
    assert torch.equal(td.reconstruct(image, model=model, sigma=levels.view(3, 1, 1, 1), max_iterations=2).x, flat)


def test_maps_per_channel_and_per_sample():
    y = noisy(picture("astronaut", size=20), 20)
    options = {"model": MODEL, "channelwise": True, "tolerance": 1e-4}
    levels = torch.stack([torch.full((20, 20), level / 255) for level in (5, 15, 30)])
    together = td.reconstruct(y, sigma=levels, **options).x
    in_numpy = td.reconstruct(y[0].permute(1, 2, 0).numpy(), sigma=levels.permute(1, 2, 0).numpy(), **options).x
    np.testing.assert_allclose(in_numpy, together[0].permute(1, 2, 0).numpy(), atol=1e-5)
    channels = y.movedim(1, 0)
    batch = td.reconstruct(channels, sigma=levels[:, None], model=MODEL, tolerance=1e-4).x
    for channel, level in enumerate((5, 15, 30)):
        alone = td.reconstruct(channels[channel : channel + 1], sigma=level / 255, model=MODEL, tolerance=1e-4).x
        assert relative(batch[channel : channel + 1], alone) < 1e-3
        assert relative(together[:, channel : channel + 1], alone) < 5e-3  # the tolerance is that of the three


def test_a_colour_model_takes_the_mean_of_the_channels(color):
    y = noisy(picture("astronaut", size=16), 20)
    expected = td.reconstruct(y, sigma=20 / 255, model=color, tolerance=1e-2)
    found = td.reconstruct(y, sigma=torch.full((1, 3, 16, 16), 20 / 255), model=color, tolerance=1e-2)
    assert relative(found.x, expected.x) < 2e-2


GOOD = np.full((20, 20), 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": GOOD[:, :19]}, r"has shape \(20, 19\), but the image is 20 x 20 with 1 channels"),
        ({"sigma": np.full((20, 20, 3), 0.1)}, r"has shape \(20, 20, 3\), but the image"),
        ({"sigma": -GOOD}, "the noise map, sigma, must be finite and at least 0"),
        ({"sigma": GOOD * np.nan}, "the noise map, sigma, must be finite and at least 0"),
        ({"lam": 1.0}, "leave lam out"),
        ({"backend": "packed"}, "the packed backend is not for noise maps"),
        ({"H": Blur(torch.ones(3, 3) / 9), "lam": 1.0}, r"sigma has 400 values.*is given as noise, a map like"),
    ],
)
def test_maps_that_cannot_be(arguments, message):
    given = {"sigma": GOOD, "model": MODEL, "H": None, **arguments}
    with pytest.raises(ValueError, match=message):
        td.reconstruct(GOOD, given.pop("H"), **given)
