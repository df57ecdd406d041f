"""ISMRMRD files: one record per line of k-space, with a header that says where it belongs.

The layout is that of the standard: `dataset/xml`, and `dataset/data`, whose records have `head`, `traj` and `data`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from torchdeal.mri.data import KSpace, KSpaceError, as_kspace, check_size, choose_slice, infer_mask
from torchdeal.mri.hdf5 import dataset, text

# Bits of the flags of a line, counted from 1. Lines with one of these hold no part of the image.
NOT_IMAGE = (19, 23, 24, 26, 27, 28, 29, 30, 31)  # noise, navigation, corrections, feedback, dummies
REVERSED = 22  # echoes read from right to left
CALIBRATION = 20  # for the calibration alone
FIRST_OF = ("contrast", "phase", "repetition", "set")  # a file can hold several images of a slice: the first is read


@dataclass(frozen=True)
class Encoding:
    """What the header says about the grid."""

    samples: int  # along the readout
    lines: int  # along the phase encoding
    centre_line: int
    image_size: tuple[int, int]
    embedded_calibration: bool


def read_ismrmrd(path: Path, file: Any, index: int | str) -> KSpace:
    """The k-space `(coils, readout, phase encoding)` of one slice, or of all; the mean where a line was repeated."""
    encoding = _encoding(text(dataset(file, "dataset/xml")))
    records = dataset(file, "dataset/data")
    _check_records(records)
    heads = records.fields("head")[:]
    lines = np.flatnonzero(_belongs_to_image(heads, encoding))
    if not len(lines):
        raise KSpaceError("no line of it belongs to an image")
    slices = int(heads["idx"]["slice"][lines].max()) + 1
    number = choose_slice(index, slices)
    coils = int(heads["active_channels"][lines[0]])
    shape = (slices if number is None else 1, coils, encoding.samples, encoding.lines)
    check_size(math.prod(shape))
    volume, counts = np.zeros(shape, np.complex64), np.zeros((shape[0], *shape[2:]), np.int64)
    for line in lines:
        which = int(heads["idx"]["slice"][line])
        if number in (None, which):
            place = which if number is None else 0
            _add_line(volume[place], counts[place], heads[line], records[int(line)]["data"], encoding)
    volume /= np.maximum(counts, 1)[:, None]
    kspace = as_kspace(volume if number is None else volume[0])
    return KSpace(
        kspace,
        infer_mask(counts),
        source=f"{path} (ISMRMRD)",
        slice_index=number,
        slices=slices,
        image_size=encoding.image_size,
    )


def image_size(header: bytes | str) -> tuple[int, int] | None:
    """Rows and columns of the image that the scanner would show, None if the header does not say it."""
    try:
        return _size(_root(header), "reconSpace")
    except KSpaceError:
        return None


def _check_records(records: Any) -> None:
    fields = records.dtype.names or ()
    if records.ndim != 1 or not {"head", "data"} <= set(fields):
        raise KSpaceError("'dataset/data' must be a list of records with 'head' and 'data'")
    values = (records.dtype["data"].metadata or {}).get("vlen")
    if values != np.float32:
        raise KSpaceError(f"'data' of its records must be a list of float32, got {values or records.dtype['data']}")
    check_size(records.size * records.dtype["head"].itemsize // 8)


def _encoding(header: bytes | str) -> Encoding:
    root = _root(header)
    kind = root.findtext("{*}encoding/{*}trajectory", "").strip()
    if kind != "cartesian":
        raise KSpaceError(f"its trajectory is {kind or 'unknown'}: only cartesian is read; use NonCartesianFourier")
    depth = root.findtext("{*}encoding/{*}encodedSpace/{*}matrixSize/{*}z", "1")
    if depth.strip() != "1":
        raise KSpaceError(f"is three-dimensional ({depth} partitions): transform it along these first, to slices")
    samples, lines = _size(root, "encodedSpace")
    centre = root.findtext("{*}encoding/{*}encodingLimits/{*}kspace_encoding_step_1/{*}center")
    mode = root.findtext("{*}encoding/{*}parallelImaging/{*}calibrationMode", "")
    return Encoding(
        samples, lines, lines // 2 if centre is None else int(centre), _size(root, "reconSpace"), mode == "embedded"
    )


def _root(header: bytes | str) -> ElementTree.Element:
    xml = header.decode("utf-8", errors="replace") if isinstance(header, bytes) else header
    if "<!DOCTYPE" in xml or "<!ENTITY" in xml:  # no such header needs them, and they can be made to explode
        raise KSpaceError("its XML header declares entities, which none of these files needs")
    try:
        return ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise KSpaceError(f"its XML header is damaged ({error})") from None


def _size(root: ElementTree.Element, space: str) -> tuple[int, int]:
    try:
        rows, columns = (
            int(root.findtext(f"{{*}}encoding/{{*}}{space}/{{*}}matrixSize/{{*}}{axis}", "")) for axis in "xy"
        )
    except ValueError:
        rows = columns = 0
    if min(rows, columns) < 1:
        raise KSpaceError(f"its XML header has no valid matrix size of the {space}")
    return rows, columns


def _belongs_to_image(heads: np.ndarray, encoding: Encoding) -> np.ndarray:
    flags, counters = heads["flags"], heads["idx"]
    excluded = NOT_IMAGE if encoding.embedded_calibration else (*NOT_IMAGE, CALIBRATION)
    bits = np.uint64(sum(1 << (bit - 1) for bit in excluded))
    wanted = (flags & bits == 0) & (heads["encoding_space_ref"] == 0)
    for counter in FIRST_OF:
        wanted &= counters[counter] == 0
    return wanted


def _add_line(kspace: np.ndarray, counts: np.ndarray, head: np.void, numbers: np.ndarray, encoding: Encoding) -> None:
    """Put one line, `(coils, samples)`, where it belongs in `(coils, readout, phase encoding)`."""
    coils, samples = int(head["active_channels"]), int(head["number_of_samples"])
    if coils != len(kspace) or numbers.size != 2 * coils * samples:
        raise KSpaceError("its lines differ in their number of coils, or hold less than their headers say")
    line = np.ascontiguousarray(numbers, np.float32).view(np.complex64).reshape(coils, samples)
    column = int(head["idx"]["kspace_encode_step_1"]) - encoding.centre_line + encoding.lines // 2
    centre = int(head["center_sample"])
    if int(head["flags"]) & (1 << (REVERSED - 1)):
        raise KSpaceError("holds lines that were read backwards (EPI), which need a phase correction first")
    first, last = int(head["discard_pre"]), samples - int(head["discard_post"])
    rows = np.arange(first, last) - centre + encoding.samples // 2
    if first >= last or rows[0] < 0 or rows[-1] >= encoding.samples or not 0 <= column < encoding.lines:
        raise KSpaceError(f"has a line outside the {encoding.samples} x {encoding.lines} grid of its header")
    kspace[:, rows, column] += line[:, first:last]
    counts[rows, column] += 1
