"""Total variation against closed forms, scikit-image and SciPy."""

import math

import pytest
import torch
from conftest import dense, noisy, picture, relative
from scipy.optimize import minimize
from skimage.restoration import denoise_tv_chambolle

from torchdeal.benchmark.total_variation import gradient, gradient_adjoint, minimise_total_variation, total_variation
from torchdeal.operators import Blur, Fourier, Identity, Mask

WIDE = (-1.0, 2.0)  # a box that does not matter


def test_gradient_and_its_adjoint():
    shape = (2, 5, 4)
    matrix = dense(gradient, shape)
    x = torch.rand(3, *shape, dtype=torch.float64)
    assert torch.equal(gradient(x)[:, :, 0, :-1], x[:, :, 1:] - x[:, :, :-1])
    assert torch.equal(gradient(x)[:, :, 1, :, :-1], x[..., 1:] - x[..., :-1])
    assert torch.allclose(dense(gradient_adjoint, (2, 2, 5, 4)), matrix.T)
    assert torch.linalg.matrix_norm(matrix, 2).square() < 8


def test_total_variation_of_an_edge():
    image = torch.zeros(1, 3, 6, 8)
    image[..., 4:] = 0.5
    assert total_variation(image).tolist() == [pytest.approx(6 * 0.5 * math.sqrt(3))]


def test_two_pixels_come_closer_by_the_strength():
    y = torch.tensor([0.8, 0.2], dtype=torch.float64).view(1, 1, 1, 2)
    result = minimise_total_variation(y, Identity(), 0.1, norm=1.0, tolerance=1e-10)
    assert result.converged
    assert torch.allclose(result.x.flatten(), torch.tensor([0.7, 0.3], dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize("weight", [0.02, 0.05])
def test_denoising_as_scikit_image(weight):
    y = noisy(picture(size=24).double(), 25)
    result = minimise_total_variation(y, Identity(), weight, norm=1.0, box=WIDE, tolerance=1e-5, max_iterations=20000)
    expected = denoise_tv_chambolle(y[0, 0].numpy(), weight=weight, eps=1e-13, max_num_iter=10000)
    assert result.converged
    assert relative(result.x[0, 0], torch.from_numpy(expected)) < 3e-4


def test_colour_is_vectorial():
    """Three equal channels have sqrt(3) times the variation of one."""
    y = noisy(picture(size=16).double(), 25)
    options = {"norm": 1.0, "tolerance": 1e-6, "max_iterations": 20000}
    gray = minimise_total_variation(y, Identity(), 0.1 / math.sqrt(3), **options)
    colour = minimise_total_variation(y.expand(-1, 3, -1, -1), Identity(), 0.1, **options)
    assert relative(colour.x, gray.x.expand(-1, 3, -1, -1)) < 1e-3


@pytest.fixture(scope="module")
def blurred():
    """A blur, its matrix, an image through it, and what SciPy makes of that.

    That has no kink in its total variation, and so a higher minimum.
    """
    clean, strength = picture(size=8).double(), 0.02
    blur = Blur(torch.rand(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 4)
    y, matrix = noisy(blur.forward(clean), 10), dense(blur.forward, (1, 8, 8))

    def objective(pixels):
        x = torch.tensor(pixels, requires_grad=True)
        slopes = gradient(x.view(1, 1, 8, 8)).square().sum((1, 2))
        value = 0.5 * (matrix @ x - y.flatten()).square().sum() + strength * (slopes + 1e-10).sqrt().sum()
        value.backward()
        return float(value.detach()), x.grad.numpy()

    options = {"maxiter": 20000, "ftol": 1e-14}
    reference = minimize(objective, clean.flatten().numpy(), jac=True, bounds=[(0, 1)] * 64, options=options)
    return blur, matrix, y, strength, reference


@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_a_blurred_image_as_by_scipy(factor, blurred):
    """In any units of the measurements."""
    blur, matrix, y, strength, reference = blurred
    norm = factor * float(torch.linalg.matrix_norm(matrix, 2))
    options = {"norm": norm, "tolerance": 1e-6, "max_iterations": 50000}
    result = minimise_total_variation(factor * y, factor * blur, factor**2 * strength, **options)
    assert result.converged
    objective = float(result.objective) / factor**2
    assert objective == pytest.approx(reference.fun, rel=1e-3)
    assert objective < reference.fun
    assert relative(result.x.flatten(), torch.from_numpy(reference.x)) < 0.02


def test_the_box_holds_and_fills_what_is_missing():
    mask = torch.ones(12, 12, dtype=torch.float64)
    mask[4:8, 4:8] = 0
    y = mask * torch.full((1, 1, 12, 12), 1.2, dtype=torch.float64)
    result = minimise_total_variation(y, Mask(mask), 1e-2, norm=1.0, tolerance=1e-6)
    assert torch.allclose(result.x, torch.ones_like(result.x), atol=1e-3)


def test_complex_measurements_of_a_real_image():
    clean = picture(size=24)
    operator = Fourier((torch.arange(24) % 3 != 1).expand(24, 24))
    y = operator.forward(clean)
    result = minimise_total_variation(y, operator, 1e-3, norm=1.0)
    assert result.converged
    assert not result.x.is_complex()
    assert relative(result.x, clean) < relative(operator.adjoint(y), clean) / 2


def test_images_of_a_batch_stop_by_themselves():
    """An easy and a hard one: each as alone, though the other takes longer."""
    H = Blur(torch.ones(1, 5, dtype=torch.float64) / 5)
    y = torch.cat([torch.full((1, 1, 12, 12), 0.5, dtype=torch.float64), noisy(H.forward(picture(size=12)), 10)])
    both = minimise_total_variation(y, H, 1e-3, norm=1.0)
    alone = [minimise_total_variation(part, H, 1e-3, norm=1.0) for part in y.split(1)]
    assert bool(both.converged.all())
    assert both.iterations.tolist() == [int(one.iterations) for one in alone]
    assert both.iterations[0] < both.iterations[1]
    assert relative(both.x, torch.cat([one.x for one in alone])) < 1e-12
    assert torch.allclose(both.objective, torch.cat([one.objective for one in alone]))


def test_too_few_iterations_are_no_convergence():
    y = noisy(picture(size=24), 25)
    result = minimise_total_variation(y, Identity(), 0.1, norm=1.0, max_iterations=3, tolerance=1e-6)
    assert (result.converged, result.iterations) == (False, 3)
    assert result.gap > 1e-6
    with pytest.raises(ValueError, match="strength and norm"):
        minimise_total_variation(y, Identity(), 0.0, norm=1.0)
