"""The derivative of an answer: against finite differences, dense matrices, and answers to perturbed measurements."""

import pytest
import torch
from conftest import dense, noisy, picture, random, relative, small_model

import torchdeal as td
from torchdeal.derivative import Derivative, conjugate_residual, largest_gains, masks_derivative, transposed
from torchdeal.operators import Blur, Fourier, Identity, Mask
from torchdeal.system import as_seen, seen_by_model

SIGMA = torch.tensor([25.0], dtype=torch.float64)
LAM = torch.tensor(5.0, dtype=torch.float64).view(1, 1, 1, 1)


@pytest.mark.parametrize(("channels", "boundary"), [(1, "reflect"), (3, "zero")])
def test_derivative_of_the_masks_against_differences(channels, boundary):
    weights = small_model(channels, boundary, features=4).weights()
    x, v, u = (random(1, channels, 18, 16, seed=seed) for seed in range(3))
    step = 1e-9  # so small that no spline bends on the way
    with torch.no_grad():
        alpha = weights.alpha(SIGMA)
        derivative = masks_derivative(weights, x, alpha, LAM)
        after, before = (
            LAM * weights.penalty(x, weights.mask(x + sign * step * v, alpha) ** 2) for sign in (1, -1)
        )  # fmt: skip
        assert relative(derivative(v), (after - before) / (2 * step)) < 1e-5
        assert float(derivative(v).norm()) > 1e-3
        assert float((derivative(v) * u).sum()) == pytest.approx(float((v * transposed(derivative, x)(u)).sum()))


@pytest.fixture(scope="module", params=["identity", "blur"])
def solved(request):
    """A model, an operator, what was measured, and the answer in double precision."""
    model = small_model(features=4).requires_grad_(False)
    for kernel in model.mask_filters:
        kernel.mul_(3)  # masks that depend on the image more
    operator = Identity() if request.param == "identity" else Blur(torch.tensor([[0.1, 0.6], [0.2, 0.1]]).double())
    y = noisy(operator.forward(picture(size=16).double()), 20)
    knobs = {"sigma": 25 / 255, "lam": 5.0, "tolerance": 1e-9, "max_iterations": 1000, "data_range": 1.0}

    def solve(y):
        solution = td.reconstruct(y, operator, model=model, **knobs)
        assert solution.converged
        return solution.x

    return model, operator, y, solve


def test_gains_are_the_norms_of_the_dense_derivatives(solved):
    model, operator, y, solve = solved
    x, weights = solve(y), model.weights()
    with torch.no_grad():
        alpha = weights.alpha(SIGMA)
        squared_mask = weights.mask(x, alpha) ** 2

        def frozen(p):
            return operator.normal(p) + LAM * weights.penalty(p, squared_mask)

        A, K, adjoint = (
            dense(apply, x.shape[1:]) for apply in (frozen, masks_derivative(weights, x, alpha, LAM), operator.adjoint)
        )
    gains = largest_gains(Derivative.at(x, weights, operator, SIGMA, LAM), steps=12)
    frozen, total = torch.linalg.solve(A, adjoint), torch.linalg.solve(A + K, adjoint)
    for found, matrix in ((gains.frozen, frozen), (gains.total, total)):
        norm = float(torch.linalg.matrix_norm(matrix, 2))
        assert 0.99 * norm < float(found) < 1.002 * norm  # Lanczos: from below
    assert float(gains.direction.norm()) == pytest.approx(1)
    assert float((total @ gains.direction.flatten()).norm()) == pytest.approx(float(gains.total), rel=2e-3)
    assert relative(total, frozen) > 0.1  # the masks matter here


def test_answers_move_as_the_derivative_says(solved):
    model, operator, y, solve = solved
    x = solve(y)
    gains = largest_gains(Derivative.at(x, model.weights(), operator, SIGMA, LAM), steps=5)
    step = 1e-5
    moved = (solve(y + step * gains.direction) - x).norm() / step
    assert float(moved) == pytest.approx(float(gains.total), rel=0.01)
    white = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    assert float((solve(y + step * white) - x).norm() / (step * white.norm())) < float(gains.total)


def test_each_sample_has_gains_of_its_own():
    weights = small_model(features=4).requires_grad_(False).weights()
    x = torch.cat([picture(size=16).double(), 0.2 * random(1, 1, 16, 16)])
    lam, sigma = LAM * torch.tensor([1.0, 3.0]).view(-1, 1, 1, 1), SIGMA * torch.tensor([0.5, 1.5])
    measured = torch.tensor([1.0, 0.4]).double().view(-1, 1, 1, 1).expand_as(x)
    both = largest_gains(Derivative.at(x, weights, Mask(measured), sigma, lam), steps=4)
    for index in range(2):
        part = slice(index, index + 1)
        alone = largest_gains(Derivative.at(x[part], weights, Mask(measured[part]), sigma[part], lam[part]), steps=4)
        assert float(both.total[index]) == pytest.approx(float(alone.total), rel=5e-3)
        assert float(both.total[1 - index]) != pytest.approx(float(alone.total), rel=0.2)


def test_conjugate_residuals_solve_what_is_not_symmetric():
    matrix = torch.eye(40, dtype=torch.float64) + 0.1 * torch.randn(
        40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    b = random(2, 40)
    found = conjugate_residual(lambda v: v @ matrix.T, b, tolerance=1e-9, steps=40)
    assert relative(found, torch.linalg.solve(matrix, b.T).T) < 1e-7


def test_what_brings_a_residual_forward_need_not_be_accurate():
    matrix = torch.diag(torch.logspace(0, 3, 40, dtype=torch.float64)) + 0.1 * random(40, 40)
    b = random(2, 40)
    rough = 1 / (1.3 * matrix.diag())
    found = conjugate_residual(lambda v: v @ matrix.T, b, lambda r: r * rough, tolerance=1e-9, steps=25)
    assert relative(found, torch.linalg.solve(matrix, b.T).T) < 1e-7


def test_derivatives_of_a_complex_image_against_differences():
    """Real and imaginary part have masks of their own: T is differentiable over the reals only."""
    measured = random(16, 16) < 0.6
    measured[0, 0] = True  # the mean
    weights, operator = small_model(features=4).weights(), Fourier(measured, real=False)
    x = torch.complex(random(2, 1, 16, 16), random(2, 1, 16, 16, seed=1))
    v, u = (torch.complex(random(2, 1, 16, 16, seed=seed), random(2, 1, 16, 16, seed=seed + 1)) for seed in (2, 4))
    lam, sigma = LAM * torch.tensor([1.0, 3.0]).view(-1, 1, 1, 1), SIGMA * torch.tensor([0.5, 1.5])
    step = 1e-9
    with torch.no_grad():
        alpha = weights.alpha(sigma).repeat_interleave(2, 0)

        def penalty(at):
            squared_mask = weights.mask(seen_by_model(at, 1), alpha) ** 2
            return lam * as_seen(weights.penalty(seen_by_model(x, 1), squared_mask), x)

        derivative = Derivative.at(x, weights, operator, sigma, lam)
        difference = (penalty(x + step * v) - penalty(x - step * v)) / (2 * step)
        assert relative(torch.view_as_real(derivative.masks(v)), torch.view_as_real(difference)) < 1e-5
        forward = float((derivative.step(v).conj() * u).real.sum())
        back = float((v.conj() * derivative.step_transposed(u)).real.sum())
        assert forward == pytest.approx(back, rel=1e-2)
        b = operator.adjoint(operator.forward(u))
        solved = derivative.solve(b)
        assert relative(derivative.system.apply(solved) + derivative.masks(solved), b) < 2e-3
