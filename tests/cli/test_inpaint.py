"""Pictures with holes."""

import os

import numpy as np
import pytest
from cli.helpers import load, noise, only_result, pixels, psnr, save
from PIL import Image

QUICK = ("--tolerance", "3e-2")


def damaged(size=40, sigma=3):
    clean = pixels(size=size)
    known = np.random.default_rng(0).random((size, size)) < 0.7
    return clean, np.where(known, clean + noise(clean.shape, sigma), 200), known


@pytest.mark.parametrize("value", [255, 1])
def test_what_is_not_black_is_known(deal, value):
    clean, picture, known = damaged()
    save("in.png", picture)
    save("mask.png", known * value)
    code, out, err = deal("inpaint", "in.png", "mask.png", "out.png", *QUICK, "--json")
    assert (code, err) == (0, "")
    result = only_result(out)
    assert result["estimated"] is True
    assert result["sigma"] == pytest.approx(3, abs=1.5)
    restored = load("out.png")
    assert psnr(restored[~known], clean[~known]) > 24  # of holes that were far from it
    assert psnr(restored[known], clean[known]) > 36


def test_the_mask_as_an_option_in_colour(deal):
    clean = pixels("astronaut", 24)
    known = np.ones((24, 24, 3)) * 255
    known[10:14] = 0
    save("in.png", np.where(known > 0, clean, 0))
    np.save("mask.npy", known[..., 0])
    code, _, err = deal("inpaint", "in.png", "out.png", "--mask", "mask.npy", "--sigma", 1, *QUICK)
    assert (code, err) == (0, "")
    assert psnr(load("out.png")[known > 0], clean[known > 0]) > 38
    assert psnr(load("out.png")[10:14], clean[10:14]) > 20


def test_what_is_transparent_is_missing(deal):
    clean, picture, known = damaged()
    Image.fromarray(np.stack([picture.round().clip(0, 255), known * 255], -1).astype(np.uint8)).save("in.png")
    save("gray.png", picture)
    save("mask.png", known * 255)
    assert deal("inpaint", "in.png", "out.png", "--mask", "alpha", *QUICK)[::2] == (0, "")
    assert deal("inpaint", "gray.png", "mask.png", "expected.png", *QUICK)[::2] == (0, "")
    assert load("out.png").shape == clean.shape  # all is known now
    assert np.array_equal(load("out.png"), load("expected.png"))


def test_a_mask_of_truth_values(deal):
    clean, picture, known = damaged(24)
    save("in.png", picture)
    save("mask.png", known * 255)
    np.save("mask.npy", known)
    for mask in ("mask.png", "mask.npy"):
        assert deal("inpaint", "in.png", mask, f"{mask}.png", "--sigma", 3, "--max-iterations", 2)[0] == 0
    assert np.array_equal(load("mask.png.png"), load("mask.npy.png"))
    assert clean.shape == load("mask.png.png").shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.png", "out.png"], "IN MASK OUT"),
        (["in.png", "mask.png", "out.png", "--mask", "mask.png"], "IN MASK OUT"),
        (["in.png", "other.png", "out.png"], "the mask is 20 x 20, the picture 32 x 32"),
        (["in.png", "black.png", "out.png"], "no pixel is known"),
        (["in.png", "sparse.png", "out.png"], "give --sigma"),
        (["in.png", "missing.png", "out.png"], "missing.png: no such file"),
        (["in.png", "mask.jpg", "out.png"], "save the mask as PNG"),
        (["in.png", "out.png", "--mask", "random:0.5"], "is for --simulate"),
        (["in.png", "out.png", "--mask", "random:1.5", "--simulate"], "such as random:0.5"),
        (["in.png", "out.png", "--mask", "random:half", "--simulate"], "such as random:0.5"),
        (["in.png", "nan.npy", "out.png"], "nan.npy: the mask holds NaN; write 0 where the picture is missing"),
        (["in.png", "out.png", "--mask", "alpha"], "in.png: has no transparency to be the mask"),
        (["clear.png", "out.png", "--mask", "alpha"], "all of it is transparent"),
        (["in.png", "out.png", "--mask", "alpha", "--simulate"], "is for pictures with holes"),
        (["in.png", "mask.png", "in.png"], "would overwrite the input"),
        (["in.png", "mask.png", "mask.png"], "would overwrite the input"),
    ],
)
def test_bad_input(deal, arguments, message):
    save("in.png", pixels(size=32))
    save("mask.png", np.full((32, 32), 255))
    save("mask.jpg", np.full((32, 32), 255))
    save("other.png", np.full((20, 20), 255))
    save("black.png", np.zeros((32, 32)))
    np.save("nan.npy", np.where(np.eye(32), np.nan, 1))
    Image.new("LA", (32, 32)).save("clear.png")
    sparse = np.zeros((32, 32))
    sparse[::2, ::2] = 255
    save("sparse.png", sparse)
    code, out, err = deal("inpaint", *arguments)
    assert code == 1
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not os.path.exists("out.png")
