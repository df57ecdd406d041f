"""Noise that is not white and Gaussian."""

import numpy as np
import pytest
import torch
from conftest import dense, noisy, picture, random, relative, small_model

import torchdeal as td
from torchdeal.fidelity import whitened
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, MultiCoilFourier, Radon, Weighted
from torchdeal.operators.blur_kernels import gaussian_kernel

MODEL = small_model(features=4)
BLUR = Blur(random(3, 3) / 4.5)
KNOBS = {"sigma": 0.08, "lam": 0.5, "model": MODEL}


def map_like(y, seed=1):
    return 0.02 + 0.1 * random(*y.shape, seed=seed)


# Weighted least squares


@pytest.mark.parametrize(
    ("H", "complex_image"),
    [
        (BLUR, False),
        (Mask(random(10, 12) > 0.3), False),
        (Downsample(2, random(3, 3) / 4.5), False),
        (Radon(np.linspace(0, 180, 9, endpoint=False), (10, 12)), False),
        (Fourier(random(10, 12) > 0.4), False),
        (Fourier(random(10, 12) > 0.3, real=False), True),
        (MultiCoilFourier(torch.complex(random(3, 10, 12), random(3, 10, 12, seed=2)), random(10, 12) > 0.4), False),
    ],
    ids=["blur", "mask", "downsample", "radon", "fourier", "complex image", "coils"],
)
@torch.no_grad()
def test_weights_are_those_of_a_dense_solve(H, complex_image):
    """At the fixed point, with the masks of the answer: `(H^T D H + lam W^T M^2 W) x = H^T D y`, D of unit mean."""
    dtype = torch.complex128 if complex_image else torch.float64
    x = random(1, 1, 10, 12).to(dtype) * (1 + 1j if complex_image else 1)
    H = H.to(dtype=torch.float64)
    y = H.forward(x)
    y = y + 0.01 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    deviations = map_like(y)
    rec = td.reconstruct(y, H, noise=deviations, tolerance=1e-9, data_range=1.0, **KNOBS)
    equation, image = rec.posed()
    precision = deviations.reciprocal().square().flatten()
    made = (H.mask != 0).flatten() if isinstance(H, Mask) else torch.ones_like(precision, dtype=torch.bool)
    precision = precision / precision[made].mean()
    matrix = dense(H.forward, (1, 10, 12), dtype).to(y.dtype)
    misfit = matrix.mH @ (precision * (matrix @ image.flatten().to(y.dtype) - y.flatten()))
    misfit = misfit if complex_image else misfit.real
    penalty = equation.system().precise(image).apply(image) - equation.operator.normal(image)
    assert float((misfit + penalty.flatten()).norm() / misfit.norm()) < 1e-6


@pytest.mark.parametrize("H", [BLUR, Fourier(random(16, 16) > 0.4), Mask(random(16, 16) > 0.3)])
def test_a_map_that_is_the_same_everywhere_is_one_number(H):
    H = H.to(dtype=torch.float64)
    y = H.forward(random(2, 1, 16, 16))
    options = {"model": MODEL, "max_iterations": 4, "data_range": 1.0}
    levels = torch.tensor([0.05, 0.11], dtype=torch.float64)
    by_number = td.reconstruct(y, H, noise=levels, **options)
    by_map = td.reconstruct(y, H, noise=levels.view(2, 1, 1, 1).expand_as(y.real), **options)
    assert torch.equal(by_map.x, by_number.x)
    assert torch.equal(by_map.lam, by_number.lam)


def test_only_the_ratios_of_a_map_matter_to_given_knobs():
    y = BLUR.forward(random(1, 1, 16, 16))
    levels = map_like(y)
    one, other = (td.reconstruct(y, BLUR, noise=k * levels, max_iterations=4, **KNOBS).x for k in (1, 1e-30))
    assert relative(one, other) < 1e-9


