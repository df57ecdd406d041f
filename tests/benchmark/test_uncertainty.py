"""Coverage of error bars: shares against made-up errors, rows against direct calls, small runs."""

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.benchmark import methods, uncertainty
from torchdeal.benchmark.images import clean_image
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.simulated import noisy

COLUMNS = ["all 50", "all 90", "all 95", "edges 90", "flat 90", "factor", "squares", "ranks"]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """A model with few filters, and small crops."""
    model = small_model(features=4, dtype=torch.float32).requires_grad_(False)
    td.save(model, tmp_path / "small.safetensors")
    monkeypatch.setattr(methods, "BUNDLED", {1: str(tmp_path / "small.safetensors")})
    monkeypatch.setattr(uncertainty, "SIZE", 24)
    monkeypatch.setattr(uncertainty, "QUICK_SIZE", 20)
    return model


def ramp(size=32):
    """Flat on the left, ever steeper to the right, with no two columns alike."""
    return (torch.arange(size).double() / size).pow(3).expand(1, 1, size, size)


def test_normal_errors_are_covered_as_stated():
    size = 400
    deviation = 0.01 * (1 + ramp(size))
    error = deviation * torch.randn(1, 1, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = uncertainty.coverage(error, deviation, ramp(size))
    for part in ("all", "edges", "flat"):
        for level in (50, 90, 95):
            assert found[f"{part} {level}"] == pytest.approx(level / 100, abs=0.01)
    assert found["factor"] == pytest.approx(1, abs=0.02)
    assert found["squares"] > 0.85
    assert 0.05 < found["ranks"] < 0.5


def test_edges_and_flat_parts_are_told_apart():
    """Errors beyond all intervals, but only where the image is steep."""
    deviation = torch.full((1, 1, 32, 32), 0.01, dtype=torch.float64)
    error = torch.where(torch.arange(32) >= 24, 1.0, 0.0).double().expand_as(deviation)
    found = uncertainty.coverage(error, deviation, ramp())
    assert (found["edges 90"], found["flat 90"]) == (0, 1)
    assert found["all 90"] == 0.75


def test_a_row_is_what_the_library_finds(quick, command, folder):
    run = command("uncertainty", "--data", folder, "--limit", 1, "--cells", "BSD68, denoising, sigma 15")
    assert run.code == 0, run.err
    (row,) = run.results.rows
    clean = clean_image(folder / "test" / "BSD68" / "a.png", 1, 24)
    problem = noisy("a", clean, 15)
    rec = td.reconstruct(problem.y, model=quick, sigma=15 / 255)
    inside = (rec.x - clean).abs() < 1.645 * td.uncertainty(rec)
    assert row.values["all 90"] == pytest.approx(float(inside.double().mean()), abs=2e-3)
    assert run.results.settings["calibration"] == pytest.approx(uncertainty.CALIBRATION)
    assert "Error bars: BSD68" in run.out


def test_all_problems_without_data(quick, command):
    run = command("uncertainty", "--quick", "--max-iterations", 3)
    assert run.code == 0, run.err
    names = [row.cell for row in run.results.rows]
    assert len(names) == len(set(names)) == 8
    assert all(name.startswith("scikit-image, ") for name in names)
    for row in run.results.rows:
        assert all(0 <= row.values[column] <= 1 for column in COLUMNS[:5])
        assert row.values["cost"] > 0
    assert run.out.count("denoising, sigma") == 4
    assert "denoising, all of these" in run.out
    again = command("uncertainty", "--quick", "--max-iterations", 3, "--resume")
    assert [row.values for row in again.results.rows] == [row.values for row in run.results.rows]


def test_knee_images_are_for_mri_alone(quick, folder, tmp_path):
    options = uncertainty.BenchmarkOptions(out=tmp_path, data=folder, device="cpu")
    names = [cell.name for cell in uncertainty.cells(options)]
    assert [name for name in names if "MRI" in name] == ["Set12, MRI 4 x", "MRI-knee, MRI 4 x"]
    assert len(names) == 8 + 7 + 1
    (knee,) = (cell for cell in uncertainty.cells(options) if cell.name.startswith("MRI-knee"))
    assert [problem.image for problem in knee.problems()] == ["a", "b"]  # not those that parameters were chosen on


def test_the_table_has_means_over_images_and_levels():
    results = Results("uncertainty", {})
    for sigma, shares in ((5, [0.8, 0.9]), (15, [1.0])):
        cell = f"here, denoising, sigma {sigma}"
        results.cells[cell] = {"table": "here", "column": f"denoising, sigma {sigma}"}
        for image, share in enumerate(shares):
            results.add(Row(cell, f"{image}", "deal", dict.fromkeys(COLUMNS, share) | {"cost": 1.5, "flat 90": None}))
    (section,) = uncertainty.EXPERIMENT.sections(results)
    (table,) = section.tables
    assert [line[0] for line in table.rows] == [
        "denoising, sigma 5",
        "denoising, sigma 15",
        "denoising, all of these",
    ]
    assert [line[1] for line in table.rows] == ["2", "1", "3"]
    assert [line[3] for line in table.rows] == ["85.0%", "100.0%", "90.0%"]
    assert [line[6] for line in table.rows] == ["?", "?", "?"]


def test_other_methods_have_no_error_bars(command):
    run = command("uncertainty", "--methods", "tv")
    assert run.code == 1
    assert run.err.startswith("Error: there is no method tv here; choose from deal")
