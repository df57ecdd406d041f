"""Reading k-space from files. No format can execute code."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.mri.data import (
    ALL,
    MIDDLE,
    KSpace,
    KSpaceError,
    as_kspace,
    as_mask,
    check_size,
    choose_slice,
    infer_mask,
)
from torchdeal.mri.ismrmrd import image_size, read_ismrmrd

HDF5 = (".h5", ".hdf5", ".mrd")
SUFFIXES = (*HDF5, ".npy", ".npz")


def read_kspace(path: str | os.PathLike[str], *, index: int | str = MIDDLE, centered: bool = True) -> KSpace:
    """The k-space in a file.

    Args:
        path: fastMRI `.h5` (`kspace`, and where they are there `mask`, `reconstruction_rss` or `reconstruction_esc`);
            ISMRMRD `.h5` or `.mrd`, Cartesian and two-dimensional; `.npy`, complex `(H, W)`, `(coils, H, W)` or
            `(slices, coils, H, W)`; `.npz` with such an array `kspace` and, if wanted, `mask` `(H, W)` or `(W,)`, and
            `maps` of the shape of the k-space. Without a mask, what is not zero was measured.
        index: which slice: a number from 0, `"middle"`, or `"all"`.
        centered: for npy and npz: the zero frequency is in the middle, else at [0, 0].
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise KSpaceError(f"{path}: unknown k-space format; use one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise KSpaceError(f"{path}: no such file")
    if index not in (MIDDLE, ALL) and (isinstance(index, (bool, str)) or not isinstance(index, int)):
        raise ValueError(f"index must be a whole number, {MIDDLE!r} or {ALL!r}, not {index!r}")
    try:
        return _read_hdf5(path, index) if suffix in HDF5 else _read_numpy(path, index, centered)
    except ImportError:
        raise
    except KSpaceError as error:
        raise KSpaceError(f"{path}: {error}") from None
    except Exception as error:
        # Decoders raise whatever they like on damaged files: OSError, KeyError, zlib.error, ...
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise KSpaceError(f"{path}: not readable, damaged or not what its name says ({reason})") from error


def _read_hdf5(path: Path, index: int | str) -> KSpace:
    h5py = optional("h5py", "reading HDF5 files", "mri")
    with h5py.File(path, "r") as file:
        if "kspace" in file:
            return _read_fastmri(path, file, index)
        if "dataset/data" in file and "dataset/xml" in file:
            return read_ismrmrd(path, file, index)
        raise KSpaceError(
            f"neither fastMRI (a dataset 'kspace') nor ISMRMRD (a group 'dataset' with 'data' and 'xml'); "
            f"it holds {', '.join(sorted(file)[:8]) or 'nothing'}"
        )


def _read_fastmri(path: Path, file: Any, index: int | str) -> KSpace:
    dataset = file["kspace"]
    if dataset.ndim not in (3, 4) or dataset.size == 0:
        raise KSpaceError(f"'kspace' must be (slices, H, W) or (slices, coils, H, W), got {dataset.shape}")
    number = choose_slice(index, len(dataset))
    chosen = slice(None) if number is None else number
    check_size(dataset.size if number is None else dataset.size // len(dataset))
    values = dataset[chosen]
    values = values if dataset.ndim == 4 else np.expand_dims(values, -3)  # a single coil
    kspace = as_kspace(values)
    mask = infer_mask(kspace)  # masks of fastMRI count columns beyond the measured ones, which are zero
    if "mask" in file:
        mask = mask & as_mask(file["mask"][()], (kspace.shape[-2], kspace.shape[-1]))
    return KSpace(
        kspace,
        mask,
        source=f"{path} (fastMRI)",
        slice_index=number,
        slices=len(dataset),
        image_size=image_size(file["ismrmrd_header"][()]) if "ismrmrd_header" in file else None,
        reference=_reference(file, chosen, len(dataset)),
    )


def _reference(file: Any, chosen: Any, slices: int) -> Tensor | None:
    for name in ("reconstruction_rss", "reconstruction_esc"):
        if name in file and file[name].ndim == 3 and len(file[name]) == slices:
            return torch.from_numpy(np.asarray(file[name][chosen], dtype=np.float32))
    return None


def _read_numpy(path: Path, index: int | str, centered: bool) -> KSpace:
    kind = path.suffix.lower().removeprefix(".")
    kspace, mask, maps = _arrays_of_npz(path) if kind == "npz" else (_array_of_npy(path), None, None)
    stack = kspace if kspace.ndim == 4 else kspace[None]
    if stack.ndim == 3:  # one slice, one coil
        stack = stack[None]
    number = choose_slice(index, len(stack)) if len(stack) else None
    check_size(stack.size if number is None else stack.size // len(stack))
    values = as_kspace(np.array(stack if number is None else stack[number]), "'kspace'")
    return KSpace(
        values,
        infer_mask(values) if mask is None else as_mask(mask, (values.shape[-2], values.shape[-1]), "'mask'"),
        maps=None if maps is None else _chosen_maps(maps, stack.shape, number),
        centered=centered,
        source=f"{path} ({kind})",
        slice_index=number,
        slices=len(stack),
    )


def _array_of_npy(path: Path) -> np.ndarray:
    values = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped: a header cannot ask for more than is there
    if not isinstance(values, np.ndarray):
        raise KSpaceError("does not hold one array; an archive of arrays is .npz")
    return values


def _arrays_of_npz(path: Path) -> tuple[Any, ...]:
    """The k-space, and mask and maps or None."""
    with zipfile.ZipFile(path) as archive:
        check_size(sum(entry.file_size for entry in archive.infolist()) // 8)
    with np.load(path, allow_pickle=False) as arrays:
        if "kspace" not in arrays:
            raise KSpaceError(f"has no array 'kspace'; it holds {', '.join(arrays.files[:8]) or 'nothing'}")
        return tuple(arrays.get(name) for name in ("kspace", "mask", "maps"))


def _chosen_maps(maps: np.ndarray, shape: tuple[int, ...], number: int | None) -> Tensor:
    values = as_kspace(maps, "'maps'")
    if tuple(values.shape) not in (shape, shape[1:]):
        raise KSpaceError(f"'maps' must be {shape} or {shape[1:]}, as the k-space is, got {tuple(values.shape)}")
    return values[number] if values.ndim == 4 and number is not None else values
