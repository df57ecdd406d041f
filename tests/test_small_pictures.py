"""Pictures too small to be mirrored once stand between two mirrors: any size from 1 x 1 can be reconstructed."""

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from conftest import dense, noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.model.boundary import fold, reflect
from torchdeal.operators import Blur, Mask

SIZES = [(1, 1), (1, 5), (3, 20), (8, 8), (14, 14), (15, 14)]


@pytest.mark.parametrize("size", [*SIZES, (16, 20)])
def test_mirrored_as_numpy_does(size):
    x = torch.rand(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = np.pad(x.numpy(), [(0, 0), (0, 0), (14, 14), (14, 14)], mode="reflect")
    np.testing.assert_array_equal(reflect(x, 14).numpy(), expected)


@pytest.mark.parametrize("size", [*SIZES, (16, 20)])
def test_fold_is_the_adjoint(size):
    padded = (1, size[0] + 24, size[1] + 24)
    forward, adjoint = dense(lambda x: reflect(x, 12), (1, *size)), dense(lambda z: fold(z, 12), padded)
    torch.testing.assert_close(adjoint, forward.T, atol=0, rtol=0)


@pytest.mark.parametrize("backend", ["fft", "direct"])
@pytest.mark.parametrize("size", SIZES)
def test_denoising_keeps_the_mean(size, backend):
    model = small_model(features=4, dtype=torch.float32)
    y = noisy(picture(size=20)[..., : size[0], : size[1]], 25)
    result = td.reconstruct(y, model=model, sigma=25 / 255, backend=backend)
    assert result.converged
    assert float(result.x.mean()) == pytest.approx(float(y.mean()), abs=1e-4)
    if size == (1, 1):
        assert relative(result.x, y) < 1e-5  # there is nothing to smooth


def test_a_small_part_is_denoised_about_as_in_the_whole(gray):
    clean = picture(size=32)
    y, part = noisy(clean, 25), (..., slice(12, 20), slice(12, 20))
    whole, alone = (td.reconstruct(noise, model=gray, sigma=25 / 255).x for noise in (y, y[part]))
    error = torch.linalg.vector_norm(y[part] - clean[part])
    assert torch.linalg.vector_norm(alone - clean[part]) < 0.7 * error
    assert torch.linalg.vector_norm(alone - whole[part]) < 0.7 * error


@pytest.mark.parametrize("name", ["mask", "blur", "scipy"])
def test_other_problems(name):
    operators = {
        "mask": Mask(torch.arange(49).reshape(7, 7) % 5 > 0),
        "blur": Blur(torch.ones(3, 3) / 9),
        "scipy": td.as_operator(scipy.sparse.linalg.aslinearoperator(np.eye(49, dtype=np.float32)), image_shape=(7, 7)),
    }
    H, model = operators[name], small_model(features=4, dtype=torch.float32)
    x = picture(size=20)[..., :7, :7]
    result = td.reconstruct(H.forward(x), H, model=model, noise=0.01)
    assert result.converged
    assert relative(result.x, x) < 0.3
