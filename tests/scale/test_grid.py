"""Tiles cover an image exactly once, and look far enough around themselves."""

import numpy as np
import pytest

from torchdeal.scale.grid import grid


def _spans(box):
    return (box.top, box.bottom), (box.left, box.right)


@pytest.mark.parametrize(("size", "core", "overlap"), [((96, 130), 48, 16), ((7, 5), 3, 9), ((64, 64), 64, 0)])
def test_cores_cover_each_pixel_once(size, core, overlap):
    counts = np.zeros(size, int)
    for tile in grid(size, core, overlap):
        counts[tile.core.slices] += 1
        for (low, high), (first, last), length in zip(_spans(tile.core), _spans(tile.read), size, strict=True):
            assert first == 0 or low - first >= overlap
            assert last == length or last - high >= overlap
            assert last - first == min(core + 2 * overlap, length)
    assert (counts == 1).all()


def test_the_core_is_found_in_what_was_read():
    image = np.arange(90 * 70).reshape(90, 70)
    for tile in grid(image.shape, 32, 7):
        inside = image[tile.read.slices][tile.core.within(tile.read).slices]
        assert (inside == image[tile.core.slices]).all()


def test_places_are_those_of_chunks():
    assert [tile.place for tile in grid((50, 100), 50, 4)] == [(0, 0), (0, 1)]
    with pytest.raises(ValueError, match="at least 1 pixel"):
        grid((5, 5), 0, 1)
