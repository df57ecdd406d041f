"""The numbers behind the figures, against dense matrices, the reference, and closed forms."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from torchdeal import reference
from torchdeal.benchmark.figures.filters import spectrum
from torchdeal.benchmark.figures.path import solution_path
from torchdeal.benchmark.figures.responses import adapted_responses, mean_responses, telling_channels
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
    channels = telling_channels(denoising.explanation)
    with torch.no_grad():
        response = reference._filters(denoising.weights, denoising.x)[0].numpy()
        mask = reference._mask(denoising.weights, denoising.x, denoising.level)[0].numpy()
        noisy = reference._filters(denoising.weights, denoising.noisy)[0].numpy()
    for found, channel in zip(adapted_responses(denoising.explanation, channels), channels, strict=True):
        expected = response[channel] ** 2, mask[channel], response[channel] ** 2 * mask[channel] ** 2
        assert all(np.allclose(*pair) for pair in zip(found, expected, strict=True))
    means = mean_responses(denoising)
    assert np.allclose(means["Noisy"][0], (noisy**2).mean(0))
    assert np.allclose(means["Solution"][2], (response**2 * mask**2).mean(0))


def test_the_first_channel_is_the_one_that_the_mask_spares_most(denoising):
    first, second = telling_channels(denoising.explanation)
    response, mask = denoising.explanation.responses()[0], denoising.explanation.masks()[0]
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
