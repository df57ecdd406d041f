"""Picture files of every kind through a command: what is kept, what is refused before any work."""

import os

import numpy as np
import pytest
import tifffile
from cli.helpers import noise, only_result, pixels, save
from PIL import Image

from torchdeal.cli import run

QUICK = ("--sigma", 10, "--max-iterations", 2)


def gray(size=20, row=300):
    return (pixels(size=size, row=row) + noise((size, size), 10)).clip(0, 255)


@pytest.fixture
def no_work(monkeypatch):
    """Reconstructing anything fails the test."""

    def called(*_, **__):
        pytest.fail("work began")

    monkeypatch.setattr(run, "reconstruct", called)


@pytest.mark.parametrize(
    ("sigma", "told"),
    [([], "no noise is certain"), (["--sigma", 25], ""), (["--sigma", 0], "")],
)
@pytest.mark.parametrize("value", [0, 128, 255])
def test_a_picture_of_one_colour_stays_what_it_is(deal, value, sigma, told):
    save("in.png", np.full((20, 24), value))
    code, _, err = deal("denoise", "in.png", "out.png", *sigma)
    assert code == 0
    assert told in err
    assert bool(err) == bool(told)
    assert np.array_equal(np.asarray(Image.open("out.png")), np.full((20, 24), value))


@pytest.mark.parametrize("command", [["denoise"], ["deblur", "--kernel", "gaussian:1"], ["upscale", "--scale", 2]])
def test_hardly_any_contrast_and_much_noise(deal, command):
    save("in.png", np.random.default_rng(0).integers(127, 130, (24, 24)))
    code, _, err = deal(*command, "in.png", "out.png", "--sigma", 25)
    assert code == 0
    assert "beyond" not in err
    assert np.abs(np.asarray(Image.open("out.png")).astype(int) - 128).max() <= 1


def test_a_blown_out_frame_of_a_stack(deal):
    stack = np.stack([gray(), np.full((20, 20), 255)]).round().astype(np.uint8)
    tifffile.imwrite("in.tif", stack, photometric="minisblack")
    assert deal("denoise", "in.tif", "out.tif", "--sigma", 25, "--max-iterations", 9)[0] == 0
    result = tifffile.imread("out.tif")
    assert np.array_equal(result[1], stack[1])
    assert 0 < np.abs(result[0].astype(int) - stack[0]).mean() < 40


def one_by_one(deal, planes):
    """Each plane as a file of its own."""
    results = []
    for plane in planes:
        tifffile.imwrite("plane.tif", plane)
        deal("denoise", "plane.tif", "plane_out.tif", *QUICK)
        results.append(tifffile.imread("plane_out.tif"))
    return np.stack(results)


@pytest.mark.parametrize("channels", [2, 4, 5])
@pytest.mark.parametrize("name", ["in.tif", "in.npy"])
def test_channels_that_are_no_colours_are_denoised_one_by_one(deal, channels, name):
    planes = np.stack([gray(row=100 + 40 * channel) for channel in range(channels)]).round().astype(np.uint8)
    array = np.moveaxis(planes, 0, -1)
    if name == "in.npy":
        np.save(name, array if channels <= 4 else planes)
    else:
        tifffile.imwrite(name, array, photometric="minisblack", planarconfig="contig")
    assert deal("denoise", name, f"out_{name}", *QUICK)[0] == 0
    result = np.load("out_in.npy") if name == "in.npy" else tifffile.imread("out_in.tif")
    assert result.shape == (planes if channels > 4 and name == "in.npy" else array).shape
    result = result if result.shape == planes.shape else np.moveaxis(result, -1, 0)
    assert np.array_equal(result, one_by_one(deal, planes))


def test_a_hyperstack_plane_by_plane(deal):
    planes = np.stack([gray(16, row=100 + 40 * number) for number in range(6)]).round().astype(np.uint16)
    tifffile.imwrite("in.tif", planes.reshape(3, 2, 16, 16), imagej=True, metadata={"axes": "ZCYX"})
    assert deal("denoise", "in.tif", "out.tif", *QUICK, "--no-warm-start")[0] == 0
    with tifffile.TiffFile("out.tif") as file:
        assert file.series[0].axes == "ZCYX"
        assert np.array_equal(file.asarray().reshape(6, 16, 16), one_by_one(deal, planes))


