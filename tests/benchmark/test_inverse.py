"""Inverse problems side by side: the protocols against independent computations, and short real runs."""

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from conftest import centre
from PIL import Image
from scipy import ndimage
from skimage.metrics import peak_signal_noise_ratio
from skimage.transform import iradon, radon

import torchdeal as td
from torchdeal.benchmark import inverse, problems
from torchdeal.benchmark.inverse import walk_uphill
from torchdeal.simulate import random_columns

QUICK = ["--limit", "1", "--crop", "32", "--tolerance", "1e-2", "--threads", "1"]
SHORT = [*QUICK, "--max-iterations", "4"]


@pytest.fixture
def run(command):
    return partial(command, inverse.BENCHMARK)


def rows(result):
    return {row["method"]: row for row in result["rows"]}


def first(row):
    return row["answers"][0]


def test_deblurring(run, folder, gray, kernel):
    content, out, code = run(folder, "--problem", "deblur", "--kernel", 1, "--noise", 7.65, *QUICK)
    assert code == 0
    (result,) = content["results"]
    assert (result["problem"], result["setting"]) == ("deblur", "kernel 1, noise 7.65")
    clean = centre(folder / "test/Set12/01.png")
    blurred = np.round(ndimage.convolve(clean, kernel, mode="wrap") * 255) / 255
    y = blurred + np.random.RandomState(0).normal(0, 7.65 / 255, clean.shape)

    def psnr(x):
        pixels = np.round(x.clip(0, 1) * 255).astype(np.uint8)
        return peak_signal_noise_ratio(np.round(clean * 255).astype(np.uint8), pixels)

    methods = rows(result)
    assert list(methods) == ["plain", "total variation", "DEAL", "DEAL, paper", "DEAL, best lam"]
    assert first(methods["plain"])["psnr"] == pytest.approx(psnr(y), abs=0.01)  # a pixel may round the other way
    operator = td.operators.Blur(kernel.astype(np.float32))
    for method, parameters in {
        "DEAL": {"noise": 7.65 / 255},
        "DEAL, paper": {"sigma": 15 / 255, "lam": 2.5},
    }.items():
        solution = td.reconstruct(y.astype(np.float32), operator, model=gray, tolerance=1e-2, **parameters)
        assert first(methods[method])["psnr"] == pytest.approx(psnr(solution.x), abs=0.01)
        assert first(methods[method])["iterations"] == int(solution.iterations)
        assert first(methods[method])["status"] == solution.status.name
    assert methods["DEAL, best lam"]["psnr"] >= methods["DEAL"]["psnr"] > methods["plain"]["psnr"] + 1
    assert methods["total variation"]["psnr"] > methods["plain"]["psnr"] + 1
    assert first(methods["total variation"])["distance"] < 1e-3
    assert result["gain_over_total_variation"] == methods["DEAL"]["psnr"] - methods["total variation"]["psnr"]
    assert f"{methods['DEAL']['psnr']:.2f}" in out.splitlines()[-1]
    assert content["settings"]["crop"] == 32
    assert str(folder) not in json.dumps(content)


def test_strength_of_total_variation_is_the_best_of_the_grid(run, folder, kernel):
    content, *_ = run(folder, "--problem", "deblur", "--kernel", 1, "--noise", 2.55, *QUICK, "--max-iterations", 1)
    row = rows(content["results"][0])["total variation"]
    clean = torch.from_numpy(centre(folder / "test/Set12/01.png")).float()[None, None]
    operator = td.operators.Blur(kernel.astype(np.float32))
    blurred = (operator.forward(clean) * 255).round() / 255
    y = blurred + torch.from_numpy(np.random.RandomState(0).normal(0, 0.01, clean.shape)).float()
    scores = {}
    for k in range(0, 12):
        result = inverse.minimise_total_variation(y, operator, 2 ** (k / 2) * 1e-4, norm=1.0, tolerance=1e-3)
        scores[k] = inverse.psnr(result.x, clean, eight_bit=True)
    assert row["psnr"] == pytest.approx(max(scores.values()), abs=0.02)


def test_superresolution(run, folder, color, kernel):
    content, _, code = run(folder, "--problem", "superresolution", "--scale", 3, "--kernel", 0, "--noise", 2.55, *SHORT)
    assert code == 0
    assert content["results"][0]["setting"] == "x 3, kernel 0, noise 2.55"
    clean = (
        np.asarray(Image.open(folder / "test/CBSD68/0000.png"))[5:35, 5:35] / 255
    )  # 30 is the multiple of 3 below 32
    blurred = np.stack([ndimage.convolve(channel, kernel, mode="wrap") for channel in clean.transpose(2, 0, 1)], -1)
    y = blurred[::3, ::3]
    y = (y + np.random.RandomState(0).normal(0, 2.55 / 255, y.shape)).astype(np.float32)
    operator = td.operators.Downsample(3, kernel.astype(np.float32))
    solution = td.reconstruct(y, operator, model=color, sigma=15 / 255, lam=0.28, tolerance=1e-2, max_iterations=4)
    methods = rows(content["results"][0])
    expected = peak_signal_noise_ratio(clean, solution.x.clip(0, 1).astype(float), data_range=1)
    assert first(methods["DEAL, paper"])["psnr"] == pytest.approx(expected, abs=0.01)
    assert methods["DEAL, best lam"]["psnr"] > methods["plain"]["psnr"]


