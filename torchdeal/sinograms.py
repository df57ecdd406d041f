"""Sinograms and angles from files, and where the rotation axis of a scan is."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import numpy as np

from torchdeal.io import files
from torchdeal.io.arrays import ArrayFileError, check_scale, read_npy
from torchdeal.io.formats import check_amount

MOST_ANGLES = 100_000
LONGEST_LIST = 2**24  # bytes of a text file with angles
WORST_CONDITION = 50.0  # of the fit of the axis: beyond it the angles cover too little of a turn


class Layout(str, Enum):
    """What the rows and columns of a sinogram are."""

    auto = "auto"
    angles_bins = "angles-bins"
    bins_angles = "bins-angles"


def read_sinograms(path: Path) -> np.ndarray:
    """A stack of sinograms, `(slices, rows, columns)`, real and finite, from npy, TIFF or a gray picture."""
    stack = _read_stack(path)
    if stack.ndim != 3 or stack.dtype.kind not in "uif" or not stack.size:
        raise ValueError(
            f"{path}: a sinogram is a gray image of real numbers, or a stack of them, (slices, angles, bins); "
            f"this is {stack.shape} of {stack.dtype}"
        )
    check_amount(path, stack.shape)  # an npy is only mapped so far
    if not np.isfinite(stack).all():
        raise ValueError(f"{path}: the sinogram holds NaN or infinite values")
    if not stack.any():
        raise ValueError(f"{path}: the sinogram is zero everywhere")
    check_scale(path, float(np.abs(stack).max()))
    return stack


def _read_stack(path: Path) -> np.ndarray:
    if path.suffix.lower() != ".npy":
        pixels = files.read(path).pixels
        gray = pixels[..., 0] if pixels.ndim > 2 and pixels.shape[-1] == 1 else pixels
        return gray[None] if gray.ndim == 2 else gray if pixels.ndim == 4 else pixels[None]
    try:
        array = read_npy(path)
    except ArrayFileError as error:
        raise ValueError(f"{path}: {error}") from None
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: not readable, damaged or not what its name says ({error})") from None
    return array[None] if array.ndim == 2 else array


def angles_first(stack: np.ndarray, number: int, layout: Layout) -> np.ndarray:
    """Sinograms of so many angles as `(slices, angles, bins)`."""
    slices, rows, columns = stack.shape
    if layout is Layout.auto:
        if rows == columns == number:
            raise ValueError(
                f"the sinogram is {rows} x {columns} for {number} angles: say with --layout which way the angles run"
            )
        if number not in (rows, columns):
            hint = "whole numbers such as 180 are how many there are, lists such as 0,45,90 which"
            if slices == number > 1:
                hint = "a stack of projections (angles, slices, bins) is turned by numpy.swapaxes(stack, 0, 1)"
            raise ValueError(f"the sinogram is {rows} x {columns}: correct --angles, which says {number}; {hint}")
        layout = Layout.angles_bins if rows == number else Layout.bins_angles
    found = rows if layout is Layout.angles_bins else columns
    if found != number:
        raise ValueError(
            f"the sinogram is {rows} x {columns}: with --layout {layout.value} it has {found} angles, "
            f"but --angles says {number}"
        )
    return stack if layout is Layout.angles_bins else stack.swapaxes(-2, -1)


def read_angles(path: Path) -> np.ndarray:
    """In degrees: numbers in an npy file, or in a text file, between spaces, commas or lines."""
    if not path.is_file():
        raise ValueError("no such file")
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.dtype.kind == "c" or values.size > MOST_ANGLES:
            raise ValueError(f"must hold real numbers, at most {MOST_ANGLES}; it has {values.size} of {values.dtype}")
        return np.array(values, dtype=np.float64).ravel()
    if path.stat().st_size > LONGEST_LIST:
        raise ValueError(f"has {path.stat().st_size:,} bytes, too many for a list of angles")
    text = path.read_text(errors="replace")
    if "\0" in text:
        raise ValueError("is neither npy nor text")
    return as_numbers(text.replace(",", " ").replace(";", " ").split())


def as_numbers(words: list[str]) -> np.ndarray:
    """Raises ValueError with the first that is none."""
    numbers = []
    for word in words:
        try:
            numbers.append(float(word))
        except ValueError:
            raise ValueError(f"{word[:20]!r} is not a number") from None
    return np.array(numbers, dtype=np.float64)


def estimate_center(sinograms: np.ndarray, degrees: np.ndarray) -> float:
    """Where the rotation axis of parallel rays is, in bins beyond the bin `bins // 2`.

    The centre of mass of an object goes around the axis: its shadow is at `axis + x cos - y sin`, at each angle. So the
    axis is found by least squares. The object must be within the detector at all angles, and surrounded by nothing.

    Args:
        sinograms: `(..., angles, bins)`; slices are taken together.
        degrees: the angles.
    """
    values = np.asarray(sinograms, dtype=np.float64).reshape(-1, *np.shape(sinograms)[-2:]).sum(0)
    bins = values.shape[-1]
    mass = values.sum(-1)
    radians = np.deg2rad(degrees)
    design = np.stack([np.ones_like(radians), np.cos(radians), np.sin(radians)], -1)
    if len(design) < 3 or np.linalg.cond(design) > WORST_CONDITION:
        raise ValueError("the angles cover too little of a turn to find the rotation axis: give --center as a number")
    if not (mass > 0.5 * mass.mean()).all() or not mass.mean() > 0:
        raise ValueError(
            "the rotation axis cannot be found, since the sum of the sinogram differs from angle to angle, as if the "
            "object left the detector: give --center as a number"
        )
    shadow = values @ np.arange(bins) / mass
    axis = np.linalg.lstsq(design, shadow, rcond=None)[0][0]
    return float(axis) - bins // 2
