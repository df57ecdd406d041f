"""Sinograms in files, made by scikit-image."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.helpers import load, noise, only_result, pixels, psnr
from skimage.transform import iradon, radon

QUICK = ("--tolerance", "3e-2")
SIZE, ANGLES = 48, 36


def disc():
    """A picture inside the circle."""
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE // 2
    return pixels(size=SIZE) / 255 * (np.hypot(rows, columns) < SIZE // 2 - 2)


def sinogram(image, circle=True, relative=0.01):
    """As scikit-image has it, `(bins, angles)`; noise relative to the maximum."""
    clean = radon(image, np.arange(ANGLES) * 180 / ANGLES, circle=circle)
    return clean + noise(clean.shape, relative * clean.max())


def back_projection(values, circle=True):
    return iradon(values, np.arange(ANGLES) * 180 / ANGLES, circle=circle, output_size=SIZE)


@pytest.mark.parametrize("transposed", [False, True])
def test_either_layout_with_noise_that_is_estimated(deal, transposed):
    values = sinogram(disc())
    tifffile.imwrite("in.tif", (values.T if transposed else values).astype(np.float32))
    code, out, err = deal("ct", "in.tif", "out.tif", "--angles", ANGLES, *QUICK, "--json")
    assert (code, err) == (0, "")
    result = only_result(out)
    assert result["estimated"] is True
    assert result["sigma"] == pytest.approx(0.01 * values.max(), rel=0.5)
    restored = tifffile.imread("out.tif")
    assert restored.dtype == np.float32
    assert psnr(restored, disc(), 1) > psnr(back_projection(values), disc(), 1) + 2.5
    assert not restored[0, 0]  # outside the circle


@pytest.mark.parametrize(("unit", "offset"), [(1.0, 0.0), (2e-5, 0.0), (2000.0, -1000.0)])
def test_in_any_unit(deal, unit, offset):
    """Attenuation per pixel, or Hounsfield units inside a disc of air."""
    image = np.where(disc() > 0, disc() * unit + offset, 0)
    np.save("in.npy", sinogram(image))
    assert deal("ct", "in.npy", "out.npy", "--angles", ANGLES, *QUICK)[0] == 0
    assert psnr(np.load("out.npy"), image, unit) > 24


def test_a_detector_that_sees_the_whole_square(deal):
    image = pixels(size=SIZE) / 255
    values = sinogram(image, circle=False)
    np.save("in.npy", values)
    assert deal("ct", "in.npy", "out.npy", "--angles", ANGLES, "--size", SIZE, *QUICK)[0] == 0
    assert psnr(np.load("out.npy"), image, 1) > psnr(back_projection(values, circle=False), image, 1) + 3


def test_angles_from_a_file_or_a_list(deal):
    degrees = np.arange(0, 180, 5.0)
    np.save("in.npy", sinogram(disc()))
    np.save("angles.npy", degrees)
    Path("angles.txt").write_text("\n".join(map(str, degrees)))
    listed = ",".join(map(str, degrees))
    for number, angles in enumerate((ANGLES, "angles.npy", "angles.txt", listed)):
        assert deal("ct", "in.npy", f"{number}.npy", "--angles", angles, "--sigma", 0.2, "--max-iterations", 2)[0] == 0
        np.testing.assert_allclose(np.load(f"{number}.npy"), np.load("0.npy"))


def test_a_picture_spans_black_to_white(deal):
    np.save("in.npy", sinogram(disc()) * 0.01)
    assert deal("ct", "in.npy", "out.png", "--angles", ANGLES, "--tolerance", 0.1)[0] == 0
    assert (load("out.png").min(), load("out.png").max()) == (0, 255)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["square.npy", "out.png", "--angles", "20"], "--layout"),
        (["in.npy", "out.png", "--angles", "30"], "correct --angles"),
        (["in.npy", "out.png", "--angles", "36", "--layout", "angles-bins"], "but --angles says 36"),
        (["in.npy", "out.png", "--angles", "0"], "from 1 to 100000"),
        (["in.npy", "out.png", "--angles", "many"], "not a number of angles"),
        (["in.npy", "out.png", "--angles", "none.npy"], "No such file"),
        (["in.npy", "out.png", "--angles", "0,nan"], "finite numbers"),
        (["in.npy", "out.png", "--angles", "36", "--size", "40"], "--size 48"),
        (["in.npy", "out.png", "--angles", "36", "--sigma", "0"], "--sigma must be above 0"),
        (["in.npy", "in.npy", "--angles", "36"], "would overwrite the input"),
        (["in.npy", "no/out.png", "--angles", "36"], "does not exist"),
        (["in.npy", "out.nii", "--angles", "36"], "unknown format to write"),
        (["missing.npy", "out.png", "--angles", "36"], "missing.npy: no such file"),
        (["nan.npy", "out.png", "--angles", "36"], "NaN"),
        (["zero.npy", "out.png", "--angles", "36"], "zero everywhere"),
        (["stack.npy", "out.png", "--angles", "36"], "one gray image"),
    ],
)
def test_bad_input(deal, arguments, message):
    np.save("in.npy", np.ones((48, 36)))
    np.save("square.npy", np.ones((20, 20)))
    np.save("nan.npy", np.full((48, 36), np.nan))
    np.save("zero.npy", np.zeros((48, 36)))
    np.save("stack.npy", np.ones((3, 48, 36)))
    before = {name: Path(name).read_bytes() for name in os.listdir(".")}
    code, out, err = deal("ct", *arguments)
    assert code == 1
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {name: Path(name).read_bytes() for name in os.listdir(".")} == before
