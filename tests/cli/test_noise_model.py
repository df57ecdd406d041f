"""Noise in pictures that is not white and Gaussian."""

import numpy as np
import pytest
from cli.helpers import load, noise, only_result, pixels, psnr, save

FAST = ["--tolerance", "1e-2", "--max-iterations", "8"]


def test_counted_photons(deal):
    clean = pixels(size=32)
    gain = 255 / 10
    save("dim.png", np.random.default_rng(0).poisson(clean / gain) * gain)
    noisy = load("dim.png")
    code, out, err = deal("denoise", "dim.png", "out.png", "--noise-model", "poisson", "--gain", gain, "--json", *FAST)
    assert code == 0, err
    result = only_result(out)
    assert result["sigma"] == pytest.approx(np.sqrt(gain * noisy.mean()), rel=0.02)
    assert not result["estimated"]
    assert deal("denoise", "dim.png", "white.png", "--sigma", result["sigma"], *FAST)[0] == 0
    assert psnr(load("out.png"), clean) > psnr(load("white.png"), clean) + 0.3


def salted(picture, share=0.1):
    draw = np.random.default_rng(1).uniform(size=picture.shape)
    return np.where(draw < share / 2, 0, np.where(draw > 1 - share / 2, 255, picture))


def test_salt_and_pepper(deal):
    """The noise of the other pixels is estimated."""
    clean = pixels(size=40)
    save("salted.png", salted(clean + noise(clean.shape, 8)))
    code, out, err = deal("denoise", "salted.png", "out.png", "--noise-model", "impulse", "--json", *FAST)
    assert code == 0, err
    assert 4 < only_result(out)["sigma"] < 16
    assert psnr(load("out.png"), clean) > psnr(load("salted.png"), clean) + 10


@pytest.mark.parametrize("arguments", [["--noise-model", "impulse"], ["--noise-model", "poisson", "--gain", "2.55"]])
@pytest.mark.parametrize(
    "command",
    [
        ["denoise"],
        ["deblur", "--kernel", "gaussian:1"],
        ["upscale", "--scale", "2"],
        ["inpaint", "--mask", "random:0.7"],
    ],
    ids=lambda command: command[0],
)
def test_simulations_have_such_noise(deal, command, arguments):
    save("clean.png", pixels(size=32))
    names = ["clean.png", "out.png", "--simulate", "--save-degraded", "degraded.png", "--json"]
    code, out, err = deal(command[0], *names, *command[1:], *arguments, "--max-iterations", "2")
    assert code == 0, err
    quality = only_result(out)["simulation"]
    assert quality["psnr"] > quality["degraded_psnr"]


def test_a_map_for_a_blurred_picture(deal):
    clean = pixels(size=32)
    levels = np.full((32, 32), 2.0)
    levels[:, 16:] = 30.0
    save("noisy.png", clean + levels * noise(clean.shape, 1))
    np.save("levels.npy", levels)
    options = ["--kernel", "gaussian:0.5", "--boundary", "reflect", *FAST]
    assert deal("deblur", "noisy.png", "out.png", *options, "--noise-map", "levels.npy")[0] == 0
    assert deal("deblur", "noisy.png", "mean.png", *options, "--sigma", np.sqrt((levels**2).mean()))[0] == 0
    assert psnr(load("out.png"), clean) > psnr(load("mean.png"), clean) + 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise-model", "poisson"], "--noise-model poisson needs --gain"),
        (["--noise-model", "poisson", "--gain", "0"], "--noise-model poisson needs --gain"),
        (["--noise-model", "poisson", "--gain", "nan"], "--noise-model poisson needs --gain"),
        (["--noise-model", "poisson", "--gain", "1", "--read-noise", "-1"], "--read-noise must be finite"),
        (["--noise-model", "poisson", "--gain", "1", "--sigma", "5"], "--sigma is for Gaussian noise"),
        (["--gain", "1"], "use them with --noise-model poisson"),
        (["--noise-model", "impulse", "--read-noise", "1"], "use them with --noise-model poisson"),
        (["--noise-model", "impulse", "--noise-map", "levels.npy"], "leave out --noise-model"),
    ],
)
def test_what_does_not_go_together(deal, arguments, message):
    save("noisy.png", pixels(size=16))
    code, _, err = deal("denoise", "noisy.png", "out.png", *arguments)
    assert code == 1
    assert message in " ".join(err.split())
