"""Reading k-space from files. No format can execute code."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.io.arrays import ArrayFileError, names_in, read_npy, read_npz
from torchdeal.mri import hdf5
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
LONGEST_NAME = 40  # characters of a name in a file that a message shows


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
    except (KSpaceError, ArrayFileError) as error:
        raise KSpaceError(f"{path}: {error}") from None
    except Exception as error:
        # Decoders raise whatever they like on damaged files: OSError, KeyError, zlib.error, ...
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise KSpaceError(f"{path}: not readable, damaged or not what its name says ({reason})") from error


def _read_hdf5(path: Path, index: int | str) -> KSpace:
    h5py = optional("h5py", "reading HDF5 files", "mri")
    with h5py.File(path, "r") as file:
        kspace = hdf5.dataset(file, "kspace")
        if kspace is not None:
            return _read_fastmri(path, file, kspace, index)
        if hdf5.find(file, "dataset/data") is not None and hdf5.find(file, "dataset/xml") is not None:
            return read_ismrmrd(path, file, index)
        raise KSpaceError(
            f"neither fastMRI (a dataset 'kspace') nor ISMRMRD (a group 'dataset' with 'data' and 'xml'); "
            f"it holds {_listed(file)}"
        )


def _read_fastmri(path: Path, file: Any, stored: Any, index: int | str) -> KSpace:
    if stored.ndim not in (3, 4) or stored.size == 0:
        raise KSpaceError(f"'kspace' must be (slices, H, W) or (slices, coils, H, W), got {stored.shape}")
    number = choose_slice(index, len(stored))
    values = hdf5.numbers(stored, number)
    values = values if stored.ndim == 4 else np.expand_dims(values, -3)  # a single coil
    kspace = as_kspace(values)
    mask = infer_mask(kspace)  # masks of fastMRI count columns beyond the measured ones, which are zero
    stored_mask, header = hdf5.dataset(file, "mask"), hdf5.dataset(file, "ismrmrd_header")
    if stored_mask is not None:
        mask = mask & as_mask(hdf5.numbers(stored_mask), (kspace.shape[-2], kspace.shape[-1]))
    return KSpace(
        kspace,
        mask,
        source=f"{path} (fastMRI)",
        slice_index=number,
        slices=len(stored),
        image_size=None if header is None else image_size(hdf5.text(header)),
        reference=_reference(file, number, len(stored)),
    )


def _reference(file: Any, number: int | None, slices: int) -> Tensor | None:
    for name in ("reconstruction_rss", "reconstruction_esc"):
        stored = hdf5.dataset(file, name)
        if stored is not None and stored.ndim == 3 and len(stored) == slices:
            return torch.from_numpy(hdf5.numbers(stored, number).astype(np.float32))
    return None


def _read_numpy(path: Path, index: int | str, centered: bool) -> KSpace:
    kind = path.suffix.lower().removeprefix(".")
    arrays = read_npz(path, ("kspace", "mask", "maps")) if kind == "npz" else {"kspace": read_npy(path)}
    if "kspace" not in arrays:
        raise KSpaceError(f"has no array 'kspace'; it holds {_listed(names_in(path))}")
    kspace, mask, maps = (arrays.get(name) for name in ("kspace", "mask", "maps"))
    assert kspace is not None
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


def read_maps(path: str | os.PathLike[str], scan: KSpace) -> Tensor:
    """Coil sensitivities in an npy file, of the shape of the k-space of this scan, or of one slice of it."""
    path = Path(path)
    if not path.is_file():
        raise KSpaceError(f"{path}: no such file")
    shape = tuple(scan.kspace.shape)
    try:
        values = read_npy(path)
        if values.shape not in (shape, shape[-3:]):
            raise KSpaceError(f"the maps must have the shape of the k-space, {shape}, got {values.shape}")
        return as_kspace(np.array(values).astype(np.complex64), "the maps")
    except (OSError, ValueError, EOFError) as error:
        raise KSpaceError(f"{path}: {error}") from None


def _listed(names: Iterable[str]) -> str:
    shown = [name[:LONGEST_NAME] for name in islice(names, 8)]
    return ", ".join(sorted(shown)) or "nothing"


def _chosen_maps(maps: np.ndarray, shape: tuple[int, ...], number: int | None) -> Tensor:
    values = as_kspace(maps, "'maps'")
    if tuple(values.shape) not in (shape, shape[1:]):
        raise KSpaceError(f"'maps' must be {shape} or {shape[1:]}, as the k-space is, got {tuple(values.shape)}")
    return values[number] if values.ndim == 4 and number is not None else values
