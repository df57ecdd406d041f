"""What an explanation says, against dense matrices, the reference, and closed forms."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import dense, noisy, picture, random, small_model

import torchdeal as td
from torchdeal import reference
from torchdeal.explain import effective_kernels, learned_splines, telling_pixels
from torchdeal.operators import Blur, Fourier, Mask
from torchdeal.solvers import Solution

SIZE = 16


def denoised(model, image, sigma=25, **options):
    options = {"sigma": sigma / 255, "tolerance": 1e-6, "max_iterations": 200} | options
    return td.reconstruct(noisy(image, 25), model=model, **options)


@pytest.fixture(scope="module")
def gray_result(gray_double):
    return denoised(gray_double, picture(size=SIZE).double(), tolerance=1e-5)


@pytest.fixture(scope="module")
def masks_and_responses(gray_result):
    equation = gray_result.equation
    with torch.no_grad():
        mask = reference._mask(equation.weights, gray_result.image, equation.sigma)
        return mask, reference._filters(equation.weights, gray_result.image)


def inverse(rec):
    """The dense `A(x)^-1` at the solution, by the reference's filters and masks, for gray pictures."""
    equation = rec.equation
    units = torch.eye(rec.image.numel(), dtype=torch.float64).view(-1, *rec.image.shape[1:])
    with torch.no_grad():
        masks = reference._mask(equation.weights, rec.image, equation.sigma)
        masked = (masks * reference._filters(equation.weights, units)).flatten(1)
        H = dense(equation.operator.forward, rec.image.shape[1:])
        return torch.linalg.inv(H.T @ H + float(equation.lam) * masked @ masked.T), H


