"""What `reconstruct` computes: against dense solves, its own equation, and itself in other forms."""

import numpy as np
import pytest
import torch
from conftest import dense, noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.model import Boundary
from torchdeal.operators import Blur, Identity, Mask

SIGMA = 20 / 255


def images(batch=1, channels=1, size=18, seed=0):
    return torch.rand(batch, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


OPERATORS = {
    "identity": Identity(),
    "mask": Mask(torch.rand(18, 18, generator=torch.Generator().manual_seed(3)) > 0.4),
    "blur": Blur(torch.tensor([[0.0, 0.2, 0.1], [0.2, 0.3, 0.2]])),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("boundary", list(Boundary))
def test_frozen_masks_equal_a_dense_least_squares_solve(operator, boundary):
    """With a constant phi3 the masks do not depend on x, and the fixed point is one least-squares problem."""
    H, model, lam = OPERATORS[operator], small_model(boundary=boundary), 1.7
    with torch.no_grad():
        model.phi3.fill_(0.6)
        y = H.to(dtype=torch.float64).forward(images())
        result = td.reconstruct(y, H, model=model, sigma=SIGMA, lam=lam, tolerance=1e-9)
        weights = model.weights()
        Hd = dense(H.to(dtype=torch.float64).forward, (1, 18, 18))
        Wd = dense(lambda x: 0.6 * torch.cat([_analysis(weights, x)]), (1, 18, 18))
    stacked = torch.cat([Hd, lam**0.5 * Wd])
    target = torch.cat([y.flatten(), torch.zeros(len(Wd), dtype=torch.float64)])
    expected = torch.linalg.lstsq(stacked, target[:, None]).solution.view_as(result.x)
    assert relative(result.x, expected) < 1e-7
    assert result.converged


@pytest.mark.parametrize("operator", OPERATORS)
def test_masks_frozen_at_the_result_give_it_back(operator):
    """Masks that vary from pixel to pixel: the dense least-squares solution with M(x*) is x* again."""
    H, model, lam = OPERATORS[operator].to(dtype=torch.float64), small_model(), 0.9
    y = H.forward(images())
    result = td.reconstruct(y, H, model=model, sigma=SIGMA, lam=lam, tolerance=1e-9).x
    with torch.no_grad():
        weights = model.weights()
        mask = weights.mask(result, weights.alpha(torch.tensor([255 * SIGMA], dtype=torch.float64)))
        MW = dense(lambda x: mask * _analysis(weights, x), (1, 18, 18))
    assert float(mask.std()) > 1e-3
    stacked = torch.cat([dense(H.forward, (1, 18, 18)), lam**0.5 * MW])
    target = torch.cat([y.flatten(), torch.zeros(len(MW), dtype=torch.float64)])
    expected = torch.linalg.lstsq(stacked, target[:, None]).solution.view_as(result)
    assert relative(result, expected) < 1e-7


def _analysis(weights, x):
    from torchdeal.model.filters import analysis

    return analysis(x, weights.filters, weights.boundary)


@pytest.mark.parametrize("operator", OPERATORS)
def test_result_solves_the_fixed_point_equation(operator):
    H, model, lam = OPERATORS[operator].to(dtype=torch.float64), small_model(), 0.8
    y = H.forward(images(2))
    result = td.reconstruct(y, H, model=model, sigma=SIGMA, lam=lam, tolerance=1e-8)
    assert result.converged
    with torch.no_grad():
        weights = model.weights()
        mask = weights.mask(result.x, weights.alpha(torch.full((2,), 255 * SIGMA, dtype=torch.float64)))
        left = H.normal(result.x) + lam * weights.penalty(result.x, mask.square())
    assert relative(left, H.adjoint(y)) < 1e-7


def test_samples_do_not_depend_on_the_batch_around_them():
    model, sigma, lam = small_model(), [3 / 255, 20 / 255, 45 / 255], [0.2, 1.0, 4.0]
    y = images(3)
    together = td.reconstruct(y, model=model, sigma=sigma, lam=lam, tolerance=1e-5)
    assert len(set(together.iterations.tolist())) > 1  # they stop at different times
    for i in range(3):
        alone = td.reconstruct(y[i : i + 1], model=model, sigma=sigma[i], lam=lam[i], tolerance=1e-5)
        assert relative(together.x[i : i + 1], alone.x) < 1e-12
        assert together.iterations[i] == alone.iterations[0]
        assert float(together.distance[i]) == pytest.approx(float(alone.distance[0]), rel=1e-6)


def test_batches_with_trained_weights(gray):
    clean = torch.cat([picture(size=40), picture(size=40, row=10), picture("coins", size=40)])
    y = torch.cat([noisy(c[None], s) for c, s in zip(clean, (5, 15, 30), strict=True)])
    sigma = torch.tensor([5.0, 15.0, 30.0]) / 255
    together = td.reconstruct(y, model=gray, sigma=sigma)
    for i in range(3):
        alone = td.reconstruct(y[i : i + 1], model=gray, sigma=sigma[i])
        assert relative(together.x[i : i + 1], alone.x) < 1e-4


def test_denoising_uses_the_learned_strength(gray):
    y = noisy(picture(size=32), 15)
    with torch.no_grad():
        lam = float(gray.weights().lam(torch.tensor([15.0])))
    learned = td.reconstruct(y, model=gray, sigma=15 / 255)
    given = td.reconstruct(y, model=gray, sigma=15 / 255, lam=lam)
    torch.testing.assert_close(learned.x, given.x, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_numpy_in_every_dtype(gray, dtype):
    clean = picture(size=32)[0, 0].numpy()
    scale = {"uint8": 255, "uint16": 65535}.get(dtype, 1)
    noise = np.random.default_rng(0).normal(0, 20 / 255, clean.shape)
    image = (clean + noise) * scale
    image = image.round().clip(0, scale).astype(dtype) if scale > 1 else image.astype(dtype)
    result = td.denoise(image, 20 / 255 * scale)
    assert isinstance(result, np.ndarray)
    assert result.dtype == image.dtype
    assert result.shape == image.shape
    error = np.abs(result / scale - clean).mean()
    assert error < 0.5 * np.abs(image / scale - clean).mean()


def test_torch_stays_torch(gray):
    y = noisy(picture(size=32), 20)
    for image in (y, y[0], y[0, 0], y.half(), y.double()):
        result = td.denoise(image, 20 / 255)
        assert result.dtype == image.dtype
        assert result.shape == image.shape


def test_colour_and_alpha(color):
    rgb = noisy(picture("astronaut", size=32), 20)[0].permute(1, 2, 0).numpy()
    alpha = np.random.default_rng(0).random((32, 32, 1)).astype(np.float32)
    result = td.denoise(np.concatenate([rgb, alpha], -1), 20 / 255, alpha=True)
    assert np.array_equal(result[..., 3:], alpha)
    np.testing.assert_allclose(result[..., :3], td.denoise(rgb, 20 / 255), atol=1e-6)


def test_colour_by_a_gray_model_only_if_asked(gray):
    rgb = noisy(picture("astronaut", size=32), 20)
    with pytest.raises(ValueError, match="channelwise"):
        td.denoise(rgb, 20 / 255, model=gray)
    result = td.denoise(rgb, 20 / 255, model=gray, channelwise=True, tolerance=1e-4)
    for c in range(3):
        alone = td.denoise(rgb[:, c : c + 1], 20 / 255, model=gray, tolerance=1e-4)
        assert relative(result[:, c : c + 1], alone) < 5e-4


def test_sigma_is_in_the_units_of_the_data(gray):
    image = (noisy(picture(size=32), 15)[0, 0].numpy() * 1000).astype(np.float64)
    scaled = td.denoise(image, 15 / 255 * 1000, data_range=1000)
    plain = td.denoise(image / 1000, 15 / 255)
    np.testing.assert_allclose(scaled / 1000, plain, atol=1e-5)


def test_sigma_is_estimated_if_not_given(gray):
    clean = picture(size=64)
    y = noisy(clean, 25)
    assert float((td.denoise(y) - clean).square().mean()) < 0.3 * float((y - clean).square().mean())


def test_same_input_same_bits(gray):
    y = noisy(picture(size=32), 15)
    first, second = (td.reconstruct(y, model=gray, sigma=15 / 255) for _ in range(2))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.residuals, second.residuals)


def test_float64_model_computes_in_float64(gray_double):
    y = noisy(picture(size=24), 15).double()
    result = td.reconstruct(y, model=gray_double, sigma=15 / 255, tolerance=1e-7)
    assert result.converged
    assert result.x.dtype == torch.float64


def test_path_starts_at_the_start_and_has_the_kind_of_the_input(gray):
    y = noisy(picture(size=24), 15)[0, 0].numpy()
    result = td.reconstruct(y, model=gray, sigma=15 / 255, keep_path=True, start=y)
    assert len(result.path) == int(result.iterations) + 1
    assert all(isinstance(x, np.ndarray) and x.shape == y.shape for x in result.path)
    np.testing.assert_allclose(result.path[0], y, atol=1e-6)
    np.testing.assert_array_equal(result.path[-1], result.x)


def test_denoise_warns_when_it_did_not_converge(gray):
    with pytest.warns(td.ConvergenceWarning, match="max_iterations"):
        td.denoise(noisy(picture(size=24), 25), 25 / 255, max_iterations=3)


def test_noise_free_constant_and_zero_images(gray):
    for value in (0.0, 0.3, 1.0):
        image = np.full((20, 20), value)
        np.testing.assert_allclose(td.denoise(image, 10 / 255), image, atol=2e-3 * value + 1e-12)


@pytest.mark.parametrize("sigma", [0.0, 0.1 / 255])
def test_no_noise_changes_little(gray, sigma):
    image = picture(size=32)
    assert relative(td.denoise(image, sigma), image) < 0.01


@pytest.mark.skipif(not torch.backends.mps.is_available(), reason="there is no MPS device here")
def test_runs_on_mps(gray):
    y = noisy(picture("camera", 40), 25)
    there, here = (td.reconstruct(y, model=gray, sigma=25 / 255, device=device).x for device in ("mps", "cpu"))
    assert relative(there.cpu(), here) < 2e-3


def test_a_complex_image_is_two_real_ones(gray):
    """With a unitary H, real and imaginary part of the answer are those of two denoisings."""
    H = td.operators.Fourier(real=False)
    parts = [noisy(picture(name, 32), 15) for name in ("camera", "coins")]
    y = H.forward(torch.complex(*parts))
    options = {"model": gray, "sigma": 15 / 255, "lam": 12.0, "tolerance": 1e-5}
    result = td.reconstruct(y, H, **options)
    assert result.converged
    assert result.x.dtype == torch.complex64
    for answer, part in zip((result.x.real, result.x.imag), parts, strict=True):
        assert relative(answer, td.reconstruct(part, **options).x) < 1e-4
    again = td.reconstruct(y, H, start=result.x, **options)
    assert relative(again.x, result.x) < 1e-4


def test_a_batch_of_complex_images(gray):
    sampled = torch.rand(20, 20, generator=torch.Generator().manual_seed(0)) < 0.7
    H = td.operators.Fourier(sampled, real=False)
    x = torch.complex(picture(size=20), picture("coins", 20)) * torch.tensor([1.0, 0.5]).view(2, 1, 1, 1)
    options = {"model": gray, "sigma": [10 / 255, 20 / 255], "lam": [0.5, 1.0], "tolerance": 1e-5}
    together = td.reconstruct(H.forward(x), H, **options).x
    for i in range(2):
        alone = {**options, "sigma": options["sigma"][i], "lam": options["lam"][i]}
        assert relative(together[i : i + 1], td.reconstruct(H.forward(x[i : i + 1]), H, **alone).x) < 1e-4


def test_a_complex_start_that_is_not_finite(gray):
    H = td.operators.Fourier(real=False)
    y = H.forward(torch.zeros(1, 1, 20, 20, dtype=torch.complex64))
    with pytest.raises(ValueError, match="start holds NaN"):
        td.reconstruct(y, H, model=gray, sigma=0.1, lam=1.0, start=torch.full_like(y, torch.nan))


def test_the_mean_must_be_measured(gray):
    """In the wrong layout a mask misses the zero frequency, and the mean of the answer would be arbitrary."""
    sampled = torch.zeros(1, 24, dtype=torch.bool)
    sampled[:, 8:16] = True
    x = picture(size=24)
    centered = td.operators.Fourier(sampled.expand(24, 24), centered=True)
    assert td.reconstruct(centered.forward(x), centered, model=gray, noise=0.01).converged
    H = td.operators.Fourier(sampled.expand(24, 24))
    with pytest.raises(ValueError, match="do not depend on the mean of the image"):
        td.reconstruct(H.forward(x), H, model=gray, noise=0.01)


def test_where_nothing_was_sampled_there_is_nothing_to_reconstruct(gray):
    H = td.operators.Mask(torch.zeros(24, 24))
    with pytest.raises(ValueError, match="do not depend on the mean of the image"):
        td.reconstruct(picture(size=24) * 0, H, model=gray, noise=0.01)
