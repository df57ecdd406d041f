"""Conjugate gradients in Triton kernels, beside those in plain torch.

Without a GPU they run in Triton's interpreter, where Triton is installed and `TRITON_INTERPRET=1` is set.
"""

import os

import pytest
import torch

from torchdeal.backends.cuda.graphs import Replays
from torchdeal.replayed_cg import ReplayedCG
from torchdeal.solvers import conjugate_gradient

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="no CUDA device"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF = float("inf")


class _Called(Replays):
    """Functions are called, as where there is no CUDA."""

    def run(self, key, function, *inputs):
        return function(*inputs)


@pytest.fixture
def solver(monkeypatch):
    pytest.importorskip("triton")
    from torchdeal.backends.cuda import triton_cg

    if INTERPRETED:
        monkeypatch.setattr(triton_cg, "PARTS", 2)  # it takes its time for each program
    return ReplayedCG(triton_cg, None if torch.cuda.is_available() else _Called())


def systems(shape=(2, 1, 9, 7), condition=100.0, seed=0, dtype=torch.float32):
    """`A = I + Q diag Q^H`, the same memory each time, and right-hand sides."""
    generator = torch.Generator().manual_seed(seed)
    size = shape[1] * shape[2] * shape[3]
    Q, _ = torch.linalg.qr(torch.randn(shape[0], size, size, dtype=dtype, generator=generator))
    spectrum = torch.logspace(0, torch.tensor(condition).log10(), size)
    A = ((Q * spectrum) @ Q.mH).to(DEVICE)
    b = torch.randn(shape, dtype=dtype, generator=generator).to(DEVICE)
    return lambda p: (A @ p.flatten(1)[..., None])[..., 0].view_as(p), b


def both(solver, apply, b, tolerance, error_tolerance, key="A", limit=200, **options):
    tolerances = {"tolerance": torch.tensor(tolerance), "error_tolerance": torch.tensor(error_tolerance)}
    tolerances = {name: value.to(DEVICE) for name, value in tolerances.items()}
    found = solver(key, apply, b, max_iterations=limit, **tolerances, **options)
    expected = conjugate_gradient(apply, b, max_iterations=limit, check_every=1, **tolerances, **options)
    return found, expected


def agree(found, expected, rtol=2e-3):
    assert found.converged.tolist() == expected.converged.tolist()
    assert (found.iterations - expected.iterations).abs().max() <= 2  # a sum in another order may tip the balance
    assert float((found.x - expected.x).norm()) <= rtol * float(expected.x.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_residuals_end_it(solver, dtype):
    apply, b = systems(dtype=dtype)
    found, expected = both(solver, apply, b, [1e-2, 1e-1], [INF, INF])
    agree(found, expected, rtol=3e-2)
    left = (b - apply(found.x)).flatten(1).norm(dim=1) / b.flatten(1).norm(dim=1)
    assert left[0] <= 1.01e-2
    assert left[1] <= 1.01e-1


@pytest.mark.parametrize("smallest", [0.0, 1.0])
def test_errors_end_it(solver, smallest):
    apply, b = systems()
    found, expected = both(solver, apply, b, [0.4, 0.2], [INF, 0.05], smallest=smallest)
    agree(found, expected, rtol=3e-2)
    torch.testing.assert_close(found.error[1], expected.error[1], rtol=0.1, atol=0)
    exact = conjugate_gradient(apply, b, tolerance=1e-6, max_iterations=1000).x
    assert float((found.x - exact)[1].norm()) <= 0.05 * float(exact[1].norm())


def test_more_numbers_than_one_pass_of_the_programs(solver):
    """200,000 of them: each program works on several blocks."""
    b = torch.randn(1, 1, 400, 500, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    diagonal = torch.linspace(1, 9, b.numel()).view_as(b).to(DEVICE)
    found, expected = both(solver, lambda p: diagonal * p, b, [1e-3], [1e-3])
    agree(found, expected)
    torch.testing.assert_close(found.x, b / diagonal, rtol=0, atol=2e-2)


def test_solves_one_after_the_other(solver):
    """With the same key the second time; an earlier answer stays what it was."""
    apply, _ = systems()
    answers = []
    for seed in range(3):
        _, b = systems(seed=seed)
        answers.append(both(solver, apply, b, [1e-2, 1e-2], [INF, 0.1]))
    for found, expected in answers:
        agree(found, expected, rtol=3e-2)


def test_zero_has_the_solution_zero(solver):
    apply, b = systems()
    b[0] = 0
    found, _ = both(solver, apply, b, [1e-2, 1e-2], [0.1, 0.1])
    assert not found.x[0].any()
    assert found.converged.tolist() == [True, True]
    assert int(found.iterations[0]) == 0
    assert float(found.error[0]) == 0


def test_an_operator_that_is_not_positive_ends_it(solver):
    _, b = systems()
    found, expected = both(solver, lambda p: -p, b, [1e-2, 1e-2], [INF, INF])
    assert found.converged.tolist() == expected.converged.tolist() == [False, False]
    assert not found.x.any()


def test_nan_ends_it(solver):
    _, b = systems()
    found, _ = both(solver, lambda p: torch.nan * p, b, [1e-2, 1e-2], [INF, 0.1])
    assert found.converged.tolist() == [False, False]


def test_the_number_of_iterations_is_a_limit(solver):
    apply, b = systems(condition=1e4)
    found, expected = both(solver, apply, b, [1e-7, 1e-7], [INF, INF], limit=6)
    assert found.iterations.tolist() == [6, 6]
    agree(found, expected)
