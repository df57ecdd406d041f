"""Certificates: bounds that hold and are checked by a longer run, bounds that are called vacuous, other starts."""

import dataclasses
import math

import pytest
import torch
from conftest import noisy, picture, random, small_model

import torchdeal as td
from torchdeal.operators import Blur, Fourier, Mask
from torchdeal.solvers import Solution
from torchdeal.starts import from_starts

SIDE = 16
EXACTLY = {"tolerance": 1e-10, "max_iterations": 1000}


def model_with(responses=1.0, **kind):
    """Masks that depend on the image the more, the larger their responses are."""
    model = small_model(features=4, **kind).requires_grad_(False)
    for kernel in model.mask_filters:
        kernel.mul_(responses)
    return model


@pytest.fixture(scope="module")
def problem():
    """A deblurring whose rough answer has a certificate, and its fixed point."""
    model = model_with(2.5)
    operator = Blur(torch.tensor([[0.1, 0.6], [0.2, 0.1]]).double())
    y = noisy(operator.forward(picture(size=SIDE).double()), 10)

    def solve(change=0.0, **limits):
        knobs = {"sigma": 25 / 255, "lam": 5.0, "data_range": 1.0}
        return td.reconstruct(y + change, operator, model=model, **knobs, **limits)

    rough = solve(max_iterations=3)
    return solve, rough, rough.certificate(steps=12), solve(**EXACTLY)


def test_the_fixed_point_is_within_the_bound(problem):
    _, rough, certificate, exact = problem
    distance = float((exact.x - rough.x).norm() / rough.x.norm())
    assert 1e-4 < distance < float(certificate.bound) < 1
    assert float(certificate.newton) == pytest.approx(distance, rel=0.1)
    assert float(certificate.step) < distance  # a small step is not a small distance
    assert f"bounds that by {float(certificate.bound):.1e}" in str(certificate)


def test_answers_move_less_than_the_bounds(problem):
    solve, _, certificate, exact = problem
    change = 1e-4 * (random(*exact.x.shape, seed=4) - 0.5)
    moved = float((solve(change, **EXACTLY).x - exact.x).norm() / change.norm())
    known = certificate.numbers()
    assert moved < 1.05 * known["sensitivity"]
    assert known["sensitivity"] < known["energy_stability"] < math.inf
    q, smallest = known["contraction"], known["smallest"]
    assert known["stability"] == pytest.approx(known["operator_norm"] / ((1 - q) * smallest))
    assert known["radius"] < known["energy_contraction"] * 1.02


def test_what_is_vacuous_is_called_so(problem):
    _, _, certificate, _ = problem
    assert float(certificate.global_contraction) > 1
    assert "only one is not proven. The bound is vacuous" in str(certificate)
    no_contraction = dataclasses.replace(
        certificate,
        **dict.fromkeys(["contraction", "energy_contraction"], torch.tensor([1.5])),
        **dict.fromkeys(["bound", "stability", "energy_stability"], torch.tensor([torch.inf])),
    )
    said = str(no_contraction)
    assert "T contracts in neither" in said
    assert said.count("vacuous") == 3
    assert "bounds that" not in said


def test_a_common_kernel_is_told(problem):
    _, _, certificate, _ = problem
    assert "Each step has one answer" in str(certificate)
    none = dataclasses.replace(certificate, kernel=torch.tensor([1e-18]))
    assert "not certain that a step has one answer" in str(none)


def test_masks_that_depend_on_the_image_strongly_leave_no_contraction():
    """Then the certificate says so, whatever the run said."""
    y = noisy(picture(size=SIDE).double(), 20)
    rec = td.reconstruct(y, model=model_with(5.0), sigma=25 / 255, lam=100.0, max_iterations=10, data_range=1.0)
    certificate = rec.certificate(steps=4)
    known, said = certificate.numbers(), str(certificate)
    assert min(known["radius"], known["contraction"], known["energy_contraction"]) > 1
    assert known["bound"] == known["stability"] == known["energy_stability"] == math.inf
    assert "does not converge here" in said
    assert "The run did not converge" in said
    assert said.count("vacuous") == 3


def test_samples_have_numbers_of_their_own():
    y = torch.cat([noisy(picture(size=SIDE).double(), 10), noisy(picture(size=SIDE, row=200).double(), 30)])
    knobs = {"model": model_with(2.0), "tolerance": 1e-6}
    both = td.reconstruct(y, sigma=[10 / 255, 30 / 255], lam=[0.5, 8.0], **knobs).certificate(steps=4)
    alone = td.reconstruct(y[1:], sigma=30 / 255, lam=8.0, **knobs).certificate(steps=4)
    for name, value in alone.numbers().items():
        if name not in ("step", "newton", "bound"):  # distances of runs that ended a little apart
            assert both.numbers(1)[name] == pytest.approx(value, rel=0.03), name
    assert both.numbers(0)["contraction"] != pytest.approx(both.numbers(1)["contraction"], rel=0.1)
    assert "Sample 0:" in str(both)
    assert "Sample 1:" in str(both)


