"""PSNR over a folder: the protocol against independent computations, and short real runs as a user starts them."""

import functools
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from skimage.metrics import peak_signal_noise_ratio

import torchdeal as td
from torchdeal.benchmark import denoising
from torchdeal.benchmark.denoising import BENCHMARK, Denoised, Level, Restart
from torchdeal.benchmark.images import draw_noise, read_clean
from torchdeal.io.checkpoint import card

QUICK = ["--sigma", 15, "--threads", 1]
SETTINGS = {
    **{"torchdeal": "0", "torch": "2", "device": "cpu", "device_name": "a CPU", "threads": 1, "date": "2026-01-01T00"},
    **{"weights": {"source": "gray", "sha256": "0123456789abcdef"}, "folder": "BSD", "crop": 256, "tolerance": 1e-3},
}


@pytest.fixture
def deal(deal):
    """`deal benchmark denoising ...`."""
    return functools.partial(deal, "benchmark", "denoising", "--device", "cpu")


@pytest.fixture
def folder(tmp_path):
    """Two gray pictures, 28 x 28 and 28 x 30, and a file that is no image; written in reverse order."""
    path = tmp_path / "pictures"
    path.mkdir()
    Image.fromarray(data.camera()[200:228, 200:230]).save(path / "b.png")
    Image.fromarray(data.camera()[96:124, 192:220]).save(path / "a.PNG")
    (path / "notes.txt").write_text("of 1978")
    return path


def denoised(image="a.png", *, iterations=20, **options):
    values = {"status": "CONVERGED", "distance": 5e-4, "cg_iterations": 100, "seconds": 1.0, **options}
    return Denoised(image, 40, 50, 20.0, 30.0, iterations=iterations, **values)


@pytest.mark.parametrize("shape", [(1, 7, 5), (7, 5, 3)])
def test_noise_is_that_of_seed_0_before_each_image(shape):
    np.random.seed(0)
    expected = np.random.normal(0, 25 / 255, shape).astype(np.float32)
    image = torch.zeros(1, 1 if shape[0] == 1 else 3, 7, 5)
    for _ in range(2):
        noise = draw_noise(image, 25.0)
        assert (noise.shape, noise.dtype) == (image.shape, torch.float32)
        assert np.array_equal(noise[0] if shape[0] == 1 else noise[0].permute(1, 2, 0), expected)


def test_colour_becomes_gray_by_the_luma_of_pillow(tmp_path, gray, color):
    pixels = data.astronaut()[:40, 100:150]
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = 255 * read_clean(tmp_path / "a.png", gray)[0, 0].double().numpy()
    # the integers of ITU-R 601-2 as Pillow has them, which are not quite 0.299, 0.587 and 0.114
    exact = pixels.astype(np.int64) @ [19595, 38470, 7471] / 65536
    assert np.allclose(found, found.round(), atol=1e-4)
    assert np.abs(found - exact).max() < 0.502
    assert np.mean(found.round() != np.asarray(Image.fromarray(pixels).convert("L"))) < 0.005
    assert np.allclose(read_clean(tmp_path / "a.png", color)[0].permute(1, 2, 0), pixels / 255, atol=1e-7)


def test_crop_is_at_the_centre(tmp_path, gray):
    pixels = data.camera()[:41, :50]
    Image.fromarray(pixels).save(tmp_path / "a.png")
    clean = read_clean(tmp_path / "a.png", gray, 20)
    assert clean.dtype == torch.float32
    assert np.array_equal(clean[0, 0], pixels[10:30, 15:35] / np.float32(255))


def test_summary():
    rows = [
        denoised(iterations=10, cg_iterations=50, seconds=9.0, restart=Restart(9e-4, "CONVERGED", 12)),
        denoised(iterations=60, distance=8e-4, restart=Restart(2e-3, "STALLED", 12)),
        denoised(iterations=61, seconds=2.0),
        denoised("d.png", iterations=500, status="MAX_ITERATIONS"),
    ]
    summary = Level(25.0, rows).summary()
    expected = {"images": 4, "converged": 3, "many_iterations": 2, "median_iterations": 60.5, "max_iterations": 500}
    expected |= {"cg_iterations": 87.5, "seconds": 1.5, "distance": 8e-4, "psnr": 30.0, "noisy_psnr": 20.0}
    expected |= {"restarts": 2, "restarts_converged": 1, "restarts_apart": 1, "largest_difference": 2e-3}
    assert summary == expected
    unknown = Level(25.0, [denoised(), denoised(distance=None)]).summary()
    assert unknown["distance"] is None
    assert unknown["largest_difference"] is None


