"""Robustness: rows against direct reconstructions, tables against rows, and runs that go on."""

import json

import numpy as np
import pytest
import torch
from conftest import relative, small_model
from PIL import Image
from skimage import data

import torchdeal as td
from torchdeal.benchmark import command, ct, methods, mri, robustness, superres
from torchdeal.benchmark.images import clean_image
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.robustness import scenarios
from torchdeal.benchmark.robustness.mistakes import wider_kernel
from torchdeal.benchmark.robustness.questions import robustness_sections
from torchdeal.benchmark.robustness.scenarios import SETTINGS, perturbation, starting_point
from torchdeal.benchmark.simulated import blurred, noisy
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, Fourier

SIDE = 24
KERNEL = np.outer([0.2, 0.5, 0.3], [0.1, 0.2, 0.4, 0.2, 0.1]).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small pictures where the other experiments look for theirs."""
    path = tmp_path_factory.mktemp("robustness")
    gray, colour = data.camera()[96 : 96 + SIDE, 192 : 192 + SIDE], data.astronaut()[8 : 8 + SIDE, 128 : 128 + SIDE]
    (path / "kernels").mkdir()
    np.savez(path / "kernels" / "Levin09.npz", k1=KERNEL, k3=KERNEL)
    np.savez(path / "kernels" / "kernels_12.npz", k0=KERNEL, k1=KERNEL, k2=KERNEL, k3=KERNEL)
    sets = {"BSD68": ["a", "b"], "Set12": ["01", "02", "05"], "CBSD68": ["c"], "CT": "abc", "MRI-knee": "abcdef"}
    for name, images in sets.items():
        (path / "test" / name).mkdir(parents=True)
        for image in images:
            Image.fromarray(colour if name == "CBSD68" else gray).save(path / "test" / name / f"{image}.png")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Untrained models with few filters: they are quick, and their fixed points are as real as any."""
    path, found = tmp_path_factory.mktemp("models"), {}
    for channels in (1, 3):
        found[channels] = small_model(channels, features=4, dtype=torch.float32).requires_grad_(False)
        td.save(found[channels], path / f"{channels}.safetensors")
    return path, found


@pytest.fixture
def run(folder, models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        methods, "BUNDLED", {channels: str(models[0] / f"{channels}.safetensors") for channels in (1, 3)}
    )
    monkeypatch.setattr(superres, "CROP", SIDE)
    monkeypatch.setattr(ct, "SIZE", SIDE)
    monkeypatch.setattr(robustness, "LANCZOS_STEPS", 3)
    monkeypatch.setattr(robustness, "STRICT_TOLERANCE", 3e-5)

    def run(*arguments, methods=("deal",)):
        given = ["robustness", "--data", folder, "--out", tmp_path / "out", "--device", "cpu", "--threads", 1]
        code = 0
        try:
            command.main([*map(str, given), *map(str, arguments), "--methods", *methods])
        except SystemExit as stop:
            code = stop.code
        captured, path = capsys.readouterr(), tmp_path / "out" / "robustness.json"
        return code, captured.out, captured.err, Results.load(path) if path.exists() else None

    return run


def by_variant(results, method="deal", image=None):
    return {row.variant: row.values for row in results.rows if row.method == method and image in (None, row.image)}