@pytest.mark.parametrize("kind", ["complex", "colour", "channelwise", "map", "numpy uint8"])
def test_all_kinds_of_problems_have_one(kind):
    clean, operator, model, knobs = picture(size=SIDE).double(), None, model_with(), {"sigma": 20 / 255, "lam": 1.0}
    if kind == "complex":
        operator = Fourier(torch.ones(SIDE, SIDE).double(), real=False)
        y = operator.forward(torch.complex(clean, 0.2 * clean))
    elif kind in ("colour", "channelwise"):
        y = noisy(picture("astronaut", size=SIDE).double(), 20)
        model, knobs["channelwise"] = (model_with(channels=3), False) if kind == "colour" else (model, True)
    elif kind == "map":
        y, knobs = noisy(clean, 20), {"sigma": torch.linspace(5, 30, SIDE).double().expand(SIDE, SIDE) / 255}
    else:
        y = (255 * noisy(clean, 20)[0, 0].clamp(0, 1)).byte().numpy()
        knobs["sigma"] = 20.0
    certificate = td.reconstruct(y, operator, model=model, **knobs).certificate(steps=2, starts=1)
    for name, value in certificate.numbers().items():
        assert not math.isnan(value), name
    assert certificate.numbers()["smallest"] > 0.005
    assert float(certificate.agreement.apart.max()) < 0.01


def test_other_starts_that_lead_elsewhere_are_told_of(problem):
    """An answer that is wrong in one corner: the certificate finds the corner."""
    _, rough, _, exact = problem
    equation, x = exact.posed()
    wrong = x.clone()
    wrong[..., 8:14, 2:9] += 0.3
    told = []
    agreement = from_starts(equation, wrong, 3, tolerance=1e-4, max_iterations=200, callback=told.append)
    assert agreement.starts == ("H^T y", "noise (seed 0)", "zero")
    assert len(told) == 3
    distance = float((wrong - x).norm() / wrong.norm())
    assert agreement.apart.flatten().tolist() == pytest.approx([distance] * 3, rel=1e-2)
    y, column, size = agreement.regions[0]
    assert y <= 8
    assert y + size >= 14
    assert column <= 2
    assert column + size >= 9
    assert float(agreement.share) > 0.95
    assert agreement.difference.shape == (1, SIDE, SIDE)
    assert float(agreement.difference[0, 10, 5]) == pytest.approx(0.3, rel=0.05)
    said = str(dataclasses.replace(problem[2], agreement=agreement))
    assert "there may be several fixed points" in said
    assert f"at y {y}, x {column}, in 8 x 8 pixels" in said
    same = str(rough.certificate(steps=1, starts=1, tolerance=1e-3))
    assert "From 1 other start (H^T y)" in same
    assert "they may have found one fixed point" in same


def test_black_measurements_have_a_certificate():
    rec = td.reconstruct(torch.zeros(1, 1, SIDE, SIDE).double(), model=model_with(), sigma=20 / 255, lam=1.0)
    certificate = rec.certificate(steps=2, starts=2)
    assert float(certificate.newton) == float(certificate.bound) == 0
    assert "apart" in str(certificate)


def test_what_cannot_be_certified_is_refused():
    rec = td.reconstruct(picture(size=SIDE), model=model_with(dtype=torch.float32), sigma=0.1, lam=1.0)
    for wrong in ({"steps": 0}, {"starts": -1}, {"starts": 1, "tolerance": 0.0}):
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            rec.certificate(**wrong)
    nothing = td.reconstruction.Reconstruction(**vars(Solution.at_once(picture(size=SIDE))))
    with pytest.raises(ValueError, match="not reconstructed"):
        nothing.certificate()
    broken = dataclasses.replace(rec, image=torch.full_like(rec.image, torch.nan))
    with pytest.raises(ValueError, match="not finite"):
        broken.certificate()


def test_single_precision_agrees_with_double():
    y = Mask((random(SIDE, SIDE) < 0.7).double())
    measured = y.forward(noisy(picture(size=SIDE).double(), 5))
    found = [
        td.reconstruct(measured, y, model=model_with(2.0, dtype=dtype), sigma=0.1, lam=0.5, tolerance=1e-4)
        .certificate(steps=6)
        .numbers()
        for dtype in (torch.float64, torch.float32)
    ]
    for name in ("smallest", "largest", "kernel", "contraction", "energy_contraction", "sensitivity"):
        assert found[1][name] == pytest.approx(found[0][name], rel=0.03), name
