"""The numbers behind the figures, against dense matrices, the reference, and closed forms."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torchdeal import reference
from torchdeal.benchmark.figures.filters import effective_kernels, spectrum
from torchdeal.benchmark.figures.path import solution_path
from torchdeal.benchmark.figures.responses import adapted_responses, mean_responses, telling_channels
from torchdeal.benchmark.figures.rows import inverse_rows, telling_pixels
from torchdeal.benchmark.figures.splines import SIGMAS, learned_splines
from torchdeal.benchmark.figures.starts import LAM, SIGMA, STD, from_starts, iterates, pose
from torchdeal.benchmark.figures.study import Study, batch_of, picture_of, shrunk
from torchdeal.metrics import psnr
from torchdeal.reconstruct import reconstruct


@pytest.fixture(scope="module")
def study():
    return Study(size=16, tolerance=1e-5, steps=8)


@pytest.fixture(scope="module")
def denoising(study):
    return study.denoising


@pytest.fixture(scope="module")
def inverse(denoising):
    """The dense `A(x)^-1` at the solution, by the reference's filters and masks."""
    weights, pixels = denoising.weights, denoising.x.numel()
    with torch.no_grad():
        units = torch.eye(pixels, dtype=torch.float64).view(pixels, 1, *denoising.x.shape[2:])
        masks = reference._mask(weights, denoising.x, denoising.level)
        masked = (masks * reference._filters(weights, units)).flatten(1)
        A = torch.eye(pixels, dtype=torch.float64) + float(weights.lam(denoising.level)) * masked @ masked.T
    return torch.linalg.inv(A).numpy()


def test_rows_are_those_of_the_dense_inverse(denoising, inverse):
    pixels = [(0, 0), (7, 9), (15, 3)]
    for mean, (row, column) in zip(inverse_rows(denoising, pixels), pixels, strict=True):
        expected = inverse[16 * row + column].reshape(16, 16)
        assert np.abs(mean.weights - expected).max() < 1e-6 * np.abs(expected).max()
        assert mean.averaged == pytest.approx(1 / (expected**2).sum(), rel=1e-5)


def test_a_pixel_of_the_result_is_its_row_times_the_noisy_picture(denoising):
    noisy, result = picture_of(denoising.noisy), picture_of(denoising.x)
    for mean in inverse_rows(denoising, [(2, 3), (8, 8), (12, 15)]):
        assert (mean.weights * noisy).sum() == pytest.approx(result[mean.pixel], abs=1e-4)
        assert mean.weights.sum() == pytest.approx(1, abs=1e-6)  # W maps constants to 0


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


def circular_response(bank, size):
    """`W^T W e_0` on a torus, layer by layer."""
    x = torch.zeros(1, 1, size, size, dtype=torch.float64, requires_grad=True)
    impulse = torch.zeros(1, 1, size, size, dtype=torch.float64)
    impulse[..., 0, 0] = 1

    def apply(z):
        for kernel in bank:
            z = F.conv2d(F.pad(z, (4, 4, 4, 4), mode="circular"), kernel)
        return z

    with torch.no_grad():
        response = apply(impulse)
    (adjoint,) = torch.autograd.grad(apply(x), x, response)
    return adjoint[0, 0].numpy()


