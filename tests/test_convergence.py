"""What a run says about itself, against the truth from a much tighter run: trained weights, real pictures."""

from functools import cache

import pytest
import torch
from conftest import DATA, noisy, picture, relative

import torchdeal as td
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, Mask, Operator
from torchdeal.reference import reference_reconstruct
from torchdeal.solvers.distance import CAUTION

CROPS = {
    "camera": picture("camera", 48),
    "coins": picture("coins", 48, 40, 40),
    "brick": picture("brick", 48, 100, 100),
}
KERNEL = torch.ones(5, 5) / 25


def assert_honest(distance, true, caution=1.0):
    """Within these factors of the truth. It is rather too large than too small, but it can be both."""
    assert caution * true / 3 < float(distance) < caution * 25 * true


def true_fixed_point(y, H=None, **options):
    """In double precision, several digits further."""
    model = td.load("gray").double()
    result = td.reconstruct(y.double(), H, model=model, tolerance=1e-6, max_iterations=2000, **options)
    assert result.converged
    return result.x


@cache
def denoised_truth(name, sigma):
    return true_fixed_point(noisy(CROPS[name], sigma), sigma=sigma / 255)


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("sigma", [5, 25])
def test_reported_distance_is_right(gray, name, sigma):
    y = noisy(CROPS[name], sigma)
    for tolerance in (1e-3, 1e-4):
        result = td.reconstruct(y, model=gray, sigma=sigma / 255, tolerance=tolerance)
        true = relative(result.x.double(), denoised_truth(name, sigma))
        assert result.converged
        assert true < 1.5 * tolerance
        assert_honest(result.distance, true)


def test_reported_distance_for_deblurring(gray):
    H: Operator = Blur(KERNEL)
    y = noisy(H.forward(CROPS["camera"]), 2.55)
    result = td.reconstruct(y, H, model=gray, sigma=15 / 255, lam=0.5)
    truth = true_fixed_point(y, H, sigma=15 / 255, lam=0.5, start=result.x)
    true = relative(result.x.double(), truth)
    assert result.converged
    assert_honest(result.distance, true, CAUTION)


def test_reported_distance_for_inpainting(gray):
    """Loose steps alone do not get there: 70 % of the pixels are missing, and the residual rises before it falls."""
    H: Operator = Mask(torch.rand(28, 28, generator=torch.Generator().manual_seed(1)) > 0.7)
    y = H.forward(noisy(picture("camera", 28), 5))
    result = td.reconstruct(y, H, model=gray, sigma=15 / 255, lam=0.5)
    truth = true_fixed_point(y, H, sigma=15 / 255, lam=0.5, start=result.x)
    true = relative(result.x.double(), truth)
    assert result.converged
    assert true < float(result.distance) < 150 * true  # much too large: the last steps went far beyond


