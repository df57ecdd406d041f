"""The preconditioner against dense matrices, and what it must not change: the answer."""

import sys

import pytest
import torch
import torch.nn.functional as F
from conftest import dense, noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.model.filters import REACH, impulse_responses
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, MultiCoilFourier, Radon
from torchdeal.solvers import conjugate_gradient
from torchdeal.system import AttentiveSystem, preconditioning

SIZE = 16
GENERATOR = torch.Generator().manual_seed(3)
KERNEL = torch.rand(4, 5, generator=GENERATOR, dtype=torch.float64) / 10
SAMPLED = torch.rand(SIZE, SIZE, generator=GENERATOR) > 0.5
SAMPLED[0, 0] = True  # the mean of the image, of which W knows nothing
OPERATORS = {
    "blur": Blur(KERNEL),
    "downsample": Downsample(2, KERNEL),
    "mask": Mask(SAMPLED),
    "fourier": Fourier(SAMPLED),
    "scaled": 2 * Blur(KERNEL),
}


def random(batch, channels, size=SIZE, dtype=torch.float64):
    return torch.rand(batch, channels, size, size, dtype=dtype, generator=torch.Generator().manual_seed(0))


def system(H, image, model_channels=None, boundary="reflect"):
    """`A` and `P` at an image, with another lam for each sample, as `reconstruct` makes them."""
    with torch.no_grad():
        weights = small_model(model_channels or image.shape[1], boundary).weights()
        lam = torch.linspace(0.3, 2, len(image), dtype=torch.float64).view(-1, 1, 1, 1)
        alpha = weights.alpha(torch.full((len(image),), 20.0, dtype=torch.float64))
        H = H.to(dtype=torch.float64)
        made = AttentiveSystem.of(weights, H, image, lam, alpha, "direct").precise(image)
    assert made.preconditioner is not None
    return made


def matrices(apply, image):
    """Of a map on a batch, one for each sample, `(B, n, n)`, complex where the image is."""
    size = image[0].numel()
    units = torch.eye(size, dtype=image.dtype).view(size, 1, *image.shape[1:]).expand(-1, len(image), -1, -1, -1)
    with torch.no_grad():
        return torch.stack([apply(unit).flatten(1) for unit in units], 2)


@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("name", OPERATORS)
def test_hermitian_positive_definite(name, boundary):
    image = random(2, 1)
    P = matrices(system(OPERATORS[name], image, boundary=boundary).preconditioner, image)
    torch.testing.assert_close(P, P.mH, atol=1e-9 * float(P.abs().max()), rtol=0)
    assert float(torch.linalg.eigvalsh(P).min()) > 0


@pytest.mark.parametrize(
    ("H", "image", "model_channels"),
    [
        pytest.param(Blur(KERNEL), random(2, 3, 15), 3, id="colour"),
        pytest.param(Mask(random(1, 3, 15)[0]), random(2, 3, 15), 1, id="channel by channel"),
        pytest.param(Fourier(SAMPLED, real=False), torch.complex(random(2, 1), random(2, 1).flip(-1)), 1, id="complex"),
    ],
)
def test_hermitian_positive_definite_for_other_images(H, image, model_channels):
    P = matrices(system(H, image, model_channels).preconditioner, image)
    torch.testing.assert_close(P, P.mH, atol=1e-9 * float(P.abs().max()), rtol=0)
    assert float(torch.linalg.eigvalsh(P).min()) > 0


