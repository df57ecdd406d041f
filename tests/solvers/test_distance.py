"""The estimate of the distance on affine maps, whose fixed points are known, and on what it cannot see."""

import numpy as np
import pytest
import torch

from torchdeal.solvers.distance import CAUTION, ENOUGH, GROWTH, MEMORY, SLOWER, SLOWEST, DistanceEstimate, grown
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


def distance(now, fixed_point):
    """The true one."""
    return float((now.image - fixed_point).norm() / now.image.norm())


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_one_mode_is_estimated_exactly(q):
    """`T(x) - x* = q (x - x*)`: two steps tell where the fixed point is, and so how far T(x) is from it."""
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, now = iterate(affine(q, fixed_point), torch.zeros_like(fixed_point), ENOUGH)
    assert estimate.contraction.item() == pytest.approx(q)
    assert estimate.relative.item() == pytest.approx(distance(now, fixed_point), rel=1e-3)
    assert bool(estimate.trusted)


def test_few_steps_are_not_enough():
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, _ = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), 1)
    assert estimate.relative.item() == np.inf
    estimate, _ = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), ENOUGH - 1)
    assert not bool(estimate.trusted)


@pytest.mark.parametrize(("cautious", "factor"), [(False, 1.0), (True, CAUTION)])
def test_what_earlier_steps_do_not_explain_is_taken_to_be_slower(cautious, factor):
    """Two steps by hand. Of `d = (-3, 2)` the change `(-6, 0)` leaves 2; T shrank their distance of 8 to 2.

    The error of the solve is known where the system is ill-conditioned, too: it is not multiplied.
    """
    before = evaluation(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 2.0]]))
    x = torch.tensor([[8.0, 0.0]])
    now = evaluation(x, torch.tensor([[5.0, 2.0]]), [before], error=0.1)
    estimate = DistanceEstimate(x, np.array([False]), ROUNDING)
    for step in (before, now):
        estimate.update(step, ACTIVE, cautious=cautious)
    q, explained, left = 2 / 8, 2 / 2, 2
    assert estimate.contraction.item() == pytest.approx(q)
    expected = factor * (explained + SLOWER / (1 - q) * left) + 0.1
    assert (estimate.relative * now.size).item() == pytest.approx(expected, rel=1e-5)


def test_several_modes_after_enough_steps():
    factors = torch.tensor([[0.9, 0.7, 0.5, 0.2, 0.1, -0.3]], dtype=torch.float64)
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, now = iterate(affine(factors, fixed_point), torch.zeros_like(fixed_point), 30)
    true = distance(now, fixed_point)
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
    assert estimate.relative.item() == pytest.approx(distance(now, fixed_point), rel=1e-3)


def test_a_slow_mode_that_is_still_small_is_not_seen():
    """What the estimate assumes: slow modes have shown themselves. Here one has not, and the estimate is too small."""
    factors = torch.tensor([[0.999, 0.3, 0.3, 0.3, 0.3, 0.3]], dtype=torch.float64)
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    start = torch.zeros_like(fixed_point)
    start[0, 0] = 0.98

    def found(steps):
        estimate, now = iterate(affine(factors, fixed_point), start, steps)
        return estimate.relative.item(), distance(now, fixed_point)

    early, true = found(10)
    assert early < true / 2
    late, true = found(40)  # by now the slow mode is all that is left
    assert late == pytest.approx(true, rel=1e-3)


def test_an_expanding_map_has_no_distance():
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, _ = iterate(affine(1.1, fixed_point), torch.zeros_like(fixed_point), 6)
    assert estimate.relative.item() == np.inf


@pytest.mark.parametrize("options", [{"accurate": False}, {"accurate": False, "precise": False}])
def test_loose_steps_tell_nothing(options):
    fixed_point = torch.ones(1, N, dtype=torch.float64)
    estimate, _ = iterate(affine(0.5, fixed_point), torch.zeros_like(fixed_point), 6, **options)
    assert estimate.relative.item() == np.inf
    assert not bool(estimate.trusted)
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


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.5, 0.6, 0.6 + GROWTH * 0.1),
        (0.5, 0.5, 0.5),
        (0.7, 0.6, 0.6),
        (0.7, 0.9, SLOWEST),
        (0.9, 1.1, 1.1),
        (np.nan, 0.4, 0.4),
    ],
)
def test_ratios_that_grow_are_taken_to_go_on(before, now, expected):
    """Never beyond SLOWEST, nor below the last one."""
    assert grown(np.array([before]), np.array([now])).item() == pytest.approx(expected)


def test_slow_modes_that_emerge_make_the_estimate_larger():
    """A ratio of 0.5, after one of 0.3 or 0.5."""
    last = evaluation(torch.tensor([[0.0, 0.0]]), torch.tensor([[2.0, 2.0]]))
    now = evaluation(torch.tensor([[4.0, 0.0]]), torch.tensor([[4.0, 2.0]]), [last])
    distances = []
    for before in (0.5, 0.3):
        estimate = DistanceEstimate(now.x, np.array([False]), ROUNDING)
        estimate.accurate_steps, estimate.contraction = np.array([2]), np.array([before])
        estimate.update(now, ACTIVE)
        assert estimate.contraction.item() == pytest.approx(0.5)
        distances.append(estimate.relative.item())
    assert distances[1] > 1.5 * distances[0]
