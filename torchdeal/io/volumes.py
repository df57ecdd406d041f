"""Images and stacks of them in the units of the data: npy, TIFF and NIfTI files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from torchdeal.extras import optional
from torchdeal.io.files import TIFF, ImageFileError, atomically, check_place
from torchdeal.io.formats import LONGEST_SIDE, NIFTI, suffix_of

SUFFIXES = (*TIFF, ".npy", *NIFTI)


def is_volume(path: Path) -> bool:
    """Whether `write_volume` writes such files."""
    return suffix_of(path) in SUFFIXES


def check_volume_path(path: Path, others: tuple[str, ...] = ()) -> None:
    """Raise if neither `write_volume` nor who writes the formats `others` could write there."""
    suffix = suffix_of(path)
    if suffix not in (*SUFFIXES, *others):
        raise ImageFileError(f"{path}: unknown format to write; use one of {', '.join((*others, *SUFFIXES))}")
    if suffix in NIFTI:
        optional("nibabel", "writing NIfTI files", "mri")
    check_place(path)


def check_slices(path: Path, slices: int, remedy: str = "") -> None:
    """Raise if the format holds one image and there are more."""
    if slices > 1 and not is_volume(path):
        formats = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ImageFileError(f"{path}: holds one image, and there are {slices} slices; write {formats}{remedy}")


def write_volume(path: Path, array: np.ndarray) -> None:
    """Write an image `(H, W)` or a stack `(slices, H, W)` as it is; a file that exists is replaced as a whole.

    NIfTI files have voxels of size 1 and axes (column, row, slice).
    """
    check_volume_path(path)
    suffix = suffix_of(path)
    if suffix == ".npy":
        atomically(path, lambda file: np.save(file, array, allow_pickle=False))
    elif suffix in TIFF:
        import tifffile

        atomically(path, lambda file: tifffile.imwrite(file, array, photometric="minisblack"))
    else:
        content = _nifti(path, array)
        content = gzip.compress(content, mtime=0) if suffix == ".nii.gz" else content  # the same bits every time
        atomically(path, lambda file: file.write(content))


def _nifti(path: Path, array: np.ndarray) -> bytes:
    nibabel = optional("nibabel", "writing NIfTI files", "mri")
    volume = (array if array.ndim == 3 else array[None]).transpose(2, 1, 0)
    if max(volume.shape) > LONGEST_SIDE:
        raise ImageFileError(f"{path}: NIfTI holds at most {LONGEST_SIDE} pixels each way; write .npy or .tif")
    try:
        return nibabel.Nifti1Image(volume, np.eye(4)).to_bytes()
    except (ValueError, nibabel.spatialimages.HeaderDataError):
        raise ImageFileError(f"{path}: NIfTI cannot hold {array.dtype} numbers; convert them to float32") from None