def test_what_has_infinite_noise_is_ignored():
    x, ignored = random(1, 1, 16, 16), random(1, 1, 16, 16, seed=3) > 0.7
    y = BLUR.forward(x)
    levels = torch.where(ignored, torch.inf, 0.03)
    wrong = torch.where(ignored, 0.9, y)
    options = {"model": MODEL, "max_iterations": 5}
    one, other = (td.reconstruct(measured, BLUR, noise=levels, **options).x for measured in (y, wrong))
    assert torch.equal(one, other)
    holes = td.reconstruct(y * ~ignored, Mask(~ignored[0]) @ BLUR, noise=0.03, **options).x
    assert relative(one, holes) < 1e-2  # they end at the same distance, with other preconditioners


def test_denoising_ignores_too():
    y = random(1, 1, 16, 16)
    levels = torch.full((16, 16), 0.05)
    levels[3, 4] = torch.inf
    holes = torch.isfinite(levels)
    options = {"model": MODEL, "max_iterations": 5}
    expected = td.reconstruct(y * holes, Mask(holes), noise=0.05, **options).x
    assert relative(td.reconstruct(y, noise=levels, **options).x, expected) < 1e-6


def test_maps_have_the_layouts_of_images(color):
    y = noisy(picture("astronaut", size=16), 10).repeat(2, 1, 1, 1)
    blur = Blur(gaussian_kernel(0.8))
    levels = 0.02 + 0.1 * random(16, 16, 3).float()
    options = {"model": color, "max_iterations": 2}
    in_numpy = td.reconstruct(y[0].permute(1, 2, 0).numpy(), blur, noise=levels.numpy(), **options).x
    in_torch = td.reconstruct(y, blur, noise=levels.permute(2, 0, 1), **options).x
    np.testing.assert_allclose(in_numpy, in_torch[1].permute(1, 2, 0).numpy(), atol=1e-5)
    gray = td.reconstruct(y[:1], blur, noise=levels[..., 0], model=MODEL, channelwise=True, max_iterations=2).x
    alone = td.reconstruct(y[:1, 1:2], blur, noise=levels[..., 0], model=MODEL, max_iterations=2).x
    assert relative(gray[:, 1:2], alone) < 1e-2


def test_each_sample_has_its_own_map():
    y = BLUR.forward(random(2, 1, 16, 16))
    levels = map_like(y)
    together = td.reconstruct(y, BLUR, noise=levels, max_iterations=3, **KNOBS).x
    for i in range(2):
        alone = td.reconstruct(y[i : i + 1], BLUR, noise=levels[i : i + 1], max_iterations=3, **KNOBS).x
        assert relative(together[i : i + 1], alone) < 1e-6


def test_weights_keep_the_preconditioner():
    y = BLUR.forward(random(1, 1, 32, 32))
    levels = map_like(y)
    options = {"max_iterations": 30, "tolerance": 1e-4, **KNOBS, "lam": 0.02}
    ours = td.reconstruct(y, BLUR, noise=levels, **options)
    plain = td.reconstruct(y, Blur(BLUR.kernel, "zero"), noise=levels, **options)  # of which no symbol is known
    assert int(ours.cg_iterations) < 0.7 * int(plain.cg_iterations)


MAP = torch.full((16, 16), 0.1)


@pytest.mark.parametrize(
    ("noise", "error", "message"),
    [
        (MAP[:, :15], ValueError, r"has shape \(16, 15\), but the measurements, as a batch, have \(1, 1, 16, 16\)"),
        (torch.full((3, 16, 16), 0.1), ValueError, "give a level for each of them"),
        (-MAP, ValueError, "must be above 0 everywhere"),
        (0 * MAP, ValueError, "must be above 0 everywhere"),
        (MAP * torch.nan, ValueError, "must be above 0 everywhere"),
        (MAP * torch.inf, ValueError, "infinite everywhere"),
        (MAP.to(torch.complex64), TypeError, "must be real"),
        (np.full((16, 16), "a"), TypeError, "array of real numbers"),
        (td.Poisson(0.0), ValueError, "gain must be finite and above 0"),
        (td.Poisson(0.1, read=-1.0), ValueError, "read must be finite and at least 0"),
        (td.Poisson("much"), TypeError, "gain must be a number"),  # pyright: ignore
        (td.Impulse(0.0), ValueError, "sigma must be finite and above 0"),
        (td.Impulse([0.1, 0.2]), ValueError, "has 2 values for a batch of 1"),
    ],
)
def test_noise_that_cannot_be(noise, error, message):
    with pytest.raises(error, match=message):
        td.reconstruct(torch.rand(1, 1, 16, 16), BLUR, noise=noise, model=MODEL)


