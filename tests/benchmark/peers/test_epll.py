"""EPLL against a direct computation with a small mixture."""

import math

import pytest
import torch
from conftest import dense, noisy, picture, random, relative
from torch.distributions import MultivariateNormal

from torchdeal.benchmark.peers import find_denoiser
from torchdeal.benchmark.peers.base import fitted_image
from torchdeal.benchmark.peers.check import main
from torchdeal.benchmark.peers.epll import (
    DENOISING_BETAS,
    EPLLDenoiser,
    EPLLSolver,
    PatchMixture,
    averaged,
    fit_mixture,
    unfolded,
)
from torchdeal.operators import Blur


def covariance(seed, size=64, scale=1.0):
    root = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return scale * (root @ root.T / size + 0.01 * torch.eye(size, dtype=torch.float64))


@pytest.fixture(scope="module")
def mixture():
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return PatchMixture(weights.log(), torch.stack([covariance(i, scale=0.02 * 4.0**-i) for i in range(3)]))


def directly(mixture, patches, variance):
    """One patch at a time, with inverses and determinants."""
    eye, results = torch.eye(64, dtype=torch.float64), []
    for patch in patches:
        mean = patch.mean()
        scores = [
            float(log_weight + MultivariateNormal(torch.zeros(64).double(), C + variance * eye).log_prob(patch - mean))
            for log_weight, C in zip(mixture.log_weights, mixture.covariances, strict=True)
        ]
        C = mixture.covariances[scores.index(max(scores))]
        results.append(C @ torch.linalg.inv(C + variance * eye) @ (patch - mean) + mean)
    return torch.stack(results), scores


def test_patches_are_those_of_the_likeliest_component(mixture):
    patches = torch.cat([scale * (random(20, 64, seed=7) - 0.4) for scale in (0.2, 0.5, 1.5)])
    expected, last = directly(mixture, patches, 0.003)
    found = mixture.log_likelihoods(patches - patches.mean(1, keepdim=True), 0.003)
    assert len(found.argmax(1).unique()) > 1
    assert found[-1].tolist() == pytest.approx(last)
    assert relative(mixture.most_likely(patches, 0.003), expected) < 1e-10


def test_pixels_are_means_of_their_patches():
    x = random(2, 1, 11, 10)
    assert torch.equal(unfolded(x)[0].view(8, 8), x[0, 0, :8, :8])
    assert torch.allclose(averaged(unfolded(x), x), x)
    patches = random(2 * 4 * 3, 64, seed=1)
    found = averaged(patches, x)
    assert found[0, 0, 0, 0] == patches[0, 0]  # the corner is in one patch only
    assert torch.isclose(found[1, 0, 0, 1], (patches[12, 1] + patches[13, 0]) / 2)


def test_denoising_is_the_splitting_of_the_paper(mixture):
    y, sigma = noisy(picture(size=10).double(), 25), 25.0
    variance, x = (sigma / 255) ** 2, y.flatten()
    pixels = unfolded(torch.arange(100.0).view(1, 1, 10, 10)).long()  # of each of the nine patches
    for beta in DENOISING_BETAS:
        z, _ = directly(mixture, x[pixels], variance / beta)
        means = torch.stack([z[pixels == pixel].mean() for pixel in range(100)])
        x = (y.flatten() / variance + beta / variance * means) / (1 / variance + beta / variance)
    assert relative(EPLLDenoiser(mixture)(y, sigma).flatten(), x) < 1e-9


def test_the_image_of_an_inverse_problem_fits_patches_and_data(mixture):
    H, x = Blur(random(3, 3) / 4), picture(size=10).double()
    y, fitted, weight = H.forward(x), random(1, 1, 10, 10, seed=3), 0.1
    matrix = dense(H.forward, (1, 10, 10))
    A = matrix.T @ matrix + weight * torch.eye(100, dtype=torch.float64)
    expected = torch.linalg.solve(A, matrix.T @ y.flatten() + weight * fitted.flatten())
    found = fitted_image(H, H.adjoint(y), fitted, weight, x)
    assert relative(found.flatten(), expected) < 1e-2
    assert torch.isfinite(EPLLSolver(mixture)(y, H, 0.01)).all()


def test_a_mixture_that_is_known_is_found_again():
    """Two components with other directions and scales, without a mean in any patch."""
    size, count = 4, 20000
    keep = torch.eye(size, dtype=torch.float64) - 1 / size
    true = [keep @ covariance(i, size, scale) @ keep for i, scale in ((0, 1.0), (1, 0.01))]
    generator = torch.Generator().manual_seed(0)
    parts = []
    for share, C in zip((0.7, 0.3), true, strict=True):
        values, vectors = torch.linalg.eigh(C)
        root = vectors * values.clamp_min(0).sqrt()
        parts.append(torch.randn(int(share * count), size, dtype=torch.float64, generator=generator) @ root.T)
    found = fit_mixture(torch.cat(parts) + 0.5, 2, iterations=60)
    order = found.covariances.diagonal(dim1=1, dim2=2).sum(1).argsort(descending=True)
    assert found.log_weights[order].exp().tolist() == pytest.approx([0.7, 0.3], abs=0.02)
    for index, C in zip(order, true, strict=True):
        assert relative(found.covariances[index], C) < 0.1


def test_fitting_leaves_a_file_that_denoises(folder, tmp_path):
    options = ["--components", "3", "--patches", "500", "--iterations", "2"]
    main(["--peers-dir", str(tmp_path), "--fit-epll", str(folder / "test" / "Set12"), *options])
    clean = picture(size=24)
    y = noisy(clean, 25)
    found = find_denoiser("epll").make(tmp_path, 1, "cpu")(y, 25.0)
    gain = 20 * math.log10(float((y - clean).norm() / (found - clean).norm()))
    assert found.dtype == y.dtype
    assert gain > 3
