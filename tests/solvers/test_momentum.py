"""Momentum on what it is made of: three vectors and an age."""

import numpy as np
import pytest
import torch
from solvers.test_distance import evaluation

from torchdeal.solvers.geometry import Geometry, host_array, inner_products_of
from torchdeal.solvers.momentum import MOST, Momentum, extrapolation

AHEAD = torch.tensor([[1.0, 0.0]])


def geometry(correction, before, movement):
    """Of `x = 0`, so that `T(x) = d`, after an `x_1` with `T(x_1) = d - movement`."""
    x = correction - movement - before
    return Geometry(host_array(inner_products_of(torch.zeros_like(x), correction, [(x, before)])))


def factor(age, correction, before, movement):
    seen = geometry(correction, before, movement)
    age, factor = extrapolation(np.array([float(age)]), seen.turned, seen.opposed, seen.aitken, np.where)
    return float(age.item()), float(factor.item())


@pytest.mark.parametrize(("age", "expected"), [(0, 0.0), (1, 1 / 3), (2, 1 / 2), (100, MOST)])
def test_it_grows_with_age(age, expected):
    assert factor(age, AHEAD, AHEAD, AHEAD) == (age, pytest.approx(expected))


def test_a_turn_against_the_movement_starts_it_anew():
    assert factor(9, AHEAD, AHEAD, -AHEAD) == (0, 0)


def test_an_opposed_step_takes_back_what_makes_the_next_one_smallest():
    """`d = -0.5 d_before` of an affine map: after a third of the movement back the correction is 0."""
    age, found = factor(9, -0.5 * AHEAD, AHEAD, 0.5 * AHEAD)
    assert age == 0
    assert found == pytest.approx(-1 / 3)


def test_samples_are_on_their_own():
    age = np.array([3.0, 3.0])
    correction, movement = torch.cat([AHEAD, AHEAD]), torch.cat([AHEAD, -AHEAD])
    seen = geometry(correction, torch.cat([AHEAD, AHEAD]), movement)
    age, found = extrapolation(age, seen.turned, seen.opposed, seen.aitken, np.where)
    assert age.tolist() == [3, 0]
    assert found.tolist() == [0.6, 0.0]


def test_no_momentum_for_what_has_ended_or_is_over():
    momentum = Momentum(3)
    momentum.age += 3
    momentum.over[2] = True
    before = evaluation(torch.zeros(3, 2), AHEAD.expand(3, 2))
    now = evaluation(AHEAD.expand(3, 2), 2 * AHEAD.expand(3, 2), [before])
    factor = momentum.factor(now, np.array([True, False, True]))
    assert factor.tolist() == [0.6, 0.0, 0.0]
    assert momentum.age.tolist() == [4, 4, 4]


def test_the_first_step_has_none():
    momentum = Momentum(1)
    now = evaluation(torch.zeros(1, 2), AHEAD)
    assert momentum.factor(now, np.array([True])).tolist() == [0]


def test_tensors_give_the_same_as_arrays():
    """Training has tensors."""
    generator = np.random.default_rng(0)
    age, aitken = generator.uniform(0, 9, 20).round(), generator.normal(size=20)
    aitken[0] = np.nan
    turned, opposed = generator.uniform(size=(2, 20)) < 0.3
    arrays = extrapolation(age, turned, opposed, aitken, np.where)
    tensors = extrapolation(*map(torch.from_numpy, (age, turned, opposed, aitken)))
    for found, expected in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)
