"""Runs that do not settle are given up, and say what moves."""

import numpy as np
import pytest
import torch

from torchdeal.solvers import Status, System, solve_fixed_point
from torchdeal.solvers.settling import LOOK_EVERY, STILL_TO_GO, Settling

SIZE = 16


def still_image(positions, tolerance=1e-3, **how):
    """What is given up of images of which only one pixel moves, to these values, one at each look."""
    settling = Settling(1, tolerance)
    found = []
    for look, value in enumerate(positions, 1):
        image = torch.ones(1, 1, SIZE, SIZE, dtype=torch.float64)
        image[0, 0, 5, 11] = value
        found.append(bool(settling.given_up(look * LOOK_EVERY, image, np.array([True]), **how)))
    return found, settling


def test_a_pixel_that_goes_to_and_fro_is_given_up_and_named():
    found, settling = still_image((3.0, 1.0, 3.0))
    assert found == [False, False, True]
    movement = settling.movement
    assert float(movement.settled) == pytest.approx(1 - 1 / SIZE**2)
    assert float(movement.relative) == pytest.approx(2 / (SIZE**2 - 1 + 9) ** 0.5)
    assert abs(float(movement.row) - 5) <= 4  # of the square of 9 x 9 in which it moved
    assert abs(float(movement.column) - 11) <= 4
    assert float(settling.distance) == torch.inf  # where it will be, nobody knows
    assert "99.6 %" in str(movement)


def test_movement_that_shrinks_fast_goes_on():
    assert not any(still_image((1 + 1.0, 1 + 0.3, 1 + 0.1, 1 + 0.03))[0])


def test_slow_movement_states_how_far_it_goes():
    """Each movement 0.8 of the one before: what is left is 4 times the last."""
    ends = (1.02, 1.036, 1.0488)
    found, settling = still_image(ends)
    assert found == [False, False, True]
    assert float(settling.distance) == pytest.approx(4 * 0.0128 / SIZE, rel=4e-3)


def test_a_run_that_is_nearly_there_goes_on():
    """Each movement 0.55 of the one before: soon what is left is below the tolerance."""
    steps = [0.1 * 0.55**k for k in range(4)]
    assert not any(still_image(tuple(1 + sum(steps[: k + 1]) for k in range(4)))[0])


def test_ill_conditioned_systems_get_less_patience_and_larger_distances():
    """The same run as above is given up there, at its third look. What shrinks to a twentieth goes on."""
    steps = [0.1 * 0.55**k for k in range(4)]
    found, settling = still_image(tuple(1 + sum(steps[: k + 1]) for k in range(3)), patient=False)
    assert found == [False, False, True]
    assert float(settling.distance) == pytest.approx(STILL_TO_GO * steps[2] * 0.55 / 0.45 / SIZE, rel=4e-3)
    assert not any(still_image((2.0, 1.05, 1.0025, 1.000125), patient=False)[0])


def test_who_is_near_enough_is_not_given_up():
    """It moves by a third of what it did, and 3 times what is left is below the tolerance: the steps decide."""
    assert not any(still_image((1.0, 1 + 3e-4 * SIZE, 1 + 4e-4 * SIZE), patient=False)[0])


def test_who_asks_for_more_digits_waits_longer():
    positions = (3.0, 1.0, 3.0, 1.0, 3.0, 1.0)
    assert still_image(positions, tolerance=1e-5)[0] == [False] * 4 + [True] * 2
    nearly_still = tuple(1 + 1e-4 * value for value in positions)
    assert not any(still_image(nearly_still, tolerance=1e-5)[0])


def test_a_sample_that_settles_is_not_given_up_with_its_neighbour():
    settling, given_up = Settling(2, 1e-3), np.zeros(2, dtype=bool)
    for look in range(1, 4):
        images = torch.ones(2, 1, SIZE, SIZE)
        images[1, 0, 0, 0] = look % 2
        given_up = settling.given_up(look * LOOK_EVERY, images, np.array([True, True]))
    assert given_up.tolist() == [False, True]
    assert settling.movement.relative.isnan().tolist() == [True, False]


@pytest.mark.parametrize("max_iterations", [500, 40])
def test_a_run_without_a_fixed_point_ends_and_says_so(max_iterations):
    def linearise(x):
        image = torch.ones_like(x) + 0.2 * (x - 1)
        image[0, 0, 5, 11] = 0.5 if x[0, 0, 5, 11] > 1 else 1.5
        return System(lambda p: p / image)

    b = torch.ones(1, 1, SIZE, SIZE, dtype=torch.float64)
    result = solve_fixed_point(linearise, b, tolerance=1e-3, max_iterations=max_iterations)
    if max_iterations == 40:  # too short to tell
        assert result.status is Status.MAX_ITERATIONS
        assert str(result.movement) == ""
    else:
        assert result.status is Status.UNSETTLED
        assert int(result.iterations) <= 60
        assert float(result.distance) > 1e-3
        assert "99.6 % of the pixels" in str(result)
