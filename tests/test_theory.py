"""The numbers of the theory, against dense matrices."""

from types import SimpleNamespace

import pytest
import torch
from conftest import dense, noisy, picture, random, small_model

import torchdeal as td
from torchdeal.derivative import Derivative, masks_derivative, white_noise_like
from torchdeal.operators import Blur, Fourier, Identity, Mask
from torchdeal.operators.base import Operator
from torchdeal.theory import (
    contraction,
    everywhere,
    kernels,
    mask_lipschitz,
    operator_norm,
    smallest_eigenvalue,
    smallest_of_normal,
)

SIDE, STEPS = 16, 14
SIGMA = torch.tensor([25.0], dtype=torch.float64)
LAM = torch.tensor(5.0, dtype=torch.float64).view(1, 1, 1, 1)
SEEN = (random(SIDE, SIDE, seed=5) < 0.5).double()
OPERATORS = {
    "identity": Identity(),
    "blur": Blur(torch.tensor([[0.1, 0.6], [0.2, 0.1]]).double()),
    "mask": Mask(SEEN),
}


def weights_of(boundary="reflect"):
    model = small_model(boundary=boundary, features=4).requires_grad_(False)
    for kernel in model.mask_filters:
        kernel.mul_(3)  # masks that depend on the image more
    return model.weights()


@pytest.fixture(scope="module", params=["blur", "mask"])
def problem(request):
    """At some image, with dense A, K, `H^T H` and `W^T W`."""
    weights, operator = weights_of(), OPERATORS[request.param]
    x = noisy(picture(size=SIDE).double(), 10)
    with torch.no_grad():
        alpha = weights.alpha(SIGMA)
        ones = torch.ones_like(weights.mask(x, alpha))
        K, WW, HH, penalty = (
            dense(apply, x.shape[1:])
            for apply in (
                masks_derivative(weights, x, alpha, LAM),
                lambda p: weights.penalty(p, ones),
                operator.normal,
                lambda p: weights.penalty(p, weights.mask(x, alpha) ** 2),
            )
        )
        derivative = Derivative.at(x, weights, operator, SIGMA, LAM)
    A = HH + LAM.item() * penalty
    return SimpleNamespace(weights=weights, operator=operator, x=x, derivative=derivative, A=A, K=K, HH=HH, WW=WW)


def test_smallest_eigenvalue_is_that_of_the_matrix_or_a_little_more(problem):
    true = float(torch.linalg.eigvalsh(problem.A)[0])
    found = float(smallest_eigenvalue(problem.derivative.system, white_noise_like(problem.x), STEPS))
    assert true * (1 - 1e-6) <= found < 1.02 * true


def test_kernels_of_the_matrices(problem):
    found = kernels(problem.weights, problem.operator, problem.x, STEPS)
    true = float(torch.linalg.eigvalsh(problem.HH + problem.WW)[0])
    assert true * (1 - 1e-6) <= float(found.smallest) < 1.05 * true
    assert bool(found.apart)
    ones = torch.ones(SIDE * SIDE, dtype=torch.float64)
    assert float(found.constants) == pytest.approx(float((ones @ problem.HH @ ones / (ones @ ones)).sqrt()))


def test_contraction_of_the_matrices(problem):
    found = contraction(problem.derivative, STEPS)
    A, T = problem.A, -torch.linalg.solve(problem.A, problem.K)
    root = torch.linalg.cholesky(A)  # ||v||_A = ||root^T v||
    energy = root.T @ T @ torch.linalg.inv(root.T)
    norms = [float(torch.linalg.matrix_norm(matrix, 2)) for matrix in (T, energy)]
    assert 0.98 * norms[0] < float(found.euclidean) < 1.005 * norms[0]
    assert 0.98 * norms[1] < float(found.energy) < 1.005 * norms[1]
    radius = float(torch.linalg.eigvals(T).abs().max())
    assert float(found.radius) == pytest.approx(radius, rel=0.05)
    assert radius < min(norms)


def test_the_derivative_of_a_step_against_differences(problem):
    """T' v is how `T(z) = A(z)^-1 b` changes, with `b = A(x) x`, so that x is a fixed point."""
    weights, x, step = problem.weights, problem.x, 1e-8
    v = random(*x.shape, seed=3) - 0.5
    with torch.no_grad():
        alpha = weights.alpha(SIGMA)
        b = (problem.A @ x.flatten()).flatten()

        def T(z):
            squared_mask = weights.mask(z, alpha) ** 2
            A = problem.HH + LAM.item() * dense(lambda p: weights.penalty(p, squared_mask), x.shape[1:])
            return torch.linalg.solve(A, b)

        difference = (T(x + step * v) - T(x - step * v)) / (2 * step)
        assert float((problem.derivative.step(v).flatten() - difference).norm() / difference.norm()) < 1e-2


