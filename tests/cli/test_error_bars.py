"""`--error-bars`: what is written, against the library, and what is refused."""

import numpy as np
import pytest
import tifffile
from cli.helpers import noise, pixels, save

import torchdeal as td

QUICK = ("--max-iterations", 3, "--model", "gray-light")


def noisy_picture(sigma=20, size=24):
    values = (pixels(size=size) + noise((size, size), sigma)).round().clip(0, 255)
    save("in.png", values)
    return values.astype(np.uint8)


@pytest.mark.parametrize(("name", "read"), [("bars.npy", np.load), ("bars.tif", tifffile.imread)])
def test_bars_are_those_of_the_library(deal, name, read):
    image = noisy_picture()
    code, _, err = deal("denoise", "in.png", "out.png", "--sigma", 20, *QUICK, "--error-bars", name)
    assert code == 0, err
    found = read(name)
    assert (found.dtype, found.shape) == (np.float32, (24, 24))
    rec = td.reconstruct(image, sigma=20, model="gray-light", max_iterations=3)
    np.testing.assert_allclose(found, td.uncertainty(rec), rtol=1e-3)


def test_a_stack_has_a_stack_of_bars_on_the_scale_of_sigma(deal):
    frames = np.stack([pixels(size=20) + noise((20, 20), 8, seed) for seed in (1, 2)]) / 255
    np.save("in.npy", frames.astype(np.float32))
    code, _, err = deal("denoise", "in.npy", "out.npy", "--sigma", 8, *QUICK, "--error-bars", "bars.npy")
    assert code == 0, err
    bars = np.load("bars.npy").reshape(2, 20, 20)
    assert ((bars > 1) & (bars < 10)).all()


def test_colour_and_upscaling_have_the_size_of_the_result(deal):
    save("in.png", pixels("astronaut", size=20))
    options = ("--scale", 2, "--sigma", 3, "--max-iterations", 2, "--model", "color-light", "--error-bars", "bars.npy")
    code, _, err = deal("upscale", "in.png", "out.png", *options)
    assert code == 0, err
    assert np.load("bars.npy").shape == (40, 40, 3)


def test_mri(deal):
    save("in.png", pixels(size=24))
    options = ("--simulate", "--acceleration", 2, *QUICK, "--error-bars", "bars.npy")
    code, _, err = deal("mri", "in.png", "out.npy", *options)
    assert code == 0, err
    bars = np.load("bars.npy")
    assert bars.shape == np.load("out.npy").shape[-2:]
    assert ((bars > 0) & (bars < 0.5)).all()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("bars.png", "--error-bars are numbers, not a picture: write .npy or .tif"),
        ("in.npy", "would overwrite the input"),
        ("out.npy", "would be written twice"),
        ("no/bars.npy", "does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(deal, tmp_path, target, message):
    np.save("in.npy", pixels(size=20))
    before = (tmp_path / "in.npy").read_bytes()
    code, _, err = deal("denoise", "in.npy", "out.npy", "--sigma", 20, "--data-range", 255, "--error-bars", target)
    assert code != 0
    assert message in " ".join(err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]
    assert (tmp_path / "in.npy").read_bytes() == before


def test_bars_of_several_pictures_are_refused(deal):
    noisy_picture()
    save("other.png", pixels(size=20))
    code, _, err = deal("denoise", "in.png", "other.png", "out", "--error-bars", "bars.npy")
    assert code != 0
    assert "--error-bars is one file: use it with one input" in " ".join(err.split())
