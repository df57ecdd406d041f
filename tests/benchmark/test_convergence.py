"""When a run ends: problems that are always the same, rows against direct calls, and what counts as true."""

import math

import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.benchmark import convergence
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.results import Results, Row


def options(path, **given):
    return BenchmarkOptions(out=path, device="cpu", threads=1, quick=True, **given)


@pytest.fixture
def weights(tmp_path):
    td.save(small_model(features=4, dtype=torch.float32).requires_grad_(False), tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


def test_a_problem_is_always_the_same_and_all_kinds_occur():
    kinds = []
    for number in range(len(convergence.KINDS)):
        kind, posed = convergence.problem(number, convergence.PICTURES, (36,))
        again = convergence.problem(number, convergence.PICTURES, (36,))[1]
        kinds.append(kind)
        assert torch.equal(posed.y, again.y)
        assert posed.operator.forward(posed.clean).shape == posed.y.shape
        noise = (posed.y - posed.operator.forward(posed.clean)).abs()
        measured = noise[noise > 0]
        expected = posed.noise * (math.sqrt(2) if posed.y.is_complex() else 1)
        if kind != "80 % of the pixels missing":
            assert float(measured.square().mean().sqrt()) == pytest.approx(expected, rel=0.2)
    assert kinds == list(convergence.KINDS)


def test_rows_say_what_a_direct_call_says(tmp_path, weights):
    asked = options(tmp_path, model=weights, limit=3)
    experiment, said = convergence.EXPERIMENT, []
    results = Results("convergence", experiment.settings(asked), environments=[{}])
    experiment.run(asked, results, lambda: None, said.append)
    experiment.run(asked, results, lambda: None, said.append)  # nothing is missing
    assert len(results.rows) == len(said) == 3
    kind, posed = convergence.problem(1, convergence.PICTURES, (36,))
    (row,) = results.select(kind, "deal")
    rec = td.reconstruct(posed.y, posed.operator, model=weights, noise=posed.noise, data_range=1.0)
    assert row.values["iterations"] == int(rec.iterations)
    assert row.values["distance"] == float(rec.distance)
    model = td.load(weights).double()
    known = {"sigma": rec.sigma, "lam": rec.lam, "tolerance": 1e-6, "data_range": 1.0}
    exact = td.reconstruct(posed.y.to(torch.complex128), posed.operator, model=model, **known).x
    assert row.values["away"] == pytest.approx(float((rec.x - exact).norm() / exact.norm()), abs=3e-5)
    (section,) = experiment.sections(results)
    assert section.tables[0].rows[-1][:2] == ["all", "3"]


def test_what_counts(tmp_path):
    good = {"status": "CONVERGED", "iterations": 60, "distance": 1e-3, "away": 1.5e-3, "psnr": 30.0, "long psnr": 30.04}
    rows = [
        good,
        {**good, "iterations": 61, "status": "UNSETTLED"},
        {**good, "away": 1.6e-3},
        {**good, "long psnr": 29.9},
        {**good, "distance": math.inf},
    ]
    results = Results("convergence", {}, cells={"MRI 4x": {"table": "", "column": ""}})
    for number, values in enumerate(rows):
        results.add(Row("MRI 4x", str(number), "deal", values))
    results.save(tmp_path)
    (section,) = convergence.EXPERIMENT.sections(Results.load(tmp_path / "convergence.json"))
    assert section.tables[0].rows == [["MRI 4x", "5", "4", "4", "4", "1", "4", "2", "60", "0.10"]]


def test_small_pictures_are_refused(tmp_path):
    from PIL import Image

    Image.new("L", (20, 20)).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="at least 36 x 36"):
        convergence.problem(0, [tmp_path / "small.png"], (36,))
