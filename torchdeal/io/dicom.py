"""DICOM, by pydicom: a slice, a file of several, or a folder with the slices of a series.

Pixels are read as they are stored. What they mean, `slope * pixel + intercept`, goes along: Hounsfield units stay what
they are. The result is a series of its own, derived from the one that was read.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.io.formats import ImageFile, ImageFileError, atomically, check_amount
from torchdeal.io.metadata import Metadata, VolumeExtras

EXTRA = "medical"
PREAMBLE = 128  # bytes before the letters that say what the file is
LONGEST_TEXT = 64  # of a description of a series
BITS = (8, 16, 32)  # of a pixel
TOLD = 4  # series in a message, at most

Rescale = tuple[float, float]  # slope and intercept


@dataclass(frozen=True)
class Slices:
    """A file of a series: where it is, how many frames it has, and what their pixels mean."""

    path: Path
    rescales: tuple[Rescale, ...]


@dataclass(frozen=True)
class Series:
    """The files of what was read, in the order of their pictures; in a folder, or a single one."""

    files: tuple[Slices, ...]
    in_folder: bool
    own_rescales: bool  # the pixels that were read are in units already, since those of each slice are scaled otherwise


def is_dicom(path: Path) -> bool:
    """Whether the file begins as DICOM does; the index of a disc is no picture."""
    if not path.is_file() or path.name.upper() == "DICOMDIR":
        return False
    try:
        with path.open("rb") as file:
            file.seek(PREAMBLE)
            return file.read(4) == b"DICM"
    except OSError:  # whatever it is, nobody asked for it
        return False


def files_in(folder: Path) -> list[Path]:
    """Those of DICOM, without what is hidden."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and is_dicom(path))


def pictures_in(folder: Path) -> list[Path]:
    """The same without reports and other files that hold no picture."""
    pydicom = optional("pydicom", "reading DICOM", EXTRA)
    known = {"stop_before_pixels": True, "specific_tags": ["Rows"]}
    return [file for file in files_in(folder) if "Rows" in pydicom.dcmread(file, **known)]


def read(path: Path) -> ImageFile:
    """One picture, or a stack in the order of the slices."""
    pydicom = optional("pydicom", "reading DICOM", EXTRA)
    given = files_in(path) if path.is_dir() else [path]
    headers = [(file, pydicom.dcmread(file, stop_before_pixels=True)) for file in given]
    pictures = [(file, header) for file, header in headers if "Rows" in header]
    if not pictures:
        raise ImageFileError(f"{path}: {'DICOM without a picture' if headers else 'a folder without DICOM files'}")
    for file, header in pictures:
        _check(file, header)
    _check_one_series(path, pictures)
    pictures.sort(key=lambda picture: _place(picture[1]))
    slices = tuple(Slices(file, tuple(_rescales(file, header))) for file, header in pictures)
    size = int(pictures[0][1].Rows), int(pictures[0][1].Columns)
    frames = sum(len(one.rescales) for one in slices)
    check_amount(path, (frames, *size))
    different = {rescale for one in slices for rescale in one.rescales}
    (slope, intercept), *others = different
    arrays = (_units(_pixels(one.path), one.rescales) if others else _pixels(one.path) for one in slices)
    pixels = np.concatenate(list(arrays))
    if pixels.shape != (frames, *size):
        raise ImageFileError(f"{path}: damaged: pixels of shape {(frames, *size)} are promised, {pixels.shape} found")
    series = Series(slices, path.is_dir(), bool(others))
    volume = VolumeExtras("DICOM", series, *((1.0, 0.0) if others else (slope, intercept)))
    left_out = len(headers) - len(pictures)
    notes = (f"{left_out} DICOM files without a picture: they are left out",) if left_out else ()
    dimensions = (frames,) if frames > 1 else ()
    return ImageFile(
        pixels[..., None] if frames > 1 else pixels[0], False, dimensions, Metadata(volume=volume, notes=notes)
    )


def _check(path: Path, header: Any) -> None:
    kind = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if int(header.get("SamplesPerPixel", 1)) != 1 or kind not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageFileError(f"{path}: DICOM in colours ({kind}), which is not read; export it as PNG or TIFF")
    if int(header.get("BitsAllocated", 0)) not in BITS:
        raise ImageFileError(f"{path}: DICOM with {header.get('BitsAllocated')} bits for a pixel; {BITS} are read")
    if "ModalityLUTSequence" in header:
        raise ImageFileError(f"{path}: DICOM whose values are in a table (Modality LUT), which is not read")


