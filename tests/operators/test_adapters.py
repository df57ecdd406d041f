"""Operators of other libraries, the real ones: the same numbers, the right adjoint, and a reconstruction."""

import numpy as np
import pylops
import pytest
import scipy.sparse.linalg
import sigpy
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur, adjoint_gap

KERNEL = np.outer([0.25, 0.5, 0.25], [0.2, 0.6, 0.2])
SIZE = (16, 18)


def with_pylops():
    """A convolution with zeros beyond the border."""
    return pylops.signalprocessing.Convolve2D(SIZE, h=KERNEL, offset=(1, 1))


def with_scipy():
    """The same, without any shape."""
    operator = with_pylops()
    return scipy.sparse.linalg.LinearOperator(
        operator.shape, matvec=operator.matvec, rmatvec=operator.rmatvec, dtype=np.float64
    )


def with_sigpy():
    """The same."""
    return sigpy.linop.Resize(SIZE, (18, 20)) * sigpy.linop.ConvolveData(SIZE, KERNEL)


LIBRARIES = {"pylops": with_pylops, "scipy": with_scipy, "sigpy": with_sigpy}


def adapted(name):
    return td.as_operator(LIBRARIES[name](), image_shape=(1, *SIZE) if name == "scipy" else None)


@pytest.mark.parametrize("name", LIBRARIES)
def test_same_numbers_and_the_right_adjoint(name):
    operator = adapted(name)
    x = torch.rand(2, 1, *SIZE, dtype=torch.float64)
    expected = Blur(KERNEL, "zero").forward(x)
    torch.testing.assert_close(operator.forward(x).reshape(expected.shape), expected, atol=1e-12, rtol=0)
    assert adjoint_gap(operator, x) < 1e-12


@pytest.mark.parametrize("name", LIBRARIES)
def test_reconstruction_equals_that_of_our_operator(name):
    model = small_model(features=4, dtype=torch.float32)
    clean = picture(size=18)[..., : SIZE[0], :]
    ours = Blur(KERNEL.astype(np.float32), "zero")
    y = noisy(ours.forward(clean), 5)
    options = {"model": model, "sigma": 5 / 255, "lam": 0.5, "tolerance": 1e-3}
    operator = adapted(name)
    theirs = td.reconstruct(y.reshape(1, *operator.measurement_shape), operator, **options)
    assert theirs.x.dtype == torch.float32
    assert relative(theirs.x, td.reconstruct(y, ours, **options).x) < 1e-4


def test_complex_measurements():
    operator = td.as_operator(sigpy.linop.FFT((8, 8)))
    x = torch.randn(2, 1, 8, 8, dtype=torch.complex64)
    expected = td.operators.Fourier(centered=True, real=False).forward(x)
    torch.testing.assert_close(operator.forward(x).reshape(x.shape), expected, atol=1e-5, rtol=0)


def test_a_shape_that_is_not_known_or_wrong():
    operator = with_scipy()
    with pytest.raises(ValueError, match="image_shape"):
        td.as_operator(operator)
    with pytest.raises(ValueError, match="288 numbers"):
        td.as_operator(operator, image_shape=(1, 5, 5))


def test_a_pair_of_modules():
    blur = torch.nn.Conv2d(1, 1, 3, padding=1, bias=False)
    back = torch.nn.ConvTranspose2d(1, 1, 3, padding=1, bias=False)
    back.weight = blur.weight
    x = torch.randn(1, 1, 9, 9)
    assert adjoint_gap((blur.requires_grad_(False), back.requires_grad_(False)), x) < 1e-5
