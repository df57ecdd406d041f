"""The trained competitors, where their weights are: a few values of the recipes; the command has all of them."""

import pytest
import torch
from conftest import DATA, noisy, picture
from scipy.optimize import minimize

from torchdeal.benchmark.peers import find_denoiser, find_solver
from torchdeal.benchmark.peers.check import checks
from torchdeal.benchmark.peers.published import EXPECTED
from torchdeal.metrics import psnr
from torchdeal.operators import Blur

PEERS = DATA / "data" / "peers"
QUICK = [expected for expected in EXPECTED if expected.crop and expected.method == "fdncnn"]

pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="the weights of competitors are not here")


@pytest.mark.parametrize("expected", QUICK, ids=lambda expected: f"{expected.method}-{expected.sigma}")
def test_values_of_the_recipes(expected):
    (check,) = checks(PEERS, DATA / "data", [expected], None)
    assert check.reason == ""
    assert check.levels == [pytest.approx(expected.value, abs=0.002)]


@pytest.mark.parametrize("name", ["crr", "wcrr"])
def test_trained_regularisers_against_scipy(name):
    """The whole images of the recipe take too long here. L-BFGS finds the minimiser of the same convex energy."""
    clean, sigma = picture(size=24).double(), 15.0
    y = noisy(clean, sigma)
    denoiser = find_denoiser(name).make(PEERS, 1, "cpu")

    def energy(values):
        x = torch.from_numpy(values).view_as(y).requires_grad_()
        value = 0.5 * (x - y).square().sum() + denoiser.regularizer.energy(x, sigma).sum()
        return float(value.detach()), torch.autograd.grad(value, x)[0].flatten().numpy()

    best = minimize(energy, y.flatten().numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    expected = torch.from_numpy(best.x).view_as(y)
    assert psnr(denoiser(y, sigma), expected) > 55
    assert psnr(expected, clean) > psnr(y, clean) + 2


def test_an_image_in_a_batch_is_denoised_as_alone():
    y = torch.rand(2, 1, 24, 24, generator=torch.Generator().manual_seed(0))
    for name in ("dncnn", "wcrr", "pnp-dncnn"):
        denoiser = find_denoiser(name).make(PEERS, 1, "cpu")
        assert torch.allclose(denoiser(y, 15.0)[1:], denoiser(y[1:], 15.0), atol=1e-5)


def test_plug_and_play_deblurs():
    """As well as the learned regulariser, both as they are, without parameters chosen for this."""
    clean = picture(size=32, row=200, column=300)
    H = Blur(torch.eye(7) / 7)
    y = noisy(H.forward(clean), 2.55)
    x, other = (find_solver(name).make(PEERS, 1, "cpu")(y, H, 0.01) for name in ("pnp-dncnn", "wcrr"))
    assert psnr(x, clean) > psnr(y, clean) + 10
    assert psnr(x, clean) > psnr(other, clean) - 0.5