def _check_one_series(path: Path, pictures: Sequence[tuple[Path, Any]]) -> None:
    series = Counter((str(h.get("SeriesInstanceUID")), str(h.get("SeriesDescription", ""))) for _, h in pictures)
    if len(series) > 1:
        told = ", ".join(f"{count} of '{name}'" for (_, name), count in series.most_common(TOLD))
        raise ImageFileError(f"{path}: {len(series)} series ({told}); put each into a folder, then use --recursive")
    sizes = Counter((int(header.Rows), int(header.Columns)) for _, header in pictures)
    if len(sizes) > 1:
        told = ", ".join(f"{count} of {rows} x {columns}" for (rows, columns), count in sizes.most_common(TOLD))
        raise ImageFileError(f"{path}: slices of different sizes ({told}); put each size into a folder")


def _place(header: Any) -> tuple[float, float]:
    """Where a slice lies along the normal of its plane; then its number."""
    number = float(header.get("InstanceNumber") or 0)
    try:
        right, down = np.reshape([float(value) for value in header.ImageOrientationPatient], (2, 3))
        position = np.array([float(value) for value in header.ImagePositionPatient])
        return float(np.cross(right, down) @ position), number
    except (AttributeError, TypeError, ValueError):
        return 0.0, number


def _rescales(path: Path, header: Any) -> Iterator[Rescale]:
    """Of each frame. Files of several frames say it in groups, for all frames or for each."""
    frames = int(header.get("NumberOfFrames") or 1)
    own = header.get("PerFrameFunctionalGroupsSequence") or []
    shared = header.get("SharedFunctionalGroupsSequence") or []
    for frame in range(frames):
        places = [*own[frame : frame + 1], *shared[:1]]
        groups = [
            place.PixelValueTransformationSequence[0] for place in places if "PixelValueTransformationSequence" in place
        ]
        found = next((group for group in [*groups, header] if group.get("RescaleSlope") is not None), None)
        slope, intercept = (
            (1.0, 0.0) if found is None else (float(found.RescaleSlope), float(found.RescaleIntercept or 0))
        )
        if not (np.isfinite([slope, intercept]).all() and slope):
            raise ImageFileError(f"{path}: damaged: the scale of its values is {slope} and {intercept}")
        yield slope, intercept


def _pixels(path: Path) -> np.ndarray:
    """Frames `(N, H, W)` as they are stored."""
    pydicom = optional("pydicom", "reading DICOM", EXTRA)
    dataset = pydicom.dcmread(path)
    if "PixelData" not in dataset:
        raise ImageFileError(f"{path}: DICOM without pixels, or with pixels in floating point, which are not read")
    try:
        array = dataset.pixel_array
    except RuntimeError as error:
        if "missing" not in str(error):
            raise
        name = dataset.file_meta.TransferSyntaxUID.name
        raise ImageFileError(
            f"{path}: compressed by {name}: pip install pylibjpeg pylibjpeg-libjpeg pylibjpeg-openjpeg"
        ) from None
    return array if array.ndim == 3 else array[None]


def _units(pixels: np.ndarray, rescales: Sequence[Rescale]) -> np.ndarray:
    pairs = zip(pixels, rescales, strict=True)
    return np.stack([(frame * np.float64(slope) + intercept).astype(np.float32) for frame, (slope, intercept) in pairs])


def write(path: Path, image: ImageFile) -> list[str]:
    """Each slice as a file of the name that it had, in a folder; or one file. All are there, or what was before."""
    assert image.metadata.volume is not None
    series, made = image.metadata.volume.header, image.metadata.volume.made
    frames = image.pixels[..., 0] if image.pixels.ndim == 4 else image.pixels.reshape(1, *image.size)
    fingerprint = hashlib.sha256(frames.tobytes()).hexdigest()
    if not series.in_folder:
        dataset = _derived(series.files[0], frames, series.own_rescales, made, fingerprint)
        atomically(path, lambda file: dataset.save_as(file, enforce_file_format=True))
    else:
        try:
            _write_folder(path, series, frames, made, fingerprint)
        except OSError as error:
            raise ImageFileError(f"{path}: could not be written ({error.strerror or error})") from error
    return image.metadata.not_kept("DICOM", ("volume",))


