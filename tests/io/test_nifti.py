"""NIfTI: values, header and scaling come back; what is damaged or too large is one line."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from scans import slices, write_nifti

from torchdeal.io.files import ImageFile, ImageFileError, read, write

nibabel = pytest.importorskip("nibabel")
AFFINE = np.array([[0.0, -2, 0, 5], [1.5, 0, 0, 7], [0, 0, 3, 9], [0, 0, 0, 1]])


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, -100.0)])
def test_there_and_back(tmp_path, suffix, slope, intercept):
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_nifti(source, slices(), AFFINE, slope, intercept)
    file = read(source)
    assert file.pixels.shape == (3, 24, 24, 1)
    assert file.is_volume
    assert write(target, replace(file, pixels=file.pixels + np.int16(2))) == []
    before, after = nibabel.load(source), nibabel.load(target)
    assert np.allclose(after.get_fdata(), before.get_fdata() + 2 * slope)
    assert np.array_equal(after.affine, AFFINE)
    assert after.get_data_dtype() == np.int16
    assert (after.dataobj.slope, after.dataobj.inter) == (slope, intercept)
    assert after.header["descrip"] == b"a scan"
    assert after.header.get_xyzt_units() == ("mm", "sec")
    assert after.header["sform_code"] == before.header["sform_code"]
    assert [extension.get_content() for extension in after.header.extensions] == [b"a comment"]


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3, 2)])
def test_dimensions(tmp_path, shape):
    array = np.random.default_rng(0).random(shape).astype(np.float32)
    nibabel.Nifti1Image(array, AFFINE).to_filename(tmp_path / "in.nii")
    file = read(tmp_path / "in.nii")
    assert file.size == (7, 5)
    write(tmp_path / "out.nii.gz", file)
    assert np.array_equal(nibabel.load(tmp_path / "out.nii.gz").get_fdata(), array)


def test_byte_order_and_nifti_2_stay(tmp_path):
    header = nibabel.Nifti2Header(endianness=">")
    nibabel.Nifti2Image(np.arange(60, dtype=np.int16).reshape(5, 4, 3), AFFINE, header).to_filename(tmp_path / "in.nii")
    write(tmp_path / "out.nii", read(tmp_path / "in.nii"))
    after = nibabel.load(tmp_path / "out.nii")
    assert isinstance(after, nibabel.Nifti2Image)
    assert np.array_equal(after.get_fdata().ravel(), np.arange(60))


def test_to_other_formats_in_units(tmp_path):
    write_nifti(tmp_path / "in.nii", slices(), slope=0.5, intercept=-100)
    file = read(tmp_path / "in.nii")
    assert write(tmp_path / "out.npy", file) == ["not kept: what NIfTI says of the scan, which npy cannot hold"]
    assert np.allclose(np.load(tmp_path / "out.npy"), nibabel.load(tmp_path / "in.nii").get_fdata().T)
    for name, why in (("out.png", "PNG cannot hold the values of a scan"), ("out.dcm", "not written as DICOM")):
        with pytest.raises(ImageFileError, match=why):
            write(tmp_path / name, file)


def test_a_picture_becomes_a_volume(tmp_path):
    stack = np.arange(24, dtype=np.uint8).reshape(2, 3, 4, 1)
    write(tmp_path / "out.nii.gz", ImageFile(stack, dimensions=(2,)))
    assert np.array_equal(nibabel.load(tmp_path / "out.nii.gz").get_fdata(), stack[..., 0].T)
    with pytest.raises(ImageFileError, match="gray pictures alone"):
        write(tmp_path / "out.nii", ImageFile(np.zeros((3, 4, 3), np.uint8)))


def damaged(path, kind):
    write_nifti(path, slices(size=32))
    content = path.read_bytes()
    plain = gzip.decompress(content) if kind.startswith("gz") else content
    if kind == "huge":
        plain = plain[:42] + np.array([30000] * 3, "<i2").tobytes() + plain[48:]
    cut = {"cut": plain[: len(plain) // 2], "gz cut": content[: len(content) // 2], "header": plain[:100]}
    path.write_bytes(cut.get(kind, plain if not kind.startswith("gz") else b"hello"))


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("in.nii", "cut", "not a readable image"),
        ("in.nii", "header", "not a readable image"),
        ("in.nii", "huge", "million that are read"),
        ("in.nii.gz", "gz cut", "not a readable image"),
        ("in.nii.gz", "gz text", "not a readable image"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, name, kind, why):
    damaged(tmp_path / name, kind)
    with pytest.raises(ImageFileError, match=why) as error:
        read(tmp_path / name)
    assert len(str(error.value).splitlines()) == 1


def test_voxels_that_are_no_numbers(tmp_path):
    nibabel.Nifti1Image(np.zeros((4, 4, 2), np.complex64), AFFINE).to_filename(tmp_path / "in.nii")
    with pytest.raises(ImageFileError, match="voxels of kind complex64"):
        read(tmp_path / "in.nii")
