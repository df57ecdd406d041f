"""NIfTI, by nibabel: volumes of MRI and others, with their place in space."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.io.formats import ImageFile, ImageFileError, atomically, check_amount, from_stored, suffix_of
from torchdeal.io.metadata import Metadata, VolumeExtras

EXTRA = "medical"


def read(path: Path) -> ImageFile:
    """Slices `(row, column)` along the third and further axes, as they are stored; what is not compressed is mapped."""
    nibabel = optional("nibabel", "reading NIfTI files", EXTRA)
    image = nibabel.load(path)
    if not isinstance(image, nibabel.Nifti1Image):  # that of NIfTI-2 is one too
        raise ImageFileError(f"{path}: {type(image).__name__}, which is not read; save it as NIfTI")
    dtype = image.header.get_data_dtype()
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise ImageFileError(f"{path}: voxels of kind {_name_of(dtype)}; save real numbers, one in each")
    if len(image.shape) < 2 or 0 in image.shape:
        raise ImageFileError(f"{path}: no picture: its shape is {image.shape}")
    check_amount(path, image.shape)
    stored = np.asanyarray(image.dataobj.get_unscaled())
    pixels, dimensions = from_stored(stored.T, has_channels=False)  # the first axis is the fastest
    volume = VolumeExtras("NIfTI", image.header.copy(), float(image.dataobj.slope), float(image.dataobj.inter))
    return ImageFile(pixels, dimensions=dimensions, metadata=Metadata(volume=volume))


def write(path: Path, image: ImageFile) -> list[str]:
    """With the header that it came with: affine, units, scaling, extensions. Another picture gets voxels of size 1."""
    nibabel = optional("nibabel", "writing NIfTI files", EXTRA)
    volume, stored = image.metadata.volume, image.as_stored()
    if image.channels == 1 and stored.ndim > len(image.dimensions) + 2:
        stored = stored[..., 0]
    try:
        made = _image(nibabel, stored.T, volume)
    except (ValueError, nibabel.spatialimages.HeaderDataError):
        raise ImageFileError(f"{path}: NIfTI cannot hold {stored.dtype} numbers; write .tif or .npy") from None
    content = made.to_bytes()
    if suffix_of(path) == ".nii.gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)  # the same bits every time
    atomically(path, lambda file: file.write(content))
    return image.metadata.not_kept("NIfTI", ("volume",))


def _image(nibabel: Any, array: np.ndarray, volume: VolumeExtras | None) -> Any:
    if volume is None:
        return nibabel.Nifti1Image(array, np.eye(4), dtype=array.dtype)
    header = volume.header.copy()
    header.set_data_dtype(array.dtype)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    image = kind(array, None, header, dtype=array.dtype)
    image.header.set_slope_inter(volume.slope, volume.intercept)  # numbers are written as they are then
    return image


def _name_of(dtype: np.dtype) -> str:
    return "/".join(dtype.names) if dtype.names else dtype.name
