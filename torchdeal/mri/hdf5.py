"""Datasets of HDF5 files, read from these files alone: no link, storage or view leads to another one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.mri.data import KSpaceError, check_size

MOST_LINKS = 8  # that follow one another
LONGEST_TEXT = 2**26  # bytes


def find(file: Any, path: str, links: int = MOST_LINKS) -> Any:
    """What is at this path from a group, by hard links and soft ones; None if nothing is."""
    h5py = optional("h5py", "reading HDF5 files", "mri")
    found = file
    for name in filter(None, path.split("/")):
        if not isinstance(found, h5py.Group):
            return None
        try:
            link = found.get(name, getlink=True)
        except TypeError:  # a kind of link that programs can define for themselves
            link = h5py.ExternalLink("", "")
        if link is None:
            return None
        if isinstance(link, h5py.ExternalLink):
            raise KSpaceError(
                f"'{path}' is a link to another file, which is not followed; copy the data into this file"
            )
        if isinstance(link, h5py.SoftLink):
            if not links:
                raise KSpaceError(f"'{path}' is a link that leads to too many others")
            found = find(found.file if link.path.startswith("/") else found, link.path, links - 1)
        else:
            found = found[name]
        if found is None:
            return None
    return found


def dataset(file: Any, path: str) -> Any:
    """The dataset at this path, whose data are in the file and can be decoded; None if nothing is there."""
    h5py = optional("h5py", "reading HDF5 files", "mri")
    found = find(file, path)
    if found is None:
        return None
    if not isinstance(found, h5py.Dataset):
        raise KSpaceError(f"'{path}' is a group, not a dataset")
    if found.is_virtual or found.external:
        raise KSpaceError(f"'{path}' is stored in other files, which are not read; copy the data into this file")
    if found.shape is None:
        raise KSpaceError(f"'{path}' is empty")
    properties = found.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            raise KSpaceError(
                f"'{path}' needs the filter {code} ({name[:40].decode(errors='replace')}), which is not installed; "
                "store it with gzip, such as by h5repack -f GZIP=4"
            )
    return found


def numbers(stored: Any, chosen: int | None = None) -> np.ndarray:
    """Of a dataset, all, or those of one slice."""
    if stored.dtype.kind not in "buifc":
        kind = "references or texts" if stored.dtype.kind == "O" else stored.dtype
        raise KSpaceError(f"'{stored.name.strip('/')}' must be numbers, got {kind}")
    check_size(math.prod(stored.shape if chosen is None else stored.shape[1:]))
    return np.asarray(stored[()] if chosen is None else stored[chosen])


def text(stored: Any) -> bytes | str:
    """Of a dataset with one text, or some, of which the first is returned."""
    if stored.size * stored.dtype.itemsize > LONGEST_TEXT:
        raise KSpaceError(f"'{stored.name.strip('/')}' is longer than any header, {stored.size:,} values")
    value = np.asarray(stored[()]).ravel()[0]
    value = value.tobytes() if isinstance(value, np.void) else value
    if not isinstance(value, (bytes, str)):
        raise KSpaceError(f"'{stored.name.strip('/')}' is not a text")
    return value
