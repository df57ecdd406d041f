"""Small pictures as other programs make them."""

import numpy as np
import pytest
from cli.helpers import load, pixels, psnr, save
from PIL import Image

QUICK = ("--tolerance", "3e-2")


@pytest.mark.parametrize(("scale", "filter_name"), [(2, "BOX"), (2, "BICUBIC"), (3, "BICUBIC")])
def test_a_picture_that_another_program_shrank(deal, scale, filter_name):
    """Better than its own enlargement, which lies in the same place: half a pixel off would be worse by far."""
    clean = pixels()
    save("clean.png", clean)
    shrunk = Image.open("clean.png").resize((48 // scale,) * 2, getattr(Image.Resampling, filter_name))
    shrunk.save("in.png")
    enlarged = np.asarray(shrunk.resize((48, 48), Image.Resampling.BICUBIC)).astype(float)
    assert deal("upscale", "in.png", "out.png", "--scale", scale, *QUICK)[0] == 0
    assert load("out.png").shape == (48, 48)
    assert psnr(load("out.png"), clean) > psnr(enlarged, clean) + 1


def test_a_kernel_from_a_file_is_centred_at_the_first_pixel(deal):
    clean = pixels(size=24)
    save("in.png", clean[::2, ::2])
    np.save("kernel.npy", np.ones((1, 1)))
    options = ("--sigma", 3, "--tolerance", 0.3)
    assert deal("upscale", "in.png", "out.png", "--scale", 2, "--kernel", "kernel.npy", *options)[0] == 0
    restored = load("out.png")
    assert psnr(restored[::2, ::2], clean[::2, ::2]) > 40
    assert psnr(restored, clean) > 22


def test_transparency_grows_too(deal):
    colour = pixels("astronaut", 24)
    alpha = np.zeros((24, 24, 1))
    alpha[:12] = 255
    save("in.png", np.concatenate([colour, alpha], -1))
    assert deal("upscale", "in.png", "out.png", "--scale", 2, *QUICK)[0] == 0
    restored = load("out.png")
    assert restored.shape == (48, 48, 4)
    assert (restored[:24, :, 3] == 255).all()
    assert (restored[24:, :, 3] == 0).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 7)])
@pytest.mark.parametrize("command", [("upscale", "--scale", 2), ("deblur", "--kernel", "gaussian:1")])
def test_tiny_pictures(deal, size, command):
    scale = 2 if "upscale" in command else 1
    save("in.png", np.full(size, 100.0))
    assert deal(*command, "in.png", "out.png", "--sigma", 2, *QUICK)[0] == 0
    result = load("out.png")
    assert result.shape == (scale * size[0], scale * size[1])
    assert np.abs(result - 100).max() <= 2


def test_bad_options(deal):
    save("in.png", pixels(size=20))
    for options, message, expected in (
        (["--scale", "1"], "--scale", 2),
        (["--scale", "2.5"], "--scale", 2),
        ([], "--scale", 2),
        (["--scale", "2", "--kernel", "gaussian:9"], "smaller --kernel", 1),
        (["--scale", "16", "--simulate", "--seed", str(2**64)], "--seed", 2),
    ):
        code, _, err = deal("upscale", "in.png", "out.png", *options)
        assert code == expected
        assert message in err
