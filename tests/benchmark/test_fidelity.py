"""Other noise: what is simulated has the moments that it should, rows are what the library finds, tables."""

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.benchmark import fidelity, methods
from torchdeal.benchmark.images import clean_image
from torchdeal.benchmark.results import Results, Row
from torchdeal.metrics import psnr
from torchdeal.operators import Identity


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """A model with few filters, and small crops."""
    model = small_model(features=4, dtype=torch.float32).requires_grad_(False)
    td.save(model, tmp_path / "small.safetensors")
    monkeypatch.setattr(methods, "BUNDLED", {1: str(tmp_path / "small.safetensors")})
    monkeypatch.setattr(fidelity, "QUICK_SIZE", 20)
    return model


GRAY = torch.full((1, 1, 200, 200), 0.4)


@pytest.mark.parametrize("kind", fidelity.KINDS)
def test_the_noise_is_as_it_is_told(kind):
    """Impulses but for the pixels that are black or white."""
    y, told = fidelity.KINDS[kind](GRAY, Identity(), 3)
    levels = told if isinstance(told, torch.Tensor) else told.deviation(GRAY, GRAY)
    normal = ((y - GRAY) / levels)[(y != 0) & (y != 1)] if kind == "impulses" else (y - GRAY) / levels
    assert float(normal.mean()) == pytest.approx(0, abs=0.03)
    assert float(normal.std()) == pytest.approx(1, abs=0.02)
    if kind == "impulses":
        assert float(((y == 0) | (y == 1)).double().mean()) == pytest.approx(fidelity.SHARE, abs=0.01)


def test_rows_are_what_the_library_finds(quick, command, folder):
    run = command("fidelity", "--quick", "--data", folder, "--limit", 1, "--cells", "BSD68, blur, 10 photons")
    assert run.code == 0, run.err
    rows = {row.method: row.values for row in run.results.rows}
    clean = clean_image(folder / "test" / "BSD68" / "a.png", 1, 20)
    blur = fidelity.Blur(fidelity.gaussian_kernel(fidelity.BLUR), "reflect")
    y = fidelity.measure_counts(clean, blur, 1 / 10, seed=0)
    rms = float((y - blur.forward(clean)).square().mean().sqrt())
    for name, noise in (("least-squares", rms), ("noise-model", td.Poisson(1 / 10))):
        rec = td.reconstruct(y, blur, model=quick, noise=noise, data_range=1.0, max_iterations=40)
        assert rows[name]["psnr"] == pytest.approx(psnr(rec.x, clean), abs=1e-3)
        assert rows[name]["iterations"] == int(rec.iterations)
    assert "Other noise: BSD68" in run.out


def test_gains_are_those_of_the_same_images():
    results = Results("fidelity", {}, cells={"cell": {"table": "BSD68", "column": "denoising, map"}})
    values = {"least-squares": {"a": 30.0, "b": 20.0, "c": 50.0}, "noise-model": {"b": 21.5, "a": 30.5}}
    for method, levels in values.items():
        for image, level in levels.items():
            seconds = 1.0 if method == "least-squares" else 3.0
            results.add(Row("cell", image, method, {"psnr": level, "seconds": seconds}))
    (section,) = fidelity.EXPERIMENT.sections(results)
    (table,) = section.tables
    assert list(table.rows[0]) == ["denoising, map", "2", "25.00", "26.00", "+1.00", "+0.50", "3.0"]


def test_without_rows_there_is_no_table():
    results = Results("fidelity", {}, cells={"cell": {"table": "BSD68", "column": "denoising, map"}})
    (section,) = fidelity.EXPERIMENT.sections(results)
    assert section.tables == []
