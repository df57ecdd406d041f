"""Automatic parameters beside the best pair: rows against direct calls, small runs, the table."""

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.benchmark import methods, tune
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.simulated import with_holes
from torchdeal.metrics import psnr


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """A model with few filters, small crops, and a small grid."""
    model = small_model(features=4, dtype=torch.float32).requires_grad_(False)
    td.save(model, tmp_path / "small.safetensors")
    monkeypatch.setattr(methods, "BUNDLED", {1: str(tmp_path / "small.safetensors")})
    monkeypatch.setattr(tune, "SIZE", 24)
    monkeypatch.setattr(tune, "QUICK_SIZE", 24)
    monkeypatch.setattr(tune, "SIGMAS", (10.0, 30.0))
    monkeypatch.setattr(tune, "STRENGTHS", (0.5, 2.0))
    return model


def test_a_row_is_what_the_library_finds(quick, tmp_path):
    options = BenchmarkOptions(out=tmp_path, device="cpu", max_iterations=5)
    (cell,) = (cell for cell in tune.cells(options) if cell.name.startswith("inpainting, 50 %"))
    (problem,) = cell.problems()
    values = tune.Trying(quick, problem, options).values()
    limits = {"model": quick, "data_range": 1.0, "max_iterations": 5}
    automatic = td.reconstruct(problem.y, problem.operator, noise=problem.noise, **limits)
    assert values["psnr"] == pytest.approx(psnr(automatic.x, problem.clean))
    assert values["sigma"] == pytest.approx(255 * float(automatic.sigma))
    levels = [values["psnr"]]
    for sigma in (255 * float(automatic.sigma), 10.0, 30.0):
        lam = td.reconstruct(problem.y, problem.operator, noise=problem.noise, sigma=sigma / 255, **limits).lam
        for strength in (0.5, 2.0):
            found = td.reconstruct(problem.y, problem.operator, sigma=sigma / 255, lam=strength * lam, **limits)
            levels.append(psnr(found.x, problem.clean))
    assert values["best"] == pytest.approx(max(levels), abs=1e-3)


def test_a_quick_run_has_a_line_for_each_problem_and_goes_on(quick, command):
    run = command("tune", "--quick", "--max-iterations", 2)
    assert run.code == 0, run.err
    assert {row.cell for row in run.results.rows} == set(tune.problems())
    assert all(row.values["best"] >= row.values["psnr"] for row in run.results.rows)
    assert "| all" in run.out
    again = command("tune", "--quick", "--max-iterations", 2, "--resume")
    assert len(again.results.rows) == len(run.results.rows)


def test_losses_are_those_of_the_rows():
    results = Results("tune", {})
    for image, best in (("a", 30.1), ("b", 31.0)):
        values = {"psnr": 30.0, "best": best, "sigma": 10.0, "best_sigma": 20.0, "best_strength": 1.4}
        results.add(Row("MRI 4x", image, "deal", {**values, "status": "CONVERGED", "cost": 1.1}))
    results.cells["MRI 4x"] = {"table": "Automatic parameters", "column": "MRI 4x"}
    (section,) = tune.EXPERIMENT.sections(results)
    assert section.tables[0].rows == [
        ["MRI 4x", "2", "30.00", "30.55", "0.55", "1.00", "1 of 2", "10", "20", "1.4", "2 of 2", "1.10"]
    ]


def test_holes_are_where_the_seed_says():
    clean = torch.rand(1, 1, 40, 40)
    problem = with_holes("a", clean, 3, missing=0.8, noise=5.0)
    known = problem.operator.forward(torch.ones_like(clean)) > 0
    assert 0.1 < float(known.float().mean()) < 0.3
    assert float(problem.y[~known].abs().max()) == 0
    assert float((problem.y - clean)[known].std()) == pytest.approx(5 / 255, rel=0.15)
    assert not torch.equal(problem.y, with_holes("a", clean, 4, missing=0.8, noise=5.0).y)
