"""The stored results agree with each other where they are of the same thing."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from torchdeal.benchmark.results import Results
from torchdeal.benchmark.robustness.questions import RIGHT
from torchdeal.benchmark.robustness.scenarios import SETTINGS

RESULTS = Path(__file__).parents[2] / "results"
APART = 0.06  # dB: runs to a tolerance, on other devices

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not in this archive")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_what_is_as_assumed_is_in_the_main_tables_too(setting):
    robustness, main = (Results.load(RESULTS / f"{name}.json") for name in ("robustness", setting.experiment))
    cells = [cell for cell in main.cells if fnmatchcase(cell, setting.cells)]
    known = {
        (row.method, row.image): row.values["psnr"]
        for row in main.rows
        if row.cell in cells and row.variant in ("", "kernel 1")
    }
    right = [row for row in robustness.rows if row.cell == setting.name and row.variant == RIGHT]
    pairs = [(row.values["psnr"], known[row.method, row.image]) for row in right if (row.method, row.image) in known]
    assert len(pairs) >= 3
    assert [pair for pair in pairs if abs(pair[0] - pair[1]) > APART] == []
