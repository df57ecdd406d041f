"""Methods without learning, and plug-and-play, against what their formulas say."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import dense, noisy, picture, random, relative
from skimage.restoration import wiener

from torchdeal.benchmark.peers import Unavailable, find_denoiser, find_solver
from torchdeal.benchmark.peers.base import each_picture, first_image
from torchdeal.benchmark.peers.plug_and_play import PlugAndPlay
from torchdeal.benchmark.total_variation import total_variation
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, Downsample, Fourier, Radon
from torchdeal.simulate import filtered_back_projection

KERNEL = random(3, 5) / random(3, 5).sum()


def make(name):
    return find_solver(name).make(None, 1, "cpu")


def test_wiener_as_scikit_image():
    y = random(2, 1, 16, 20, seed=1)
    found = replace(make("wiener"), balance=0.1)(y, Blur(KERNEL), 0.0)
    for picture_, answer in zip(y[:, 0], found[:, 0], strict=True):
        expected = wiener(picture_.numpy(), KERNEL.numpy(), 0.1, clip=False)
        assert np.allclose(answer.numpy(), expected)


def test_richardson_lucy():
    """The recurrence with a matrix; and a circular blur keeps the sum of the image."""
    y, H = random(2, 1, 6, 7, seed=1), Blur(KERNEL)
    matrix, x = dense(H.forward, (1, 6, 7)), torch.full((2, 42), 0.5, dtype=torch.float64)
    for _ in range(7):
        x = x * ((y.flatten(1) / (x @ matrix.T)) @ matrix) / matrix.sum(0)
    found = replace(make("richardson-lucy"), iterations=7)(y, H, 0.0)
    assert torch.allclose(found.flatten(1), x)
    assert torch.allclose(found.sum((1, 2, 3)), y.sum((1, 2, 3)))


def test_zero_filling_and_back_projection():
    H, x = Fourier(random(8, 8) > 0.5), random(2, 1, 8, 8)
    y = H.forward(x)
    assert torch.equal(make("zero-filling")(y, H, 0.0), torch.fft.ifft2(y, norm="ortho").real)
    R = Radon(np.arange(0, 180, 12), (16, 14))
    sinograms = R.forward(random(2, 1, 16, 14))
    bins = torch.arange(sinograms.shape[-1], dtype=torch.float64)
    gaussian = torch.exp(-0.5 * ((bins[:, None] - bins) / 1.5) ** 2) / np.sqrt(2 * np.pi * 1.5**2)
    expected = torch.cat([filtered_back_projection(sinogram[None] @ gaussian, R) for sinogram in sinograms])
    assert relative(replace(make("fbp"), smoothing=1.5)(sinograms, R, 0.0), expected) < 1e-3


@pytest.mark.parametrize("name", ["wiener", "richardson-lucy", "zero-filling", "fbp"])
def test_operators_that_are_not_served(name):
    H = Downsample(2)
    with pytest.raises(Unavailable, match=r"is for .*, not for Downsample"):
        make(name)(H.forward(random(1, 1, 8, 8)), H, 0.1)


def test_wiener_is_for_circular_blur():
    with pytest.raises(Unavailable, match="circular"):
        make("wiener")(random(1, 1, 8, 8), Blur(KERNEL, "zero"), 0.1)


def test_total_variation_minimises_its_objective():
    H, clean, noise, strength = Blur(KERNEL), picture(size=16).double(), 10 / 255, 20.0
    y = noisy(H.forward(clean), 10)

    def objective(x):
        return float(0.5 * (H.forward(x) - y).square().sum()) + strength * noise**2 * float(total_variation(x))

    found = replace(make("tv"), strength=strength)(y, H, noise)
    nearby = [found + 0.01 * (random(*found.shape, seed=seed) - 0.5) for seed in range(3)]
    assert all(objective(found) < objective(other) for other in (*nearby, clean, y, H.adjoint(y)))


def halfway(x, sigma):
    return x - sigma / 255 * (x - 0.5).tanh()


def test_plug_and_play_does_what_its_recurrence_says():
    """Against the matrix of H: strength and noise say how much is left to the denoiser."""
    H, y, level, noise = Blur(KERNEL), random(2, 1, 6, 7, seed=1), 51.0, 0.1
    matrix = dense(H.forward, (1, 6, 7))
    weight = 2.0 * (noise / 0.2) ** 2
    A, b = matrix.T @ matrix + weight * torch.eye(42, dtype=torch.float64), y.flatten(1) @ matrix
    seen = b @ matrix.T
    v, u = b * b.square().sum(1, keepdim=True) / seen.square().sum(1, keepdim=True), torch.zeros_like(b)
    for _ in range(4):
        x = torch.linalg.solve(A, b + weight * (v - u), left=False)
        v = halfway(x + u, level)
        u = u + x - v
    found = PlugAndPlay(halfway, iterations=4, level=level, strength=2.0)(y, H, noise)
    assert relative(found.flatten(1), x) < 1e-3
    assert relative(v, x) > 5e-3  # not there yet: v would not do


def test_plug_and_play_where_it_converges():
    """The solution of `x = D(x - grad f(x) / weight)`."""
    H, y, level, noise = Blur(KERNEL), random(2, 1, 6, 7, seed=1), 51.0, 0.1
    x = PlugAndPlay(halfway, iterations=200, level=level, strength=2.0)(y, H, noise)
    slope = H.adjoint(H.forward(x) - y)
    assert relative(x, H.adjoint(y)) > 0.1
    assert relative(halfway(x - slope / 0.5, level), x) < 1e-3


@pytest.mark.parametrize(
    ("name", "module"), [("bm3d", "bm3d"), ("tv", "torch"), ("nlm", "skimage"), ("wavelets", "pywt")]
)
@pytest.mark.parametrize("colour", [False, True], ids=["gray", "colour"])
def test_denoisers_without_learning(name, module, colour):
    pytest.importorskip(module)
    clean = picture("astronaut" if colour else "camera", size=24)
    y = torch.cat([noisy(clean, 25, seed) for seed in (0, 1)])
    found = find_denoiser(name).make(None, clean.shape[1], "cpu")(y, 25.0)
    assert found.shape == y.shape
    assert found.dtype == y.dtype
    assert ((found - clean).flatten(1).norm(dim=1) < 0.8 * (y - clean).flatten(1).norm(dim=1)).all()


def test_bm3d_has_the_threads_of_torch():
    """With one its sums have one order, and the same bits."""
    bm3d = pytest.importorskip("bm3d")
    y, alone = noisy(picture(size=48), 25), bm3d.BM3DProfile()
    alone.num_threads = 1
    found = find_denoiser("bm3d").make(None, 1, "cpu")(y.double(), 25.0)
    assert torch.get_num_threads() == 1
    assert np.array_equal(found[0, 0].numpy(), bm3d.bm3d(y[0, 0].double().numpy(), 25 / 255, alone))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_a_batch(channels):
    images, seen = random(2, channels, 4, 5), []

    def doubled(pixels):
        seen.append(pixels.shape)
        return 2 * pixels

    assert torch.equal(each_picture(doubled, images), 2 * images)
    assert seen == [(4, 5) if channels == 1 else (4, 5, 3)] * 2


def test_plug_and_play_fills_in_what_a_narrow_kernel_leaves_out():
    """From `H^T y`, which is dark wherever nothing was measured, a denoiser that keeps its input would stay there."""
    clean = picture("camera", 32)
    H = Downsample(2)
    y = H.forward(clean)
    found = PlugAndPlay(lambda x, sigma: x, iterations=3, level=15.0, strength=1.0)(y, H, 0.01)
    assert psnr(found, clean) > psnr(H.adjoint(y), clean) + 10
    assert psnr(found, clean) > 20


def test_the_first_image_fits_the_measurements_best():
    """So the units of the operator do not matter, each sample has its own scale, and measured k-space is left alone."""
    y, H = random(2, 1, 6, 7, seed=1), Blur(KERNEL)
    y[1] *= 3
    backprojected = H.adjoint(y)
    found = first_image(y, H, backprojected)
    misfits = [(H.forward(factor * found) - y).square().flatten(1).sum(1) for factor in (0.99, 1.0, 1.01)]
    assert (misfits[1] < misfits[0]).all()
    assert (misfits[1] < misfits[2]).all()
    assert torch.allclose(first_image(100 * y, 100 * H, 1e4 * backprojected), found)
    assert torch.equal(first_image(0 * y, H, 0 * backprojected), torch.zeros_like(found))
    fourier = Fourier(torch.rand(6, 7, generator=torch.Generator().manual_seed(0)) < 0.5, real=False)
    kspace = fourier.forward(torch.complex(y, y.flip(3)))
    assert torch.allclose(first_image(kspace, fourier, fourier.adjoint(kspace)), fourier.adjoint(kspace))


@pytest.mark.parametrize("solver", [make("tv"), PlugAndPlay(halfway, iterations=5, level=51.0, strength=2.0)])
def test_units_of_an_operator_do_not_matter(solver):
    """Projections are sums over hundreds of pixels, and `H^T y` as it is would be far too bright."""
    H, clean = Radon(np.arange(20) * 9.0, 24), picture(size=24).double()
    y, noise = H.forward(clean), 0.1
    found = solver(y, H, noise)
    assert relative(solver(y / 50, (1 / 50) * H, noise / 50), found) < 1e-3
    assert psnr(found, clean) > psnr(first_image(y, H, H.adjoint(y)), clean) + 5
