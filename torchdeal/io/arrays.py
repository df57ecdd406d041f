"""Arrays of numbers in npy and npz files. Nothing in them is executed, and no header can ask for more than is there."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np

MOST_BYTES = 2**32  # of what an archive unpacks to
SMALLEST, LARGEST = 1e-30, 1e30  # of the largest value: sums of so many stay within single precision
NUMBERS = "buifc"  # kinds of dtype


class ArrayFileError(ValueError):
    """A file whose arrays cannot be used, and why."""


def read_npy(path: Path) -> np.ndarray:
    """The array in the file, mapped: what is not looked at takes no memory. Raises if that has no numbers."""
    with path.open("rb") as file:
        wanted = _check_header(file)
        there = path.stat().st_size - file.tell()
    if wanted > there:
        raise ArrayFileError(f"ends early: {wanted:,} bytes of numbers are promised, {there:,} are there")
    return np.load(path, mmap_mode="r", allow_pickle=False)


def read_npz(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Those of the named arrays that are in the file. Raises if one of them has no numbers."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MOST_BYTES:
            raise ArrayFileError(
                f"unpacks to {unpacked / 2**30:.1f} GiB, more than the {MOST_BYTES / 2**30:g} GiB that are read; "
                "save its arrays as .npy, or in parts"
            )
        found = [name for name in names if f"{name}.npy" in archive.namelist()]
        for name in found:
            with archive.open(f"{name}.npy") as file:
                wanted = _check_header(file, f"'{name}' ")
            if wanted > archive.getinfo(f"{name}.npy").file_size:
                raise ArrayFileError(f"'{name}' is damaged: it says that it has {wanted:,} bytes, and has fewer")
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in found}


def names_in(path: Path) -> list[str]:
    """Of the arrays in an npz file."""
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def check_scale(path: Path, largest: float) -> None:
    """Raise if numbers up to this one are so far from 1 that single precision is too coarse, or too short, for them."""
    if not SMALLEST < largest < LARGEST:
        raise ValueError(f"{path}: values up to {largest:.1e} are beyond single precision; multiply them by a constant")


def _check_header(file: IO[bytes], what: str = "") -> int:
    """How many bytes of numbers the header of an npy file announces."""
    shape, dtype = read_header(file, what)
    return math.prod(shape) * dtype.itemsize


def read_header(file: IO[bytes], what: str = "") -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of the numbers that the header of an npy file announces. Raises if they are no numbers."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        raise ArrayFileError(f"{what}not readable as npy; numpy.save writes such files") from None
    old = version == (1, 0)  # the others have the same layout, but for the encoding of the names of fields
    read_header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise ArrayFileError(f"{what}holds Python objects, which could execute code and are not read; save numbers")
    if dtype.names:
        fields = ", ".join(dtype.names[:8])
        raise ArrayFileError(f"{what}holds records with the fields {fields}, not numbers; save one field as an array")
    if dtype.kind not in NUMBERS:
        kind = "texts" if dtype.kind in "SU" else f"{dtype.name} values"
        raise ArrayFileError(f"{what}holds {kind}, not numbers; convert them by .astype(float)")
    return shape, dtype
