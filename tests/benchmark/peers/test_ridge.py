"""CRR and WCRR against automatic differentiation, and their solver against the condition of optimality."""

from dataclasses import replace

import pytest
import torch
from conftest import dense, noisy, picture, random, relative
from safetensors.torch import save_file

from torchdeal.benchmark.peers import Unavailable, find_denoiser, find_solver
from torchdeal.benchmark.peers.ridge import RidgeDenoiser, RidgeRegularizer, RidgeSolver, accelerated_gradient
from torchdeal.operators import Blur, Fourier


def regularizer(rho):
    """With filters, scales and weights of the order of the trained ones."""
    kernels = [
        0.3 * (random(*shape, seed=i) - 0.5) for i, shape in enumerate([(2, 1, 5, 5), (3, 2, 5, 5), (4, 3, 5, 5)])
    ]
    kernels[0] -= kernels[0].mean((2, 3), keepdim=True)
    R = RidgeRegularizer(tuple(kernels), 3 + 2 * random(4, 11, seed=5), torch.arange(0.0, 31.0, 3.0), 48.0, rho)
    one = torch.ones(4, 1, 1, dtype=torch.float64)
    norm = torch.linalg.matrix_norm(dense(lambda x: R._filter(x, one), (1, 12, 12)), 2)
    return replace(R, kernels=(kernels[0] / norm, *kernels[1:]))


@pytest.mark.parametrize("rho", [0.0, 1.0], ids=["CRR", "WCRR"])
@pytest.mark.parametrize("sigma", [0.5, 7.0, 30.0])
def test_gradient_of_the_energy(rho, sigma):
    R, x = regularizer(rho), random(2, 1, 9, 8).requires_grad_()
    (expected,) = torch.autograd.grad(R.energy(x, sigma).sum(), x)
    found = R.gradient(x.detach(), sigma)
    assert expected.abs().max() > 1e-5
    assert relative(found, expected) < 1e-10


def test_all_parts_of_the_profile_are_tested():
    R, x = regularizer(1.0), random(2, 1, 9, 8)
    responses = R._filter(x, R._scale(x, 7.0)).abs()
    assert (responses < 0.002).any()
    assert ((responses > 0.002) & (responses < 0.098)).any()
    assert (responses > 0.098).any()


def test_the_solution_is_a_critical_point():
    R, y = regularizer(1.0), noisy(picture(size=12).double(), 15)
    x = accelerated_gradient(lambda z: z - y + R.gradient(z, 15.0), y, 1 / 49, tolerance=1e-12, max_iterations=5000)
    x = x.requires_grad_()
    energy = 0.5 * (x - y).square().sum() + R.energy(x, 15.0).sum()
    assert torch.autograd.grad(energy, x)[0].abs().max() < 1e-8
    assert relative(RidgeDenoiser(R)(y, 15.0), x.detach()) < 1e-2


def test_each_sample_stops_by_itself():
    R = regularizer(0.0)
    y = torch.cat([noisy(picture(size=12).double(), 15), torch.full((1, 1, 12, 12), 0.5).double()])
    together = RidgeDenoiser(R)(y, 20.0)
    assert torch.allclose(together, torch.cat([RidgeDenoiser(R)(one, 20.0) for one in y.split(1)]), atol=1e-13)


@pytest.mark.parametrize(
    "H", [Blur(random(3, 3) / random(3, 3).sum()), Fourier(random(12, 12) > 0.4)], ids=["blur", "MRI"]
)
def test_an_inverse_problem_ends_at_a_critical_point(H):
    R, x = regularizer(1.0), picture(size=12).double()
    y, lam = H.forward(x), 2.0 * (255 * 0.02 / 10) ** 2

    def energy_and_slope(z):
        z = z.detach().requires_grad_()
        energy = 0.5 * (H.forward(z) - y).abs().square().sum() + lam * R.energy(z, 10.0).sum()
        return float(energy.detach()), float(torch.autograd.grad(energy, z)[0].norm())

    solver = RidgeSolver(R, sigma=10.0, strength=2.0, tolerance=1e-11, max_iterations=20000)
    start, found = H.adjoint(y), solver(y, H, 0.02)
    assert energy_and_slope(found)[0] < energy_and_slope(start)[0]
    assert energy_and_slope(found)[1] < 1e-5 * energy_and_slope(start)[1]


def test_files_of_weights(tmp_path):
    R, knots = regularizer(1.0), torch.linspace(-0.1, 0.1, 101)
    tensors = {f"conv{i}.weight": kernel.float() for i, kernel in enumerate(R.kernels)}
    tensors |= {"log_scale": R.log_scale.float(), "log_scale_knots": R.knots, "mu": torch.tensor([R.mu])}
    tensors |= {
        "profile_knots": knots,
        "profile_derivative": 49 * knots.clamp(-0.002, 0.002) - knots.clamp(-0.098, 0.098),
    }
    save_file(tensors, tmp_path / "wcrr_nn_gray.safetensors")
    y = noisy(picture(size=12), 15)
    denoiser = find_denoiser("wcrr").make(tmp_path, 1, "cpu")
    assert denoiser.regularizer.rho == 1.0
    assert relative(denoiser(y, 15.0).double(), RidgeDenoiser(R)(y.double(), 15.0)) < 1e-3
    with pytest.raises(Unavailable, match="sigma from 0 to 30, not 50"):
        denoiser(y, 50.0)
    solver = find_solver("wcrr").make(tmp_path, 1, "cpu")
    assert not torch.equal(
        solver(y, Blur(torch.ones(1, 1)), 0.1), replace(solver, strength=4.0)(y, Blur(torch.ones(1, 1)), 0.1)
    )
    save_file(tensors | {"profile_derivative": 2 * knots}, tmp_path / "crr_nn_gray.safetensors")
    with pytest.raises(Unavailable, match="profile"):
        find_denoiser("crr").make(tmp_path, 1, "cpu")