def write(path, levels):
    path.write_text(BENCHMARK.to_json(levels, SETTINGS))


def test_json_round_trip(tmp_path):
    levels = [Level(5.0, [denoised(distance=None), denoised(restart=Restart(2e-3, "STALLED", 12))])]
    path = tmp_path / "a.json"
    write(path, levels)
    assert BENCHMARK.from_json(path) == (levels, SETTINGS)
    write(path, [Level(5.0, [denoised(status="DIVERGED", restart=Restart(math.nan, "", 1))])])
    assert math.isnan(BENCHMARK.from_json(path)[0][0].images[0].restart.difference)


def test_a_whole_run_follows_the_protocol(deal, folder, tmp_path, gray):
    code, out, err = deal(folder, *QUICK, "--save", "a.json")
    assert code == 0
    for word in ("pictures", "weights gray", "2 of 2", "tolerance 0.001"):
        assert word.lower() in out.lower()
    assert "sigma 15, 2 of 2, b.png: " in err
    ((level,), settings) = BENCHMARK.from_json(tmp_path / "a.json")
    assert [row.image for row in level.images] == ["a.PNG", "b.png"]
    assert [(row.height, row.width) for row in level.images] == [(28, 28), (28, 30)]
    for row in level.images:
        clean = np.asarray(Image.open(folder / row.image)) / np.float32(255)
        np.random.seed(0)
        noisy = clean[None] + np.random.normal(0, 15 / 255, (1, *clean.shape)).astype(np.float32)
        solution = td.reconstruct(torch.from_numpy(noisy)[None], model=gray, sigma=15 / 255)
        expected = peak_signal_noise_ratio(clean, solution.x[0, 0].clip(0, 1).numpy(), data_range=1)
        assert row.psnr == pytest.approx(expected, abs=1e-3)
        assert row.noisy_psnr == pytest.approx(peak_signal_noise_ratio(clean, noisy[0].clip(0, 1), data_range=1))
        assert row.psnr > row.noisy_psnr + 3
        assert row.distance < 1e-3
        assert row.cg_iterations > row.iterations > 2
        assert row.seconds > 0
        assert row.restart is None
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["levels"][0]["summary"]["psnr"] == pytest.approx(np.mean([row.psnr for row in level.images]))
    assert f"{level.summary()['psnr']:.2f}" in out
    assert settings["weights"] == {"source": "gray", "sha256": card("gray")["sha256"]}
    assert settings["folder"] == "pictures"
    assert str(tmp_path) not in json.dumps(content)


def test_crop_limit_and_several_noise_levels(deal, folder):
    options = ("--sigma", 5, "--crop", 24, "--limit", 1, "--max-iterations", 2, "--json")
    code, out, _ = deal(folder, *QUICK, *options)
    assert code == 0
    content = json.loads(out)
    assert [level["sigma"] for level in content["levels"]] == [15, 5]
    for level in content["levels"]:
        (row,) = level["images"]
        assert (row["image"], row["height"], row["width"]) == ("a.PNG", 24, 24)
        assert row["status"] == "MAX_ITERATIONS"
        assert row["iterations"] == 2
        assert row["distance"] > 1e-3
        assert level["summary"]["converged"] == 0
    assert content["settings"]["crop"] == 24


def test_starts(deal, folder, tmp_path):
    code, out, _ = deal(folder, *QUICK, "--crop", 20, "--starts", 1, "--tolerance", 1e-4, "--save", "a.json")
    assert code == 0
    ((level,), _) = BENCHMARK.from_json(tmp_path / "a.json")
    first, second = level.images
    assert second.restart is None
    assert first.restart.status == "CONVERGED"
    assert 0 < first.restart.difference < 3e-4  # one fixed point, and both within the tolerance
    assert "0 of 1 answers differ" in out


def test_a_colour_folder_takes_the_colour_model(deal, tmp_path):
    Image.fromarray(data.astronaut()[8:32, 128:152]).save(tmp_path / "a.png")
    code, out, _ = deal(".", *QUICK, "--json")
    assert code == 0
    content = json.loads(out)
    assert content["settings"]["weights"]["source"] == "color"
    assert content["settings"]["folder"] == tmp_path.name
    np.random.seed(0)
    clean = data.astronaut()[8:32, 128:152] / 255
    noisy = (clean + np.random.normal(0, 15 / 255, clean.shape)).clip(0, 1)
    (row,) = content["levels"][0]["images"]
    assert row["noisy_psnr"] == pytest.approx(peak_signal_noise_ratio(clean, noisy, data_range=1), abs=1e-4)
    assert row["psnr"] > row["noisy_psnr"] + 3