def test_the_spectrum_is_that_of_the_dense_matrix(study):
    size = 26
    response = circular_response(study.weights.filters, size)
    shifts = [np.roll(response, shift, (0, 1)).ravel() for shift in np.ndindex(size, size)]
    dense = np.linalg.eigvalsh(np.stack(shifts))
    found = spectrum(study.weights.filters, size).eigenvalues
    assert np.allclose(np.sort(found.ravel()), dense, atol=1e-10)
    assert abs(found[size // 2, size // 2]) < 1e-12  # frequency 0 is in the middle,
    assert np.sort(found.ravel())[1] > 1e-3  # and the only zero
    assert found.max() == pytest.approx(1, abs=1e-2)


def test_the_impulse_response_is_that_of_the_layers(study):
    size = 64
    expected = np.fft.fftshift(circular_response(study.weights.filters, size))
    impulse = spectrum(study.weights.filters, size).impulse
    assert impulse.shape == (49, 49)
    assert np.allclose(impulse, expected[8:57, 8:57], atol=1e-12)


@pytest.mark.parametrize("name", ["filters", "mask_filters"])
def test_kernels_do_what_the_layers_do(study, name):
    bank = getattr(study.weights, name)
    kernels = effective_kernels(bank)
    patch = torch.from_numpy(np.random.default_rng(0).random((1, 1, 25, 25)))
    z = patch
    with torch.no_grad():
        for kernel in bank:
            z = F.conv2d(z, kernel)
    expected = (kernels.values * patch[0, 0].numpy()).sum((1, 2))
    assert np.allclose(z[0, kernels.channels.tolist(), 0, 0].numpy(), expected, atol=1e-12)
    energy = (kernels.values**2).sum((1, 2))
    assert (np.diff(energy) <= 0).all()
    assert sorted(kernels.channels) == list(range(128))


def test_splines_are_those_of_the_model(study):
    weights, splines = study.weights, learned_splines(study.weights, points=101)
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
    assert set(splines.phi_sigma) == set(SIGMAS) == {5, 15, 25}
    for sigma, values in splines.phi_sigma.items():
        for row, channel in zip(values, splines.channels, strict=True):
            alpha = np.exp(np.interp(sigma, np.linspace(-1, 51, 14), log_scaling[channel])) / (sigma + 1e-5)
            scaled = np.abs(alpha * splines.input)
            assert np.allclose(row[scaled < 3], np.interp(scaled, knots, phi3).clip(0.01, 1)[scaled < 3])
        assert (values[:, -1] == 0.01).all()  # the whole fall is in the figure


def test_the_path_ends_where_the_reconstruction_does(study, denoising):
    path = solution_path(denoising, study.tolerance)
    alone = reconstruct(denoising.noisy, model=study.gray, sigma=25 / 255, tolerance=study.tolerance)
    assert path.psnr[-1] == psnr(alone.x, denoising.clean)
    assert len(path.psnr) == int(alone.iterations) + 1
    assert path.distance[0] == 1  # from zero
    assert path.distance[-1] <= study.tolerance
    before, last = denoising.run.path[-2:]
    assert path.change[-1] == float((last - before).norm() / before.norm())
    with torch.no_grad():
        mask = reference._mask(denoising.weights, denoising.run.path[path.shown[-1]], denoising.level)
    assert np.allclose(path.mean_masks[-1], mask[0].mean(0).numpy(), atol=1e-10)


def test_responses_and_masks_are_those_of_the_reference(denoising):
    channels = telling_channels(denoising)
    with torch.no_grad():
        response = reference._filters(denoising.weights, denoising.x)[0].numpy()
        mask = reference._mask(denoising.weights, denoising.x, denoising.level)[0].numpy()
        noisy = reference._filters(denoising.weights, denoising.noisy)[0].numpy()
    for found, channel in zip(adapted_responses(denoising, channels), channels, strict=True):
        assert np.allclose(found.response, response[channel] ** 2)
        assert np.allclose(found.mask, mask[channel])
        assert np.allclose(found.adapted, response[channel] ** 2 * mask[channel] ** 2)
    means = mean_responses(denoising)
    assert np.allclose(means["Noisy"].response, (noisy**2).mean(0))
    assert np.allclose(means["Solution"].adapted, (response**2 * mask**2).mean(0))


def test_the_first_channel_is_the_one_that_the_mask_spares_most(denoising):
    first, second = telling_channels(denoising)
    response, mask = denoising.responses(denoising.x)[0], denoising.masks(denoising.x)[0]
    assert int((response**2 * (1 - mask**2)).sum((1, 2)).argmax()) == first
    a, b = ((response[channel] ** 2).flatten().numpy() for channel in (first, second))
    assert np.corrcoef(a, b)[0, 1] < 0.5


def test_a_step_from_a_start_is_that_of_the_reference(study):
    problem, model = pose(study), study.model("color")
    start = torch.from_numpy(np.random.default_rng(0).random(problem.clean.shape))
    expected = reference.reference_reconstruct(
        problem.measured,
        model,
        sigma=SIGMA,
        lam=LAM,
        forward=problem.operator.forward,
        adjoint=problem.operator.adjoint,
        inner_tolerance=1e-10,
        max_outer=1,
        start=start,
    ).x
    _, found = iterates(problem, model, start, 1)
    assert float((found - expected).norm() / (expected - start).norm()) < 5e-3


def test_all_starts_come_to_the_same_picture():
    study = Study(size=16, tolerance=1e-3, steps=3)
    runs, target = from_starts(pose(study), study)
    assert list(runs) == ["zero", "uniform", "normal", "adjoint", "truth"]
    assert runs["truth"].psnr[0] == np.inf
    assert runs["zero"].distance[0] == 1
    for run in runs.values():
        assert len(run.distance) == study.steps + 1
        assert run.distance[-1] < 0.1 < run.distance[0]
        assert all(after < before for before, after in itertools.pairwise(run.distance))
    assert runs["zero"].psnr[0] == psnr(torch.zeros_like(target), pose(study).clean)


def test_the_problem_of_the_starts_is_that_of_the_paper(study):
    problem = pose(study)
    impulse = torch.zeros_like(problem.clean)
    impulse[..., 8, 8] = 1
    offsets = np.arange(16) - 8
    profile = np.exp(-(offsets**2) / (2 * STD**2))
    expected = np.outer(profile, profile)[::2, ::2] / profile.sum() ** 2
    assert np.allclose(problem.operator.forward(impulse)[0, 0].numpy(), expected, atol=1e-5)
    noise = (problem.measured - problem.operator.forward(problem.clean)) * 255
    assert float(noise.std()) == pytest.approx(2.55, rel=0.2)


def test_a_larger_picture_is_averaged_and_a_smaller_one_mirrored():
    picture = np.arange(36.0).reshape(6, 6)
    assert np.array_equal(shrunk(picture, 3), [[3.5, 5.5, 7.5], [15.5, 17.5, 19.5], [27.5, 29.5, 31.5]])
    assert shrunk(picture, 8).shape == (8, 8)
    colour = np.random.default_rng(0).random((7, 9, 3))
    assert np.array_equal(picture_of(batch_of(colour, "cpu")), colour)
