import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchdeal.solvers import conjugate_gradient
from torchdeal.solvers.cg import MIN_WINDOW


def systems(batch, size, condition=100.0, dtype=torch.float64, seed=0):
    """Hermitian positive definite matrices with known solutions."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(batch, size, size, dtype=dtype, generator=generator))
    eigenvalues = torch.logspace(0, torch.log10(torch.tensor(condition)).item(), size, dtype=q.real.dtype)
    A = q @ torch.diag_embed(eigenvalues.expand(batch, -1)).to(dtype) @ q.mH
    x = torch.randn(batch, size, dtype=dtype, generator=generator)
    return A, x, (A @ x[..., None])[..., 0]


def applied(A):
    return lambda p: (A * p[:, None]).sum(-1)  # rounds alike in every batch


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_equals_dense_solve(dtype, preconditioned):
    A, _, b = systems(3, 20, dtype=dtype)
    diagonal = torch.diagonal(A, dim1=1, dim2=2)
    preconditioner = (lambda r: r / diagonal) if preconditioned else None
    result = conjugate_gradient(applied(A), b, tolerance=1e-12, max_iterations=200, preconditioner=preconditioner)
    torch.testing.assert_close(result.x, torch.linalg.solve(A, b), atol=1e-9, rtol=0)
    assert bool(result.converged.all())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(2, 30), st.floats(1, 1e4), st.sampled_from([1e-2, 1e-5, 1e-8]), st.integers(0, 99)
)
def test_reported_residual_and_convergence_are_true(batch, size, condition, tolerance, seed):
    A, _, b = systems(batch, size, condition, seed=seed)
    result = conjugate_gradient(applied(A), b, tolerance=tolerance, max_iterations=20 * size)
    residual = (b - applied(A)(result.x)).norm(dim=1)
    torch.testing.assert_close(result.residual, residual, atol=1e-10 * float(b.norm()), rtol=1e-3)
    assert bool((residual <= 1.01 * tolerance * b.norm(dim=1)).all())
    assert bool(result.converged.all())


def test_a_converged_sample_is_frozen():
    A, x, b = systems(2, 30, condition=1e4)
    A[0] = torch.eye(30)  # solved in one step
    b[0] = x[0]
    short = conjugate_gradient(applied(A), b, tolerance=1e-10, max_iterations=1)
    full = conjugate_gradient(applied(A), b, tolerance=1e-10, max_iterations=500)
    assert full.iterations.tolist()[0] == 1
    assert full.iterations.tolist()[1] > 10
    assert torch.equal(short.x[0], full.x[0])


def test_each_sample_stops_by_its_own_tolerance():
    A, _, b = systems(1, 40, condition=30)
    A, b = A.expand(3, -1, -1), b.expand(3, -1)
    tolerances = torch.tensor([1e-1, 1e-4, 1e-8], dtype=torch.float64)
    result = conjugate_gradient(applied(A), b, tolerance=tolerances, max_iterations=500)
    counts = result.iterations.tolist()
    assert counts[0] < counts[1] < counts[2]
    for i, tolerance in enumerate(tolerances.tolist()):
        alone = conjugate_gradient(applied(A[:1]), b[:1], tolerance=tolerance, max_iterations=500)
        assert torch.equal(alone.x[0], result.x[i])


def test_tolerance_is_relative():
    A, _, b = systems(1, 30)
    small = conjugate_gradient(applied(A), b * 2.0**-30, tolerance=1e-6, max_iterations=500)
    large = conjugate_gradient(applied(A), b * 2.0**30, tolerance=1e-6, max_iterations=500)
    assert small.iterations.tolist() == large.iterations.tolist()
    assert torch.equal(small.x * 2.0**60, large.x)


def test_start_is_used():
    A, x, b = systems(2, 30, condition=1e4)
    result = conjugate_gradient(applied(A), b, x, tolerance=1e-8, max_iterations=100)
    assert result.iterations.tolist() == [0, 0]
    assert torch.equal(result.x, x)


def test_exact_after_one_step():
    options = {"tolerance": 0.1, "error_tolerance": 0.1, "max_iterations": 50}
    result = conjugate_gradient(lambda p: 2 * p, torch.ones(1, 5), **options)
    assert result.converged.tolist() == [True]
    assert float(result.error) == 0


def test_zero_right_hand_side():
    A, x, b = systems(2, 10)
    b[0] = 0
    result = conjugate_gradient(applied(A), b, x, tolerance=1e-8, max_iterations=100)
    assert float(result.x[0].abs().max()) == 0
    assert bool(result.converged.all())


def test_running_out_of_iterations_is_said():
    A, _, b = systems(1, 50, condition=1e6)
    result = conjugate_gradient(applied(A), b, tolerance=1e-10, max_iterations=3)
    assert result.converged.tolist() == [False]
    assert result.iterations.tolist() == [3]


def test_indefinite_systems_are_not_called_solved():
    A = torch.diag(torch.tensor([1.0, -1.0]).double())[None]
    result = conjugate_gradient(applied(A), torch.ones(1, 2).double(), tolerance=1e-6, max_iterations=50)
    assert result.converged.tolist() == [False]
    assert bool(torch.isfinite(result.x).all())


def scaled_systems(batch, size, condition):
    """Systems whose condition is spoilt by a diagonal, and the preconditioner that undoes it."""
    A, x, _ = systems(batch, size, condition)
    scale = torch.logspace(-1, 1, size, dtype=A.dtype)[torch.randperm(size, generator=torch.Generator().manual_seed(1))]
    A = scale[:, None] * A * scale
    return A, x, applied(A)(x), lambda r: r / scale**2


@pytest.mark.parametrize("condition", [2.0, 30.0, 200.0])
@pytest.mark.parametrize("accuracy", [0.3, 0.1, 0.01])
def test_error_estimate_of_preconditioned_solves_bounds_the_true_error(condition, accuracy):
    A, x, b, preconditioner = scaled_systems(8, 120, condition)
    options = {"tolerance": 1.0, "error_tolerance": accuracy, "max_iterations": 2000}
    result = conjugate_gradient(applied(A), b, preconditioner=preconditioner, **options)
    error = (result.x - x).norm(dim=1)
    assert bool(result.converged.all())
    assert bool((error <= 1.5 * result.error).all())
    assert float((error / result.error).median()) < 1
    assert bool((error <= 1.5 * accuracy * x.norm(dim=1)).all())


def test_error_estimate_of_preconditioned_solves_does_not_depend_on_the_batch():
    A, _, b, preconditioner = scaled_systems(4, 60, 100.0)
    tolerances = torch.tensor([0.5, 0.1, 0.01, 1e-4], dtype=torch.float64)
    options = {"tolerance": 1.0, "max_iterations": 500, "preconditioner": preconditioner}
    together = conjugate_gradient(applied(A), b, error_tolerance=tolerances, **options)
    assert together.iterations.tolist() == sorted(together.iterations.tolist())
    for i, tolerance in enumerate(tolerances.tolist()):
        alone = conjugate_gradient(applied(A[i : i + 1]), b[i : i + 1], error_tolerance=tolerance, **options)
        torch.testing.assert_close(alone.error[0], together.error[i])
        assert torch.equal(alone.x[0], together.x[i])


@pytest.mark.parametrize("condition", [10.0, 1e3, 1e5])
def test_error_estimate_bounds_the_true_error(condition):
    A, x, b = systems(8, 120, condition=condition)
    result = conjugate_gradient(applied(A), b, tolerance=1.0, error_tolerance=0.1, max_iterations=2000)
    error = (result.x - x).norm(dim=1)
    assert bool(result.converged.all())
    assert bool((error <= result.error).all())
    assert bool((error <= 0.15 * x.norm(dim=1)).all())
    # A residual as small as asked for says much less where the system is ill-conditioned.
    if condition == 1e5:
        by_residual = conjugate_gradient(applied(A), b, tolerance=0.1, max_iterations=2000)
        assert float((by_residual.x - x).norm()) > 3 * float(error.norm())


@pytest.mark.parametrize("condition", [2.0, 10.0])
def test_a_known_smallest_eigenvalue_bounds_the_error_and_saves_iterations(condition):
    A, x, b = systems(4, 60, condition)
    options = {"tolerance": 1.0, "error_tolerance": 1e-3, "max_iterations": 200}
    plain = conjugate_gradient(applied(A), b, **options)
    known = conjugate_gradient(applied(A), b, smallest=1.0, **options)
    error = (known.x - x).norm(dim=1)
    assert bool(known.converged.all())
    assert bool((error <= known.error).all())
    assert bool((known.error <= 1e-3 * known.x.norm(dim=1)).all())
    assert bool((known.iterations < plain.iterations).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3])
def test_the_bound_by_a_smallest_eigenvalue_holds_at_every_iteration(condition, dtype):
    """Before there is an estimate. It is less than what the residual alone says."""
    A, _, b = (values.to(dtype) for values in systems(4, 60, condition))
    x = torch.linalg.solve(A.double(), b.double())
    options = {"tolerance": 0.0, "error_tolerance": 0.0, "smallest": 1.0}
    for iterations in range(1, MIN_WINDOW):
        found = conjugate_gradient(applied(A), b, max_iterations=iterations, **options)
        error = (found.x - x).norm(dim=1)
        assert bool((error <= 1.0001 * found.error + 1e-5 * x.norm(dim=1)).all())
        assert bool((found.error < found.residual).all()) or condition == 1


@pytest.mark.parametrize("preconditioned", [False, True])
def test_a_small_eigenvalue_that_is_known_changes_nothing(preconditioned):
    """Then the bound is worse than the estimate."""
    A, _, b = systems(2, 30, condition=30.0)
    preconditioner = (lambda r: r / torch.diagonal(A, dim1=1, dim2=2)) if preconditioned else None
    options = {"tolerance": 0.5, "error_tolerance": 0.1, "max_iterations": 200, "preconditioner": preconditioner}
    plain, known = (conjugate_gradient(applied(A), b, smallest=s, **options) for s in (0.0, 1e-9))
    assert torch.equal(plain.x, known.x)
    assert torch.equal(plain.error, known.error)


@pytest.mark.parametrize("check_every", [1, 2, 7])
def test_the_number_of_iterations_is_a_limit(check_every):
    A, _, b = systems(1, 30, condition=1e4)
    result = conjugate_gradient(applied(A), b, tolerance=1e-12, max_iterations=5, check_every=check_every)
    assert result.iterations.tolist() == [5]
    with_errors = conjugate_gradient(
        applied(A), b, tolerance=1e-12, error_tolerance=1e-12, max_iterations=5, check_every=check_every
    )
    assert torch.equal(result.x, with_errors.x)