HARD = {
    "text, high noise": (picture("text", 24, 60, 100), None, 50, None),
    "page, 80 % missing": (picture("page", 24, 60, 100), 0.8, 25, 1.0),
    "moon, 70 % missing": (picture("moon", 28, 200, 200), 0.7, 15, 0.5),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_cases_are_neither_given_up_nor_called_converged_too_soon(gray, name):
    """Slow modes that loose steps do not see, and ratios that go on growing."""
    clean, missing, sigma, lam = HARD[name]
    known = torch.rand(clean.shape[-2:], generator=torch.Generator().manual_seed(1)) > (missing or 0)
    H = None if missing is None else Mask(known)
    y = noisy(clean, sigma) if H is None else H.forward(noisy(clean, 5))
    result = td.reconstruct(y, H, model=gray, sigma=sigma / 255, lam=lam)
    truth = true_fixed_point(y, H, sigma=sigma / 255, lam=lam, start=result.x)
    true = relative(result.x.double(), truth)
    assert result.converged
    assert true < 1.5e-3
    assert_honest(result.distance, true, CAUTION)


@pytest.mark.parametrize("sigma", [5, 25])
def test_stopping_early_is_said_and_the_distance_still_right(gray, sigma):
    y = noisy(CROPS["camera"], sigma)
    result = td.reconstruct(y, model=gray, sigma=sigma / 255, tolerance=1e-6, max_iterations=5)
    true = relative(result.x.double(), denoised_truth("camera", sigma))
    assert result.status is td.Status.MAX_ITERATIONS
    assert_honest(result.distance, true, CAUTION)


@pytest.mark.parametrize("max_iterations", [1, 2, 3, 4, 5, 6])
def test_no_false_convergence_at_low_noise(gray, max_iterations):
    """At sigma 5 a first solve, if loose, can leave a second one with nothing to do."""
    y = noisy(CROPS["camera"], 5)
    result = td.reconstruct(y, model=gray, sigma=5 / 255, max_iterations=max_iterations)
    if result.converged:
        assert relative(result.x.double(), denoised_truth("camera", 5)) < 1.5e-3
    else:
        assert float(result.distance) > 1e-3


def starts(y, clean):
    generator = torch.Generator().manual_seed(7)
    return {
        "zero": None,
        "uniform": torch.rand(y.shape, generator=generator),
        "normal": torch.randn(y.shape, generator=generator).clamp(-2, 3),
        "adjoint": y,
        "truth": clean,
    }


@pytest.mark.parametrize("name", ["camera", "coins"])
@pytest.mark.parametrize("sigma", [15, 25])
def test_five_starts_one_answer(gray, name, sigma):
    """So it is here. It need not be: other images at high noise have several fixed points."""
    y = noisy(CROPS[name], sigma)
    answers = [
        td.reconstruct(y, model=gray, sigma=sigma / 255, tolerance=2e-4, start=start).x
        for start in starts(y, CROPS[name]).values()
    ]
    for answer in answers[1:]:
        assert relative(answer, answers[0]) < 1e-3


def test_agrees_with_the_reference(gray_double):
    y = noisy(picture("camera", 18), 15).double()
    oracle = reference_reconstruct(y, gray_double, sigma=15, inner_tolerance=1e-18, outer_tolerance=1e-9)
    result = td.reconstruct(y, model=gray_double, sigma=15 / 255, tolerance=1e-7)
    assert oracle.last_change <= 1e-9
    assert relative(result.x, oracle.x) < 1e-6


@pytest.mark.parametrize("channels", [1, 3])
def test_agrees_with_the_reference_on_operators_boundaries_and_colour(channels):
    from conftest import small_model

    H = Blur(torch.rand(4, 3, generator=torch.Generator().manual_seed(0)), "reflect").to(dtype=torch.float64)
    for boundary in ("reflect", "zero"):
        model = small_model(channels, boundary)
        y = H.forward(torch.rand(1, channels, 15, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
        options = {"inner_tolerance": 1e-18, "outer_tolerance": 1e-8}
        oracle = reference_reconstruct(y, model, sigma=20, lam=0.4, forward=H.forward, adjoint=H.adjoint, **options)
        result = td.reconstruct(y, H, model=model, sigma=20 / 255, lam=0.4, tolerance=1e-7)
        assert relative(result.x, oracle.x) < 1e-6


def test_the_literal_tolerances_of_the_paper_can_stop_far_away(gray):
    """Why the reference is an oracle only with tight tolerances: nothing left to do is not the same as done."""
    y = noisy(picture("camera", 24), 5)
    literal = reference_reconstruct(y, gray, sigma=5, inner_tolerance=1e-4, outer_tolerance=1e-4)
    truth = true_fixed_point(y, sigma=5 / 255)
    assert literal.last_change <= 1e-4
    assert relative(literal.x.double(), truth) > 3e-4


@pytest.mark.skipif(not (DATA / "data" / "test" / "Set12").is_dir(), reason="Set12 is not here")
def test_default_tolerance_costs_no_psnr_on_set12(gray):
    """The centre of image 01, noise as in the paper's protocol, sigma 25: default against a much tighter tolerance."""
    import numpy as np
    from PIL import Image

    clean = np.asarray(Image.open(DATA / "data" / "test" / "Set12" / "01.png"), dtype=np.float32)[None] / 255
    clean = clean[:, 64:192, 64:192]
    np.random.seed(0)
    y = clean + np.random.normal(0, 25 / 255, clean.shape).astype(np.float32)
    clean, y = torch.from_numpy(clean)[None], torch.from_numpy(y)[None]

    default = td.reconstruct(y, model=gray, sigma=25 / 255)
    tight = td.reconstruct(y, model=gray, sigma=25 / 255, tolerance=2e-5, start=default.x)
    assert tight.converged
    assert psnr(default.x, clean) == pytest.approx(psnr(tight.x, clean), abs=0.02)
    assert psnr(tight.x, clean) > 28.5
