"""The estimate of the distance on affine maps, whose fixed points are known, and on what it cannot see."""

import numpy as np
import pytest
import torch

from torchdeal.solvers.distance import CAUTION, MEMORY, SLOWEST, DistanceEstimate, growth_limit
from torchdeal.solvers.geometry import Geometry, host_array, inner_products_of
from torchdeal.solvers.result import Evaluation

N, ROUNDING = 6, 1e-14
ACTIVE = np.array([True])


def evaluation(x, image, earlier=(), accurate=True, error=0.0, residual=1.0, precise=True):
    """One evaluation of T at x, as the loop would report it."""
    correction, samples = image - x, len(x)
    products = inner_products_of(x, correction, [(step.x, step.correction) for step in earlier])
    return Evaluation(
        x=x,
        image=image,
        correction=correction,
        geometry=Geometry(host_array(products)),
        residual=np.full(samples, residual),
        step=host_array(correction.norm(dim=1)),
        size=host_array(image.norm(dim=1)),
        error=np.full(samples, error),
        accurate=np.full(samples, accurate),
        cg_iterations=np.ones(samples, dtype=int),
        precise=precise,
    )


def iterate(T, x, steps, **options):
    """The plain iteration; returns the estimate and the last evaluation."""
    estimate, history = DistanceEstimate(x, np.zeros(len(x), dtype=bool), ROUNDING), []
    for _ in range(steps):
        now = evaluation(x, T(x), history, **options)
        estimate.update(now, np.ones(len(x), dtype=bool))
        history = [*history, now][-MEMORY:]
        x = now.image
    return estimate, now


def affine(factors, fixed_point):
    return lambda x: fixed_point + factors * (x - fixed_point)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_one_mode_is_estimated_from_above(q):
    """`T(x) - x* = q (x - x*)`: the distance is `q / (1 - q) ||d||` exactly, and a power of q makes it larger."""
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, now = iterate(affine(q, fixed_point), torch.zeros_like(fixed_point), 5)
    true = float((now.image - fixed_point).norm() / now.image.norm())
    assert estimate.contraction.item() == pytest.approx(q)
    assert true <= estimate.relative.item() < 20 * true
    assert bool(estimate.trusted(now, 1e-3))


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_ill_conditioned_systems_get_larger_estimates(error):
    """But the error of a solve is known there, too: it is not multiplied."""
    now = evaluation(torch.zeros(1, N), torch.full((1, N), 0.5), error=error)
    distances = []
    for cautious in (False, True):
        estimate = DistanceEstimate(now.x, np.array([False]), ROUNDING)
        estimate._ratio = np.array([0.9])
        estimate.update(now, ACTIVE, cautious=cautious)
        distances.append((estimate.relative * now.size).item() - error)
    assert distances[1] == pytest.approx(CAUTION * distances[0], rel=1e-5)


def test_several_modes_after_enough_steps():
    factors = torch.tensor([[0.9, 0.7, 0.5, 0.2, 0.1, -0.3]], dtype=torch.float64)
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, now = iterate(affine(factors, fixed_point), torch.zeros_like(fixed_point), 30)
    true = float((now.image - fixed_point).norm() / now.image.norm())
    assert true <= estimate.relative.item() < 20 * true


def test_secants_find_the_fixed_point_of_few_modes():
    """As many modes as iterates are remembered: the combination of steps leads to the fixed point itself."""
    factors = torch.tensor([[0.9, 0.5, 0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, history, x = DistanceEstimate(fixed_point, np.array([False]), ROUNDING), [], 0 * fixed_point
    for _ in range(MEMORY + 1):
        now = evaluation(x, affine(factors, fixed_point)(x), history)
        estimate.update(now, ACTIVE)
        history, x = [*history, now][-MEMORY:], now.image
    found = estimate._by_secants(now.geometry)
    assert found.item() == pytest.approx(float((now.x - fixed_point).norm()), rel=1e-3)


def test_a_slow_mode_that_is_still_small_is_not_seen():
    """What the estimate assumes: slow modes have shown themselves. Here one has not, and the estimate is too small."""
    factors = torch.tensor([[0.999, 0.3, 0.3, 0.3, 0.3, 0.3]], dtype=torch.float64)
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    start = torch.zeros_like(fixed_point)
    start[0, 0] = 0.98

    def found(steps):
        estimate, now = iterate(affine(factors, fixed_point), start, steps)
        return estimate.relative.item(), float((now.image - fixed_point).norm() / now.image.norm())

    early, true = found(10)
    assert early < true / 2
    late, true = found(40)  # by now the slow mode is all that is left
    assert true < late < 2 * true


def test_an_expanding_map_has_no_distance():
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, _ = iterate(affine(1.1, fixed_point), torch.zeros_like(fixed_point), 6)
    assert estimate.relative.item() == np.inf


@pytest.mark.parametrize("options", [{"accurate": False}, {"accurate": False, "precise": False}])
def test_loose_steps_tell_nothing(options):
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, now = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), 6, **options)
    assert estimate.relative.item() == np.inf
    assert not bool(estimate.trusted(now, 1.0))
    assert estimate.accurate_steps.item() == 0


def test_the_error_of_the_correction_is_added():
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    exact, now = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), 5)
    vague, _ = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), 5, error=0.1)
    assert (vague.relative - exact.relative).item() == pytest.approx(0.1 / now.size.item())


def test_a_zero_residual_is_the_fixed_point():
    x = torch.ones(1, N, dtype=torch.float64)
    estimate = DistanceEstimate(x, np.array([False]), ROUNDING)
    estimate.update(evaluation(x, x, residual=0.0), ACTIVE)
    assert estimate.relative.item() == 0


def test_samples_that_have_ended_keep_their_distance():
    x = torch.zeros(2, N, dtype=torch.float64)
    estimate = DistanceEstimate(x, np.array([False, False]), ROUNDING)
    T, history = affine(0.5, torch.ones(2, N, dtype=torch.float64)), []
    for active in ([True, True], [True, True], [True, True], [True, False]):
        now = evaluation(x, T(x), history)
        before = estimate.relative
        estimate.update(now, np.array(active))
        history, x = [*history, now][-MEMORY:], now.image
    assert float(estimate.relative[0]) < float(before[0])
    assert float(estimate.relative[1]) == float(before[1])


def test_growing_ratios_are_followed_to_their_limit():
    """0.5, 0.7, 0.8, ...: the growth halves, so they lead to 0.9; never beyond SLOWEST, nor below the last one."""
    ratios = [np.array([value]) for value in (0.5, 0.7, 0.8)]
    assert growth_limit(*ratios).item() == pytest.approx(0.9)
    assert growth_limit(*(np.array([v]) for v in (0.5, 0.6, 0.75))).item() == pytest.approx(SLOWEST)
    assert growth_limit(*(np.array([v]) for v in (0.8, 0.7, 0.6))).item() == pytest.approx(0.6)
    unknown = np.array([np.nan])
    assert growth_limit(unknown, unknown, np.array([0.4])).item() == pytest.approx(0.4)
