"""Reach: what differs between a part of the answer and the answer for a part, by the distance to the border."""

import numpy as np
import pytest
import torch

from torchdeal.benchmark import reach
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.results import Results, Row


def test_differences_are_those_of_the_core():
    whole = torch.ones(1, 1, 20, 24)
    part = whole.clone()
    part[..., 0, :] += 0.5  # at the border
    part[..., 5, 10] -= 0.1  # five pixels from it
    values = reach._profile(whole, part)
    assert values["pixel 0"] == pytest.approx(255 * 0.5)
    assert values["pixel 4"] == pytest.approx(255 * 0.1, rel=1e-5)
    assert values["difference 4"] == pytest.approx(0.1 / np.sqrt(12 * 16), rel=1e-5)
    assert values["difference 8"] == 0


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 50 x 50 is needed"):
        reach.middle(torch.zeros(1, 1, 40, 60), 50, 50)


def test_the_table_has_the_largest_of_all_pictures(tmp_path):
    results = Results("reach", reach.EXPERIMENT.settings(BenchmarkOptions(out=tmp_path, device="cpu")))
    results.weights["deal"] = {"gray": "0"}
    results.cells["denoising, sigma 5"] = {"table": "Reach", "column": ""}
    for image, size in (("a", 1e-3), ("b", 3e-3)):
        values = {"model sigma": 5.0, "difference 0": size, "pixel 0": 1e3 * size}
        distances = {"whole distance": size, "part distance": 0.0}
        results.add(Row("denoising, sigma 5", image, "deal", {**values, **distances}))
    (section,) = reach.EXPERIMENT.sections(results)
    assert section.tables[0].rows == [["denoising, sigma 5", "5", "3e-03, 3"]]
    assert "but for denoising, sigma 5 (a), denoising, sigma 5 (b)" in section.notes[0]
