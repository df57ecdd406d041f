"""What the rule loses: the grid against direct reconstructions, and the sums against the grid."""

import json
import math
from functools import partial
from statistics import fmean

import numpy as np
import pytest
import rule
import torch
from conftest import centre
from rule import Grid, Point
from scipy import ndimage
from skimage.metrics import peak_signal_noise_ratio

import torchdeal as td
from torchdeal.estimation import LAM_FACTOR

QUICK = ["--crop", "32", "--tolerance", "1e-2"]
LAM_FACTORS = [0.25, 0.5, math.sqrt(0.5), 1, math.sqrt(2), 2, 4]


@pytest.fixture
def run(command):
    return partial(command, rule.TOOL)


def psnr(x, clean):
    return peak_signal_noise_ratio(clean, np.asarray(x, dtype=float).squeeze().clip(0, 1), data_range=1)


def point(grid, sigma_factor, lam_factor):
    for found in grid["points"]:
        if (found["sigma_factor"], found["lam_factor"]) == pytest.approx((sigma_factor, lam_factor)):
            return found
    raise AssertionError(f"no point {sigma_factor}, {lam_factor}")


def test_lam_only_against_reconstruct(run, folder, gray, kernel):
    names = ["--image", "03", "04", "--problem", "downsample-x2-k2-12.75"]
    content, out, code = run(folder, "--lam-only", *names, *QUICK, "--max-iterations", 4)
    assert code == 0
    grids = content["results"]
    assert [(grid["image"], grid["problem"]) for grid in grids] == [
        ("03.png", "downsample-x2-k2-12.75"),
        ("04.png", "downsample-x2-k2-12.75"),
    ]
    operator = td.operators.Downsample(2, kernel.astype(np.float32))
    for grid in grids:
        clean = centre(folder / "test/Set12" / grid["image"])
        y = ndimage.convolve(clean, kernel, mode="wrap")[::2, ::2]
        y = (y + np.random.RandomState(0).normal(0, 12.75 / 255, y.shape)).astype(np.float32)
        by_rule = td.reconstruct(y, operator, model=gray, noise=12.75 / 255, tolerance=1e-2, max_iterations=4)
        assert point(grid, 1, 1)["psnr"] == pytest.approx(psnr(by_rule.x, clean), abs=0.01)
        assert point(grid, 1, 1)["iterations"] == int(by_rule.iterations)
        assert [found["lam_factor"] for found in grid["points"]] == pytest.approx(LAM_FACTORS)
    (summary,) = content["problems"]
    losses = [max(found["psnr"] for found in grid["points"]) - point(grid, 1, 1)["psnr"] for grid in grids]
    means = [fmean(grid["points"][index]["psnr"] for grid in grids) for index in range(7)]
    assert summary["psnr"] == pytest.approx(means[3])
    assert summary["common_lam_loss"] == pytest.approx(max(means) - means[3])
    assert summary["common_lam_factor"] == pytest.approx(LAM_FACTORS[int(np.argmax(means))])
    assert summary["lam_loss"] == pytest.approx(fmean(losses))
    assert summary["largest_lam_loss"] == summary["largest_loss"] == max(losses)
    # One lam for all cannot be better than one for each, but for rounding.
    assert summary["lam_loss"] >= summary["common_lam_loss"] - 1e-9
    assert content["overall"]["lam_loss"] == summary["lam_loss"]
    assert len(out.splitlines()) == 4
    assert f"{summary['psnr']:.2f} | {summary['lam_loss']:.3f}" in " ".join(out.splitlines()[-1].split())
    assert str(folder) not in json.dumps(content)


def test_sigma_too(run, folder, gray):
    content, out, code = run(folder, "--image", "03", "--problem", "mask-50-15", *QUICK, "--max-iterations", 2)
    assert code == 0
    (grid,) = content["results"]
    assert len(grid["points"]) == 35
    clean = centre(folder / "test/Set12/03.png")
    generator = np.random.RandomState(0)
    mask = generator.uniform(size=(32, 32)) < 0.5
    y = torch.from_numpy(mask * (clean + generator.normal(0, 15 / 255, (32, 32)))).float()[None, None]
    solve = partial(td.reconstruct, y, td.operators.Mask(mask), model=gray, max_iterations=2)
    rule_sigma = point(grid, 1, 1)["sigma"]
    weights = gray.weights()
    for factor in (0.5, math.sqrt(2)):
        sigma = factor * rule_sigma
        lam = 2 * LAM_FACTOR * float(weights.lam(torch.tensor([sigma]))) * (15 / sigma) ** 2
        found = point(grid, factor, 2)
        assert (found["sigma"], found["lam"]) == pytest.approx((sigma, lam), rel=1e-4)
        assert found["psnr"] == pytest.approx(psnr(solve(sigma=sigma / 255, lam=lam).x, clean), abs=0.01)
    assert point(grid, 1, 1)["psnr"] == pytest.approx(psnr(solve(noise=15 / 255).x, clean), abs=0.01)
    (summary,) = content["problems"]
    assert summary["loss"] >= summary["lam_loss"] >= 0
    assert summary["loss"] == max(found["psnr"] for found in grid["points"]) - point(grid, 1, 1)["psnr"]
    unconverged = sum(found["status"] != "CONVERGED" for found in grid["points"])
    assert summary["unconverged"] == unconverged > 0
    assert f"{unconverged} of 35" in out.splitlines()[-1]


