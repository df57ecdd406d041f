"""The table of noise estimates, against estimates made by hand."""

import io
from functools import partial
from statistics import median

import noise_estimates
import numpy as np
import pytest
from conftest import centre
from PIL import Image

from torchdeal.noise import estimate_sigma, noise_levels

QUICK = ["--limit", 2, "--crop", 32]


@pytest.fixture
def run(command):
    return partial(command, noise_estimates.TOOL)


def noisy(path, sigma):
    """On the 0..255 scale."""
    clean = centre(path)
    return 255 * (clean + np.random.RandomState(0).normal(0, sigma / 255, clean.shape))


def test_one_row_for_each_level(run, folder):
    pictures = folder / "test/Set12"
    content, out, code = run(pictures, "--sigma", 0, 20, *QUICK)
    assert code == 0
    rows = content["results"]
    assert [(row["image"], row["sigma"]) for row in rows] == [
        (name, sigma) for name in ("01.png", "03.png") for sigma in (0, 20)
    ]
    for row in rows:
        (found,) = noise_levels(noisy(pictures / row["image"], row["sigma"]), data_range=255.0)
        expected = [found.sigma, found.low, found.high]
        assert [row["estimate"], row["low"], row["high"]] == pytest.approx(expected, rel=0.01)
    _, last = (" ".join(line.split()) for line in out.splitlines()[-2:])
    typical = median(row["estimate"] for row in rows if row["sigma"] == 20)
    assert last.startswith(f"| 20 | 2 | {typical:.3g} |")
    assert "2 of 2" in last


def test_several_folders_and_colour(run, folder):
    content, *_ = run(folder / "test/CBSD68", folder / "test/CT", "--sigma", 10, *QUICK)
    assert [row["image"] for row in content["results"]] == ["0000.png", "a.png", "b.png"]
    assert all(5 < row["estimate"] < 15 for row in content["results"])


@pytest.mark.parametrize("options", [["--rounded"], ["--jpeg", 40]])
def test_pixels_of_8_bits(run, folder, options):
    path = folder / "test/CT/a.png"
    content, *_ = run(path.parent, "--sigma", 20, *options, *QUICK)
    pixels = noisy(path, 20).astype(np.float32).round().clip(0, 255).astype(np.uint8)
    if "--jpeg" in options:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=40)
        pixels = np.asarray(Image.open(file))
    assert content["results"][0]["estimate"] == pytest.approx(estimate_sigma(pixels)[0], rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: folders"),
        (["missing"], "missing: no such folder"),
        (["DATA", "--sigma", "-1"], "--sigma: must be at least 0"),
        (["DATA", "--crop", "3"], "--crop: must be at least 4"),
    ],
)
def test_bad_input_is_one_clear_line(run, folder, arguments, message):
    content, out, code = run(*(folder / "test/CT" if word == "DATA" else word for word in arguments))
    assert content is None
    assert out == ""
    assert message in code