def test_norm_and_smallest_eigenvalue_of_the_operator(problem):
    true = torch.linalg.eigvalsh(problem.HH)
    assert float(operator_norm(problem.operator, problem.x)) == pytest.approx(float(true[-1]) ** 0.5, rel=1e-3)
    found = float(smallest_of_normal(problem.operator, problem.x))
    assert float(true[0]) - 1e-9 <= found <= 1.2 * max(float(true[0]), 0.0) + 1e-9


@pytest.mark.parametrize("boundary", ["reflect", "zero"])
def test_masks_change_less_than_their_lipschitz_constant(boundary):
    weights = weights_of(boundary)
    alpha = weights.alpha(SIGMA)
    bound = float(mask_lipschitz(weights, alpha, (SIDE, SIDE)))
    steepest = 0.0
    for seed in range(20):
        x, v = random(1, 1, SIDE, SIDE, seed=seed), random(1, 1, SIDE, SIDE, seed=seed + 100) - 0.5
        change = weights.mask(x + 1e-3 * v, alpha) ** 2 - weights.mask(x, alpha) ** 2
        steepest = max(steepest, float(change.abs().max() / (1e-3 * v.norm())))
    assert 0 < steepest < bound


def test_for_small_lam_t_contracts_everywhere():
    """And does so no worse than the bound, between random images."""
    weights, operator = weights_of(), OPERATORS["identity"]
    y = noisy(picture(size=SIDE).double(), 10)
    threshold = float(everywhere(weights, operator, y, SIGMA, LAM, 6).unique_below)
    assert 0 < threshold < float(LAM)
    lam = LAM * (0.5 * threshold / LAM)
    found = everywhere(weights, operator, y, SIGMA, lam, 6)
    assert float(found.contraction) == pytest.approx(0.5, rel=1e-2)
    assert float(everywhere(weights, operator, y, SIGMA, LAM, 6).contraction) > 1

    def T(z):
        return td.reconstruct(
            y, model=MODEL, sigma=25 / 255, lam=float(lam), start=z, max_iterations=1, tolerance=1e-9, data_range=1.0
        ).x

    MODEL = small_model(features=4).requires_grad_(False)
    for kernel in MODEL.mask_filters:
        kernel.mul_(3)
    one, other = random(*y.shape, seed=1), random(*y.shape, seed=2)
    assert float((T(one) - T(other)).norm() / (one - other).norm()) < float(found.contraction)


def test_where_h_has_a_kernel_no_small_lam_is_enough():
    weights, y = weights_of(), SEEN * picture(size=SIDE).double()
    found = everywhere(weights, OPERATORS["mask"], y, SIGMA, LAM, 6)
    assert float(found.unique_below) == 0
    assert 0 < float(found.smallest) < 0.01


class WithoutMean(Operator):
    """It does not see the mean, which W does not see either."""

    def _forward(self, x):
        return x - x.mean((-2, -1), keepdim=True)

    def _adjoint(self, y):
        return self._forward(y)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_common_kernel_is_found(dtype):
    weights = small_model(features=4, dtype=dtype).requires_grad_(False).weights()
    like = picture(size=SIDE).to(dtype)
    found = kernels(weights, WithoutMean(), like, 6)
    assert not bool(found.apart)
    assert float(found.constants) < 1e-6
    assert bool(kernels(weights, Identity(), like, 6).apart)


def test_each_channel_of_a_channelwise_problem_has_a_constant_of_its_own():
    weights = weights_of()
    measured = torch.ones(1, 3, SIDE, SIDE).double()
    measured[:, 1] = 0
    found = kernels(weights, Mask(measured), measured, 6)
    assert float(found.constants) == 0
    assert not bool(found.apart)


def test_complex_images():
    weights = weights_of()
    sampled = random(SIDE, SIDE) < 0.5
    sampled[0, 0] = True
    like = torch.complex(picture(size=SIDE), 0.1 * picture(size=SIDE)).to(torch.complex128)
    whole = kernels(weights, Fourier(sampled, real=False), like, STEPS)
    assert float(whole.constants) == pytest.approx(1)
    assert bool(whole.apart)
    sampled[0, 0] = False
    assert not bool(kernels(weights, Fourier(sampled, real=False), like, STEPS).apart)
