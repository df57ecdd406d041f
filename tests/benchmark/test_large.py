"""Large: the picture, the stand-in and the numbers of the experiment."""

import numpy as np

from torchdeal.benchmark import large
from torchdeal.scale.grid import grid


def test_a_picture_of_any_size_is_mirrored_again_and_again():
    clean = large.noisy(1030, 520, sigma=0)
    assert (clean[:512, :512] == clean[1022:510:-1, :512]).all()
    assert large.noisy(40, 40, 25).std() > clean[:40, :40].std()


def test_a_stand_in_returns_the_pixels():
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    tile = grid((8, 8), 4, 1)[3]
    ((core, _),) = large._Partly(0)([pixels[tile.read.slices]], [tile], None)
    assert (core == pixels[4:, 4:]).all()


def test_the_exponent_is_that_of_a_power():
    rows = [("", {"tiles": tiles, "seconds": 3 * tiles**1.25}) for tiles in (1, 4, 16)]
    assert large._exponent(rows) == ["time grows as the number of pixels to the power 1.25"]


def test_one_picture_says_nothing_about_growth():
    assert large._exponent([("", {"tiles": 1, "seconds": 1.0})]) == []