def test_earlier_results_are_shown_without_measuring(deal, tmp_path):
    rows = [denoised(f"{n}.png", status="STALLED", distance=None, iterations=70) for n in range(7)]
    levels = [Level(25.0, [*rows, denoised(restart=Restart(2e-3, "CONVERGED", 12))]), Level(50.0, [denoised()])]
    write(tmp_path / "a.json", levels)
    code, out, err = deal("--from", "a.json")
    assert code == 0
    assert err == ""
    for text in ("1 of 8", "unknown", "256 x 256", "0123456789ab", "4.png (STALLED) and 2 more", "1 of 1 answers"):
        assert text in " ".join(out.split())
    assert json.loads(deal("--from", "a.json", "--json")[1]) == json.loads((tmp_path / "a.json").read_text())


def test_an_interrupted_run_keeps_the_levels_that_were_finished(deal, folder, monkeypatch, tmp_path):
    reconstruct = denoising.reconstruct

    def interrupted(*arguments, sigma, **options):
        if sigma > 20 / 255:
            raise KeyboardInterrupt
        return reconstruct(*arguments, sigma=sigma, **options)

    monkeypatch.setattr(denoising, "reconstruct", interrupted)
    options = ("--sigma", 25, "--limit", 1, "--crop", 24, "--save", "a.json")
    code, out, err = deal(folder, *QUICK, *options)
    assert code == 130
    assert out == ""
    assert "Interrupted" in err
    (levels, _) = BENCHMARK.from_json(tmp_path / "a.json")
    assert [level.sigma for level in levels] == [15]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a folder"),
        (["missing"], "missing: no such folder"),
        (["empty"], "no images in this folder"),
        (["damaged"], "not a readable image"),
        (["mixed"], "use --model gray, or take it out"),
        (["small"], "the image is 12 x 20, at least 15 x 15 is needed"),
        (["stack"], "a stack of 2 images"),
        (["pictures", "--crop", "41"], "smaller than --crop 41"),
        (["pictures", "--crop", "14"], "crop must be at least 15"),
        (["pictures", "--sigma", "0"], "sigma must be finite and above 0"),
        (["pictures", "--tolerance", "0"], "tolerance must be finite and above 0"),
        (["pictures", "--max-iterations", "0"], "max-iterations must be at least 1"),
        (["pictures", "--limit", "0"], "limit must be at least 1"),
        (["pictures", "--starts", "-1"], "starts must be at least 0"),
        (["pictures", "--threads", "0"], "threads must be at least 1"),
        (["pictures", "--threads", "99999999"], "threads must be at most 1024"),
        (["pictures", "--model", "grey"], "no weights at grey"),
        (["pictures", "--save", "no/a.json"], "does not exist"),
        (["--from", "missing.json"], "missing.json"),
        (["--from", "other.json"], "does not hold results"),
    ],
)
def test_bad_input_is_one_clear_line(deal, folder, tmp_path, arguments, message):
    for name in ("empty", "damaged", "mixed", "small", "stack"):
        (tmp_path / name).mkdir()
    gray, colour = np.zeros((20, 20), np.uint8), np.zeros((20, 20, 3), np.uint8)
    (tmp_path / "damaged" / "a.png").write_bytes(b"no image")
    Image.fromarray(colour).save(tmp_path / "mixed" / "a.png")
    Image.fromarray(gray).save(tmp_path / "mixed" / "b.png")
    Image.fromarray(gray[:12]).save(tmp_path / "small" / "a.png")
    np.save(tmp_path / "stack" / "a.npy", np.zeros((2, 20, 20, 1), np.float32))
    (tmp_path / "other.json").write_text('{"format": "torchdeal-benchmark-speed-1"}')
    code, out, err = deal(*arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_runs_on_a_bare_machine(bare_machine, folder, tmp_path):
    done = bare_machine("denoising", "pictures", "--save", "a.json", "--crop", "24", "--tolerance", "1e-2", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "all: " in done.stderr
    assert "| 2 of 2 |" in " ".join(done.stdout.split())
    assert BENCHMARK.from_json(tmp_path / "a.json")[0][0].summary()["converged"] == 2