@pytest.mark.parametrize("lam", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("H", [Downsample(2, KERNEL / KERNEL.sum()), Downsample(4)])
def test_positive_in_single_precision_however_small_the_penalty_is(H, lam):
    image = random(1, 1, dtype=torch.float32)
    weights = small_model(dtype=torch.float32).weights()
    with torch.no_grad():
        known = preconditioning(weights, H.to(dtype=torch.float32), image)
        mean, energy = torch.ones(1, len(weights.filters[-1])), torch.ones_like(image)
        P = matrices(known.at(torch.full((1, 1, 1, 1), lam), mean, energy), image)[0]
    assert float(torch.linalg.eigvalsh((P + P.mT).double() / 2).min()) > 0


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_are_independent(name):
    image = random(2, 1)
    both = system(OPERATORS[name], image).preconditioner(image)
    alone = system(OPERATORS[name], image[:1]).preconditioner(image[:1])
    torch.testing.assert_close(both[:1], alone, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("H", [Blur(KERNEL), Downsample(3, KERNEL), 2 * Downsample(5)], ids=["blur", "x3", "x5"])
def test_inverts_a_circulant(H, channels):
    """Masks that are the same everywhere, a circular blur, filters that see a torus: then `P A = 1`."""
    image, size = random(1, channels, 15), 15
    with torch.no_grad():
        weights = small_model(channels).weights()
        filters = impulse_responses(weights.filters)
        known = preconditioning(weights, H.to(dtype=torch.float64), image)
        mean = torch.linspace(0.1, 1, len(filters), dtype=torch.float64)
        lam = torch.full((1, 1, 1, 1), 0.7, dtype=torch.float64)
        P = known.at(lam, mean[None], torch.ones(1, channels, size, size, dtype=torch.float64))
        W = dense(lambda x: F.conv2d(F.pad(x, (REACH,) * 4, mode="circular"), filters), image.shape[1:])
        M = mean.repeat_interleave(size * size)
        A = dense(H.normal, image.shape[1:]) + 0.7 * W.T @ (M[:, None] * W)
    product = matrices(P, image)[0] @ A
    torch.testing.assert_close(product, torch.eye(len(A), dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", OPERATORS)
def test_preconditioned_solve_equals_a_dense_one(name):
    image = random(3, 1)
    made = system(OPERATORS[name], image)
    A = matrices(made.apply, image)
    options = {"tolerance": 1e-11, "max_iterations": 2000, "preconditioner": made.preconditioner}
    with torch.no_grad():
        result = conjugate_gradient(made.apply, image, **options)
    assert bool(result.converged.all())
    expected = torch.linalg.solve(A, image.flatten(1)[..., None])[..., 0]
    assert relative(result.x.flatten(1), expected) < 1e-7


@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("channels", [1, 3])
def test_smoothing_is_a_convolution_and_stays_positive(channels, boundary):
    """In single precision, and where most masks are 0.01 and few are 1."""
    with torch.no_grad():
        weights = small_model(channels, boundary).float().weights()
        made = preconditioning(weights, Blur(KERNEL.float()), random(2, channels, size=32).float())
    assert made is not None
    energy = torch.where(random(2, channels, size=32) > 0.9, 1.0, 1e-4).double()
    padded = F.pad(energy, 4 * [made.reach], mode="reflect" if boundary == "reflect" else "constant")
    expected = F.conv2d(padded, made.envelope.double().flip(-2, -1), groups=channels)
    found = made._smoothed(energy.float())
    assert relative(found.double(), expected) < 1e-6
    assert float(found.min()) > 0.5 * float(expected.min())


@pytest.mark.parametrize("H", [Identity(), Radon([0.0, 45.0], (SIZE, SIZE)), Blur(KERNEL, "zero")])
def test_nothing_where_nothing_is_known(H):
    assert preconditioning(small_model().weights(), H, random(1, 1)) is None


def test_nothing_for_several_coils():
    H = MultiCoilFourier(torch.ones(2, SIZE, SIZE, dtype=torch.complex128), SAMPLED)
    assert preconditioning(small_model().weights(), H, random(1, 1)) is None


def known_pixels(size, seed=0):
    return torch.rand(size, size, generator=torch.Generator().manual_seed(seed)) > 0.4


PROBLEMS = {
    "deblur": (Blur(torch.ones(5, 5) / 25), "camera", "gray", 2.55),
    "deblur colour": (Blur(torch.ones(3, 3) / 9), "astronaut", "color", 5.0),
    "upscale": (Downsample(2, torch.ones(3, 3) / 9), "camera", "gray", 2.55),
    "inpaint": (Mask(known_pixels(48)), "camera", "gray", 5.0),
    "mri": (Fourier(known_pixels(48)), "camera", "gray", 5.0),
    "complex mri": (Fourier(known_pixels(32), real=False), "camera", "gray", 5.0),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_same_answer_with_fewer_iterations_in_a_solve(problem, monkeypatch):
    H, image, model, noise = PROBLEMS[problem]
    clean = picture(image, H.image_shape[-1] if H.image_shape else 48)
    clean = torch.complex(clean, clean.flip(-1)) if problem == "complex mri" else clean
    y = H.forward(clean)
    y = torch.complex(noisy(y.real, noise), noisy(y.imag, noise, 1)) if y.is_complex() else noisy(y, noise)
    options = {"noise": noise / 255, "model": td.load(model), "data_range": 1.0, "tolerance": 3e-4}
    fast = td.reconstruct(y, H, **options)
    monkeypatch.setattr(sys.modules["torchdeal.system"], "preconditioning", lambda *_: None)
    plain = td.reconstruct(y, H, **options)
    assert fast.converged
    assert plain.converged
    assert relative(fast.x, plain.x) < 1e-3
    # of a solve, not of the run: how many solves it takes changes with their errors, up or down
    assert cg_per_solve(fast) < 0.95 * cg_per_solve(plain)


def cg_per_solve(solution):
    return float(solution.cg_iterations) / float(solution.iterations)


def test_error_estimate_is_honest_in_deblurring():
    image = picture("camera", 48).double()
    model, H = td.load("gray").double(), Blur(torch.ones(5, 5) / 25).to(dtype=torch.float64)
    with torch.no_grad():
        weights = model.weights()
        lam = torch.full((1, 1, 1, 1), 0.4, dtype=torch.float64)
        alpha = weights.alpha(torch.full((1,), 19.0, dtype=torch.float64))
        made = AttentiveSystem.of(weights, H, image, lam, alpha, "direct").precise(image)
        options = {"max_iterations": 1000, "preconditioner": made.preconditioner}
        exact = conjugate_gradient(made.apply, image, tolerance=1e-10, **options).x
        for accuracy in (0.3, 0.1, 0.03, 0.01):
            found = conjugate_gradient(made.apply, image, tolerance=1.0, error_tolerance=accuracy, **options)
            error = float((found.x - exact).norm())
            assert bool(found.converged.all())
            assert 0.01 * float(found.error) < error < float(found.error)
