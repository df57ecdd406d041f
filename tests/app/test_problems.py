"""Each problem of the page gives what its command and its lines of Python give; then what is asked about results."""

import io
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from app.visitors import as_file, noisy_pixels
from PIL import Image

import torchdeal as td
from torchdeal.io import files
from torchdeal.operators import Radon
from torchdeal.simulate import measure, random_columns

QUICK = {"tolerance": 0.01}
KERNEL = np.zeros((5, 5), np.uint8)
KERNEL[2, 1:4] = 100, 200, 100
MASK = np.full((28, 28), 255, np.uint8)
MASK[10:20, 10:14] = 0

WISHES = {
    "denoise, simulated": {"goal": "denoise", "simulate": True, "sigma": 25},
    "denoise, stronger": {"goal": "denoise", "sigma": 10, "lam": 30},
    "deblur": {"goal": "deblur", "kernel": "file", "boundary": "circular", "lam": 0.5, "model_sigma": 12},
    "deblur, valid": {"goal": "deblur", "kernel": "gaussian:0.7", "sigma": 3},
    "deblur, simulated": {"goal": "deblur", "kernel": "motion:3,30", "boundary": "circular", "simulate": True},
    "upscale": {"goal": "upscale", "scale": 2},
    "upscale, simulated": {"goal": "upscale", "scale": 3, "simulate": True},
    "inpaint": {"goal": "inpaint"},
    "inpaint, simulated": {"goal": "inpaint", "mask": "random", "known": 0.6, "simulate": True, "sigma": 4},
    "mri, simulated": {"goal": "mri", "simulate": True, "acceleration": 3, "centre": 0.1},
    "ct, simulated": {"goal": "ct", "simulate": True, "angles": 30, "model_sigma": 20},
}


def read(path):
    return files.read(Path(path)).pixels.astype(float)


def pixels_of(result, simulated, white=255.0):
    """What the Python lines found, as 8 bits."""
    x = np.asarray(result)
    if not simulated:
        return x.astype(float)
    x = np.moveaxis(x[0], 0, -1) * 255 / white
    return x.clip(0, 255).round().squeeze(-1) if x.shape[-1] == 1 else x.clip(0, 255).round()