def test_denoising(run, folder, models):
    code, out, err, results = run("--cells", "sigma 25", "--limit", 1)
    assert code == 0, err
    found = by_variant(results)
    assert list(found) == [
        *("as it is", "noise -30 %", "noise +30 %"),
        *("start zero", "start uniform", "start normal", "start adjoint", "start truth"),
        *("strict", "perturbed 1", "perturbed 2", "perturbed where it matters most"),
    ]
    clean = clean_image(folder / "test/BSD68/a.png", 1)
    y = clean + torch.from_numpy(np.random.RandomState(0).normal(0, 25 / 255, clean.shape)).float()

    def solve(y, **options):
        return td.reconstruct(y, model=models[1][1], data_range=1.0, **{"sigma": 25 / 255, **options})

    for variant, sigma in {"as it is": 25, "noise -30 %": 17.5, "noise +30 %": 32.5}.items():
        assert found[variant]["psnr"] == pytest.approx(psnr(solve(y, sigma=sigma / 255).x, clean), abs=1e-3)
    zero, truth = solve(y, tolerance=1e-4), solve(y, tolerance=1e-4, start=clean)
    assert found["start truth"]["iterations"] == int(truth.iterations) != int(zero.iterations)
    assert found["start truth"]["apart"] == pytest.approx(relative(truth.x, zero.x), rel=0.05)
    assert found["start zero"]["apart"] == 0
    before = solve(y, tolerance=3e-5, keep_path=True)
    e = torch.from_numpy(np.random.RandomState(1).normal(size=y.shape)).float()
    e *= 1e-3 * y.norm() / e.norm()
    ratio = float((solve(y + e, tolerance=3e-5).x - before.x).norm() / e.norm())
    assert found["perturbed 1"]["ratio"] == pytest.approx(ratio, rel=0.02)
    levels = [psnr(x, clean) for x in before.path[1:]]
    assert found["strict"]["best"] == pytest.approx(max(levels), abs=1e-3)
    assert found["strict"]["drop"] == pytest.approx(
        max(max(levels[: k + 1]) - levels[k] for k in range(len(levels))), abs=1e-3
    )
    # the bound holds, and the direction that matters most comes near it
    assert found["perturbed where it matters most"]["ratio"] == pytest.approx(found["strict"]["gain"], rel=0.05)
    assert max(found[f"perturbed {draw}"]["ratio"] for draw in (1, 2)) < found["strict"]["gain"]
    assert "| denoising, sigma 25 |" in " ".join(out.split())


def test_a_wrong_kernel_is_told_and_the_right_one_was_used(run, folder, models):
    code, _, err, results = run("--cells", "deblurring", "--limit", 1, methods=("deal-rule", "tv"))
    assert code == 0, err
    clean = clean_image(folder / "test/Set12/01.png", 1)
    problem = blurred("01", clean, Blur(KERNEL), 2.55)
    right, wrong = (
        psnr(td.reconstruct(problem.y, H, model=models[1][1], noise=0.01, data_range=1.0).x, clean, eight_bit=True)
        for H in (problem.operator, wider_kernel(problem.operator))
    )
    found = by_variant(results, "deal-rule")
    assert found["as it is"]["psnr"] == pytest.approx(right, abs=0.01)
    assert found["kernel 5 % wider"]["psnr"] == pytest.approx(wrong, abs=0.01)
    assert right != pytest.approx(wrong, abs=0.01)
    told = ["as it is", "noise -30 %", "noise +30 %", "kernel 5 % wider", "kernel turned by 2 degrees"]
    assert list(found) == list(by_variant(results, "tv")) == told


@pytest.mark.parametrize(
    ("cell", "mistakes"),
    [
        ("super-resolution", {"kernel 5 % wider"}),
        ("one coil", set()),
        ("15 coils", {"coil maps off by 5 %"}),
        ("CT", {"angles off by 0.2 degrees"}),
    ],
)
def test_the_other_problems(run, cell, mistakes, monkeypatch):
    monkeypatch.setattr(robustness, "MOST_PIXELS", {"cpu": 0})
    code, out, err, results = run("--cells", cell, "--limit", 1, "--max-iterations", 2)
    assert code == 0, err
    found = by_variant(results)
    (setting,) = (setting for setting in SETTINGS if cell in setting.name)
    assert set(setting.mistakes) == mistakes
    assert {"as it is", *mistakes} <= set(found)
    assert ("start truth" in found) == ("perturbed 2" in found) == setting.all_questions
    assert len({round(found[variant]["psnr"], 4) for variant in ("as it is", *mistakes)}) == 1 + len(mistakes)
    assert "gain" not in found.get("strict", {})
    assert setting.name in out


def test_a_finished_run_is_not_measured_again(run, monkeypatch):
    arguments = ["--cells", "sigma 50", "--limit", 1, "--max-iterations", 3]
    _, first, _, before = run(*arguments)
    monkeypatch.setattr(robustness, "reconstruct", None)
    monkeypatch.setattr(robustness, "answers", None)
    code, again, err, results = run(*arguments, "--resume")
    assert code == 0, err
    assert (again, results.rows) == (first, before.rows)