def test_alpha_of_a_file_is_not_denoised(deal):
    colours = pixels("astronaut", 20) + noise((20, 20, 3), 10)
    alpha = np.random.default_rng(1).integers(0, 256, (20, 20, 1))
    rgba = np.concatenate([colours.clip(0, 255), alpha], -1).round().astype(np.uint8)
    tifffile.imwrite("in.tif", rgba, photometric="rgb", extrasamples="assocalpha")
    Image.fromarray(rgba).save("in.png")
    for name in ("in.tif", "in.png"):
        assert deal("denoise", name, f"out_{name}", *QUICK)[0] == 0
    results = [tifffile.imread("out_in.tif"), np.asarray(Image.open("out_in.png"))]
    assert np.array_equal(*results)
    assert np.array_equal(results[0][..., 3], alpha[..., 0])
    assert not np.array_equal(results[0][..., :3], rgba[..., :3])
    with tifffile.TiffFile("out_in.tif") as file:
        assert file.pages[0].extrasamples == (tifffile.EXTRASAMPLE.ASSOCALPHA,)


def test_a_simulation_is_without_alpha(deal):
    Image.fromarray(pixels("astronaut", 20).round().astype(np.uint8)).convert("RGBA").save("in.png")
    code, out, _ = deal("denoise", "in.png", "out.jpg", *QUICK, "--simulate", "--json")
    assert code == 0
    assert only_result(out)["model"] == "color"
    assert only_result(out)["notes"] == ["transparency: a simulation is without it"]
    assert Image.open("out.jpg").mode == "RGB"


def test_a_stack_in_npy(deal):
    stack = np.stack([gray(row=100), gray(row=200)]) / 255
    np.save("in.npy", stack)
    code, out, _ = deal("denoise", "in.npy", "out.npy", *QUICK, "--json")
    assert code == 0
    assert any("a stack of 2 pictures of 20 x 20" in note for note in only_result(out)["notes"])
    assert np.load("out.npy").shape == stack.shape


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32"])
def test_integers_without_a_white(deal, dtype):
    clean = pixels(size=32) * 4 - (500 if dtype.startswith("i") else 0)
    noisy = (clean + noise(clean.shape, 80)).clip(0 if dtype == "uint32" else None).round().astype(dtype)
    tifffile.imwrite("in.tif", noisy, photometric="minisblack")
    assert deal("denoise", "in.tif", "out.tif", "--max-iterations", 8)[0] == 0
    result = tifffile.imread("out.tif")
    assert result.dtype == np.dtype(dtype)
    assert np.std(result - clean) < 0.6 * np.std(noisy - clean)


def test_the_largest_integers_do_not_wrap_around(deal):
    picture = np.full((16, 16), 2**31 - 1, np.int32)
    picture[:, 8:] = -(2**31)
    np.save("in.npy", picture)
    assert deal("denoise", "in.npy", "out.npy", "--sigma", 1, "--max-iterations", 3)[0] == 0
    assert np.abs(np.load("out.npy").astype(np.float64) - picture).max() < 0.05 * 2**32


def test_a_nan_is_told_with_file_and_frame(deal):
    stack = np.zeros((3, 20, 20, 1))
    stack[1, 4, 4] = np.nan
    np.save("in.npy", stack)
    code, _, err = deal("denoise", "in.npy", "out.npy")
    assert code == 1
    assert "in.npy" in err
    assert "image 2 of 3" in err


UNWRITABLE = [
    (np.zeros((3, 20, 20), np.uint8), "out.png", "PNG cannot hold a stack of 3 pictures; write .tif or .npy"),
    (np.zeros((20, 20), np.uint16), "out.jpg", "JPEG cannot hold 16 bits per channel; write .png or .tif or .npy"),
    (np.zeros((20, 20, 3), np.uint16), "out.bmp", "BMP cannot hold 16 bits per channel; write .png or .tif or .npy"),
    (np.zeros((20, 20, 4), np.uint8), "out.png", "PNG cannot hold 4 channels; write .tif or .npy"),
    (np.zeros((20, 20), np.int16), "out.png", "PNG cannot hold pixels of type int16; write .tif or .npy"),
]


