"""Simulated pictures of a microscope."""

import numpy as np
import pytest
from PIL import Image

from torchdeal.benchmark.microscopy import _add, _blurred, picture, write_pictures


def test_a_seed_is_a_picture():
    one, again, other = picture(3, 64), picture(3, 64), picture(4, 64)
    assert np.array_equal(one, again)
    assert one.shape == (64, 64)
    assert np.abs(one - other).max() > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_in_0_to_1_and_without_detail_finer_than_the_optics_show(seed):
    """At the finest stripes that pixels hold, a Gaussian of deviation 1 leaves exp(-pi^2 / 2) of them."""
    pixels = picture(seed, 128)
    assert 0 < pixels.min() < 0.1
    assert pixels.max() == pytest.approx(1)
    stripes = (-1.0) ** np.arange(128)
    window = np.hanning(128)
    finest, all_light = (abs((pixels * window * window[:, None] * wave).sum()) for wave in (stripes, 1))
    assert finest < 1e-3 * all_light


def test_light_between_pixels_is_shared_and_none_is_lost():
    image = np.zeros((6, 6))
    _add(image, np.array([[2.25, 9.0], [3.5, 1.0]]), np.array([8.0, 5.0]))
    expected = np.zeros((6, 6))
    expected[2:4, 3:5] = [[3.0, 3.0], [1.0, 1.0]]
    assert np.allclose(image, expected)


def test_the_blur_is_a_gaussian():
    """Of a point: its sum stays, and its deviation is the one that was asked for."""
    point = np.zeros((63, 65))
    point[31, 32] = 1
    blurred = _blurred(point, 2.5)
    down, right = np.mgrid[:63, :65]
    expected = np.exp(-((down - 31) ** 2 + (right - 32) ** 2) / (2 * 2.5**2)) / (2 * np.pi * 2.5**2)
    assert np.abs(blurred - expected).max() < 1e-6


def test_files_hold_16_bits(tmp_path):
    write_pictures(tmp_path / "new", 2, 40)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["00.png", "01.png"]
    pixels = np.asarray(Image.open(tmp_path / "new" / "01.png"))
    assert np.abs(pixels / 65535 - picture(1, 40)).max() <= 0.5 / 65535
