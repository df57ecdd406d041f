"""The accuracy of error bars, against the formula by hand."""

from functools import partial

import deviations
import pytest
import torch

import torchdeal as td
from torchdeal.benchmark.images import sample_picture
from torchdeal.benchmark.simulated import noisy
from torchdeal.uncertainty import CALIBRATION

QUICK = ["--kind", "gray-light", "--size", 16]


@pytest.fixture
def run(command):
    return partial(command, deviations.TOOL)


def test_errors_are_against_the_inverse(run):
    content, out, code = run("--probes", 3, "--cells", "sigma 25", *QUICK)
    assert code == 0
    (row,) = content["results"]
    problem = noisy(*sample_picture(None, 1, 16), 25)
    rec = td.reconstruct(problem.y, sigma=25 / 255, model="gray-light", data_range=1)
    with torch.no_grad():
        apply = rec.equation.system().precise(rec.image).apply
        matrix = torch.stack([apply(one.view(1, 1, 16, 16)).flatten() for one in torch.eye(256)]).double()
    expected = CALIBRATION * 25 / 255 * torch.linalg.inv(matrix).diagonal().sqrt()
    ratio = td.uncertainty(rec, probes=3).double().flatten() / expected - 1
    assert row["error"] == pytest.approx(float(ratio.square().mean().sqrt()), rel=1e-3)
    assert row["mean_error"] == pytest.approx(float(ratio.mean()), rel=1e-2, abs=1e-4)
    assert row["cost"] > 0
    assert "denoising, sigma 25" in out


def test_a_picture_that_is_too_small(run):
    assert "must be at least 16" in run("--size", 8)[2]