def test_counts_are_real():
    with pytest.raises(ValueError, match="counts are real"):
        td.reconstruct(torch.rand(1, 1, 16, 16) + 0j, Fourier(), noise=td.Poisson(0.1), model=MODEL)


# Poisson


def counted(clean, gain, read=0.0, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.poisson((clean / gain).double().numpy()) * gain + read * rng.normal(size=clean.shape)
    return torch.from_numpy(counts).to(clean)


@pytest.mark.parametrize("H", [Identity(), Blur(gaussian_kernel(1.0))], ids=["denoising", "blur"])
def test_counts_are_better_known_as_such(gray, H):
    clean = picture(size=40, row=40, column=180)
    y = counted(H.forward(clean), gain=1 / 10)
    options = {"model": gray, "tolerance": 1e-2, "max_iterations": 15, "data_range": 1.0}
    by_counts = td.reconstruct(y, H, noise=td.Poisson(1 / 10), **options)
    rms = float((H.forward(clean) / 10).mean().sqrt())
    by_rms = td.reconstruct(y, H, noise=rms, **options)
    assert psnr(by_counts.x, clean) > psnr(by_rms.x, clean) + 0.3


@pytest.mark.parametrize("H", [None, BLUR], ids=["denoising", "blur"])
def test_with_much_reading_noise_it_is_gaussian(H):
    """As with many counts, the same noise is added everywhere."""
    y = random(1, 1, 20, 20)
    options = {"model": MODEL, "tolerance": 1e-6, "data_range": 1.0}
    expected = td.reconstruct(y, H, noise=0.1, **options).x
    assert relative(td.reconstruct(y, H, noise=td.Poisson(1e-9, read=0.1), **options).x, expected) < 1e-4


def test_the_unit_does_not_matter():
    """8 bits, or 0..1."""
    pixels = (random(16, 16) * 255).to(torch.uint8).numpy()
    options = {"model": MODEL, "max_iterations": 3}
    of_bytes = td.reconstruct(pixels, BLUR, noise=td.Poisson(255 / 20, read=5.1), **options)
    of_floats = td.reconstruct(pixels / 255, BLUR, noise=td.Poisson(1 / 20, read=0.02), **options)
    assert relative(of_bytes.image, of_floats.image) < 1e-5


def test_few_counts_stay_within_what_the_model_knows(gray, recwarn):
    """Two photons for white: noise as strong as the image, far above the levels of the training."""
    clean = picture(size=24)
    y = counted(clean, gain=1 / 2)
    rec = td.reconstruct(y, model=gray, noise=td.Poisson(1 / 2), max_iterations=10, tolerance=1e-2, data_range=1.0)
    assert float(rec.posed()[0].sigma.max()) <= 50.001
    assert not [warning for warning in recwarn if "beyond the noise levels" in str(warning.message)]
    assert psnr(rec.x, clean) > psnr(y, clean) + 5


def test_what_is_counted_over_all_rounds():
    seen = []
    y = random(2, 1, 16, 16)
    options = {"model": MODEL, "tolerance": 1e-3, "keep_path": True}
    rec = td.reconstruct(y, BLUR, noise=td.Poisson(0.05), callback=lambda p: seen.append(p.iteration), **options)
    assert seen == list(range(1, len(seen) + 1))
    assert len(rec.residuals) == len(rec.path) - 1 == len(seen)
    assert len(seen) > 2 * 3
    assert int(rec.iterations.max()) <= len(seen) <= int(rec.iterations.sum())
    assert rec.converged
    assert torch.equal(rec.x, rec.path[-1])


# Impulses


def salted(clean, share, seed=0):
    draw = random(*clean.shape, seed=seed)
    return torch.where(draw < share / 2, 0.0, torch.where(draw > 1 - share / 2, 1.0, clean).to(clean)).to(clean)


@pytest.mark.parametrize("H", [Identity(), Blur(gaussian_kernel(1.0))], ids=["denoising", "blur"])
def test_outliers_are_ignored(gray, H):
    clean = picture(size=40, row=40, column=180)
    whole = noisy(H.forward(clean), 5)
    y = salted(whole, 0.1)
    options = {"model": gray, "tolerance": 1e-2, "max_iterations": 15, "data_range": 1.0}
    robust = td.reconstruct(y, H, noise=td.Impulse(5 / 255), **options).x
    rms = float((y - H.forward(clean)).std())
    plain = td.reconstruct(y, H, noise=rms, **options).x
    assert psnr(robust, clean) > psnr(plain, clean) + 3


def test_an_outlier_in_a_sinogram_is_ignored():
    """Where measurements are no images, neighbours tell nothing: the solution has to."""
    H = Radon(np.linspace(0, 180, 24, endpoint=False), (16, 16)).to(dtype=torch.float64)
    y = H.forward(random(1, 1, 16, 16))
    spoilt = y.clone()
    spoilt[0, 0, 5, 10] += 20
    options = {"model": MODEL, "sigma": 0.02, "lam": 0.01, "data_range": 1.0, "tolerance": 1e-5}
    expected = td.reconstruct(y, H, noise=0.05, **options).x
    plain = td.reconstruct(spoilt, H, noise=0.05, **options).x
    robust = td.reconstruct(spoilt, H, noise=td.Impulse(0.3), **options).x
    assert relative(robust, expected) < 0.1 * relative(plain, expected)


def test_whitening_refuses_nothing_it_can_do():
    y = torch.rand(2, 1, 8, 8)
    operator, whitened_y, noise = whitened(Blur(gaussian_kernel(1.0)), y, torch.full_like(y, 0.2))
    assert isinstance(operator, Blur)
    assert whitened_y is y
    assert torch.equal(noise, torch.tensor([0.2, 0.2]))
    operator, *_ = whitened(Blur(gaussian_kernel(1.0)), y, map_like(y).float())
    assert isinstance(operator, Weighted)
    assert operator.batch == 2


def test_what_is_said_of_holes_does_not_matter():
    """Neither the deviations there, nor the values there."""
    x, known = picture(size=32), random(32, 32) > 0.5
    H = Mask(known)
    y = H.forward(x)
    options = {"model": "gray-light", "sigma": 20 / 255, "lam": 0.5, "max_iterations": 3}
    deviations = torch.full((1, 1, 32, 32), 0.04)
    expected = td.reconstruct(y, H, noise=deviations, **options)
    other = td.reconstruct(y, H, noise=torch.where(known, deviations, torch.tensor(1e-4)), **options)
    torch.testing.assert_close(other.x, expected.x)
    for noise in (td.Poisson(1 / 30), td.Impulse(0.04)):
        dark, bright = (td.reconstruct(torch.where(known, y, fill), H, noise=noise, **options).x for fill in (0.0, 1.0))
        torch.testing.assert_close(dark, bright)


def test_known_pixels_among_holes_are_no_outliers():
    x, known = picture(size=48), random(48, 48) > 0.8
    H = Mask(known)
    y = H.forward(x + 10 / 255 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)))
    options = {"model": "gray-light", "tolerance": 1e-2, "max_iterations": 20}
    plain, robust = (td.reconstruct(y, H, noise=noise, **options).x for noise in (10 / 255, td.Impulse(10 / 255)))
    assert float((robust - x).norm()) < 1.2 * float((plain - x).norm())
