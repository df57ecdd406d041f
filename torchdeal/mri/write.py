"""Writing the image of a k-space reconstruction."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.io.files import TIFF, ImageFile, ImageFileError
from torchdeal.io.files import write as write_file
from torchdeal.io.volumes import check_slices, check_volume_path, is_volume, suffix_of, write_volume

PNG = ".png"


def write_image(path: str | os.PathLike[str], image: Tensor | np.ndarray, *, bits: int = 8) -> None:
    """Write an image `(H, W)`, or a stack `(slices, H, W)`, real or complex; dimensions of size 1 before are dropped.

    `.png` holds the magnitude of one image, its maximum as white; `.tif` the magnitude in float32, in the units of the
    data; `.npy` what it is given; `.nii` and `.nii.gz` (NIfTI, by nibabel) too, with voxels of size 1 and axes
    (column, row, slice). An existing file is replaced only when all went well.

    Args:
        path: its suffix names the format.
        image: the image.
        bits: 8 or 16, for `.png`.
    """
    path = Path(path)
    if bits not in (8, 16):
        raise ValueError(f"bits must be 8 or 16, not {bits}")
    array = _array(image, path)
    check_result_path(path, len(array) if array.ndim == 3 else 1)
    if not is_volume(path):
        write_file(path, ImageFile(_to_integers(np.abs(array), bits)))
    elif suffix_of(path) in TIFF:
        write_volume(path, np.abs(array).astype(np.float32))
    else:
        write_volume(path, array)


def check_result_path(path: str | os.PathLike[str], slices: int = 1) -> None:
    """Raise if `write_image` could not write so many slices there: better before the work than after."""
    path = Path(path)
    check_volume_path(path, (PNG,))
    check_slices(path, slices, ", or choose one slice")


def _array(image: Tensor | np.ndarray, path: Path) -> np.ndarray:
    array = image.detach().cpu().resolve_conj().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 4 and array.shape[1] == 1:  # a batch of gray images
        array = array[:, 0]
    if array.ndim not in (2, 3) or array.size == 0:
        raise ImageFileError(f"{path}: an image (H, W) or a stack (slices, H, W) is needed, got {np.shape(image)}")
    if not np.isfinite(array).all():
        raise ImageFileError(f"{path}: the image holds NaN or infinite values")
    return array


def _to_integers(magnitude: np.ndarray, bits: int) -> np.ndarray:
    white, top = 2**bits - 1, float(magnitude.max())
    scaled = magnitude * (white / top) if top > 0 else np.zeros(magnitude.shape)
    return scaled.round().astype(np.uint8 if bits == 8 else np.uint16)