def test_an_interrupted_run_goes_on(run, monkeypatch):
    arguments = ["--cells", "sigma 50", "--limit", 2, "--max-iterations", 2]
    ask = robustness.Asking._perturb

    def interrupted(self, method, batch):
        if batch[0].image == "b":
            raise KeyboardInterrupt
        ask(self, method, batch)

    monkeypatch.setattr(robustness.Asking, "_perturb", interrupted)
    code, _, err, before = run(*arguments)
    assert code == 130
    assert "go on with --resume" in err
    assert "perturbed 1" in by_variant(before, image="a")
    assert "perturbed 1" not in by_variant(before, image="b")
    monkeypatch.setattr(robustness.Asking, "_perturb", ask)
    code, _, err, after = run(*arguments, "--resume")
    assert code == 0, err
    assert after.rows[: len(before.rows)] == before.rows
    keys = [(row.image, row.variant) for row in after.rows]
    assert len(set(keys)) == len(keys)
    bound = {robustness.WORST}  # of the first image alone
    assert set(by_variant(after, image="a")) - bound == set(by_variant(after, image="b"))


def test_a_competitor_that_cannot_run_says_why(run):
    code, _, err, results = run("--cells", "sigma 25", "--limit", 1, "--max-iterations", 2, methods=("tv", "wcrr"))
    assert code == 0, err
    assert "--peers-dir" in results.reasons["denoising, sigma 25"]["wcrr"]
    assert list(by_variant(results, "tv")) == ["as it is", "noise -30 %", "noise +30 %"]


def test_one_noise_level_that_is_refused_leaves_the_others(run, monkeypatch):
    def picky(noisy, sigma):
        if sigma > 30:
            raise robustness.Unavailable(f"not for {sigma:g}")
        return noisy

    monkeypatch.setattr(robustness, "find_method", lambda *_: picky)
    monkeypatch.setattr(robustness, "known_parameters", lambda *_: {})
    _, out, _, results = run("--cells", "sigma 25", "--limit", 2, methods=("picky",))
    assert list(by_variant(results, "picky")) == ["as it is", "noise -30 %"]
    assert results.reasons == {"denoising, sigma 25": {"picky": "not for 32.5"}}
    (line,) = (line for line in out.splitlines() if line.startswith("| denoising"))
    assert line.split("|")[-2].strip() == "-"


def test_an_unknown_cell_is_one_line(run):
    code, out, err, _ = run("--cells", "microscopy")
    assert (code, out) == (1, "")
    assert err.startswith("Error: there is no such cell; choose from denoising, sigma 25; ")


@pytest.mark.parametrize("draw", [*robustness.DRAWS, *robustness.QUICK_DRAWS])
def test_perturbations_are_not_the_noise(draw):
    clean = torch.full((1, 1, 32, 32), 0.5)
    problem = noisy("a", clean, 25.0)
    e, noise = perturbation(problem.y, draw), problem.y - clean
    assert abs(float((e * noise).sum() / (e.norm() * noise.norm()))) < 0.1


def test_perturbations_have_their_size_and_place():
    mask = torch.arange(16).expand(16, 16) % 3 == 0
    y = Fourier(mask).forward(torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0)))
    e = perturbation(y, 0)
    assert float(e.norm() / y.norm()) == pytest.approx(1e-3)
    assert not bool((e[..., ~mask] != 0).any())
    assert float(e.imag.norm()) == pytest.approx(float(e.real.norm()), rel=0.3)
    assert not torch.equal(e, perturbation(y, 1))


def test_starting_points():
    problem = noisy("a", torch.full((1, 1, 64, 64), 0.5), 25)
    points = {name: starting_point(name, problem) for name in robustness.STARTS}
    assert points["zero"] is None
    assert torch.equal(points["adjoint"], problem.y)
    assert torch.equal(points["truth"], problem.clean)
    assert (float(points["uniform"].min()) >= 0, float(points["uniform"].max()) <= 1) == (True, True)
    assert float(points["normal"].std()) == pytest.approx(1, abs=0.05)


def rows(variant, method="deal", **values):
    """One for each image."""
    shared = {"status": "CONVERGED", "iterations": 10}
    each = ({name: value[index] for name, value in values.items()} for index in range(2))
    return [Row("deblurring", "ab"[index], method, {**shared, **found}, variant) for index, found in enumerate(each)]