def test_fourier_is_scaled_as_it_is(run, folder, gray):
    arguments = ["--image", "04", "--problem", "fourier-4x-0.02", "--lam-only", *QUICK, "--max-iterations", 2]
    content, *_ = run(folder, *arguments)
    clean = centre(folder / "test/Set12/04.png")
    columns = rule.column_sampled("", torch.from_numpy(clean).float()[None, None], 0.02)
    solution = td.reconstruct(
        columns.y, columns.operator, model=gray, noise=0.02, data_range=1.0, tolerance=1e-2, max_iterations=2
    )
    assert point(content["results"][0], 1, 1)["psnr"] == pytest.approx(psnr(solution.x, clean), abs=0.01)


def test_sigmas_that_are_clipped_to_one_value_are_tried_once(gray):
    clean = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    places = rule.grid_places(gray, rule.masked("", clean, 0.2, 40.0), lam_only=False)
    sigmas = {sigma_factor: sigma for sigma_factor, _, sigma, _ in places}
    assert sigmas[1.0] == 50
    assert sorted(sigmas) == pytest.approx([0.5, math.sqrt(0.5), 1])


def test_all_problems_can_be_simulated(folder, gray):
    given = rule.TOOL.parser.parse_args([str(folder), "--crop", "32"])
    cases = {s.name: s.problem(folder / "test/Set12/03.png", given) for s in rule.chosen_scenarios(given.problem)}
    assert len(cases) == len(rule.SCENARIOS) == 19
    for name, case in cases.items():
        residual = case.y - case.operator.forward(case.clean)
        sampled = residual.abs() > 0
        spread = torch.view_as_real(residual[sampled]) if residual.is_complex() else residual[sampled]
        assert float(spread.std()) == pytest.approx(case.noise, rel=0.15), name
        shares = {"mask-50": 0.5, "mask-20": 0.2, "fourier": 0.25}
        share = next((share for start, share in shares.items() if name.startswith(start)), 1)
        assert float(sampled.float().mean()) == pytest.approx(share, abs=0.1), name


def test_a_run_that_diverged_is_the_worst():
    shared = {"sigma_factor": 1.0, "sigma": 15.0, "lam": 1.0, "iterations": 1, "distance": 0.0}
    levels = dict.fromkeys(rule.LAM_FACTORS, 30.0) | {0.25: -math.inf, 2.0: 31.0}
    points = [
        Point(lam_factor=factor, psnr=level, status="CONVERGED" if level > 0 else "DIVERGED", **shared)
        for factor, level in levels.items()
    ]
    grid = Grid("a.png", "blur", 1.0, points)
    assert (grid.best.lam_factor, grid.losses["loss"], grid.unconverged) == (2.0, 1.0, 1)
    assert rule.comparable(math.nan) == -math.inf


def test_interrupted(folder, tmp_path, monkeypatch, capsys):
    try_grid = rule.try_grid

    def interrupted(problem, case, *rest):
        if case.image == "04.png":
            raise KeyboardInterrupt
        return try_grid(problem, case, *rest)

    monkeypatch.setattr(rule, "try_grid", interrupted)
    names = ["--image", "03", "04", "--problem", "blur-k3-7.65", "--lam-only"]
    path = tmp_path / "a.json"
    with pytest.raises(SystemExit) as stop:
        rule.TOOL.main([str(folder), *names, *QUICK, "--max-iterations", "1", "--save", str(path)])
    assert stop.value.code == 130
    assert capsys.readouterr().err.endswith(f"\nInterrupted: what was finished is in {path}\n")
    assert [grid["image"] for grid in json.loads(path.read_text())["results"]] == ["03.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "Set12: no such folder"),
        (["."], "Set12: no such folder"),
        (["DATA"], "there is no image 06"),
        (["DATA", "--image", "03", "--problem", "deblur"], "no problem starts with 'deblur'; there are blur-k1-1,"),
        (["DATA", "--image", "03"], "at least 128 x 128 is needed"),
    ],
)
def test_bad_input_is_one_clear_line(run, folder, arguments, message):
    content, out, code = run(*(folder if word == "DATA" else word for word in arguments))
    assert content is None
    assert out == ""
    assert code.startswith("Error: ")
    assert message in code
    assert len(code.splitlines()) == 1
