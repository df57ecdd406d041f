import itertools

import numpy as np
import pytest
import torch
from conftest import dense, small_model
from scipy.sparse.linalg import LinearOperator, eigsh

import torchdeal as td
from torchdeal.model import Boundary
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.filters import analysis, impulse_responses, normalised, squared_norm, synthesis, zero_mean

SIZE = 13


def bank_of(name):
    """A bank by name: bundled weights, or random ones."""
    if name in ("gray", "color"):
        model = td.load(name).double()
    else:
        model = small_model(channels=3 if name == "random color" else 1, features=4)
    with torch.no_grad():
        return tuple(kernel.detach() for kernel in model.weights().filters)


@pytest.mark.parametrize("boundary", list(Boundary))
@pytest.mark.parametrize("channels", [1, 3])
def test_adjoint_equals_dense_transpose(boundary, channels):
    bank = bank_of("random color" if channels == 3 else "random gray")
    W = dense(lambda x: analysis(x, bank, boundary), (channels, SIZE, SIZE))
    Wt = dense(lambda z: synthesis(z, bank, boundary), (bank[-1].shape[0], SIZE, SIZE))
    torch.testing.assert_close(Wt, W.T, atol=1e-12, rtol=0)


def test_fold_is_the_adjoint_of_reflect():
    P = dense(lambda x: reflect(x, 5), (1, 6, 9))
    Pt = dense(lambda z: fold(z, 5), (1, 16, 19))
    torch.testing.assert_close(Pt, P.T, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["gray", "color", "random gray", "random color"])
def test_constants_are_in_the_kernel_with_reflect(name):
    bank = bank_of(name)
    one = torch.ones(1, bank[0].shape[1], 20, 24, dtype=torch.float64)
    assert float(analysis(one, bank, Boundary.REFLECT).abs().max()) < 1e-12
    assert float(analysis(one, bank, Boundary.ZERO).abs().max()) > 1e-3  # which is why reflect exists


@pytest.mark.parametrize("name", ["gray", "color"])
def test_reflect_is_one_layer_of_25x25_filters(name):
    bank = bank_of(name)
    x = torch.rand(1, bank[0].shape[1], 18, 21, dtype=torch.float64)
    one_layer = torch.nn.functional.conv2d(reflect(x, 12), impulse_responses(bank))
    torch.testing.assert_close(analysis(x, bank, Boundary.REFLECT), one_layer)


def torus_norm(bank, size):
    """By Krylov iterations (powers of `W^T W`) with circular convolutions, which know nothing of frequencies."""
    shape = (1, bank[0].shape[1], size, size)

    def filters(x):
        for kernel in bank:
            x = torch.nn.functional.conv2d(torch.nn.functional.pad(x, (4, 4, 4, 4), mode="circular"), kernel)
        return x

    def normal(vector):
        x = torch.from_numpy(vector).view(shape).float().requires_grad_()
        (gradient,) = torch.autograd.grad(0.5 * filters(x).square().sum(), x)  # W^T W x
        return gradient.flatten().numpy()

    n = int(np.prod(shape))
    start = np.random.default_rng(0).normal(size=n).astype(np.float32)
    operator = LinearOperator((n, n), matvec=normal, dtype=np.float32)
    return float(eigsh(operator, k=1, v0=start, tol=1e-4, return_eigenvectors=False)[0]) ** 0.5


@pytest.mark.parametrize("name", ["gray", "color", "random gray", "random color"])
def test_norm_on_the_torus_is_one(name):
    # Random filters have sharp peaks, between the frequencies of a small torus.
    size = 192 if "random" in name else 48
    assert torus_norm([k.float() for k in bank_of(name)], size) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("name", ["gray", "color"])
@pytest.mark.parametrize("boundary", list(Boundary))
def test_norm_on_a_finite_image_is_bounded(name, boundary):
    # Mirroring shows a border pixel up to four times, so ||W|| <= ||reflect|| <= 2; what it comes to is far less.
    # Zero padding only removes terms of the infinite sum: ||W|| <= 1.
    bank = [k.float() for k in bank_of(name)]
    torch.manual_seed(0)
    x, value = torch.randn(1, bank[0].shape[1], 48, 48), 0.0
    for _ in range(100):
        x = synthesis(analysis(x / x.norm(), bank, boundary), bank, boundary)
        value = float(x.norm()) ** 0.5
    assert 0.9 < value < (1.3 if boundary is Boundary.REFLECT else 1.0001)


@pytest.mark.parametrize("channels", [1, 3])
def test_norm_is_differentiable(channels):
    torch.manual_seed(0)
    widths = [channels, 2, 2, 3]
    bank = [torch.randn(b, a, 9, 9, dtype=torch.float64, requires_grad=True) for a, b in itertools.pairwise(widths)]
    assert torch.autograd.gradcheck(lambda *k: squared_norm(zero_mean(k)), bank, fast_mode=True)


def test_normalised_scales_only():
    bank = zero_mean([k * 7 for k in bank_of("random color")])
    ratio = normalised(bank)[0] / bank[0]
    torch.testing.assert_close(ratio, torch.full_like(ratio, float(ratio.mean())))
    assert float(squared_norm(normalised(bank))) == pytest.approx(1, abs=1e-9)
