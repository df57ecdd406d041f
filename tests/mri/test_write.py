import gzip
import os
import sys

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from torchdeal.io.files import ImageFileError
from torchdeal.mri import check_result_path, write_image


def image(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.uint8), (16, np.uint16)])
def test_png_holds_the_magnitude_and_its_maximum_is_white(tmp_path, bits, dtype):
    picture = 1e-5 * image(20, 17)
    write_image(tmp_path / "a.png", torch.from_numpy(picture)[None, None], bits=bits)
    with Image.open(tmp_path / "a.png") as file:
        pixels = np.asarray(file)
    magnitude = np.abs(picture)
    assert pixels.astype(dtype).max() == 2**bits - 1
    np.testing.assert_allclose(pixels / (2**bits - 1), magnitude / magnitude.max(), atol=0.6 / (2**bits - 1))


def test_a_black_image(tmp_path):
    write_image(tmp_path / "a.png", np.zeros((4, 5)))
    with Image.open(tmp_path / "a.png") as file:
        assert not np.asarray(file).any()


@pytest.mark.parametrize("shape", [(20, 17), (3, 20, 17)])
def test_npy_holds_what_it_is_given(tmp_path, shape):
    for picture in (image(*shape), np.abs(image(*shape))):
        write_image(tmp_path / "a.npy", picture)
        back = np.load(tmp_path / "a.npy")
        assert back.dtype == picture.dtype
        assert np.array_equal(back, picture)


def test_a_conjugated_batch_becomes_a_stack(tmp_path):
    picture = torch.from_numpy(image(3, 1, 20, 17))
    write_image(tmp_path / "a.npy", picture.conj())
    assert np.array_equal(np.load(tmp_path / "a.npy"), picture[:, 0].conj().resolve_conj())


@pytest.mark.parametrize("shape", [(20, 17), (3, 20, 17)])
def test_tiff_holds_the_magnitude(tmp_path, shape):
    picture = image(*shape)
    write_image(tmp_path / "a.tif", picture)
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), np.abs(picture))


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "A.NII.GZ"])
@pytest.mark.parametrize("kind", ["complex", "real"])
def test_nifti(tmp_path, name, kind):
    picture = image(3, 20, 17) if kind == "complex" else np.abs(image(3, 20, 17))
    write_image(tmp_path / name, picture)
    first = (tmp_path / name).read_bytes()
    back = nibabel.Nifti1Image.from_bytes(first if name == "a.nii" else gzip.decompress(first))
    assert np.array_equal(np.asanyarray(back.dataobj), picture.transpose(2, 1, 0))
    write_image(tmp_path / name, picture)
    assert (tmp_path / name).read_bytes() == first
    write_image(tmp_path / name, picture[0])
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "picture", "message"),
    [
        ("a.jpg", image(4, 4), "unknown format"),
        ("a.gz", image(4, 4), "unknown format"),
        ("missing/a.nii", image(4, 4), "does not exist"),
        ("a.png", image(2, 4, 4), "there are 2 slices; write .tif, .tiff, .npy, .nii or .nii.gz"),
        ("a.npy", image(2, 3, 4, 4), "is needed"),
        ("a.npy", image(4), "is needed"),
        ("a.npy", image(4, 4) * np.nan, "NaN"),
        ("a.nii", np.ones((4, 4), np.float16), "cannot hold float16 numbers; convert them to float32"),
        ("a.nii", np.ones((4, 4), np.int64), "cannot hold int64 numbers"),
        ("a.nii", np.ones((2, 40000), np.float32), "at most 32767 pixels"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, picture, message):
    with pytest.raises(ImageFileError, match=message):
        write_image(tmp_path / name, picture)
    assert os.listdir(tmp_path) == []


def test_bad_bits(tmp_path):
    with pytest.raises(ValueError, match="8 or 16"):
        write_image(tmp_path / "a.png", image(4, 4), bits=12)


def test_nifti_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(ImportError, match=r"pip install 'torchdeal\[mri\]'"):
        check_result_path(tmp_path / "a.nii.gz")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.nii"
    write_image(path, image(4, 4))
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ImageFileError, match="No space left"):
        write_image(path, image(9, 9))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.nii"]
