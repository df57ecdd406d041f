"""Parameters: the best are found, each set is tried once, and never on images that are reported."""

import json
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import torch

from torchdeal.benchmark import ct, deblur, denoising, mri, superres, tuning
from torchdeal.benchmark.core import Cell, PosedProblem
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import choice, tunable
from torchdeal.benchmark.results import Results, Row
from torchdeal.benchmark.tuning import best_parameters, known_parameters, ship, tuned_parameters
from torchdeal.operators import Identity

GRID = {"strength": tuple(2.0**k for k in range(-4, 5)), "level": (5.0, 10.0, 15.0, 25.0, 40.0)}


def hill(strength, level):
    """Which has its peak at the values, with a slope across both parameters."""

    def score(values):
        a, b = np.log2(values["strength"] / strength), np.log(values["level"] / level)
        return -(a**2) - b**2 - 0.5 * a * b

    return score


@pytest.mark.parametrize("start", [{"strength": 1.0, "level": 10.0}, {"strength": 0.07, "level": 1000.0}])
@pytest.mark.parametrize(("strength", "level"), [*product((2**-4, 0.5, 16.0), (5.0, 15.0, 40.0))])
def test_the_peak_is_found_within_the_grid(strength, level, start):
    asked = []

    def score(values):
        asked.append(values)
        return hill(strength, level)(values)

    assert best_parameters(score, GRID, start) == {"strength": strength, "level": level}
    assert all(values[name] in GRID[name] for values in asked for name in GRID)


def test_a_peak_outside_gives_the_border():
    assert best_parameters(hill(1000.0, 1.0), GRID, {"strength": 1.0, "level": 15.0}) == {"strength": 16, "level": 5}


@dataclass(frozen=True, eq=False)
class Peaked:
    """Its answer is wrong by as much as its parameters are."""

    asked: list = field(default_factory=list)
    strength: float = tunable(1.0, 0.25, 0.5, 1.0, 2.0, 4.0)
    level: float = choice(5.0, 5.0, 15.0)

    def __call__(self, y, H, noise):
        self.asked.append((self.strength, self.level))
        return y + 0.1 * abs(np.log2(self.strength / 2.8)) + 0.01 * (self.level - 15) ** 2


@pytest.fixture
def tuned(tmp_path):
    """Tune a method on one image of zeros."""
    zeros, said = torch.zeros(1, 1, 4, 4), []

    def problems():
        return [PosedProblem("a", zeros, zeros, Identity(), 0.1)]

    def run(method, tune_on=problems, **start):
        cell = Cell("cell", "table", "column", "deblur", 1, list, tune_on)
        return tuned_parameters(method, cell, BenchmarkOptions(out=tmp_path, device="cpu"), said.append, start)

    return run


@pytest.mark.parametrize("start", [{}, {"strength": 0.25}, {"strength": 2.7, "level": 15.0}])
def test_parameters_are_refined_and_none_is_tried_twice(tuned, start):
    method = Peaked()
    found = tuned(method, **start)
    assert found == {"strength": pytest.approx(2**1.5), "level": 15.0}  # 2.83: between 2 and 4
    assert len(set(method.asked)) == len(method.asked)
    assert all(0.25 <= strength <= 4 and level in (5, 15) for strength, level in method.asked)


def test_nothing_to_tune(tuned):
    assert tuned(Peaked(), tune_on=None) == {}

    @dataclass(frozen=True)
    class Fixed:
        def __call__(self, y, H, noise):
            raise AssertionError("there is nothing to try")

    assert tuned(Fixed()) == {}
    assert known_parameters("deblur", "kernel 1, noise 2.55", "deal", Fixed()) == {}


EXPERIMENTS = {"denoising": denoising, "superres": superres, "deblur": deblur, "mri": mri, "ct": ct}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_reported_images_are_not_tuned_on(name, quick, folder, tmp_path):
    options = BenchmarkOptions(out=tmp_path, data=folder, device="cpu", quick=quick)
    cells = [cell for cell in EXPERIMENTS[name].cells(options) if not cell.name.endswith(("PD", "PDFS"))]
    assert cells
    reported = [problem.clean for cell in cells for problem in cell.problems()]
    tried = [problem.clean for cell in cells for problem in cell.tuning()]
    assert reported
    assert tried
    for clean in reported:
        assert not any(clean.shape == other.shape and torch.allclose(clean, other, atol=1e-3) for other in tried)


def test_the_package_has_our_parameters_of_every_group():
    shipped = json.loads(tuning.SHIPPED.read_text())
    groups = {"deblur": 4, "superres": 6, "mri": 2, "ct": 2}
    assert {name: len(shipped[name]) for name in groups} == groups
    assert all("deal" in methods for name in groups for methods in shipped[name].values())


def test_what_was_chosen_is_shipped(tmp_path, monkeypatch):
    path = tmp_path / "parameters.json"
    path.write_text(json.dumps({"ct": {"30 angles": {"tv": {"strength": 1.0}, "deal": {"sigma": 4.0}}}}))
    monkeypatch.setattr(tuning, "SHIPPED", path)
    tuning._shipped.cache_clear()
    results = Results(
        "ct", {}, parameters={"30 angles": {"tv": {"strength": 2.0}, "fbp": {}}, "60 angles": {"fbp": {}}}
    )
    results.add(Row("30 angles", "a", "tv", {"psnr": 1.0}))
    (tmp_path / "found").mkdir()
    results.save(tmp_path / "found")
    ship([tmp_path / "found"])
    tuning._shipped.cache_clear()
    assert json.loads(path.read_text()) == {"ct": {"30 angles": {"tv": {"strength": 2.0}, "deal": {"sigma": 4.0}}}}
    assert known_parameters("ct", "30 angles", "tv", Peaked()) == {"tv": {"strength": 2.0}}
    assert known_parameters("ct", "60 angles", "tv", Peaked()) == {}


@pytest.fixture(autouse=True)
def _parameters_as_they_ship():
    yield
    tuning._shipped.cache_clear()