OPERATORS = {
    "identity": None,
    "blur": Blur(torch.tensor([[0.0, 0.2, 0], [0.2, 0.2, 0.2], [0, 0.2, 0]])),
    "smaller": Blur(torch.ones(3, 3) / 9, "valid"),
    "holes": Mask(random(SIZE, SIZE, seed=3) < 0.6),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_are_those_of_the_dense_inverse(gray_double, name):
    H = OPERATORS[name]
    y = picture(size=SIZE).double() if H is None else H.to(dtype=torch.float64).forward(picture(size=SIZE).double())
    rec = td.reconstruct(y, H, model=gray_double, sigma=15 / 255, lam=2.0, tolerance=1e-5, max_iterations=4)
    A_inverse, dense_H = inverse(rec)
    pixels = [(0, 0), (7, 9), (15, 3)]
    for mean, (row, column) in zip(td.explain(rec).rows(pixels), pixels, strict=True):
        expected = A_inverse[SIZE * row + column]
        assert mean.pixel == (row, column)
        assert float((mean.inverse.flatten() - expected).norm() / expected.norm()) < 1e-5
        weights = dense_H @ expected
        assert mean.weights.shape == rec.equation.y.shape
        assert float((mean.weights.flatten() - weights).norm() / weights.norm()) < 1e-5
        assert float(mean.averaged) == pytest.approx(1 / float(weights.square().sum()), rel=1e-4)
        assert float(mean.residual) <= 1e-8


def test_a_pixel_of_the_result_is_its_row_times_the_data(gray_result):
    for mean in td.explain(gray_result).rows([(2, 3), (8, 8), (12, 15)]):
        row, column = mean.pixel
        assert float((mean.weights * gray_result.equation.y).sum()) == float(mean.value)
        assert float(mean.value) == pytest.approx(float(gray_result.x[0, 0, row, column]), abs=1e-4)
        assert float(mean.weights.sum()) == pytest.approx(1, abs=1e-6)  # W maps constants to 0


def test_without_convergence_the_row_is_that_of_the_next_step(gray_double):
    """`x_{k+1}` is what the rows at `x_k` make of the data."""
    image = noisy(picture(size=SIZE).double(), 25)
    rec = td.reconstruct(image, model=gray_double, sigma=25 / 255, max_iterations=1)
    A_inverse, _ = inverse(rec)
    step = (A_inverse @ rec.equation.b.flatten()).view(SIZE, SIZE)
    value = float(td.explain(rec).row(5, 6).value)
    assert value == pytest.approx(float(step[5, 6]), abs=1e-6)
    assert abs(value - float(rec.x[0, 0, 5, 6])) > 1e-4


def test_each_sample_of_a_batch_has_its_own_row():
    model, clean = small_model(), random(2, 1, SIZE, SIZE)
    levels = [10 / 255, 30 / 255]
    H = Mask(random(2, 1, SIZE, SIZE, seed=1) < 0.7)
    options = {"model": model, "lam": [1.0, 4.0], "tolerance": 1e-7, "max_iterations": 300}
    together = td.explain(td.reconstruct(H.forward(clean), H, sigma=levels, **options)).row(3, 12)
    for index in range(2):
        alone_H = Mask(H.mask[index])
        options["lam"] = [1.0, 4.0][index]
        rec = td.reconstruct(alone_H.forward(clean[index : index + 1]), alone_H, sigma=levels[index], **options)
        alone = td.explain(rec).row(3, 12)
        assert torch.allclose(together.weights[index], alone.weights[0], atol=1e-6)
        assert float(together.averaged[index]) == pytest.approx(float(alone.averaged), rel=1e-4)


@pytest.mark.parametrize("channelwise", [False, True])
def test_in_colour_the_mean_of_the_channels_or_one_of_them_is_explained(channelwise):
    model = small_model(1 if channelwise else 3)
    rec = denoised(model, random(1, 3, SIZE, SIZE), channelwise=channelwise)
    explanation = td.explain(rec)
    each = [explanation.row(4, 9, channel) for channel in range(3)]
    values = rec.image[0, :, 4, 9]
    for mean, value in zip(each, values, strict=True):
        assert float(mean.value) == pytest.approx(float(value), abs=1e-4)
        assert float(mean.weights.sum()) == pytest.approx(1, abs=1e-6)
    mean = explanation.row(4, 9)
    assert float(mean.value) == pytest.approx(float(values.mean()), abs=1e-4)
    assert torch.allclose(mean.weights, sum(row.weights for row in each) / 3, atol=1e-7)
    assert explanation.masks().shape == (3 if channelwise else 1, 6, SIZE, SIZE)
    assert explanation.mean_mask.shape == (3 if channelwise else 1, SIZE, SIZE)
    assert explanation.filters.values.shape == (6, 1 if channelwise else 3, 25, 25)


def test_equal_pixels_in_colour_count_as_in_gray():
    """Noise that is averaged over n pixels has an n-th of the variance, however many channels a pixel has."""
    model = small_model(1)
    gray = td.explain(denoised(model, torch.full((1, 1, SIZE, SIZE), 0.5, dtype=torch.float64))).row(8, 8)
    clean = torch.full((1, 3, SIZE, SIZE), 0.5, dtype=torch.float64)
    same = noisy(clean[:, :1], 25).expand(-1, 3, -1, -1)
    rec = td.reconstruct(same, model=model, sigma=25 / 255, channelwise=True, tolerance=1e-6)
    assert float(td.explain(rec).row(8, 8).averaged) == pytest.approx(float(gray.averaged), rel=1e-3)


def test_of_a_complex_pixel_the_magnitude_is_explained():
    mask = random(SIZE, SIZE, seed=5) < 0.7
    mask[0, 0] = True
    image = torch.complex(random(1, 1, SIZE, SIZE), random(1, 1, SIZE, SIZE, seed=1))
    H = Fourier(mask, real=False)
    options = {"model": small_model(), "sigma": 20 / 255, "lam": 0.5, "tolerance": 1e-7, "max_iterations": 300}
    rec = td.reconstruct(H.forward(image), H, **options)
    explanation = td.explain(rec)
    mean = explanation.row(6, 7)
    assert mean.weights.is_complex()
    assert float((mean.weights.conj() * rec.equation.y).real.sum()) == pytest.approx(float(mean.value))
    assert float(mean.value) == pytest.approx(float(rec.image[0, 0, 6, 7].abs()), abs=1e-4)
    assert explanation.masks().shape == (2, 6, SIZE, SIZE)  # of the real and of the imaginary part


def test_a_noise_map_has_masks_and_rows_of_its_own():
    levels = torch.full((SIZE, SIZE), 5 / 255, dtype=torch.float64)
    levels[:, 8:] = 40 / 255
    rec = denoised(small_model(), random(1, 1, SIZE, SIZE), sigma=255 * levels)
    explanation = td.explain(rec)
    for mean in explanation.rows([(8, 2), (8, 13)]):
        row, column = mean.pixel
        assert float(mean.value) == pytest.approx(float(rec.image[0, 0, row, column]), abs=1e-4)
        of_noisy_pixels = rec.equation.operator.mask * mean.weights  # the equation has them weighted
        assert float(of_noisy_pixels.sum()) == pytest.approx(1, abs=1e-6)
    assert list(explanation.splines.phi_sigma) == pytest.approx([5, 40])


def test_single_precision_comes_close_to_double(gray, gray_double):
    image = noisy(picture(size=24), 25)
    rows = [
        td.explain(td.reconstruct(image.to(dtype), model=model, sigma=25 / 255, tolerance=1e-4)).row(9, 14)
        for model, dtype in ((gray, torch.float32), (gray_double, torch.float64))
    ]
    assert float((rows[0].weights - rows[1].weights).norm() / rows[1].weights.norm()) < 1e-2
    assert float(rows[0].residual) <= 1e-5


def test_masks_and_responses_are_those_of_the_reference(gray_result, masks_and_responses):
    mask, response = masks_and_responses
    explanation = td.explain(gray_result)
    assert torch.allclose(explanation.masks(), mask, atol=1e-10)
    assert torch.allclose(explanation.responses(), response, atol=1e-10)
    assert torch.allclose(explanation.adapted(), mask * response, atol=1e-10)
    assert torch.allclose(explanation.mean_mask, mask.mean(1), atol=1e-10)
    for found, expected in zip(explanation.means, (response**2, mask, (mask * response) ** 2), strict=True):
        assert torch.allclose(found, expected.mean(1), atol=1e-10)


@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("mapped", [False, True])
def test_means_by_bands_are_those_of_the_whole(monkeypatch, boundary, mapped):
    sigma = 255 * (random(70, 20) * 30 + 5) / 255 if mapped else 20
    rec = denoised(small_model(boundary=boundary), random(1, 1, 70, 20), sigma, max_iterations=2)
    whole = td.explain(rec)
    masks, responses = whole.masks(), whole.responses()
    monkeypatch.setattr(sys.modules["torchdeal.explain"], "BAND", 24)  # the name of the module is the function
    banded = td.explain(rec).means
    for found, expected in zip(banded, (responses**2, masks, (masks * responses) ** 2), strict=True):
        assert torch.allclose(found, expected.mean(1), atol=1e-12)


def test_another_image_has_other_masks(gray_result):
    explanation = td.explain(gray_result)
    at_data = explanation.at(gray_result.equation.y)
    expected = reference._mask(at_data.equation.weights, gray_result.equation.y, at_data.equation.sigma)
    assert torch.allclose(at_data.masks(), expected, atol=1e-10)
    assert not torch.allclose(at_data.masks(), explanation.masks(), atol=0.01)
    with pytest.raises(ValueError, match=r"the shape \(1, 1, 16, 16\), not \(1, 1, 8, 8\)"):
        explanation.at(torch.zeros(1, 1, 8, 8))


def test_what_is_returned_has_no_gradient(gray_result):
    explanation = td.explain(gray_result)
    for tensor in (explanation.masks(), explanation.mean_mask, explanation.row(1, 1).weights):
        assert not tensor.requires_grad


@pytest.mark.parametrize("pixel", [(-1, 0), (0, -1), (SIZE, 0), (0, SIZE)])
def test_a_pixel_outside_is_refused_with_the_limits(gray_result, pixel):
    with pytest.raises(ValueError, match=r"outside of the image: rows go from 0 to 15, columns from 0 to 15"):
        td.explain(gray_result).row(*pixel)


def test_other_mistakes_are_refused(gray_result):
    explanation = td.explain(gray_result)
    with pytest.raises(TypeError):
        explanation.row(0.5, 3)
    with pytest.raises(ValueError, match="no channel 1: channels go from 0 to 0"):
        explanation.row(3, 3, channel=1)
    assert explanation.row(np.int64(3), 3).pixel == (3, 3)


def test_a_result_that_solves_nothing_cannot_be_explained():
    left = td.Reconstruction(**vars(Solution.at_once(torch.zeros(1, 1, 8, 8))))
    with pytest.raises(ValueError, match="was not reconstructed"):
        td.explain(left)


def test_an_explanation_is_frozen(gray_result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        td.explain(gray_result).image = None


def test_pixels_are_found_on_an_edge_in_texture_and_in_a_flat_place():
    picture = np.full((64, 64), 0.5)
    picture[:, :20] = 0.2  # an edge at column 20
    picture[36:52, 36:52] = 0.5 + 0.2 * np.random.default_rng(0).standard_normal((16, 16))
    places = telling_pixels(picture)
    assert abs(places["Edge"][1] - 20) <= 3
    assert 33 <= places["Texture"][0] < 55
    assert 33 <= places["Texture"][1] < 55
    assert places["Flat"] not in (places["Edge"], places["Texture"])
    row, column = places["Flat"]
    assert np.ptp(picture[row - 3 : row + 4, column - 3 : column + 4]) == 0


def test_a_picture_of_one_colour_has_a_flat_place_alone_and_small_ones_have_some():
    assert list(telling_pixels(np.ones((40, 40)))) == ["Flat"]
    for shape in ((2, 2), (3, 50), (9, 9)):
        places = telling_pixels(np.random.default_rng(0).random(shape))
        assert all(0 <= row < shape[0] and 0 <= column < shape[1] for row, column in places.values())
    with pytest.raises(ValueError, match="too small to look for an edge"):
        telling_pixels(np.ones((1, 40)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["filters", "mask_filters"])
def test_kernels_do_what_the_layers_do(gray_double, name, channels):
    weights = (gray_double if channels == 1 else small_model(3)).weights()
    kernels = effective_kernels(getattr(weights, name))
    patch = torch.from_numpy(np.random.default_rng(0).random((1, channels, 25, 25)))
    z = patch
    with torch.no_grad():
        for kernel in getattr(weights, name):
            z = F.conv2d(z, kernel)
    expected = (kernels.values * patch[0].numpy()).sum((1, 2, 3))
    assert np.allclose(z[0, kernels.channels.tolist(), 0, 0].numpy(), expected, atol=1e-12)
    energy = (kernels.values**2).sum((1, 2, 3))
    assert (np.diff(energy) <= 0).all()
    assert sorted(kernels.channels) == list(range(len(kernels.values)))


def test_splines_are_those_of_the_model(gray_double):
    weights = gray_double.weights()
    splines = learned_splines(weights, (5, 15, 25), points=101)
    knots = np.linspace(0, 3, 31)
    inside = splines.x <= 3
    for values, coefficients in ((splines.phi1, weights.phi[0]), (splines.phi2, weights.phi[1])):
        expected = np.interp(splines.x, knots, coefficients.detach().numpy())
        assert np.allclose(values[inside], expected[inside])
        beyond = np.diff(values[~inside]) / np.diff(splines.x[~inside])
        assert np.allclose(beyond, float(coefficients[-1] - coefficients[-2]) * 10)  # linearly extended
    kappa = np.interp(splines.sigma, np.arange(-1, 52), weights.kappa.detach().numpy())
    assert np.allclose(splines.kappa, kappa.clip(1e-3))
    log_scaling, phi3 = weights.log_scaling.detach().numpy(), weights.phi[2].detach().numpy()
    assert set(splines.phi_sigma) == {5, 15, 25}
    for sigma, values in splines.phi_sigma.items():
        for row, channel in zip(values, splines.channels, strict=True):
            alpha = np.exp(np.interp(sigma, np.linspace(-1, 51, 14), log_scaling[channel])) / (sigma + 1e-5)
            scaled = np.abs(alpha * splines.input)
            assert np.allclose(row[scaled < 3], np.interp(scaled, knots, phi3).clip(0.01, 1)[scaled < 3])
        assert (values[:, -1] == 0.01).all()  # the whole fall is in the figure


@pytest.mark.parametrize("ask", [td.explain, td.uncertainty, lambda image: td.sample(image, 1)])
def test_an_image_is_no_result(ask):
    with pytest.raises(TypeError, match=r"give what td\.reconstruct returned, not an object of type Tensor"):
        ask(torch.zeros(1, 1, 8, 8))
