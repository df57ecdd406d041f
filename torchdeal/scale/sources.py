"""What is read part by part: arrays, TIFF, npy and Zarr files. Other pictures are read as a whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.io import files, tiff
from torchdeal.io.files import TIFF, ImageFile, ImageFileError
from torchdeal.io.metadata import ORIENTATION, Metadata
from torchdeal.scale.grid import Box
from torchdeal.scale.layout import PictureLayout, guessed_layout

EXTRA = "large"  # of the package: what Zarr needs
KINDS = ("uint8", "uint16", "float16", "float32", "float64")  # of pixels
MASK_KINDS = (*KINDS, "bool", "int8", "int16", "int32", "int64", "uint32", "uint64")  # of what is 0 or not


@dataclass(frozen=True, eq=False)
class Source:
    """Pictures that are read part by part.

    Attributes:
        name: for messages.
        layout: of the array.
        dtype: of its pixels.
        fetch: a part of the array, by slices.
        image: what the file says beside its pixels, as `io.files` has it; the pixels are not in it.
        levels: the shapes of smaller copies in the file.
        zarr_image: of Zarr files: what `zarr_files` knows.
        identity: what makes the input the same when a run is resumed.
    """

    name: str
    layout: PictureLayout
    dtype: np.dtype
    fetch: Callable[[tuple[slice, ...]], np.ndarray]
    image: ImageFile
    levels: tuple[tuple[int, ...], ...] = ()
    zarr_image: Any = None
    identity: dict[str, Any] = field(default_factory=dict)

    def of_kinds(self, kinds: Sequence[str]) -> Source:
        """Itself. Raises where its pixels are of another kind."""
        if self.dtype.name not in kinds:
            raise ImageFileError(f"{self.name}: pixels of type {self.dtype}: tiles are for {', '.join(kinds)}")
        return self

    def read(self, plane: int, box: Box) -> np.ndarray:
        """A part of a picture, `(h, w)` or `(h, w, 3)`."""
        part = self.layout.picture(self._fetched(self.layout.index(plane, box)))
        return part.astype(self.dtype.newbyteorder("="), copy=False)

    def _fetched(self, index: tuple[slice, ...]) -> np.ndarray:
        try:
            return self.fetch(index)
        except (MemoryError, KeyboardInterrupt):
            raise
        except Exception as error:  # a file that ends early, or changed meanwhile
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ImageFileError(f"{self.name}: a part of it cannot be read ({reason})") from error


def open_source(path: Path, kinds: Sequence[str] = KINDS) -> Source:
    """What a file holds. A Zarr store is a folder, or a zip file whose name ends in .zarr.zip."""
    try:
        return _opened(path).of_kinds(kinds)
    except (ImageFileError, FileNotFoundError, ImportError, MemoryError):
        raise
    except Exception as error:  # a damaged file can make a library raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImageFileError(f"{path}: not a readable image ({reason})") from error


def _opened(path: Path) -> Source:
    if is_zarr(path):
        from torchdeal.scale.zarr_files import open_zarr

        return open_zarr(path)
    suffix = path.suffix.lower()
    identity = identity_of(path)
    if suffix in TIFF:
        return _tiff_source(path, identity)
    if suffix == ".npy":
        return _npy_source(path, identity)
    image = files.read(path)
    if image.alpha:
        raise _transparent(path)
    return replace(_of_array(image.as_stored(), str(path)), image=image, identity=identity)


def identity_of(path: Path) -> dict[str, Any]:
    """What tells a file, or a folder with all files in it, from what it is later if somebody changes it."""
    found, size = hashlib.sha256(), 0
    for name, status in sorted(_files_in(path)) if path.is_dir() else [(".", path.stat())]:
        found.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
        size += status.st_size
    return {"input": str(path.resolve()), "bytes": size, "files": found.hexdigest()[:16]}


def _files_in(folder: Path, within: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Names and sizes; each is asked for once, since a store may have millions of files on another machine.

    Not what desktops and file systems hide there; Zarr's own names begin with a dot and a z.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{within}{entry.name}"
            if entry.is_dir():
                yield from _files_in(Path(entry.path), f"{name}/")
            elif not entry.name.startswith(".") or entry.name.startswith(".z"):
                yield name, entry.stat()


def of_array(array: Any) -> Source:
    """Of anything with a shape and a dtype that is read by slices: numpy, memory maps, Zarr, h5py, ..."""
    return _of_array(array, "the array").of_kinds(KINDS)


def _of_array(array: Any, name: str) -> Source:
    layout, dtype = guessed_layout(array.shape), np.dtype(array.dtype)
    return Source(name, layout, dtype, lambda index: np.asarray(array[index]), no_pixels(layout, dtype))


def no_pixels(layout: PictureLayout, dtype: np.dtype, scale: int = 1) -> ImageFile:
    """An `ImageFile` of this shape and kind, which takes no memory."""
    layout = layout.enlarged(scale)
    outer = [axis for axis in layout.axes if axis not in "yxs"]
    channels = layout.length("s") if "s" in layout.axes else 1
    dimensions = tuple(layout.length(axis) for axis in outer)
    inner = (*layout.size, channels) if channels > 1 or dimensions else layout.size
    count = (int(np.prod(dimensions)),) if dimensions else ()
    pixels = np.broadcast_to(np.zeros((), dtype), (*count, *inner))
    return ImageFile(pixels, dimensions=dimensions, channel_axis="s" in layout.axes)


def is_zarr(path: Path) -> bool:
    """Whether the name is that of a Zarr store, or the folder is one."""
    named = path.name.lower().rstrip("/").endswith((".zarr", ".zarr.zip"))
    return named or any((path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def _npy_source(path: Path, identity: dict[str, Any]) -> Source:
    shape = files.npy_shape(path)
    _, notes = files.npy_channels(path, shape)
    layout, dtype = guessed_layout(shape), np.load(path, mmap_mode="r", allow_pickle=False).dtype
    # Opened for each part: pages of a memory map that were read stay in memory as long as it is open.
    fetch = lambda index: np.array(np.load(path, mmap_mode="r", allow_pickle=False)[index])  # noqa: E731
    image = replace(no_pixels(layout, dtype), metadata=Metadata(notes=notes))
    return Source(str(path), layout, dtype, fetch, image, identity=identity)


def _tiff_source(path: Path, identity: dict[str, Any]) -> Source:
    import tifffile

    with tiff.errors_raised(path), tifffile.TiffFile(path, _multifile=False) as file:
        image = tiff.described(path, file)
        series, page = file.series[0], file.series[0].keyframe
        if len(file.series) > 1:
            raise ImageFileError(f"{path}: {len(file.series)} separate pictures: save the one you want as a file")
        if image.alpha:
            raise _transparent(path)
        if page.tags.valueof(ORIENTATION, default=1) != 1 or page.photometric == tifffile.PHOTOMETRIC.PALETTE:
            raise ImageFileError(f"{path}: turned, or with a palette: save it upright in plain gray or RGB for tiles")
        layout, dtype = PictureLayout(series.axes.lower(), tuple(series.shape)), np.dtype(series.dtype)
        levels = tuple(tuple(level.shape) for level in series.levels[1:])
        plain = series.dataoffset is not None
    # Pages without compression that follow each other are a memory map; all else is read by tiles or strips.
    fetch = _mapped_part(path, series.shape) if plain else _decoded_part(path)
    return Source(str(path), layout, dtype, fetch, image, levels, identity=identity)


def _mapped_part(path: Path, shape: tuple[int, ...]) -> Callable[[tuple[slice, ...]], np.ndarray]:
    import tifffile

    def fetch(index: tuple[slice, ...]) -> np.ndarray:
        return np.array(tifffile.memmap(path, mode="r", series=0).reshape(shape)[index])

    return fetch


def _decoded_part(path: Path) -> Callable[[tuple[slice, ...]], np.ndarray]:
    import tifffile

    zarr = optional("zarr", "reading parts of compressed or tiled TIFF files", EXTRA)
    array = zarr.open(tifffile.imread(path, aszarr=True, series=0, level=0), mode="r")

    def fetch(index: tuple[slice, ...]) -> np.ndarray:
        return np.asarray(array[index])

    return fetch


def _transparent(path: Path) -> ImageFileError:
    return ImageFileError(f"{path}: has transparency, which tiles do not keep: save it without, or use --tile 0")
