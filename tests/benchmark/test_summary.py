"""Means, paired differences and intervals, against what can be worked out."""

from itertools import product
from statistics import fmean

import numpy as np
import pytest

from torchdeal.benchmark.reporting.summary import bootstrap_interval, image_means, paired_differences
from torchdeal.benchmark.results import Row


def row(image, psnr, variant=""):
    return Row("cell", image, "method", {"psnr": psnr}, variant)


def test_variants_of_an_image_are_averaged_first():
    rows = [row("a", 20, "k0"), row("a", 30, "k1"), row("b", 40, "k0"), Row("cell", "c", "method", {"seconds": 1})]
    assert image_means(rows) == {"a": 25, "b": 40}


def test_differences_are_of_what_both_have():
    ours = [row("a", 20, "k0"), row("a", 31, "k1"), row("b", 40, "k0"), row("c", 50)]
    others = [row("b", 39, "k0"), row("a", 18, "k0"), row("b", 0, "k1"), row("a", 30, "k1"), row("d", 1)]
    assert paired_differences(ours, others) == {"a": 1.5, "b": 1}


@pytest.mark.parametrize("values", [[], [3.0]])
def test_one_image_has_no_interval(values):
    assert bootstrap_interval(values) is None


def test_interval_of_equal_values_is_a_point():
    assert bootstrap_interval([2.5] * 7) == (2.5, 2.5)


def test_interval_is_that_of_all_resamples():
    """Of five values there are 3125 resamples, whose means have quantiles."""
    values = [0.0, 0.3, 1.0, 2.0, 5.0]
    means = np.sort([fmean(drawn) for drawn in product(values, repeat=5)])
    low, high = bootstrap_interval(values)
    shares = [(means <= bound).mean() for bound in (low, high)]
    assert abs(shares[0] - 0.025) < 0.012
    assert abs(shares[1] - 0.975) < 0.012


def test_interval_of_many_values_is_that_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(5, 2, 400)
    low, high = bootstrap_interval(list(values))
    error = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.15 * error)


def test_the_same_values_have_the_same_interval():
    np.random.seed(3)
    first = bootstrap_interval([1.0, 2.0, 4.0])
    np.random.seed(4)
    assert bootstrap_interval([1.0, 2.0, 4.0]) == first
