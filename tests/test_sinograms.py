"""Sinograms and angles in files, beside scikit-image; how `deal ct` uses them is in cli/test_ct.py."""

import numpy as np
import pytest
import tifffile
from scipy import ndimage
from skimage.transform import radon

from torchdeal import sinograms
from torchdeal.io.files import ImageFileError
from torchdeal.sinograms import Layout, angles_first, estimate_center, read_angles, read_sinograms

DEGREES = np.arange(0, 180, 6.0)


def scan(bins=40, shift=0.0):
    """Of two blobs, `(angles, bins)`, by scikit-image, moved along the detector."""
    rows, columns = np.mgrid[:bins, :bins] - bins // 2
    image = np.exp(-((rows - 5) ** 2 + (columns + 3) ** 2) / 8) + 2 * np.exp(-((rows + 6) ** 2 + columns**2) / 4)
    image[np.hypot(rows, columns) > 15] = 0
    return ndimage.shift(radon(image, DEGREES, circle=True).T, (0, shift), order=3)


@pytest.mark.parametrize("shift", [0.0, -0.5, 2.3, -4.0])
@pytest.mark.parametrize("bins", [40, 41])
def test_the_axis_is_found(bins, shift):
    assert estimate_center(scan(bins, shift), DEGREES) == pytest.approx(shift, abs=0.02)


def test_the_axis_of_a_stack_with_noise():
    stack = np.stack([scan(shift=1.7), 3 * scan(shift=1.7)])
    stack += np.random.default_rng(0).normal(0, 0.02 * stack.max(), stack.shape)
    assert estimate_center(stack, DEGREES) == pytest.approx(1.7, abs=0.15)


@pytest.mark.parametrize(
    ("values", "degrees", "message"),
    [
        (scan()[:3], DEGREES[:3], "too little of a turn"),
        (scan()[:1], DEGREES[:1], "too little of a turn"),
        (scan() * (DEGREES < 90)[:, None], DEGREES, "left the detector"),
        (-scan(), DEGREES, "left the detector"),
    ],
)
def test_an_axis_that_cannot_be_found(values, degrees, message):
    with pytest.raises(ValueError, match=message):
        estimate_center(values, degrees)


@pytest.mark.parametrize("text", ["0 45\n90", "0,45,90", "0;45;90\n", " 0,\t45,\r\n90 "])
def test_angles_between_anything(tmp_path, text):
    path = tmp_path / "angles.txt"
    path.write_text(text)
    assert read_angles(path).tolist() == [0, 45, 90]


def test_a_list_that_is_too_long(tmp_path, monkeypatch):
    (tmp_path / "angles.txt").write_text("0 " * 99)
    np.save(tmp_path / "angles.npy", np.zeros(99))
    monkeypatch.setattr(sinograms, "LONGEST_LIST", 50)
    monkeypatch.setattr(sinograms, "MOST_ANGLES", 50)
    for name, message in (("angles.txt", "has 198 bytes"), ("angles.npy", "at most 50; it has 99")):
        with pytest.raises(ValueError, match=message):
            read_angles(tmp_path / name)


@pytest.mark.parametrize("dtype", ["f4", ">f8", "u2", "i4", np.longdouble, "f2"])
def test_sinograms_of_any_numbers(tmp_path, dtype):
    stack = (np.arange(2 * 3 * 5).reshape(2, 3, 5) + 1).astype(dtype)
    np.save(tmp_path / "a.npy", stack)
    assert np.array_equal(read_sinograms(tmp_path / "a.npy"), stack)
    np.save(tmp_path / "a.npy", stack[0])
    assert np.array_equal(read_sinograms(tmp_path / "a.npy"), stack[:1])


@pytest.mark.parametrize("slices", [1, 3, 4])
def test_pages_are_slices(tmp_path, slices):
    stack = np.random.default_rng(0).random((slices, 6, 9), np.float32)
    tifffile.imwrite(tmp_path / "a.tif", stack if slices > 1 else stack[0], photometric="minisblack")
    assert np.array_equal(read_sinograms(tmp_path / "a.tif"), stack)


@pytest.mark.parametrize("name", ["a.npy", "a.tif"])
def test_sinograms_that_are_too_large(tmp_path, monkeypatch, name):
    stack = np.ones((10, 10, 10), np.float32)
    np.save(tmp_path / name, stack) if name == "a.npy" else tifffile.imwrite(tmp_path / name, stack)
    monkeypatch.setenv("TORCHDEAL_MAX_VALUES", "999")
    with pytest.raises(ImageFileError, match=r"10 x 10 x 10.* cut it into parts, or set TORCHDEAL_MAX_VALUES"):
        read_sinograms(tmp_path / name)
    monkeypatch.setenv("TORCHDEAL_MAX_VALUES", "1000")
    assert read_sinograms(tmp_path / name).shape == (10, 10, 10)


def test_the_number_of_angles_tells_the_layout():
    stack = np.random.default_rng(0).random((2, 6, 9))
    assert np.array_equal(angles_first(stack, 6, Layout.auto), stack)
    assert np.array_equal(angles_first(stack, 9, Layout.auto), stack.swapaxes(1, 2))
    square = np.random.default_rng(0).random((2, 6, 6))
    assert np.array_equal(angles_first(square, 6, Layout.bins_angles), square.swapaxes(1, 2))
