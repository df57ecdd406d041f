"""Whether noise levels are found: the tables, against estimates made by hand."""

import io

import numpy as np
import pytest
from conftest import centre
from PIL import Image

from torchdeal.benchmark import noise
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.results import Results, Row
from torchdeal.noise import noise_levels


def noisy(path, sigma):
    """On the 0..255 scale."""
    clean = centre(path)
    return 255 * (clean + np.random.RandomState(0).normal(0, sigma / 255, clean.shape))


def test_rows_are_what_is_estimated(command, folder, small):
    run = command("noise", "--data", folder, "--sigmas", 10, 20, "--cells", "gray (BSD68)", "colour")
    assert run.code == 0
    results = run.results
    assert sorted(results.cells) == [
        f"{kind}, sigma {sigma}" for kind in ("colour (CBSD68)", "gray (BSD68)") for sigma in (10, 20)
    ]
    for row in results.rows:
        name = row.cell.partition("(")[2].partition(")")[0]
        spoilt = noisy(folder / "test" / name / f"{row.image}.png", results.cells[row.cell]["sigma"])
        (wanted,) = noise_levels(spoilt, data_range=255.0)
        expected = [wanted.sigma, wanted.low, wanted.high]
        assert [row.values[key] for key in ("estimate", "low", "high")] == pytest.approx(expected, rel=0.02, abs=0.02)


def test_what_is_done_to_the_pictures(folder, small):
    path = folder / "test/CT/a.png"
    pixels = noisy(path, 20).astype(np.float32).round().clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    spoilt = noise._noisy(noise.middle(noise.read_image(path), 32), 20)
    for treated, wanted in [(noise.rounded, pixels), (noise.compressed, np.asarray(Image.open(file)))]:
        assert np.allclose(255 * treated(spoilt)[0, 0].numpy(), wanted, atol=1e-4)
    assert noise.small(spoilt).shape == (1, 1, 20, 20)


def test_errors_and_intervals(tmp_path):
    results = Results("noise", {})
    for sigma, rows in {0.0: [(0.4, 0.0, 1.0), (0.6, 0.1, 1.0)], 10.0: [(9.0, 8.0, 9.5), (10.5, 9.0, 11.0)]}.items():
        cell = f"gray, sigma {sigma:g}"
        results.cells[cell] = {"table": "Noise levels", "column": f"{sigma:g}", "kind": "gray", "sigma": sigma}
        for image, (estimate, low, high) in zip("ab", rows, strict=True):
            results.add(Row(cell, image, "deal", {"estimate": estimate, "low": low, "high": high}))
    (section,) = noise.EXPERIMENT.sections(results)
    errors, shares = section.tables
    assert errors.rows == [["gray", "2", "0.5", "7.5%"]]
    assert shares.rows == [["gray", "2", "50%", "50%"]]


def test_a_run_goes_on(command, folder, monkeypatch):
    part = ["noise", "--data", folder, "--sigmas", 10, "--cells", "gray (BSD68)"]
    before = command(*part).results.rows
    assert len(before) == 3
    calls = []
    monkeypatch.setattr(noise, "found", lambda noisy: calls.append(noisy) or {"estimate": 1.0, "low": 0.0, "high": 2.0})
    run = command(*part, "gray (Set12)", "--resume")
    assert run.code == 0
    assert run.results.rows[:3] == before
    assert [row.values["estimate"] for row in run.results.rows[3:]] == [1.0] * 5
    assert len(calls) == 5


def test_only_the_pictures_of_chosen_cells_are_needed(command, folder, tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test/CT").symlink_to(folder / "test/CT")
    assert command("noise", "--data", tmp_path, "--quick", "--cells", "chest").code == 0
    assert "BSD68: no such folder" in command("noise", "--data", tmp_path, "--quick", "--out", "other").err


def test_pictures_of_ones_own(command, folder, monkeypatch):
    monkeypatch.setattr(noise, "SIGMAS", (0.0,))
    run = command("noise", "--images", folder / "test/CBSD68")
    assert run.code == 0
    path = folder / "test/CBSD68/0000.png"
    clean = noise.middle(noise.read_image(path), 32)
    wanted = {
        "": clean,
        ", 8 bits": clean,
        ", JPEG of quality 90": noise.compressed(clean),
        ", 64 x 64": clean[..., 6:26, 6:26],
    }
    for name, image in wanted.items():
        (level,) = noise_levels(255 * image, data_range=255.0)
        (row,) = [row for row in run.results.select(f"pictures{name}, sigma 0", "deal") if row.image == "0000"]
        assert row.values["estimate"] == pytest.approx(level.sigma, rel=1e-4, abs=1e-4)
    (section,) = noise.EXPERIMENT.sections(run.results)
    assert [row[0] for row in section.tables[0].rows] == [
        "pictures",
        "pictures, 8 bits",
        "pictures, JPEG of quality 90",
        "pictures, 64 x 64",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--methods", "tv"], "there are no methods to choose from here, got tv"), ([], "give the folder that holds")],
)
def test_bad_input_is_one_clear_line(command, arguments, message):
    run = command("noise", *arguments)
    assert run.code == 1
    assert message in run.err


def test_settings_need_all_sets(tmp_path):
    (tmp_path / "test").mkdir()
    with pytest.raises(ValueError, match="BSD68: no such folder"):
        noise.EXPERIMENT.settings(BenchmarkOptions(out=tmp_path, data=tmp_path, device="cpu"))