@pytest.mark.parametrize("kind", WISHES)
def test_the_command_and_the_python_do_the_same(kind, person, deal, tmp_path):
    wish = WISHES[kind] | QUICK
    for name, pixels in {"photo.png": noisy_pixels(size=28, sigma=4), "kernel.png": KERNEL, "mask.png": MASK}.items():
        content = as_file(pixels)
        (tmp_path / name).write_bytes(content)
        role = "picture" if name == "photo.png" else name.removesuffix(".png")
        assert person.bring(content, name, role).status_code == 200
    result = person.result(**wish)
    (tmp_path / "page.png").write_bytes(person.download().content)
    shown = read("page.png")
    words = shlex.split(result["command"])
    code, _, err = deal(*words[1:])
    assert code == 0, err
    assert np.abs(read(words[words.index("mask.png") + 1 if "mask.png" in words else 3]) - shown).max() <= 1
    names = {}
    exec(result["python"], names)
    scale = 1.0 if wish["goal"] in ("mri", "ct") else 255.0
    found = pixels_of(names["rec"].x, wish.get("simulate"), scale)
    border = [(large - small) // 2 for large, small in zip(found.shape, shown.shape, strict=True)]
    found = found[tuple(slice(cut, cut + length) for cut, length in zip(border, shown.shape, strict=True))]
    assert np.abs(np.abs(found) - shown).max() <= 1


@pytest.mark.parametrize("kind", ["deblur, valid", "upscale", "inpaint", "mri, simulated", "ct, simulated"])
def test_what_can_be_asked_about_a_result(kind, person):
    person.bring(as_file(noisy_pixels(size=28, sigma=4)))
    person.bring(as_file(MASK), "mask.png", "mask")
    result = person.result(**WISHES[kind], **QUICK)
    size = result["height"], result["width"]
    person.ask("mask")
    mask = person.wait("mask")["result"]
    assert 0 < mask["low"] < mask["high"] <= 1
    person.ask("pixel", row=5, column=7)
    pixel = person.wait("pixel")["result"]
    assert (pixel["row"], pixel["column"]) == (5, 7)
    weights = person.shown("weights").astype(int)
    assert weights.shape == (*size, 3)
    coloured = np.abs(weights[..., 2] - weights[..., 0])  # most around the pixel that was asked for
    assert np.hypot(*(np.array(np.unravel_index(coloured.argmax(), size)) - (5, 7))) <= 3
    person.ask("error_bars")
    bars = person.wait("error_bars")["result"]
    assert 0 < bars["low"] <= bars["mean"] <= 60
    assert person.shown("error_bars").shape == person.shown("after").shape == (*size, 3)


def test_the_error_bars_and_the_value_of_a_pixel_are_those_of_the_library(person):
    noisy = noisy_pixels(size=32)
    person.bring(as_file(noisy))
    person.result(goal="denoise", sigma=20)
    rec = td.reconstruct(noisy, noise=20.0, model="gray-light")
    person.ask("error_bars")
    bars = person.wait("error_bars")["result"]
    assert bars["mean"] == pytest.approx(float(td.uncertainty(rec).mean()), rel=1e-2)
    person.ask("pixel", row=3, column=4)
    (value, averaged) = person.wait("pixel")["result"]["sentences"]
    assert float(value.split()[3].strip(",")) == pytest.approx(rec.x[3, 4], abs=0.51)  # rounded
    assert f"{float(td.explain(rec).row(3, 4).averaged):.3g} measured pixels" in averaged


def test_the_certificate_is_told_in_sentences(person):
    person.bring(as_file(noisy_pixels(size=12)))
    person.result(goal="denoise", sigma=20, **QUICK)
    person.ask("certificate")
    sentences = person.wait("certificate")["result"]["sentences"]
    assert any("fixed point" in sentence for sentence in sentences)


def test_k_space_of_a_scanner(person):
    image = torch.from_numpy(noisy_pixels(sigma=0) / 255).float()[None, None]
    H = td.operators.Fourier(random_columns((40, 40), 2, 0.2), centered=True)
    buffer = io.BytesIO()
    np.save(buffer, measure(image, H, 0.002)[0, 0].numpy())
    about = person.bring(buffer.getvalue(), "scan.npy").json()
    assert not about["picture"]
    result = person.result(goal="mri", **QUICK)
    assert result["command"].startswith("deal mri scan.npy image.npy")
    found = np.load(io.BytesIO(person.download().content))
    assert np.abs(found.squeeze() - image[0, 0].numpy()).mean() < 0.05
    person.order(goal="denoise")
    assert "choose MRI" in person.wait()["error"]


def test_a_sinogram(person):
    image = torch.from_numpy(np.asarray(Image.fromarray(noisy_pixels(sigma=0)).resize((32, 32))) / 255).float()
    rows = torch.arange(32) - 16
    image = torch.where(rows[:, None] ** 2 + rows**2 < 200, image, 0)[None, None]
    H = Radon(np.arange(40) * 4.5, 32, circle=True)
    buffer = io.BytesIO()
    np.save(buffer, measure(image, H, 0.01)[0, 0].numpy())
    assert person.bring(buffer.getvalue(), "sinogram.npy").status_code == 200
    result = person.result(goal="ct", angles=40, **QUICK)
    assert result["command"].startswith("deal ct sinogram.npy slice.npy --angles 40")
    found = np.load(io.BytesIO(person.download().content)).squeeze()
    assert np.abs(found - image[0, 0].numpy()).mean() < 0.05
    person.order(goal="ct", angles=17)
    assert "17" in person.wait()["error"]


def test_samples_of_each_problem_can_be_brought(client, person):
    offered = client.get("/api/about").json()["samples"]
    assert {goal for sample in offered for goal in sample["goals"]} == {wish["goal"] for wish in WISHES.values()}
    for sample in offered:
        about = person.sample(sample["name"]).json()
        assert (about["height"], about["width"], about["sample"]) == (128, 128, True)
        assert client.get(f"{person.visit}/look").headers["content-type"] == "image/png"
