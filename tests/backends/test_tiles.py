"""Tiles cover the image, and their transforms have sizes that an FFT likes."""

import itertools

import pytest

from torchdeal.backends.tiles import cut, fast_size, grouped, longest, shares, widened

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


@pytest.mark.parametrize("work", [0, 1, 50, 127, 128, 300, 1000, 4290, 100_000])
def test_shares_are_fair_and_neither_small_nor_large(work):
    count = shares(work, 128, 320)
    assert count in (1, 2, 4) or count % 8 == 0
    assert work <= 320 * count or count < 8
    assert count <= 1 or work >= 128 * count


def test_groups_cover_all():
    assert grouped(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert grouped(0, 4) == []