def _write_folder(path: Path, series: Series, frames: np.ndarray, made: str, fingerprint: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path, prefix=".torchdeal-", suffix=".tmp") as place:
        first = 0
        for one in series.files:
            part = frames[first : first + len(one.rescales)]
            dataset = _derived(one, part, series.own_rescales, made, fingerprint)
            dataset.save_as(Path(place, one.path.name), enforce_file_format=True)
            first += len(one.rescales)
        for one in series.files:
            os.replace(Path(place, one.path.name), path / one.path.name)


def _derived(one: Slices, frames: np.ndarray, in_units: bool, made: str, fingerprint: str) -> Any:
    """The dataset that was read, with other pixels, and what says that it is another one."""
    pydicom = optional("pydicom", "writing DICOM", EXTRA)
    import torchdeal

    dataset = pydicom.dcmread(one.path)
    original = _pixels(one.path)
    if original.shape != frames.shape:
        raise ImageFileError(f"{one.path}: its size is {original.shape}, that of the result {frames.shape}")
    if in_units:
        pairs = zip(frames, one.rescales, strict=True)
        frames = np.stack([np.round((frame.astype(np.float64) - inter) / slope) for frame, (slope, inter) in pairs])
    stored = np.where(_is_padding(dataset, original), original, frames.clip(*_limits(dataset)))
    _set_pixels(dataset, stored.astype(original.dtype))
    _set_source(pydicom, dataset)
    dataset.SeriesInstanceUID = _uid(dataset.get("SeriesInstanceUID"), fingerprint)
    dataset.SOPInstanceUID = _uid(dataset.get("SOPInstanceUID"), fingerprint)
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    what = f"{made} by torchdeal {torchdeal.__version__}"
    before = str(dataset.get("SeriesDescription") or "")[: LONGEST_TEXT - len(what) - 2]
    dataset.SeriesDescription = f"{before}, {what}" if before else what
    dataset.DerivationDescription = f"{what} (deep attentive least squares)"
    dataset.ImageType = ["DERIVED", *list(dataset.get("ImageType") or ["", "PRIMARY"])[1:]]
    return dataset


def _limits(dataset: Any) -> tuple[int, int]:
    """The numbers that there are bits for."""
    bits = int(dataset.get("BitsStored", dataset.BitsAllocated))
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dataset.get("PixelRepresentation") else (0, 2**bits - 1)


def _is_padding(dataset: Any, pixels: np.ndarray) -> np.ndarray:
    """Pixels outside of what was scanned have a number that means so: it is no value."""
    if dataset.get("PixelPaddingValue") is None:
        return np.zeros(pixels.shape, bool)
    ends = sorted(
        int(dataset.get(name, dataset.PixelPaddingValue)) for name in ("PixelPaddingValue", "PixelPaddingRangeLimit")
    )
    return (pixels >= ends[0]) & (pixels <= ends[1])


def _set_pixels(dataset: Any, pixels: np.ndarray) -> None:
    """Uncompressed, in the order of bytes that the file has."""
    from pydicom.uid import ExplicitVRLittleEndian

    syntax = dataset.file_meta.TransferSyntaxUID
    if syntax.is_compressed:
        dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    content = pixels.astype(pixels.dtype.newbyteorder("<" if syntax.is_little_endian else ">")).tobytes()
    dataset.PixelData = content + b"\0" * (len(content) % 2)
    dataset["PixelData"].VR = "OB" if dataset.BitsAllocated == 8 else "OW"
    dataset["PixelData"].is_undefined_length = False
    for name, value in (("SmallestImagePixelValue", pixels.min()), ("LargestImagePixelValue", pixels.max())):
        if name in dataset:
            setattr(dataset, name, int(value))


def _set_source(pydicom: Any, dataset: Any) -> None:
    source = pydicom.Dataset()
    source.ReferencedSOPClassUID = dataset.get("SOPClassUID", "")
    source.ReferencedSOPInstanceUID = dataset.get("SOPInstanceUID", "")
    dataset.SourceImageSequence = pydicom.Sequence([source])


def _uid(before: Any, fingerprint: str) -> str:
    """Another one for other pixels, the same for the same, so that a run can be repeated."""
    return f"2.25.{uuid.uuid5(uuid.NAMESPACE_OID, f'torchdeal {before} {fingerprint}').int}"
