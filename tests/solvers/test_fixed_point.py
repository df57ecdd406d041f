"""The outer iteration on small maps whose fixed points are known."""

import math

import pytest
import torch

from torchdeal.solvers import Status, System, solve_fixed_point
from torchdeal.solvers.distance import CAUTION

N = 12


def problem(strength, batch=1, seed=0, dtype=torch.float64):
    """`A(x) = D + strength * diag(1 / (1 + x^2))`, and b with a known fixed point."""
    generator = torch.Generator().manual_seed(seed)
    D = torch.linspace(1, 5, N, dtype=dtype).expand(batch, -1)
    solution = torch.randn(batch, N, dtype=dtype, generator=generator)

    def linearise(x):
        diagonal = D + strength / (1 + x**2)
        return System(lambda p: diagonal * p)

    return linearise, linearise(solution).apply(solution), solution


def distance(x, solution):
    return (x - solution).norm(dim=1) / solution.norm(dim=1)


@pytest.mark.parametrize("strength", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-8])
def test_converges_to_the_fixed_point(strength, tolerance):
    linearise, b, solution = problem(strength)
    result = solve_fixed_point(linearise, b, tolerance=tolerance, max_iterations=500)
    assert result.status is Status.CONVERGED
    assert float(distance(result.x, solution)) <= tolerance
    assert float(result.distance) <= tolerance


def test_samples_do_not_depend_on_the_batch():
    linearise, b, _ = problem(3.0, batch=3)
    b = b * torch.tensor([[1.0], [0.01], [1.0]])
    together = solve_fixed_point(linearise, b, tolerance=1e-6, max_iterations=500)
    for i in range(3):
        alone_map, _, _ = problem(3.0)
        alone = solve_fixed_point(alone_map, b[i : i + 1], tolerance=1e-6, max_iterations=500)
        torch.testing.assert_close(together.x[i : i + 1], alone.x, atol=1e-15, rtol=0)
        assert together.iterations[i] == alone.iterations[0]
        assert together.cg_iterations[i] == alone.cg_iterations[0]


def test_stopping_early_is_said():
    linearise, b, solution = problem(3.0)
    result = solve_fixed_point(linearise, b, tolerance=1e-8, max_iterations=4)
    assert result.status is Status.MAX_ITERATIONS
    assert not result.converged
    assert "max_iterations" in str(result.status)
    assert float(result.distance) > 1e-8
    true = float(distance(result.x, solution))
    # pessimistic where a step is unlike those before, and where nobody says that the system is well-conditioned
    assert true / 3 < float(result.distance) < 20 * CAUTION * true


@pytest.mark.parametrize("overshoot", [0.5, 0.9, 1.05, 1.3])
def test_a_map_that_overshoots(overshoot):
    # T(x) = b / x^p has the slope -p at its fixed point: the plain iteration goes to and fro for ever where p >= 1
    def linearise(x):
        power = x.clamp_min(0.1) ** torch.tensor([overshoot, overshoot / 2, -0.8, 0.0], dtype=x.dtype)
        return System(lambda p: power * p)

    solution = torch.tensor([[1.0, 2.0, 1.5, 1.2]], dtype=torch.float64)
    b = linearise(solution).apply(solution)
    result = solve_fixed_point(linearise, b, 0.9 * solution, tolerance=1e-4, max_iterations=60)
    assert result.status is Status.CONVERGED
    assert float(distance(result.x, solution)) <= 1e-4


def test_one_step_is_not_enough_to_know():
    linearise, b, _ = problem(1.0)
    result = solve_fixed_point(linearise, b, tolerance=0.5, max_iterations=1)
    assert result.status is Status.MAX_ITERATIONS
    assert math.isinf(float(result.distance))


def test_an_expanding_map_is_not_called_converged_where_it_is_not():
    # T(x) = x^1.3 has the slope 1.3 at its fixed point 1: the iteration runs away from there, to 0 or to infinity
    def linearise(x):
        return System(lambda p: x.abs().clamp_min(1e-30) ** -1.3 * p)

    b = torch.ones(1, 4, dtype=torch.float64)
    start = torch.tensor([[1.0, 1.0, 1.0, 1.001]], dtype=torch.float64)
    result = solve_fixed_point(linearise, b, start, tolerance=1e-5, max_iterations=40)
    assert not result.converged


def test_an_expanding_map_that_overshoots_is_brought_to_its_fixed_point():
    def linearise(x):
        return System(lambda p: (1 + 6 * x**2) * p)

    b = torch.full((1, 4), 2.0, dtype=torch.float64)
    result = solve_fixed_point(linearise, b, tolerance=1e-3, max_iterations=200)
    assert result.converged
    torch.testing.assert_close(linearise(result.x).apply(result.x), b, atol=1e-2, rtol=0)


def test_divergence_is_said():
    def linearise(x):
        scale = 1 / (1 + x.abs().amax(1, keepdim=True)) ** 2
        return System(lambda p: scale * p)

    b = torch.ones(1, 4, dtype=torch.float64)
    result = solve_fixed_point(linearise, b, tolerance=1e-3, max_iterations=500)
    assert result.status is Status.DIVERGED


def test_more_than_the_precision_allows_is_said():
    diagonal, b, _ = problem(3.0, dtype=torch.float32)
    turn = torch.linalg.qr(torch.randn(N, N, generator=torch.Generator().manual_seed(0)))[0]

    def linearise(x):  # a full matrix, whose residual never becomes exactly zero
        A = diagonal(x).apply
        return System(lambda p: A(p @ turn) @ turn.T)

    result = solve_fixed_point(linearise, b, tolerance=1e-12, max_iterations=2000)
    assert result.status is Status.STALLED
    assert "precision" in str(result.status)