def test_mri(run, folder):
    content, _, code = run(folder, "--problem", "mri", *QUICK, "--max-iterations", 2)
    assert code == 0
    methods = rows(content["results"][0])
    assert "DEAL, paper" not in methods
    assert first(methods["DEAL"])["status"] == "MAX_ITERATIONS"
    clean = centre(folder / "test/MRI-knee/a.png")
    clean = clean / clean.max()
    columns = random_columns((32, 32), 4, 0.08, 0, exact=False).numpy()
    noise = np.random.RandomState(0).normal(0, 0.002, (2, 32, 32))
    kspace = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(clean), norm="ortho")) + noise[0] + 1j * noise[1]
    zero_filled = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(columns * kspace), norm="ortho")).real
    expected = peak_signal_noise_ratio(clean, zero_filled.clip(0, 1), data_range=1)
    assert first(methods["plain"])["psnr"] == pytest.approx(expected, abs=1e-3)


def test_ct(run, folder):
    content, _, code = run(folder, "--problem", "ct", *SHORT)
    assert code == 0
    methods = rows(content["results"][0])
    assert [answer["image"] for answer in methods["DEAL"]["answers"]] == ["a.png"]
    clean, angles = centre(folder / "test/CT/a.png"), np.arange(60) * 3.0
    sinogram = radon(clean, angles, circle=False)
    noise = 0.01 * sinogram.max() * np.random.RandomState(0).normal(0, 1, (60, len(sinogram)))
    image = iradon(sinogram + noise.T, angles, output_size=32, circle=False)
    expected = peak_signal_noise_ratio(clean, image.clip(0, 1), data_range=1)
    # scikit-image's radon interpolates a padded image: the border differs a little
    assert first(methods["plain"])["psnr"] == pytest.approx(expected, abs=0.3)
    assert methods["DEAL"]["psnr"] > methods["plain"]["psnr"] + 3


def test_without_what_is_tuned(run, folder):
    content, out, code = run(folder, "--problem", "mri", "--untuned", *SHORT)
    assert code == 0
    (result,) = content["results"]
    assert list(rows(result)) == ["plain", "DEAL"]
    assert result["gain_over_plain"] > 0
    assert result["gain_over_total_variation"] is None
    assert "| mri " in out


def test_ct_slices_are_reduced_by_averaging():
    pixels = torch.rand(1, 1, 520, 512, generator=torch.Generator().manual_seed(0))
    reduced = problems.reduced(pixels, None, "a.png")
    assert reduced.shape == (1, 1, 256, 256)
    assert float(reduced[0, 0, 3, 5]) == pytest.approx(float(pixels[0, 0, 4 + 6 : 4 + 8, 10:12].mean()), abs=1e-6)
    assert torch.equal(problems.reduced(pixels, 100, "a.png"), reduced[..., 78:178, 78:178])
    with pytest.raises(ValueError, match="too small for --crop 300"):
        problems.reduced(pixels, 300, "a.png")


@pytest.mark.parametrize("peak", [-7, 0, 5])
def test_walk_uphill(peak):
    asked = []
    found = walk_uphill(lambda k: asked.append(k) or -((k - peak) ** 2), 1, 1)
    assert found == peak
    assert min(asked) >= min(peak, 1) - 1
    assert max(asked) <= max(peak, 1) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "missing: no such folder"),
        (["empty", "--problem", "deblur"], "Set12: no such folder"),
        (["empty", "--problem", "superresolution"], "CBSD68: no such folder"),
        (["bare", "--problem", "mri"], "no images in this folder"),
        (["bare", "--problem", "ct"], "not a readable image"),
        (["bare", "--problem", "superresolution"], "kernels_12.npz: no such file"),
        (["bare", "--problem", "deblur"], "there is no image 01"),
        (["DATA", "--problem", "deblur", "--limit", "1", "--kernel", "5"], "there is no kernel 5"),
        (["DATA", "--problem", "deblur", "--limit", "1", "--crop", "64"], "smaller than --crop 64"),
        (["part", "--problem", "all", "--limit", "1"], "CBSD68: no such folder"),  # before anything is measured
        (["DATA", "--limit", "0"], "limit must be at least 1"),
        (["DATA", "--crop", "20"], "crop must be at least 32"),
        (["DATA", "--noise", "0"], "noise must be finite and above 0"),
        (["DATA", "--scale", "1"], "scale must be at least 2"),
        (["DATA", "--tolerance", "0"], "tolerance must be finite and above 0"),
    ],
)
def test_bad_input_is_one_clear_line(run, folder, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    for name in ("Set12", "CBSD68", "MRI-knee", "CT"):
        (tmp_path / "bare" / "test" / name).mkdir(parents=True)
    (tmp_path / "bare/test/CT/a.png").write_bytes(b"no image")
    for name in ("Set12/07.png", "CBSD68/0000.png"):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "bare/test" / name)
    for name in ("test/Set12/01.png", "kernels/Levin09.npz"):
        (tmp_path / "part" / name).parent.mkdir(parents=True)
        (tmp_path / "part" / name).write_bytes((folder / name).read_bytes())
    _, out, code = run(*(folder if word == "DATA" else word for word in arguments))
    assert out == ""
    assert code.startswith("Error: ")
    assert message in code
    assert len(code.splitlines()) == 1


def test_unknown_problem(run, folder, capsys):
    with pytest.raises(SystemExit) as stop:
        inverse.BENCHMARK.main([str(folder), "--problem", "microscopy", "--save", "a.json"])
    assert stop.value.code == 2
    assert "superresolution" in capsys.readouterr().err


def test_no_number_is_lost_in_json(run, folder, monkeypatch):
    monkeypatch.setattr(inverse, "psnr", lambda *_, **__: math.inf)
    content, *_ = run(folder, "--problem", "deblur", "--kernel", 3, "--noise", 2.55, *QUICK, "--max-iterations", 1)
    assert first(rows(content["results"][0])["plain"])["psnr"] is None
