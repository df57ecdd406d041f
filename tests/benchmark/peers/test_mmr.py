"""MMR with small weights, against SciPy."""

import numpy as np
import pytest
import torch
from conftest import dense, noisy, picture, random, relative
from safetensors.torch import save_file
from scipy.optimize import minimize

from torchdeal.benchmark.peers import Unavailable, find_denoiser
from torchdeal.benchmark.peers.mmr import MaskedRegularizer

SHAPE = (1, 6, 7)


@pytest.fixture(scope="module")
def model():
    kernels = [random(3, 1, 7, 7) - 0.5, random(3, 3, 7, 7, seed=1) - 0.5]
    kernels = [kernel - kernel.mean((2, 3), keepdim=True) for kernel in kernels]
    blurs = [random(3, 1, 7, 7, seed=2), random(3, 1, 7, 7, seed=3)]
    weights = {f"conv{i}.weight": kernel for i, kernel in enumerate(kernels)}
    weights |= {f"mask_conv{i}.weight": blur / blur.sum((2, 3), keepdim=True) for i, blur in enumerate(blurs)}
    knots = torch.linspace(0, 1, 21, dtype=torch.float64)
    weights |= {"mask_spline": (-knots * torch.tensor([[1.0], [3.0], [9.0]])).exp(), "mask_spline_knots": knots}
    weights |= {"mask_scale": torch.tensor([0.01, 0.1, 0.2]).double(), "lam": torch.tensor([0.002])}
    matrix = dense(MaskedRegularizer(weights).filter, SHAPE)
    return MaskedRegularizer(weights | {"lip": torch.linalg.matrix_norm(matrix, 2).square()})


def test_the_adjoint_of_the_filters(model):
    assert torch.allclose(dense(model.filter_adjoint, (3, 6, 7)), dense(model.filter, SHAPE).T)


@pytest.mark.parametrize("size", [(18, 23), (40, 19), (17, 30)])
def test_the_bank_is_what_the_layers_are_together(model, size):
    """To the border, where the zeros between the two layers matter."""
    x, u = random(1, 1, *size) - 0.5, random(1, 3, *size, seed=1) - 0.5
    assert torch.allclose(model.filter(x), model._layers(x), atol=1e-12)
    assert torch.allclose(model.filter_adjoint(u), model._layers_adjoint(u), atol=1e-12)


def test_an_image_is_denoised_as_by_the_layers(model, monkeypatch):
    y = noisy(picture(size=20), 5).double()
    by_bank = model.denoise(y)
    monkeypatch.setattr("torchdeal.benchmark.peers.mmr.MENDED", 100)  # every image is too small for the bank
    assert torch.allclose(by_bank, model.denoise(y), atol=1e-9)
    assert not torch.allclose(by_bank, y, atol=1e-3)


@pytest.mark.parametrize("masked", [False, True])
def test_a_problem_has_the_minimiser_that_scipy_finds(model, masked, monkeypatch):
    """`min_{|u| <= lam} 0.5 ||y - L^T u||^2` is the dual problem where the box of the image does not matter."""
    monkeypatch.setattr("torchdeal.benchmark.peers.mmr.MAX_STEPS", 5000)
    y, lam = 0.25 + 0.5 * random(1, *SHAPE, seed=5), float(model.weights["lam"])
    mask = model.mask(y) if masked else None
    L = dense(lambda x: model.filter(x) if mask is None else mask * model.filter(x), SHAPE).numpy()
    target = y.flatten().numpy()

    def dual(u):
        rest = target - L.T @ u
        return 0.5 * rest @ rest, -L @ rest

    settings = {"maxiter": 20000, "maxfun": 50000, "ftol": 1e-16, "gtol": 1e-10}
    found = minimize(
        dual, np.zeros(len(L)), jac=True, bounds=[(-lam, lam)] * len(L), method="L-BFGS-B", options=settings
    )
    expected = torch.from_numpy(target - L.T @ found.x)
    x = model.minimise(y, y, mask, 1e-13, first=not masked)
    assert 0 < expected.min() < expected.max() < 1
    assert relative(expected, y.flatten()) > 0.005
    assert relative(x.flatten(), expected) < 1e-4


def test_masks(model):
    x = picture(size=12).double()
    mask = model.mask(x)
    assert mask.min() >= 0
    assert mask.max() <= 1 + 1e-12
    assert mask.std() > 0.01
    u = 30 * random(1, 3, 5, 5)
    knots, scale = model.weights["mask_spline_knots"].numpy(), model.weights["mask_scale"]
    for c in (0, 1):  # the places of these two are between the knots, or little beyond
        places = (scale[c] * u[0, c]).numpy()
        inside = places <= 1
        expected = np.interp(places, knots, model.weights["mask_spline"][c].numpy())
        assert np.allclose(model._shape(u)[0, c].numpy()[inside], expected[inside])
    last = model.weights["mask_spline"][2]
    beyond = last[-1] + (scale[2] * u[0, 2] - 1) * (last[-1] - last[-2]) / 0.05
    expected = torch.where(scale[2] * u[0, 2] > 1, beyond.clamp(0, 1), model._shape(u)[0, 2])
    assert (scale[2] * u[0, 2] > 1).any()
    assert torch.allclose(model._shape(u)[0, 2], expected)


def test_images_one_by_one(model, tmp_path):
    save_file(
        {name: value.float().contiguous() for name, value in model.weights.items()},
        tmp_path / "mmr_gray_s05.safetensors",
    )
    denoiser = find_denoiser("mmr").make(tmp_path, 1, "cpu")
    y = torch.cat([noisy(picture(size=8), 5, seed) for seed in (0, 1)])
    found = denoiser(y, 5.0)
    assert torch.equal(found[1:], denoiser(y[1:], 5.0))
    assert not torch.equal(found, y.clamp(0, 1))
    with pytest.raises(Unavailable, match="sigma 5, 15, 25, not for 10"):
        denoiser(y, 10.0)