def test_a_run_that_comes_back_to_small_residuals_goes_on(monkeypatch):
    """It passes an almost fixed point, and on its way to the other one the residuals are small for the second time."""
    monkeypatch.setattr("torchdeal.solvers.fixed_point.ROUNDING", 1e-4 / torch.finfo(torch.float64).eps)

    def linearise(x):  # T(1) = 1, repelling (slope 1.05); T(2) = 2, attracting (slope 0.8)
        image = x + (x - 1) * (2 - x) * (0.05 + 0.15 * (x - 1))
        return System(lambda p: p / image)

    b, start = torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), 1 + 2e-4, dtype=torch.float64)
    result = solve_fixed_point(linearise, b, start, tolerance=1e-6, max_iterations=500)
    residuals = result.residuals[:, 0]
    assert float(residuals[0]) < 1e-4 < float(residuals.max())
    assert result.status is Status.CONVERGED
    assert float(result.x) == pytest.approx(2, abs=1e-4)


def test_slow_contraction_is_not_hidden_by_small_steps():
    """T is linear with factor 0.9999: steps far below the tolerance are still far from the fixed point."""
    q = torch.tensor([0.9999] + [0.2] * (N - 1), dtype=torch.float64)

    def linearise(x):  # T(x) = q x + (1 - q) along each axis, around the fixed point 1
        target = q * x + (1 - q)
        return System(lambda p: p / target)

    b = torch.ones(1, N, dtype=torch.float64)
    start = torch.ones_like(b)
    start[0, 0] = 1.1
    result = solve_fixed_point(linearise, b, start, tolerance=1e-3, max_iterations=200)
    true = float((result.x - 1).norm() / N**0.5)
    assert true > 1e-2
    assert not result.converged


def test_scalar_systems_solved_exactly():
    """One CG step solves `c(x) x = b` exactly; there is then no history to estimate an error from."""

    def linearise(x):
        scale = 2 + 1 / (1 + x.square().sum(1, keepdim=True))
        return System(lambda p: scale * p)

    result = solve_fixed_point(linearise, torch.ones(1, 4, dtype=torch.float64), tolerance=1e-6, max_iterations=200)
    assert result.converged


def test_starting_at_the_fixed_point():
    linearise, b, solution = problem(3.0)
    result = solve_fixed_point(linearise, b, solution, tolerance=1e-6, max_iterations=100)
    assert result.status is Status.CONVERGED
    assert int(result.iterations) <= 5


def test_zero_data():
    linearise, b, _ = problem(1.0, batch=2)
    b[0] = 0
    result = solve_fixed_point(linearise, b, torch.ones_like(b), tolerance=1e-6, max_iterations=100)
    assert result.converged
    assert float(result.x[0].abs().max()) == 0
    assert float(result.distance[0]) == 0


def test_path_and_callback_show_every_iteration():
    linearise, b, _ = problem(3.0)
    seen = []
    result = solve_fixed_point(linearise, b, tolerance=1e-6, max_iterations=100, keep_path=True, callback=seen.append)
    assert len(result.path) == int(result.iterations) + 1 == len(seen) + 1
    assert [p.iteration for p in seen] == list(range(1, len(seen) + 1))
    assert torch.equal(result.path[-1], result.x)
    assert float(result.path[0].norm()) == 0
    assert len(result.residuals) == len(seen)
    for k, x in enumerate(result.path[:-1]):
        expected = float((b - linearise(x).apply(x)).norm() / b.norm())
        assert float(result.residuals[k]) == pytest.approx(expected, rel=1e-10)


def test_status_of_a_batch_is_that_of_its_worst_sample():
    linearise, b, _ = problem(3.0, batch=2)
    b[0] = 0
    result = solve_fixed_point(linearise, b, tolerance=1e-8, max_iterations=4)
    assert result.statuses == (Status.CONVERGED, Status.MAX_ITERATIONS)
    assert result.status is Status.MAX_ITERATIONS
    assert "MAX_ITERATIONS" in repr(result)


def test_approximate_solves_lead_to_the_same_fixed_point():
    linearise, b, solution = problem(3.0)
    used = []

    def mixed(x):
        exact = linearise(x).apply
        tilt = 1 + 0.003 * torch.linspace(-1, 1, N, dtype=torch.float64)

        def approximate(p):
            used.append(True)
            return tilt * exact(p)

        return System(exact, approximate)

    result = solve_fixed_point(mixed, b, tolerance=1e-8, max_iterations=500)
    assert result.status is Status.CONVERGED
    assert float(distance(result.x, solution)) <= 1e-8
    assert used


def test_a_status_begins_with_its_name():
    for status in Status:
        assert str(status) == f"{status.name}: {status.value}"


@pytest.mark.parametrize("spoil", [float("nan"), float("inf")])
def test_a_system_that_breaks_down_is_told_and_the_last_finite_iterate_returned(spoil):
    """The second sample's, from its fourth application on: the first one ends as it does alone."""
    b = torch.rand(2, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    calls = []

    def linearise(x):
        def apply(p):
            calls.append(1)
            factor = torch.tensor([2.0, spoil if len(calls) > 3 else 2.0], dtype=p.dtype).view(2, 1, 1, 1)
            return factor * p + 0.1 * p.roll(1, -1) + 0.1 * p.roll(-1, -1)

        return System(apply)

    result = solve_fixed_point(linearise, b, tolerance=1e-6, max_iterations=50)
    assert result.statuses == (Status.CONVERGED, Status.DIVERGED)
    assert bool(torch.isfinite(result.x).all())
    assert float(result.distance[1]) == float("inf")