@pytest.mark.parametrize(("array", "target", "message"), UNWRITABLE)
def test_what_cannot_be_written_is_refused_before_any_work(deal, no_work, array, target, message):
    np.save("in.npy", array)
    code, _, err = deal("denoise", "in.npy", target)
    assert code == 1
    assert message in err
    assert os.listdir(".") == ["in.npy"]


def test_the_degraded_picture_too(deal, no_work):
    save("in.png", gray())
    Image.fromarray(np.zeros((20, 20, 4), np.uint8)).save("rgba.png")
    tifffile.imwrite("stack.tif", np.zeros((3, 20, 20), np.uint8), photometric="minisblack")
    code, _, err = deal("denoise", "stack.tif", "out.tif", "--simulate", "--save-degraded", "noisy.png")
    assert code == 1
    assert "noisy.png: PNG cannot hold a stack" in err
    assert "transparency" in deal("denoise", "rgba.png", "out.jpg")[2]


def test_a_picture_that_grows_beyond_its_format(deal, no_work):
    save("in.png", np.zeros((16, 2048)))
    assert "WebP cannot hold more than 16383 pixels" in deal("upscale", "in.png", "out.webp", "--scale", 9)[2]


def test_quality_of_jpeg(deal):
    save("in.png", gray(48))
    for quality in (20, 95):
        assert deal("denoise", "in.png", f"{quality}.jpg", *QUICK, "--quality", quality)[0] == 0
    deal("denoise", "in.png", "default.jpg", *QUICK)
    assert os.path.getsize("20.jpg") < 0.6 * os.path.getsize("95.jpg")
    assert os.path.getsize("default.jpg") == os.path.getsize("95.jpg")


def test_16_bit_colours_in_png(deal):
    deep = ((pixels("astronaut", 20) + noise((20, 20, 3), 10)) * 257).clip(0, 65535).round().astype(np.uint16)
    tifffile.imwrite("in.tif", deep, photometric="rgb")
    assert deal("denoise", "in.tif", "middle.png", *QUICK)[0] == 0
    assert deal("denoise", "in.tif", "out.tif", *QUICK)[0] == 0
    assert deal("denoise", "middle.png", "copy.tif", "--sigma", 0, "--max-iterations", 1)[0] == 0
    # To single precision a picture without noise is not changed.
    assert np.abs(tifffile.imread("copy.tif").astype(int) - tifffile.imread("out.tif")).max() <= 1


def test_a_link_is_followed(deal):
    save("in.png", gray())
    os.mkdir("elsewhere")
    os.symlink("elsewhere/real.png", "out.png")
    assert deal("denoise", "in.png", "out.png", *QUICK)[0] == 0
    assert os.path.islink("out.png")
    assert os.listdir("elsewhere") == ["real.png"]
    assert Image.open("out.png").size == (20, 20)
    os.symlink("nowhere/real.png", "lost.png")
    code, _, err = deal("denoise", "in.png", "lost.png", *QUICK)
    assert code == 1
    assert "nowhere does not exist" in err


def test_upscaling_keeps_the_size_of_things(deal):
    Image.fromarray(gray(16).round().astype(np.uint8)).save("in.png", dpi=(300, 300))
    assert deal("upscale", "in.png", "out.tif", "--scale", 2, "--max-iterations", 2)[0] == 0
    with tifffile.TiffFile("out.tif") as file:
        assert file.pages[0].get_resolution(tifffile.RESUNIT.INCH) == pytest.approx((600, 600), rel=1e-3)


def test_what_is_not_kept_is_told(deal):
    exif = Image.Exif()
    exif[0x013B] = "somebody"
    Image.fromarray(gray().round().astype(np.uint8)).save("in.png", exif=exif, dpi=(300, 300))
    code, out, err = deal("denoise", "in.png", "out.bmp", *QUICK, "--json")
    assert code == 0
    assert only_result(out)["notes"] == ["not kept: EXIF, which BMP cannot hold"]
    assert "not kept: EXIF, which BMP cannot hold" in err
