"""Batches that shrink: which samples are computed, and that each answer is in its place."""

import numpy as np
import pytest
import torch
from solvers.test_distance import evaluation

from torchdeal.solvers import Status, System, solve_fixed_point
from torchdeal.solvers.gathered import Gathered

STRENGTHS = (3.0, 0.01, 1.0, 0.1, 2.0)  # the first takes 23 iterations, the second 13
N = 12


class Maps:
    """`A(x) = D + s / (1 + x^2)`, with an s for each sample; counts the samples that it is asked for."""

    def __init__(self, strength, counts):
        self.strength, self.counts = strength, counts

    def precise(self, x):
        assert len(x) == len(self.strength)
        self.counts.append(len(x))
        diagonal = torch.linspace(1, 5, N, dtype=x.dtype) + self.strength[:, None] / (1 + x**2)
        return System(lambda p: diagonal * p)

    rough = precise

    def part(self, samples):
        return Maps(self.strength[samples], self.counts)


def problem(strengths=STRENGTHS):
    maps = Maps(torch.tensor(strengths, dtype=torch.float64), [])
    solution = torch.randn(len(strengths), N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return maps, maps.precise(solution).apply(solution), solution


def solved(shrinking, **options):
    maps, b, solution = problem()
    maps.counts.clear()
    part = maps.part if shrinking else None
    options = {"tolerance": 1e-7, "max_iterations": 200, **options}
    return solve_fixed_point(maps.precise, b, rough=maps.rough, part=part, **options), maps.counts, solution


def assert_same(found, expected):
    for name in ("x", "distance", "contraction", "iterations", "cg_iterations", "residuals"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=0, equal_nan=True)
    assert found.statuses == expected.statuses
    for ours, theirs in zip(found.movement.columns, expected.movement.columns, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("max_iterations", [200, 20])
def test_a_batch_that_shrinks_gives_the_same_bits(max_iterations):
    found, counts, solution = solved(True, max_iterations=max_iterations)
    expected, whole, _ = solved(False, max_iterations=max_iterations)
    assert_same(found, expected)
    if max_iterations == 200:
        assert found.status is Status.CONVERGED
        torch.testing.assert_close(found.x, solution, rtol=0, atol=1e-6)
    assert len(counts) == len(whole) == int(found.iterations.max())
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) < 0.9 * sum(whole)


def test_path_and_callback_see_the_whole_batch():
    seen, expected = [], []
    found, _, _ = solved(True, keep_path=True, callback=seen.append)
    reference, _, _ = solved(False, keep_path=True, callback=expected.append)
    assert len(seen) == len(expected) == len(found.path) - 1
    for ours, theirs in zip(found.path, reference.path, strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(seen, expected, strict=True):
        assert ours.iteration == theirs.iteration
        for name in ("x", "residual", "distance", "active"):
            torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.path[-1], found.x)


def test_trivial_samples_are_never_computed():
    maps, b, _ = problem()
    b[1:] = 0
    maps.counts.clear()
    found = solve_fixed_point(maps.precise, b, part=maps.part, tolerance=1e-6, max_iterations=100)
    assert set(maps.counts) == {1}
    assert found.x[1:].abs().max() == 0
    assert found.iterations[1:].tolist() == [0] * 4
    assert found.status is Status.CONVERGED


def test_a_system_that_cannot_be_restricted_stays_whole():
    maps, b, _ = problem()
    maps.counts.clear()
    found = solve_fixed_point(maps.precise, b, part=lambda samples: None, tolerance=1e-7, max_iterations=200)
    assert set(maps.counts) == {len(STRENGTHS)}
    assert_same(found, solved(False)[0])


def test_a_broken_neighbour_is_left_out():
    """One sample becomes NaN and ends; the others go on without it, to the same answers."""

    class Breaking(Maps):
        def precise(self, x):
            system, bad = super().precise(x), (self.strength == 1.0)[:, None] & (x.abs().sum(1, keepdim=True) > 0)
            return System(lambda p: torch.where(bad, torch.nan, system.apply(p)))

        def part(self, samples):
            return Breaking(self.strength[samples], self.counts)

    maps, b, solution = problem()
    broken = Breaking(maps.strength, [])
    found = solve_fixed_point(broken.precise, b, part=broken.part, tolerance=1e-7, max_iterations=200)
    assert [status.name for status in found.statuses] == ["CONVERGED"] * 2 + ["DIVERGED"] + ["CONVERGED"] * 2
    others = [0, 1, 3, 4]
    torch.testing.assert_close(found.x[others], solution[others], rtol=0, atol=1e-6)
    assert bool(torch.isfinite(found.x).all())


class Restless:
    """`T(x) = 1 + q (x - 1)`, but for a pixel of the samples with a large q, which goes to and fro."""

    def __init__(self, q):
        self.q = q

    def precise(self, x):
        image = 1 + self.q * (x - 1)
        to_and_fro = torch.where(x[:, :, 5, 11] > 1, 0.5, 1.5).to(x.dtype)
        image[:, :, 5, 11] = torch.where(self.q[:, :, 0, 0] > 0.3, to_and_fro, image[:, :, 5, 11])
        return System(lambda p: p / image)

    rough = precise

    def part(self, samples):
        return Restless(self.q[samples])


def test_what_moves_is_told_of_the_right_sample():
    maps = Restless(torch.tensor([0.1, 0.4, 0.2], dtype=torch.float64).view(-1, 1, 1, 1))
    b = torch.ones(3, 1, 16, 16, dtype=torch.float64)
    options = {"tolerance": 1e-3, "max_iterations": 200}
    found = solve_fixed_point(maps.precise, b, part=maps.part, **options)
    assert [status.name for status in found.statuses] == ["CONVERGED", "UNSETTLED", "CONVERGED"]
    assert found.movement.relative.isnan().tolist() == [True, False, True]
    assert_same(found, solve_fixed_point(maps.precise, b, **options))


def test_places():
    images = torch.arange(4.0).view(4, 1).expand(4, 3)
    here = Gathered(images + 10, images)
    here.go_on(evaluation(images, images + 1), np.zeros(4))
    assert not here.mostly_ended(np.array([True] * 4))
    assert here.mostly_ended(np.array([True, True, False, True]))
    here.keep(np.array([1, 3]))
    here.keep(np.array([3]))
    assert here.places.tolist() == [3]
    assert here.b.tolist() == [[13] * 3]
    assert here.history[0].image.tolist() == [[4] * 3]
    assert here.whole(here.x + 5)[:, 0].tolist() == [1, 2, 3, 9]
    assert here.whole_table(np.ones((1, 2))).tolist() == [[0, 0]] * 3 + [[1, 1]]
    here.go_on(evaluation(here.x, here.x + 2, here.history), np.array([9.0, 9.0, 9.0, 0.5]))
    assert here.x.tolist() == [[7] * 3]  # T(x) = 6, and half of the way from 4 to it


def test_the_factor_of_each_sample_is_its_own():
    zeros = torch.zeros(2, 3)
    here = Gathered(zeros, zeros)
    here.go_on(evaluation(zeros, zeros + 1), np.zeros(2))
    here.go_on(evaluation(zeros + 1, zeros + 2, here.history), np.array([0.5, 0.0]))
    assert here.x[:, 0].tolist() == [2.5, 2]


def test_within_a_transform_of_torch():
    """Whose tensors numpy cannot see."""
    maps, b, _ = problem()
    expected = solved(True)[0].x

    def solve(b):
        with torch.no_grad():
            found = solve_fixed_point(maps.precise, b, part=maps.part, tolerance=1e-7, max_iterations=200)
        return found.x + 0 * b

    assert torch.equal(torch.func.vjp(solve, b)[0], expected)
