"""Tiles cover the image, and their transforms have sizes that an FFT likes."""

import itertools

import pytest

from torchdeal.backends.tiles import cut, fast_size, longest, widened

SMOOTH = {2**i * 3**j * 5**k for i in range(1, 12) for j in range(8) for k in range(6)}


@pytest.mark.parametrize("size", [1, 15, 27, 88, 280, 288, 1001])
def test_fast_sizes(size):
    assert fast_size(size) == next(number for number in itertools.count(size) if number in SMOOTH)


@pytest.mark.parametrize("size", [1, 16, 17, 100, 515])
def test_parts_are_nearly_equal_and_cover_the_image(size):
    parts = cut(size, 16)
    lengths = [part.stop - part.start for part in parts]
    assert [pixel for part in parts for pixel in range(size)[part]] == list(range(size))
    assert longest(parts) == max(lengths) <= 16
    assert max(lengths) - min(lengths) <= 1


def test_a_widened_part_lies_in_the_padded_image():
    image, reach = list(range(10)), 3
    padded = reach * [None] + image + reach * [None]
    assert padded[widened(slice(4, 6), reach)] == [1, 2, 3, 4, 5, 6, 7, 8]
