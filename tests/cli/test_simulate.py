"""Each command on a clean picture: what a newcomer tries first."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.helpers import load, only_result, pixels, psnr, save
from skimage.metrics import structural_similarity

QUICK = ("--tolerance", "3e-2")

# command and options, and a gain in dB over the degraded picture that is a little less than what was measured
COMMANDS = {
    "denoise": (["denoise", "--sigma", 25], 9.0),
    "deblur": (["deblur", "--kernel", "gaussian:1.2"], 3.0),
    "deblur, circular": (["deblur", "--kernel", "motion:7,30", "--boundary", "circular", "--sigma", 2], 8.0),
    "upscale": (["upscale", "--scale", 2], 1.8),
    "upscale, literature": (["upscale", "--scale", 2, "--kernel", "gaussian:1.2", "--sigma", 2.55], 2.5),
    "inpaint": (["inpaint", "--mask", "random:0.5"], 20.0),
    "mri": (["mri"], 10.0),
    "mri, complex": (["mri", "--complex", "--acceleration", 3, "--centre", 0.1], 9.0),
    "ct": (["ct", "--angles", 40], 4.5),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_gain_is_real(deal, name):
    (command, *options), least = COMMANDS[name]
    save("clean.png", pixels())
    arguments = [command, "clean.png", "out.png", *options, *QUICK, "--simulate", "--save-degraded", "bad.png"]
    code, out, err = deal(*arguments, "--json")
    assert code == 0, err
    result = only_result(out)
    quality = result["simulation"]
    assert quality["psnr"] > quality["degraded_psnr"] + least, quality
    assert quality["ssim"] > quality["degraded_ssim"]
    assert result["estimated"] is False

    # What is reported is what was written, up to rounding: here measured by other means.
    clean, restored, degraded = load("clean.png"), load("out.png"), load("bad.png")
    assert restored.shape == degraded.shape
    margin = [(size - kept) // 2 for size, kept in zip(clean.shape, restored.shape, strict=True)]
    clean = clean[margin[0] : margin[0] + restored.shape[0], margin[1] : margin[1] + restored.shape[1]]
    assert psnr(restored, clean) == pytest.approx(quality["psnr"], abs=0.1)
    assert psnr(degraded, clean) == pytest.approx(quality["degraded_psnr"], abs=0.1)
    assert structural_similarity(restored, clean, data_range=255) == pytest.approx(quality["ssim"], abs=0.01)


def test_in_words_and_in_colour(deal):
    save("clean.png", pixels("astronaut", 28))
    code, out, err = deal("deblur", "clean.png", "out.png", "--kernel", "gaussian:1", *QUICK, "--simulate")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert "sigma 2.55" in first
    assert "CONVERGED" in first
    assert "dB (blurred) ->" in second
    assert "SSIM" in second
    assert load("out.png").shape == (22, 22, 3)  # 3 of each side were blurred into from beyond the picture


def test_the_seed_decides(deal):
    save("clean.png", pixels(size=24))
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        arguments = ("inpaint", "clean.png", f"{name}.png", "--mask", "random:0.6", "--seed", seed)
        assert deal(*arguments, *QUICK, "--simulate")[0] == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    assert Path("a.png").read_bytes() != Path("c.png").read_bytes()


def test_a_folder(deal):
    os.mkdir("in")
    for index in range(2):
        save(f"in/{index}.png", pixels(size=32, row=60 * index))
    code, out, _ = deal("upscale", "in", "out", "--scale", 2, *QUICK, "--simulate", "--json")
    assert code == 0
    assert all(result["simulation"]["psnr"] > 20 for result in json.loads(out)["results"])
    assert sorted(os.listdir("out")) == ["0.png", "1.png"]


def test_a_picture_that_is_no_multiple_of_the_scale_is_cropped(deal):
    save("clean.png", pixels(size=50)[:, :47])
    assert deal("upscale", "clean.png", "out.png", "--scale", 3, *QUICK, "--simulate")[0] == 0
    assert load("out.png").shape == (48, 45)


def test_ct_of_a_picture_that_is_not_square(deal):
    save("clean.png", pixels()[:40, :33])
    code, out, err = deal("ct", "clean.png", "out.png", "--angles", 50, *QUICK, "--simulate", "--json")
    assert code == 0, err
    quality = only_result(out)["simulation"]
    assert quality["degraded_psnr"] > 20  # a back-projection that is out of place by a pixel has less
    assert quality["psnr"] > quality["degraded_psnr"] + 3


def test_without_scikit_image_psnr_alone(deal, monkeypatch):
    save("clean.png", pixels(size=32))
    for module in ("skimage.metrics", "skimage.transform"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    code, out, err = deal("denoise", "clean.png", "out.png", "--simulate")
    assert code == 0
    assert "PSNR" in out
    assert "SSIM" not in out
    assert "pip install 'torchdeal[demo]'" in err
    code, _, err = deal("ct", "clean.png", "out2.png", "--angles", 30, "--simulate")
    assert code == 1
    assert "pip install 'torchdeal[demo]'" in err
    assert not os.path.exists("out2.png")


def test_bit_depth_stays(deal):
    np.save("clean.npy", (pixels(size=32) / 255).astype(np.float32))
    assert deal("denoise", "clean.npy", "out.npy", "--simulate", *QUICK)[0] == 0
    assert np.load("out.npy").dtype == np.float32