@pytest.fixture
def written(tmp_path):
    """Results with known numbers, as they come out of a file."""
    results = Results("robustness", {}, {"deblurring": {"table": "Robustness", "column": "deblurring"}})
    results.environments.append({})
    results.rows += rows("as it is", psnr=[30.0, 32.0])
    results.rows += rows("noise -30 %", psnr=[29.0, 30.0]) + rows("noise +30 %", psnr=[29.5, float("nan")])
    results.rows += rows("kernel 5 % wider", psnr=[28.0, 27.0])
    results.rows += rows("as it is", "tv", psnr=[28.0, 29.0]) + rows("kernel 5 % wider", "tv", psnr=[27.5, 28.5])
    for start, apart, levels in zip(
        robustness.STARTS, (0, 1e-4, 2e-4, 3e-4, 4e-4), (30, 30.1, 30, 30, 29.9), strict=True
    ):
        results.rows += rows(f"start {start}", psnr=[levels, 31.0], apart=[apart, apart / 2])
    gains = {"gain": [3.0, 2.0], "frozen_gain": [1.0, 1.5], "contraction": [0.5, 1.2]}
    results.rows += rows("strict", psnr=[30.01, 32.01], best=[30.3, 32.0], drop=[0.29, 0.0], **gains)
    results.rows += rows("perturbed 1", psnr=[30.0, 30.0], ratio=[0.5, 0.7])
    results.rows += rows("perturbed where it matters most", psnr=[30.0, 30.0], ratio=[2.9, 2.1])
    results.reasons["deblurring"] = {"wcrr": "for want of weights"}
    results.save(tmp_path)
    return Results.load(tmp_path / "robustness.json")


def test_tables_say_what_the_rows_say(written):
    sections = {section.title: section for section in robustness_sections(written)}
    tables = {title: section.tables[0].rows for title, section in sections.items()}
    assert tables == {
        "Five starts": [
            [
                "deblurring",
                "10 of 10",
                "30.50",
                "0.200",
                "1.0e-04",
                "2.0e-04",
                "3.0e-04",
                "4.0e-04",
                "10, 10, 10, 10, 10",
            ]
        ],
        "Perturbed measurements": [["deblurring", "6 of 6", "0.6", "0.7", "2.9", "3", "1.5", "2"]],
        "A wrong noise level": [["deblurring", "DEAL", "31.00", "-1.50", "-0.50"]],
        "More iterations": [["deblurring", "2 of 2", "10", "31.000", "2 of 2", "10", "31.010", "0.290"]],
        "A wrong operator": [
            ["deblurring", "kernel 5 % wider", "DEAL", "31.00", "-3.50"],
            ["deblurring", "kernel 5 % wider", "Total variation", "28.50", "-0.50"],
        ],
    }
    compared = {title for title, section in sections.items() if section.notes}
    assert compared == {"A wrong noise level", "A wrong operator"}  # the other questions are for ours alone
    assert sections["A wrong operator"].notes == ["deblurring: WCRR: not measured: for want of weights"]
    for section in sections.values():
        assert section.text.endswith(".")
        (details,) = section.details
        assert all(len(row) == len(details.head) for row in details.rows)
        str(section.tables[0])


def test_questions_that_were_not_asked_have_no_table(written):
    written.rows = [row for row in written.rows if row.variant in ("as it is", "kernel 5 % wider")]
    assert [section.title for section in robustness_sections(written)] == ["A wrong operator"]


def test_quick_is_small(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scenarios, "QUICK_SIDE", 16)
    monkeypatch.setattr("torchdeal.benchmark.denoising.QUICK_CROP", 20)
    monkeypatch.setattr(mri, "QUICK_SIDE", 20)
    options = robustness.BenchmarkOptions(out=tmp_path, data=folder, quick=True, device="cpu")
    chosen = [setting for setting in SETTINGS if setting.experiment in ("denoising", "mri")]
    sizes = {one.name: [problem.clean.shape[-1] for problem in one.cell(options).problems()] for one in chosen}
    assert sizes["denoising, sigma 25"] == [16]
    assert sizes["MRI 4x, one coil"] == [20]
    assert json.dumps(robustness.EXPERIMENT.settings(options))
