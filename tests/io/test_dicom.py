"""DICOM: Hounsfield units, bits, padding, order and identity; what is damaged or not read is one line."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scans import in_units, slices, write_dicom

from torchdeal.io.dicom import is_dicom
from torchdeal.io.files import ImageFile, ImageFileError, read, write

pydicom = pytest.importorskip("pydicom")


@pytest.fixture
def series(tmp_path):
    """Three slices, whose names are not in the order of their places."""
    folder = tmp_path / "series"
    folder.mkdir()
    for number, image in enumerate(slices()):
        write_dicom(folder / f"IM{9 - number}", image, place=2.5 * number, InstanceNumber=3 - number)
    return folder


def test_slices_lie_in_the_order_of_their_places(series):
    file = read(series)
    assert file.pixels.shape == (3, 24, 24, 1)
    volume = file.metadata.volume
    assert (volume.slope, volume.intercept) == (1, -1024)
    in_order = np.stack([in_units(series / f"IM{9 - number}") for number in range(3)])
    assert np.array_equal(volume.in_units(file.pixels)[..., 0], in_order)


def test_what_is_written_is_a_series_of_its_own(series, tmp_path):
    file = read(series)
    volume = replace(file.metadata.volume, made="denoised")
    changed = replace(file, pixels=file.pixels + np.uint16(3), metadata=replace(file.metadata, volume=volume))
    for out in ("out", "again"):
        assert write(tmp_path / out, changed) == []
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(series))
    before, after = ([pydicom.dcmread(folder / f"IM{n}") for n in (7, 8, 9)] for folder in (series, tmp_path / "out"))
    for old, new in zip(before, after, strict=True):
        assert np.array_equal(in_units(new.filename), in_units(old.filename) + 3)
        assert new.SOPInstanceUID == new.file_meta.MediaStorageSOPInstanceUID != old.SOPInstanceUID
        assert new.SeriesDescription.startswith("Head, denoised by torchdeal")
        assert new.ImageType == ["DERIVED", "PRIMARY", "AXIAL"]
        assert new.SourceImageSequence[0].ReferencedSOPInstanceUID == old.SOPInstanceUID
        same = ("PatientName", "StudyInstanceUID", "ImagePositionPatient", "BitsStored", "RescaleIntercept", "Modality")
        assert all(new[name] == old[name] for name in same)
    assert len({new.SeriesInstanceUID for new in after}) == 1
    assert len({new.SOPInstanceUID for new in after}) == 3
    assert after[0].SeriesInstanceUID != before[0].SeriesInstanceUID
    assert (tmp_path / "again" / "IM7").read_bytes() == (tmp_path / "out" / "IM7").read_bytes()


def test_bits_and_padding_are_respected(tmp_path):
    image = slices(1)[0].clip(-1000)
    image[:3] = -1024  # stored as 0, which means that nothing was scanned
    write_dicom(tmp_path / "in.dcm", image, bits=11, PixelPaddingValue=0, LargestImagePixelValue=9)
    file = read(tmp_path / "in.dcm")
    assert file.pixels.shape == (24, 24)
    write(tmp_path / "out.dcm", replace(file, pixels=np.full_like(file.pixels, 60000)))
    after = pydicom.dcmread(tmp_path / "out.dcm")
    stored = after.pixel_array
    assert (stored[:3] == 0).all()
    assert (stored[3:] == 2047).all()
    assert after.LargestImagePixelValue == 2047


def test_each_slice_may_have_a_scale_of_its_own(tmp_path):
    """As PET has."""
    folder, volume = tmp_path / "in", slices(2) + 1300
    folder.mkdir()
    for number, slope in enumerate((0.5, 2.0)):
        write_dicom(folder / f"{number}.dcm", volume[number], place=number, slope=slope, intercept=0.0)
    file = read(folder)
    assert file.pixels.dtype == np.float32
    assert np.abs(file.pixels[..., 0] - volume).max() <= 1
    write(tmp_path / "out", replace(file, pixels=file.pixels + np.float32(10)))
    for number, slope in enumerate((0.5, 2.0)):
        difference = in_units(tmp_path / "out" / f"{number}.dcm") - in_units(folder / f"{number}.dcm")
        assert np.abs(difference - 10).max() <= slope / 2


def test_several_frames_in_a_file_and_their_groups(tmp_path):
    from pydicom import Dataset

    frames = [Dataset() for _ in range(2)]
    for frame, slope in zip(frames, ("2", "4"), strict=True):
        frame.PixelValueTransformationSequence = [Dataset()]
        frame.PixelValueTransformationSequence[0].RescaleSlope = slope
        frame.PixelValueTransformationSequence[0].RescaleIntercept = "0"
    volume = np.full((2, 6, 8), 100.0)
    write_dicom(tmp_path / "in.dcm", volume, intercept=0.0, PerFrameFunctionalGroupsSequence=frames)
    assert np.unique(read(tmp_path / "in.dcm").pixels[0]) == 200
    assert np.unique(read(tmp_path / "in.dcm").pixels[1]) == 400


def test_compressed_pixels_are_written_plain(tmp_path):
    write_dicom(tmp_path / "in.dcm", slices(1)[0])
    dataset = pydicom.dcmread(tmp_path / "in.dcm")
    dataset.compress(pydicom.uid.RLELossless, generate_instance_uid=False)
    dataset.save_as(tmp_path / "rle.dcm")
    write(tmp_path / "out.dcm", read(tmp_path / "rle.dcm"))
    after = pydicom.dcmread(tmp_path / "out.dcm")
    assert not after.file_meta.TransferSyntaxUID.is_compressed
    assert np.array_equal(after.pixel_array, dataset.pixel_array)


def test_what_is_not_read_is_told(series, tmp_path):
    write_dicom(series / "other", slices(1)[0], series="1.2.4")
    with pytest.raises(ImageFileError, match=r"2 series \(3 of 'Head', 1 of 'Head'\); put each into a folder"):
        read(series)
    (series / "other").unlink()
    write_dicom(series / "scout", slices(1, 30)[0])
    with pytest.raises(ImageFileError, match="slices of different sizes"):
        read(series)
    write_dicom(tmp_path / "rgb.dcm", slices(1)[0], PhotometricInterpretation="RGB", SamplesPerPixel=3)
    with pytest.raises(ImageFileError, match="in colours"):
        read(tmp_path / "rgb.dcm")
    with pytest.raises(ImageFileError, match="DICOM is written of DICOM alone"):
        write(tmp_path / "out.dcm", ImageFile(np.zeros((4, 4), np.uint8)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageFileError, match="a folder without DICOM files"):
        read(tmp_path / "empty")


def test_files_without_a_picture_are_left_out(series):
    report = pydicom.dcmread(series / "IM7", stop_before_pixels=True)
    del report.Rows
    report.save_as(series / "report")
    file = read(series)
    assert file.frames == 3
    assert file.metadata.notes == ("1 DICOM files without a picture: they are left out",)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content[:-400], "not a readable image"),
        (lambda content: content[:200], "not a readable image|without a picture"),
        (lambda content: b"hello" * 99, "not a readable image"),
    ],
    ids=["cut", "header", "text"],
)
def test_damaged_files_are_one_line(tmp_path, change, why):
    path = tmp_path / "in.dcm"
    write_dicom(path, slices(1)[0])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ImageFileError, match=why) as error:
        read(path)
    assert len(str(error.value).splitlines()) == 1


def test_sizes_that_would_fill_the_memory(tmp_path):
    write_dicom(tmp_path / "in.dcm", slices(1)[0], Rows=60000, Columns=60000)
    with pytest.raises(ImageFileError, match="60000 x 60000"):
        read(tmp_path / "in.dcm")


def test_nothing_is_written_by_halves(series, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "IM9").write_text("mine")
    file = read(series)
    (series / "IM7").unlink()
    with pytest.raises((ImageFileError, OSError)):
        write(out, file)
    assert os.listdir(out) == ["IM9"]
    assert (out / "IM9").read_text() == "mine"


def test_what_begins_as_dicom(tmp_path):
    write_dicom(tmp_path / "any.name", slices(1)[0])
    Path(tmp_path / "short").write_bytes(b"DICM")
    assert is_dicom(tmp_path / "any.name")
    assert not is_dicom(tmp_path / "short")
    assert not is_dicom(tmp_path)
