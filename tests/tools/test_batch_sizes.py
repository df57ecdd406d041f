"""The command that times pictures one at a time and together."""

import numpy as np
import pytest
from batch_sizes import TOOL, noisy_pictures


def test_a_row_for_each_batch_and_its_ratio_to_the_first(command):
    options = ("--size", "16x20", "--batch", 1, 3, "--repeats", 1, "--least", 2, "--tolerance", 0.1)
    content, out, code = command(TOOL, *options)
    assert code == 0
    one, three = content["results"]
    assert (one["size"], one["batch"], three["batch"]) == ("16x20", 1, 3)
    assert one["times_the_first"] == 1
    assert three["times_the_first"] == pytest.approx(three["pictures_per_second"] / one["pictures_per_second"])
    assert three["most_outer_iterations"] >= three["outer_iterations"] > 0
    assert one["bytes_per_pixel_and_filter"] is None
    assert "pictures per second" in out


def test_pictures_differ_and_are_the_same_each_time():
    first, second = (noisy_pictures(2, 12, 15, 1, 25.0) for _ in range(2))
    assert first[0].shape == (12, 15)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - first[1]).max() > 0.1
    assert noisy_pictures(1, 12, 15, 3, 0.0)[0].shape == (12, 15, 3)
