import numpy as np
import pytest
import torch
from skimage import data

from torchdeal.tuning import estimate_sigma


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
