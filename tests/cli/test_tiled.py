"""`deal denoise` and others, in tiles."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from cli.helpers import only_result
from PIL import Image

from torchdeal.io.formats import MOST_VALUES_VARIABLE

LIGHT = ("--model", "gray-light", "--max-iterations", "1")


def picture(size=64):
    rows, columns = np.mgrid[:size, :size]
    noise = np.random.default_rng(0).normal(0, 15, (size, size))
    return np.clip(100 + 50 * (columns > size // 2) + rows / 2 + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def noisy_tiff(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("in.tif", picture())
    return picture()


def test_tiles_are_asked_for(deal, noisy_tiff):
    code, out, _ = deal("denoise", "in.tif", "out.tif", "--tile", "32", "--overlap", "6", *LIGHT, "--json")
    assert code == 0
    tiles = only_result(out)["tiles"]
    assert (tiles["number"], tiles["side"], tiles["overlap"]) == (4, 32, 6)
    assert tifffile.imread("out.tif").shape == (64, 64)


def test_one_tile_is_the_command_without_tiles(deal, noisy_tiff):
    deal("denoise", "in.tif", "whole.tif", "--sigma", "15", *LIGHT)
    deal("denoise", "in.tif", "tile.tif", "--sigma", "15", "--tile", "64", *LIGHT)
    away = tifffile.imread("whole.tif").astype(int) - tifffile.imread("tile.tif")
    assert np.abs(away).max() <= 1  # rounded


def test_what_is_too_large_is_solved_in_tiles(deal, noisy_tiff, monkeypatch):
    monkeypatch.setenv(MOST_VALUES_VARIABLE, "1000")
    code, out, _ = deal("denoise", "in.tif", "out.tif", "--sigma", "15", *LIGHT, "--json")
    assert code == 0
    assert only_result(out)["tiles"]["number"] == 1
    code, _, err = deal("denoise", "in.tif", "other.tif", "--sigma", "15", "--tile", "0", *LIGHT)
    assert code == 1
    assert "are more than the" in err


def test_zarr_with_a_mask(deal, noisy_tiff):
    zarr.create_array("in.zarr", data=noisy_tiff, chunks=(32, 32))
    zarr.create_array("mask.zarr", data=(np.indices((64, 64)).sum(0) % 3 > 0).astype(np.uint8), chunks=(32, 32))
    common = ("--sigma", "5", "--tile", "32", *LIGHT)
    code, _, err = deal("inpaint", "in.zarr", "mask.zarr", "out.zarr", *common)
    assert code == 0, err
    assert zarr.open("out.zarr", mode="r").shape == (64, 64)


@pytest.mark.parametrize("tiles", [(), ("--tile", "32")], ids=["whole", "tiles"])
class TestTheSameInTilesAndAsAWhole:
    """What is refused is refused in the same words."""

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            ("small.png", "small.png: the mask is 20 x 20, the picture 64 x 64: make them equal"),
            ("black.png", "black.png: the mask is black: no pixel is known"),
            ("lossy.jpg", "JPEG does not keep black as it is; save the mask as PNG"),
            ("nan.npy", "nan.npy: the mask holds NaN; write 0 where the picture is missing"),
            ("several.npy", "several.npy: a mask is one picture, this file has"),
        ],
    )
    def test_masks_that_are_none(self, deal, noisy_tiff, mask, message, tiles):
        white = np.full((64, 64), 255, np.uint8)
        for name, pixels in (("small.png", white[:20, :20]), ("black.png", 0 * white), ("lossy.jpg", white)):
            Image.fromarray(pixels).save(name)
        np.save("nan.npy", np.where(white > 0, np.nan, 1.0))
        np.save("several.npy", np.stack([white, white]))
        code, _, err = deal("inpaint", "in.tif", mask, "out.tif", *tiles, *LIGHT)
        assert (code, message in " ".join(err.split())) == (1, True), err
        assert not Path("out.tif").exists()

    @pytest.mark.parametrize("dtype", [bool, np.int64])
    def test_masks_of_other_kinds(self, deal, noisy_tiff, dtype, tiles):
        np.save("mask.npy", (np.indices((64, 64)).sum(0) % 3 > 0).astype(dtype))
        code, _, err = deal("inpaint", "in.tif", "mask.npy", "out.tif", "--sigma", "5", *tiles, *LIGHT)
        assert code == 0, err

    def test_an_array_that_may_be_two_things(self, deal, noisy_tiff, tiles):
        np.save("in.npy", np.zeros((64, 64, 6), np.uint8))
        code, _, err = deal("denoise", "in.npy", "out.npy", "--sigma", "5", *tiles, *LIGHT)
        assert code == 1
        assert "may be a stack of narrow pictures, or a picture with 6 channels" in " ".join(err.split())

    def test_an_array_that_is_taken_for_a_stack(self, deal, noisy_tiff, tiles):
        np.save("in.npy", np.stack([noisy_tiff[:32, :32]] * 3))
        code, _, err = deal("denoise", "in.npy", "out.npy", "--sigma", "5", *tiles, *LIGHT)
        assert code == 0, err
        assert "read as a stack of 3 pictures of 32 x 32" in " ".join(err.split())

    def test_an_array_that_ends_early(self, deal, noisy_tiff, tiles):
        np.save("in.npy", noisy_tiff)
        Path("in.npy").write_bytes(Path("in.npy").read_bytes()[:-100])
        code, _, err = deal("denoise", "in.npy", "out.npy", "--sigma", "5", *tiles, *LIGHT)
        assert code == 1
        assert "in.npy: ends early: 4096 bytes of pixels are promised, 3996 are there" in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("denoise", "in.tif", "out.tif", "--tile", "32", "--simulate"), "--simulate cannot be done in tiles"),
        (("denoise", "in.tif", "out.tif", "--overlap", "8"), "give --tile, too"),
        (("denoise", "in.zarr", "out.zarr"), "in.zarr: no such file"),
        (
            ("deblur", "in.tif", "out.tif", "--tile", "32", "--kernel", "disk:2", "--boundary", "circular"),
            "a blur with boundary circular cannot be cut",
        ),
        (("denoise", "in.tif", "folder.zarr", "--tile", "32"), "a folder that is no Zarr store"),
    ],
)
def test_what_cannot_be(deal, noisy_tiff, arguments, message):
    os.mkdir("folder.zarr")
    with open("folder.zarr/notes.txt", "w") as file:
        file.write("keep me")
    code, _, err = deal(*arguments)
    assert code == 1
    assert message in err
    assert os.listdir("folder.zarr") == ["notes.txt"]
    assert not os.path.exists("out.tif")


def test_a_store_around_the_input_is_refused(deal, noisy_tiff):
    zarr.create_array("in.zarr/image", data=noisy_tiff, chunks=(32, 32))
    for source, target in (("in.zarr/image", "in.zarr"), ("in.zarr", "in.zarr/out.zarr")):
        code, _, err = deal("denoise", source, target, "--sigma", "10", *LIGHT)
        assert code == 1
        assert "lies around or inside the input" in err
    assert np.array_equal(zarr.open("in.zarr/image", mode="r")[:], noisy_tiff)


def test_white_is_the_same_in_tiles(deal, noisy_tiff):
    tifffile.imwrite("float.tif", noisy_tiff.astype(np.float32) * 4)
    common = ("--sigma", "10", "--data-range", "1020", *LIGHT)
    assert deal("denoise", "float.tif", "whole.png", *common)[0] == 0
    assert deal("denoise", "float.tif", "tiled.png", "--tile", "32", *common)[0] == 0
    whole, tiled = (np.asarray(Image.open(name), float) for name in ("whole.png", "tiled.png"))
    assert np.abs(whole - tiled).max() <= 3


def test_a_folder_with_a_store_and_a_broken_file(deal, noisy_tiff):
    """The store is a picture; the broken file fails alone; the folder for the results is made."""
    os.mkdir("in")
    zarr.create_array("in/store.zarr", data=noisy_tiff, chunks=(32, 32))
    Path("in/empty.npy").write_bytes(b"")
    Path("in/cut.tif").write_bytes(Path("in.tif").read_bytes()[:200])
    code, _, err = deal("denoise", "in", "out", "--sigma", "10", *LIGHT)
    assert code == 1
    assert "empty.npy" in err
    assert "cut.tif" in err
    assert zarr.open("out/store.zarr", mode="r").shape == (64, 64)


def test_a_link_to_a_store_is_followed(deal, noisy_tiff):
    zarr.create_array("in.zarr", data=noisy_tiff, chunks=(32, 32))
    zarr.create_array("real.zarr", data=np.zeros((4, 4), np.uint8))
    os.symlink("real.zarr", "link.zarr")
    code, _, err = deal("denoise", "in.zarr", "link.zarr", "--sigma", "10", "--tile", "64", *LIGHT)
    assert code == 0, err
    assert os.path.islink("link.zarr")
    assert zarr.open("real.zarr", mode="r").shape == (64, 64)
    assert not [name for name in os.listdir(".") if name.endswith((".old", ".partial"))]
