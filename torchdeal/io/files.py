"""Image files: reading without loss, writing all or nothing. One module for each family of formats does the work."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from torchdeal.io import bitmaps, dicom, nifti, tiff
from torchdeal.io.arrays import ArrayFileError, read_header
from torchdeal.io.bitmaps import PILLOW
from torchdeal.io.formats import (
    BY_SUFFIX,
    NIFTI,
    VOLUMES,
    ImageFile,
    ImageFileError,
    TooManyValuesError,
    atomically,
    check_amount,
    check_holds,
    from_stored,
    suffix_of,
)
from torchdeal.io.images import MOST_COLOURS
from torchdeal.io.metadata import Metadata

TIFF = (".tif", ".tiff")
SUFFIXES = tuple(BY_SUFFIX)

__all__ = [
    "PILLOW",
    "SUFFIXES",
    "TIFF",
    "VOLUMES",
    "ImageFile",
    "ImageFileError",
    "TooManyValuesError",
    "atomically",
    "check_holds",
]


def read(path: Path) -> ImageFile:
    """The image in a PNG, JPEG, WebP, BMP, TIFF, npy, NIfTI or DICOM file, or DICOM folder, in its own bit depth."""
    suffix = suffix_of(path)
    is_dicom = path.is_dir() or (suffix not in (*SUFFIXES, *NIFTI) and dicom.is_dicom(path))
    if not is_dicom and suffix not in (*SUFFIXES, *VOLUMES):
        raise ImageFileError(f"{path}: unknown format; use one of {', '.join((*SUFFIXES, *VOLUMES))}")
    if not path.exists():
        raise ImageFileError(f"{path}: no such file")
    readers = {".npy": _read_npy, **dict.fromkeys(TIFF, tiff.read), **dict.fromkeys(NIFTI, nifti.read)}
    reader = dicom.read if is_dicom or suffix in VOLUMES else bitmaps.read
    reader = readers.get(suffix, reader)
    try:
        return reader(path)
    except (ImageFileError, MemoryError, ImportError):
        raise
    except Exception as error:
        # Decoders raise whatever they like on damaged files: OSError, SyntaxError, struct.error, ...
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImageFileError(f"{path}: not a readable image ({reason})") from error


def write(path: Path, image: ImageFile, *, quality: int | None = None) -> list[str]:
    """Write the pixels in the format that the suffix names; an existing file is replaced only when all went well.

    Args:
        path: a link is followed.
        image: what to write.
        quality: of JPEG, 1 to 100.

    Returns:
        a sentence for each thing that the file cannot keep.
    """
    if not image.is_volume:  # files of DICOM need no suffix
        check_format(path)
    check_holds(path, image)
    if suffix_of(path) not in SUFFIXES:
        return nifti.write(path, image) if suffix_of(path) in NIFTI else dicom.write(path, image)
    check_writable(path)
    volume = image.metadata.volume
    if volume is not None:
        image = replace(image, pixels=volume.in_units(image.pixels))
    try:
        return _write(path, image, quality)
    except (ImageFileError, MemoryError):
        raise
    except Exception as error:  # that of an encoder which does not like the metadata: it must not cost the result
        metadata = Metadata(premultiplied=image.metadata.premultiplied, notes=image.metadata.notes)
        notes = _write(path, replace(image, metadata=metadata), quality)
        return [*notes, f"metadata: it could not be written ({error})"]


def _write(path: Path, image: ImageFile, quality: int | None) -> list[str]:
    suffix = path.suffix.lower()
    if suffix in TIFF:
        return tiff.write(path, image)
    if suffix in PILLOW:
        return bitmaps.write(path, image, quality)
    atomically(path, lambda file: np.save(file, image.as_stored(), allow_pickle=False))
    return image.metadata.not_kept("npy", ())


def check_writable(path: Path) -> None:
    """Raise if the path cannot become an image file: better before the work than after."""
    check_format(path)
    check_place(path)


def check_format(path: Path) -> None:
    """Raise if the suffix names no format that can be written."""
    if suffix_of(path) not in (*SUFFIXES, *VOLUMES):
        raise ImageFileError(f"{path}: unknown format to write; use one of {', '.join((*SUFFIXES, *VOLUMES))}")


def check_place(path: Path) -> None:
    """Raise if no file can be written there. Where the path is a link, it is the place that the link leads to."""
    if path.is_dir():
        raise ImageFileError(f"{path}: is a folder")
    if path.exists() and not path.is_file():
        raise ImageFileError(f"{path}: is no plain file; choose another output")
    parent = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not parent.is_dir():
        raise ImageFileError(f"{path}: the folder {parent} does not exist; create it first")
    if not os.access(parent, os.W_OK):
        raise ImageFileError(f"{path}: no permission to write into {parent}")


def _read_npy(path: Path) -> ImageFile:
    """`(..., H, W, C)` where the last of three or more axes is 1 to 4 long, else `(..., H, W)`."""
    shape = npy_shape(path, check_amount)
    array = np.load(path, mmap_mode="c", allow_pickle=False)  # frames are read when they are needed; never written
    has_channels, notes = npy_channels(path, shape)
    pixels, dimensions = from_stored(array, has_channels)
    if has_channels or len(shape) == 2:
        dimensions = dimensions if len(dimensions) > 1 else ()
    return ImageFile(pixels, dimensions=dimensions, channel_axis=has_channels, metadata=Metadata(notes=notes))


def npy_channels(path: Path, shape: tuple[int, ...]) -> tuple[bool, tuple[str, ...]]:
    """Whether the last axis is channels, and a note where a stack was guessed. Raises where it may be either."""
    if len(shape) == 2 or shape[-1] <= MOST_COLOURS:
        return len(shape) > 2, ()
    if 2 * shape[-1] < min(shape[-3:-1]):
        raise ImageFileError(
            f"{path}: the shape {shape} may be a stack of narrow pictures, or a picture with {shape[-1]} channels; "
            "save a stack as array[..., None], channels as numpy.moveaxis(array, -1, 0)"
        )
    count = math.prod(shape[:-2])
    return False, (f"the shape {shape}: read as a stack of {count} pictures of {shape[-2]} x {shape[-1]}",)


def npy_shape(path: Path, check: Callable[[Path, tuple[int, ...]], None] = lambda path, shape: None) -> tuple[int, ...]:
    """The shape that the header tells. Raises for what is no array of pixels, cut off, or refused by the check."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ImageFileError(f"{path}: does not hold one array, but an archive of several; save one as .npy")
        file.seek(0)
        try:
            shape, dtype = read_header(file)
        except ArrayFileError as error:
            raise ImageFileError(f"{path}: {error}") from None
        there = path.stat().st_size - file.tell()
    if len(shape) < 2 or 0 in shape:
        raise ImageFileError(f"{path}: does not hold one array with pixels: its shape is {shape}")
    check(path, shape)
    needed = dtype.itemsize * math.prod(shape)
    if there < needed:
        raise ImageFileError(f"{path}: ends early: {needed} bytes of pixels are promised, {there} are there")
    return shape
