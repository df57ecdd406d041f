"""Photos whose blur is known, as files."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.helpers import load, noise, only_result, pixels, psnr, save
from scipy.ndimage import gaussian_filter
from scipy.signal import convolve2d

from torchdeal.cli import run
from torchdeal.reconstruct import reconstruct

QUICK = ("--tolerance", "3e-2")


def photo(sigma=2.55, size=32, std=1.0):
    """A part of a larger picture that was blurred as a whole, by SciPy: what a camera would see."""
    whole = pixels(size=size + 24, row=288, column=158)
    blurred = gaussian_filter(whole, std, truncate=4)[12:-12, 12:-12]
    return whole[12:-12, 12:-12], blurred + noise(blurred.shape, sigma)


def test_a_photo_with_noise_that_is_estimated(deal):
    clean, blurred = photo()
    save("in.png", blurred)
    code, out, err = deal("deblur", "in.png", "out.png", "--kernel", "gaussian:1", *QUICK, "--json")
    assert (code, err) == (0, "")
    result = only_result(out)
    assert result["estimated"] is True
    assert result["sigma"] == pytest.approx(2.55, rel=0.5)
    assert result["simulation"] is None
    restored = load("out.png")
    assert restored.shape == clean.shape
    assert psnr(restored, clean) > psnr(load("in.png"), clean) + 3
    out = deal("deblur", "in.png", "out.png", "--kernel", "gaussian:1", "--tolerance", 1, "--max-iterations", 4)[1]
    assert "(estimated, between" in out


def test_the_scene_beyond_the_border_matters(deal):
    """With the default boundary the border is as good as with the right border known; mirrored it is not."""
    clean, blurred = photo(std=1.6, size=28)
    save("in.png", blurred)
    errors = {}
    for boundary in ("valid", "reflect"):
        arguments = ("--kernel", "gaussian:1.6", "--sigma", 2.55, "--boundary", boundary)
        assert deal("deblur", "in.png", f"{boundary}.png", *arguments, *QUICK)[0] == 0
        errors[boundary] = psnr(load(f"{boundary}.png"), clean)
    assert errors["valid"] > errors["reflect"] + 0.3


def test_a_kernel_that_is_not_symmetric_is_convolved_with(deal):
    clean = pixels(size=32)
    kernel = np.zeros((5, 4))
    kernel[0, 0], kernel[1, 1], kernel[2, 2], kernel[4, 3] = 4, 3, 2, 1
    blurred = convolve2d(clean, kernel / kernel.sum(), mode="valid")
    save("in.png", blurred + noise(blurred.shape, 2))
    np.save("kernel.npy", kernel)  # of any sum
    save("kernel.png", kernel * 60)
    for name in ("kernel.npy", "kernel.png"):
        assert deal("deblur", "in.png", "out.png", "--kernel", name, "--sigma", 2, *QUICK)[0] == 0
        # the pixel of the kernel's centre, (5 // 2, 4 // 2), is the one that is restored
        assert psnr(load("out.png"), clean[2:30, 1:30]) > psnr(blurred, clean[2:30, 1:30]) + 5


def test_a_small_part_of_a_bit_depth_is_as_good_as_all_of_it(deal):
    """12 bits of a camera in a file of 16, with nothing said about it, or with white given."""
    clean, blurred = photo(size=24)
    tifffile.imwrite("in.tif", (blurred * 4095 / 255).round().clip(0, 65535).astype(np.uint16))
    arguments = ("--kernel", "gaussian:1", *QUICK)
    assert deal("deblur", "in.tif", "auto.tif", *arguments)[0] == 0
    assert deal("deblur", "in.tif", "range.tif", *arguments, "--data-range", 4095, "--sigma", 2.55)[0] == 0
    auto, by_hand = (psnr(tifffile.imread(name) * (255 / 4095), clean) for name in ("auto.tif", "range.tif"))
    assert by_hand > psnr(blurred, clean) + 3
    assert auto == pytest.approx(by_hand, abs=0.6)


def test_own_parameters_reach_the_library(deal, monkeypatch):
    passed = {}

    def spy(*arguments, **options):
        passed.update(options)
        return reconstruct(*arguments, **options)

    monkeypatch.setattr(run, "reconstruct", spy)
    save("in.png", photo(size=24)[1])
    arguments = ("--sigma", 2.5, "--lam", 0.3, "--model-sigma", 12, "--max-iterations", 2, "--tolerance", 0.1)
    assert deal("deblur", "in.png", "out.png", "--kernel", "gaussian:1", *arguments)[0] == 0
    names = ("noise", "lam", "sigma", "max_iterations", "tolerance", "data_range")
    assert [passed[name] for name in names] == [2.5, 0.3, 12, 2, 0.1, 255]


def test_several_pictures(deal):
    os.mkdir("in")
    save("in/gray.png", photo(size=24)[1])
    save("in/color.png", pixels("astronaut", 24))
    Path("in/bad.png").write_text("hello")
    code, _, err = deal("deblur", "in", "out", "--kernel", "gaussian:0.7", "--sigma", 3, "--max-iterations", 3)
    assert code == 1
    assert "1 of 3 images failed" in err
    assert sorted(os.listdir("out")) == ["color.png", "gray.png"]
    assert load("out/color.png").shape == (24, 24, 3)


def test_not_converged_is_a_warning(deal):
    save("in.png", photo(size=24)[1])
    code, out, err = deal("deblur", "in.png", "out.png", "--kernel", "gaussian:1", "--max-iterations", 2)
    assert code == 0
    assert "MAX_ITERATIONS" in out
    assert "--max-iterations" in err
    assert os.path.exists("out.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "gauss:2"], "use gaussian:STD"),
        (["--kernel", "gaussian:"], "use gaussian:STD"),
        (["--kernel", "gaussian:1,2"], "use gaussian:STD"),
        (["--kernel", "gaussian:-1"], "must be above 0"),
        (["--kernel", "gaussian:nan"], "must be above 0"),
        (["--kernel", "motion:5"], "use gaussian:STD"),
        (["--kernel", "motion:5,inf"], "must be finite"),
        (["--kernel", "motion:1e9,0"], "at most 1000"),
        (["--kernel", "gaussian:20"], "smaller --kernel"),
        (["--kernel", "none.npy"], "none.npy: no such file"),
        (["--kernel", "nan.npy"], "NaN"),
        (["--kernel", "zero.npy"], "above 0"),
        (["--kernel", "cube.npy"], "(height, width)"),
        (["--kernel", "gaussian:1", "--sigma", "0"], "--sigma must be above 0"),
        (["--kernel", "gaussian:1", "--sigma", "-1"], "--sigma must be finite"),
        (["--kernel", "gaussian:1", "--lam", "0"], "--lam must be finite and above 0"),
        (["--kernel", "gaussian:1", "--model-sigma", "-2"], "--model-sigma must be finite"),
        (["--kernel", "gaussian:1", "--save-degraded", "x.png"], "use it with --simulate"),
        (["--kernel", "gaussian:1", "--simulate", "--save-degraded", "no/x.png"], "does not exist"),
        (["--kernel", "gaussian:1", "--simulate", "--save-degraded", "in.png"], "would overwrite the input"),
        (["--kernel", "gaussian:1", "--simulate", "--save-degraded", "out.png"], "would be written twice"),
    ],
)
def test_bad_options(deal, options, message):
    save("in.png", pixels(size=32))
    save("out.png", pixels(size=20))
    np.save("nan.npy", np.full((3, 3), np.nan))
    np.save("zero.npy", np.zeros((3, 3)))
    np.save("cube.npy", np.ones((3, 3, 3, 3)))
    before = {name: Path(name).read_bytes() for name in os.listdir(".")}
    code, out, err = deal("deblur", "in.png", "out.png", *options)
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {name: Path(name).read_bytes() for name in os.listdir(".")} == before


def test_the_kernel_is_needed(deal):
    save("in.png", pixels(size=32))
    code, _, err = deal("deblur", "in.png", "out.png")
    assert code == 2
    assert "--kernel" in err


def test_a_run_that_does_not_settle_says_what_moves(deal):
    """A sharp picture was not blurred by that kernel: no answer fits."""
    save("sharp.png", pixels(size=32))
    settings = ("--kernel", "motion:7,20", "--model-sigma", 6.5, "--lam", 0.05, "--model", "gray-light", "--json")
    code, out, err = deal("deblur", "sharp.png", "out.png", *settings)
    result = only_result(out)
    assert code == 0
    assert result["status"] == "UNSETTLED"
    assert "of the pixels moved by at most" in result["movement"]
    assert f"did not converge. {result['movement']} A part of the image still moves" in err
    assert "A larger --lam, or --model-sigma where there is one, often settles it." in err
