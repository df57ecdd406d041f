"""The mean over the symmetries of the square."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from conftest import noisy, picture, random, relative, small_model
from PIL import Image

import torchdeal as td
from torchdeal.model import SYMMETRIES
from torchdeal.operators import Blur, Fourier, Mask
from torchdeal.solvers import Solution, Status
from torchdeal.solvers.result import Movement
from torchdeal.symmetries import mean_of

MODEL = small_model(features=4)
KNOBS = {"sigma": 0.08, "lam": 0.5, "model": MODEL, "data_range": 1.0}
PRECISELY = {"tolerance": 1e-7}
KERNEL = random(3, 3) / 4.5
BLURRED = Blur(KERNEL).forward(random(1, 1, 16, 15, seed=1))
MOST = 3.0  # times the tolerance that an answer may be away, as elsewhere in the tests


def turned(x, symmetry):
    """An image, or a kernel, after that symmetry."""
    x = x.rot90(symmetry, (-2, -1))
    return x.flip(-1) if symmetry >= 4 else x


def turned_back(x, symmetry):
    x = x.flip(-1) if symmetry >= 4 else x
    return x.rot90(-symmetry, (-2, -1))


@cache
def answers_for_turned():
    """For a problem turned in each way: the answer, turned back."""
    return [
        turned_back(td.reconstruct(turned(BLURRED, s), Blur(turned(KERNEL, s)), **PRECISELY, **KNOBS).x, s)
        for s in range(SYMMETRIES)
    ]


@pytest.mark.parametrize("symmetry", range(SYMMETRIES))
@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("channels", [1, 3])
@torch.no_grad()
def test_turned_weights_see_an_image_as_the_others_see_it_turned(symmetry, boundary, channels):
    weights = small_model(channels, boundary).weights()
    other, x = weights.turned(symmetry), random(2, channels, 17, 21)
    alpha = weights.alpha(torch.tensor([20.0, 30.0], dtype=torch.float64))
    mask = weights.mask(turned(x, symmetry), alpha)
    assert relative(other.mask(x, alpha), turned_back(mask, symmetry)) < 1e-12
    penalty = turned_back(weights.penalty(turned(x, symmetry), mask.square()), symmetry)
    assert relative(other.penalty(x, other.mask(x, alpha).square()), penalty) < 1e-12
    assert symmetry == 0 or relative(other.mask(x, alpha), weights.mask(x, alpha)) > 1e-3


def test_all_symmetries_are_different():
    kernel = random(1, 1, 3, 3)
    assert len({tuple(turned(kernel, s).flatten().tolist()) for s in range(SYMMETRIES)}) == SYMMETRIES


@pytest.mark.parametrize("number", [2, 4, 8])
def test_the_answer_is_the_mean_of_those_for_turned_problems(number):
    answers = answers_for_turned()
    rec = td.reconstruct(BLURRED, Blur(KERNEL), symmetries=number, **PRECISELY, **KNOBS)
    assert relative(rec.x, torch.stack(answers[:number]).mean(0)) < 1e-6
    assert relative(rec.x, answers[0]) > 1e-4  # they differ


def test_the_mean_over_all_turns_with_the_problem():
    rec = td.reconstruct(BLURRED, Blur(KERNEL), symmetries=8, **PRECISELY, **KNOBS)
    y, H = turned(BLURRED, 5), Blur(turned(KERNEL, 5))
    other = td.reconstruct(y, H, symmetries=8, **PRECISELY, **KNOBS)
    assert relative(turned_back(other.x, 5), rec.x) < 1e-6


@pytest.mark.parametrize("H", [None, Blur(KERNEL), Fourier(random(16, 16) > 0.4), Mask(random(16, 16) > 0.3)])
def test_the_distance_is_that_of_the_mean(H):
    clean = picture(size=16).double().repeat(2, 1, 1, 1)
    y = clean + 0.05 * random(*clean.shape) if H is None else H.forward(clean)
    exact = td.reconstruct(y, H, symmetries=4, **PRECISELY, **KNOBS)
    rec = td.reconstruct(y, H, symmetries=4, tolerance=1e-3, **KNOBS)
    assert rec.converged
    away = (rec.x - exact.x).flatten(1).norm(dim=1) / rec.x.flatten(1).norm(dim=1)
    assert rec.distance.shape == (2,)
    assert bool((rec.distance <= 1e-3).all())
    assert bool((away <= MOST * rec.distance).all())


def test_what_is_told_is_about_all_runs():
    y = noisy(picture(size=24), 25)
    seen = []
    rec = td.reconstruct(y, sigma=25 / 255, model="gray-light", symmetries=2, keep_path=True, callback=seen.append)
    once = td.reconstruct(y, sigma=25 / 255, model="gray-light")
    assert rec.symmetries == 2
    assert once.symmetries == 1
    assert int(rec.iterations) == len(seen) == len(rec.residuals) > int(once.iterations)
    assert int(rec.cg_iterations) > int(once.cg_iterations)
    assert [state.iteration for state in seen] == list(range(1, len(seen) + 1))
    first = int(once.iterations)
    assert len(rec.path) == 1 + len(seen) + 1
    assert [state.run for state in seen] == [0] * first + [1] * (len(seen) - first)
    assert all(state.runs == 2 for state in seen)
    assert torch.equal(rec.path[first], once.x)
    assert torch.equal(rec.path[-1], rec.x)


def test_the_mean_of_runs_that_ended_differently():
    def run(status, distance, level, moved):
        x = torch.tensor([level, 0.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
        movement = Movement(1e-3, 19, *torch.tensor([[moved, math.nan]] * 4, dtype=torch.float64))
        counts, known = torch.tensor([3, 1]), torch.tensor([distance, 0.0])
        residuals = torch.tensor([[0.5, 0.1], [0.2, math.nan], [0.1, math.nan]])
        statuses = (status, Status.CONVERGED)
        return Solution(x, statuses, known, known, counts, 2 * counts, residuals, movement=movement)

    found = mean_of(
        [
            run(Status.CONVERGED, 1e-3, 1.0, math.nan),
            run(Status.UNSETTLED, 3e-3, 3.0, 0.5),
            run(Status.STALLED, 2e-3, 2.0, 0.1),
        ]
    )
    assert found.statuses == (Status.STALLED, Status.CONVERGED)
    assert found.x.flatten().tolist() == [2.0] * 4 + [0.0] * 4
    # (1e-3 * 1 + 3e-3 * 3 + 2e-3 * 2) / 3 / 2
    torch.testing.assert_close(found.distance, torch.tensor([14e-3 / 6, 0.0]))
    assert found.iterations.tolist() == [9, 3]
    assert found.cg_iterations.tolist() == [18, 6]
    assert found.residuals.shape == (9, 2)
    assert found.movement.relative.tolist()[0] == 0.5
    assert math.isnan(found.movement.relative[1])
    assert found.path == ()


def test_what_is_not_known_of_one_run_is_not_known_of_the_mean():
    x, count = torch.zeros(1, 1, 2, 2), torch.ones(1, dtype=torch.int64)
    still = Movement.none(1, 1e-3)
    broken = Solution(
        x, (Status.DIVERGED,), torch.tensor([math.inf]), torch.tensor([math.nan]), count, count, x[0, 0], movement=still
    )
    assert mean_of([broken, broken]).distance.tolist() == [math.inf]
    fine = replace(broken, x=x + 1, distance=torch.tensor([1e-3]))
    assert mean_of([fine, broken]).distance.tolist() == [math.inf]


def test_it_begins_where_it_is_told_to():
    y = noisy(picture(size=24), 25)
    options = {"sigma": 25 / 255, "model": "gray-light", "symmetries": 2}
    rec = td.reconstruct(y, **options)
    again = td.reconstruct(y, start=rec, **options)
    assert int(again.iterations) < int(rec.iterations)
    assert relative(again.x, rec.x) < MOST * 1e-3


def test_the_status_is_the_worst_one():
    rec = td.reconstruct(
        noisy(picture(size=24), 25), sigma=25 / 255, model="gray-light", symmetries=2, max_iterations=3
    )
    assert rec.status is Status.MAX_ITERATIONS
    assert int(rec.iterations) == 6


def test_black_stays_black():
    rec = td.reconstruct(torch.zeros(1, 1, 24, 24), sigma=0.1, model="gray-light", symmetries=4)
    assert rec.converged
    assert float(rec.distance) == 0
    assert not rec.x.any()


def test_it_is_closer_to_the_truth():
    clean = picture(size=64)
    y = noisy(clean, 25)
    errors = [relative(td.reconstruct(y, sigma=25 / 255, model="gray-light", symmetries=n).x, clean) for n in (1, 4)]
    assert errors[1] < errors[0]


def test_arrays_noise_maps_and_other_noise():
    y = (255 * noisy(picture(size=24), 20)[0, 0].clamp(0, 1)).round().to(torch.uint8).numpy()
    level = np.full(y.shape, 20.0, dtype=np.float32)
    mapped = td.reconstruct(y, sigma=level, model="gray-light", symmetries=2)
    plain = td.denoise(y, sigma=20, model="gray-light", symmetries=2)
    assert mapped.x.dtype == plain.dtype == np.uint8
    assert np.abs(mapped.x.astype(int) - plain.astype(int)).max() <= 1
    counted = td.reconstruct(y, noise=td.Poisson(gain=2.0, read=5.0), model="gray-light", symmetries=2)
    assert counted.symmetries == 2
    assert counted.converged
    assert math.isfinite(float(counted.distance))


def test_many_pictures():
    pictures = [noisy(picture(size=24), 25, seed)[0] for seed in (0, 1)]
    alone = [td.reconstruct(y[None], sigma=25 / 255, model="gray-light", symmetries=2) for y in pictures]
    found = list(td.reconstruct_many(pictures, sigma=25 / 255, model="gray-light", symmetries=2, batch=2))
    for one, other in zip(found, alone, strict=True):
        assert relative(torch.as_tensor(one.x).reshape(24, 24), other.x[0, 0]) < MOST * 1e-3
        assert len(one.residuals) == int(one.iterations)
        assert one.symmetries == 2


def test_pictures_in_tiles():
    y = noisy(picture(size=32), 25)[0, 0].numpy()
    options = {"sigma": 25 / 255, "model": "gray-light", "symmetries": 2}
    tiled = td.reconstruct_tiled(y, tile=16, overlap=24, **options)
    assert relative(*map(torch.from_numpy, (tiled.x, td.reconstruct(y, **options).x))) < MOST * 1e-3


@pytest.mark.parametrize("number", [0, 9, -1, 2.0, True, "4", None])
def test_there_are_eight(number):
    with pytest.raises(ValueError, match="symmetries must be"):
        td.reconstruct(picture(size=24), sigma=0.1, model="gray-light", symmetries=number)


def test_a_mean_has_no_certificate_error_bars_or_explanation():
    rec = td.reconstruct(noisy(picture(size=24), 25), sigma=25 / 255, model="gray-light", symmetries=2)
    for ask in (lambda: rec.certificate(), lambda: td.uncertainty(rec), lambda: td.explain(rec)):
        with pytest.raises(ValueError, match="a mean of several answers"):
            ask()
    assert "a mean over 2 symmetries" in rec._repr_html_()


def test_the_commands_offer_it(deal, tmp_path):
    y = (255 * noisy(picture(size=32), 25)[0, 0].clamp(0, 1)).round().to(torch.uint8).numpy()
    Image.fromarray(y).save(tmp_path / "noisy.png")
    common = "denoise", "noisy.png"
    options = "--sigma", "25", "--model", "gray-light"
    deal(*common, "clean.png", *options, "--symmetries", "4")
    expected = td.denoise(y, sigma=25, model="gray-light", symmetries=4)
    assert np.abs(np.asarray(Image.open(tmp_path / "clean.png")).astype(int) - expected).max() <= 1
    for refused in (["--certificate"], ["--error-bars", "bars.npy"]):
        code, _, error = deal(*common, "other.png", *options, "--symmetries", "4", *refused)
        assert code != 0
        assert "leave one of these out" in error
        assert not (tmp_path / "other.png").exists()
