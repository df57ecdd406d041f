"""Zarr and OME-Zarr stores, of format 2 and 3, by the library zarr.

An OME-Zarr image is a group with the same picture in several sizes; its attributes say what the axes are. All of them
are kept, and all sizes are made anew from the result.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.io.files import ImageFileError
from torchdeal.scale.grid import Tile
from torchdeal.scale.layout import PictureLayout, guessed_layout
from torchdeal.scale.pyramid import factors_between, reduce_into, reduced_shape
from torchdeal.scale.sources import EXTRA, Source, identity_of, no_pixels
from torchdeal.scale.targets import Target
from torchdeal.scale.unfinished import Unfinished, take_place

OME = "ome"  # where attributes of OME-Zarr are from version 0.5 on; before, they are at the top
STORE = "result.zarr"  # in the folder of an unfinished run
PYRAMID_DOWN_TO = 512  # of an OME-Zarr that is made of another file
SPATIAL = {"y", "x", "z"}


@dataclass(frozen=True)
class ZarrImage:
    """What a store holds beside its pixels.

    Attributes:
        zarr_format: 2 or 3.
        attributes: of the group, or of the array where there is no group.
        multiscale: paths and shapes of the picture in all sizes, the largest first; None for a plain array.
        notes: what of the store is not read.
    """

    zarr_format: int = 3
    attributes: dict[str, Any] | None = None
    multiscale: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    notes: tuple[str, ...] = ()


def open_zarr(path: Path) -> Source:
    """A plain array, or the first multiscale image of a group."""
    zarr = optional("zarr", "reading Zarr stores", EXTRA)
    if not path.exists():
        raise ImageFileError(f"{path}: no such Zarr store")
    try:
        opened = zarr.open(_store(path, zarr), mode="r")
    except Exception as error:  # zarr raises whatever its stores do
        raise ImageFileError(f"{path}: not a Zarr store that can be read ({str(error).splitlines()[0]})") from error
    if isinstance(opened, zarr.Array):
        names = getattr(opened.metadata, "dimension_names", None) or ()
        axes = "".join(str(name)[:1].lower() for name in names)
        layout = PictureLayout(axes, opened.shape) if _are_axes(axes, opened.ndim) else guessed_layout(opened.shape)
        known = ZarrImage(opened.metadata.zarr_format, dict(opened.attrs))
        return _source(path, opened, layout, known)
    return _ome_source(path, opened)


def _ome_source(path: Path, group: Any) -> Source:
    attributes = dict(group.attrs)
    described = attributes.get(OME, attributes)
    if not described.get("multiscales"):
        raise ImageFileError(f"{path}: a group without a multiscale image; give the path of an image or array in it")
    multiscale = described["multiscales"][0]
    paths = [dataset["path"] for dataset in multiscale["datasets"]]
    arrays = [group[name] for name in paths]
    axes = "".join(axis if isinstance(axis, str) else axis["name"] for axis in multiscale.get("axes", "tczyx")).lower()
    notes = [f"{len(described['multiscales']) - 1} further images of the store"] * (len(described["multiscales"]) > 1)
    notes += [f"not kept: {name}, a part of the store" for name in group.keys() if name not in _tops(paths)]
    levels = tuple((name, tuple(array.shape)) for name, array in zip(paths, arrays, strict=True))
    known = ZarrImage(group.metadata.zarr_format, attributes, levels, tuple(notes))
    if not _are_axes(axes, arrays[0].ndim):
        raise ImageFileError(f"{path}: axes {axes} of an image of shape {arrays[0].shape}: y and x are needed")
    return _source(path, arrays[0], PictureLayout(axes, tuple(arrays[0].shape)), known)


def _source(path: Path, array: Any, layout: PictureLayout, known: ZarrImage) -> Source:
    dtype = np.dtype(array.dtype)
    return Source(
        str(path),
        layout,
        dtype,
        lambda index: np.asarray(array[index]),
        no_pixels(layout, dtype),
        zarr_image=known,
        identity=identity_of(path),
    )


class ZarrTarget(Target):
    """A store whose chunks are the tiles. It lies in the folder of the run until all of them are there.

    Args:
        path: of the store; a name that ends in .ome.zarr is for OME-Zarr.
        layout: of the result.
        dtype: of its pixels.
        side: of the chunks.
        source: what is kept comes from it.
        scale: of the result, beside the input.
        unfinished: the folder of the run.
    """

    def __init__(
        self,
        path: Path,
        layout: PictureLayout,
        dtype: np.dtype,
        side: int,
        source: Source,
        scale: int,
        unfinished: Unfinished,
    ):
        self.path, self.layout, self.unfinished, self.scale = path, layout, unfinished, scale
        self.known = _described(path, source, layout)
        self.notes = [*self.known.notes]
        if source.zarr_image is None:
            self.notes += source.image.metadata.not_kept("Zarr", ())
        self.chunks = layout.chunks(side)
        self.folder = unfinished.folder / STORE
        name = self.known.multiscale[0][0] if self.known.multiscale else None
        self.array = _array(self.folder, name, layout, dtype, self.chunks, self.known)

    def holds(self, plane: int, tile: Tile) -> bool:
        index = self.layout.index(plane, tile.core.scaled(self.scale))
        place = tuple(part.start // size if part.start else 0 for part, size in zip(index, self.chunks, strict=True))
        return (Path(self.folder) / self.array.path / self.array.metadata.encode_chunk_key(place)).is_file()

    def write(self, plane: int, tile: Tile, core: np.ndarray) -> None:
        self.array[self.layout.index(plane, tile.core.scaled(self.scale))] = self.layout.part(core)

    def finish(self) -> list[str]:
        if self.known.multiscale:
            self._smaller_copies()
        zarr = optional("zarr", "writing Zarr stores", EXTRA)
        opened = zarr.open(str(self.folder), mode="r+")
        opened.update_attributes(_enlarged(self.known.attributes or {}, self.scale))
        for rest in self.folder.rglob("*.partial"):  # of a chunk that was being written when a run was killed
            rest.unlink()
        take_place(self.folder, self.path)
        self.unfinished.remove()
        return self.notes

    def _smaller_copies(self) -> None:
        levels = self.known.multiscale or ()
        large = self.array
        for name, shape in levels[1:]:
            factors = factors_between(large.shape, _scaled(self.layout, shape, self.scale))
            layout = PictureLayout(self.layout.axes, reduced_shape(large.shape, factors))
            chunks = tuple(min(chunk, length) for chunk, length in zip(self.chunks, layout.shape, strict=True))
            small = _array(self.folder, name, layout, np.dtype(large.dtype), chunks, self.known)
            reduce_into(small, large, factors, chunks)
            large = small


def _array(
    folder: Path, name: str | None, layout: PictureLayout, dtype: np.dtype, chunks: tuple[int, ...], known: ZarrImage
) -> Any:
    """One that is there from a run that was stopped, or a new one. Chunks of zeros are files too: they say "done"."""
    zarr = optional("zarr", "writing Zarr stores", EXTRA)
    if name is not None:
        zarr.open_group(str(folder), mode="a", zarr_format=known.zarr_format)
    place = Path(folder, name or "")
    if (place / "zarr.json").is_file() or (place / ".zarray").is_file():
        return zarr.open_array(str(folder), path=name, mode="r+", config={"write_empty_chunks": True})
    separators = {"chunk_key_encoding": {"name": "v2", "separator": "/"}} if known.zarr_format == 2 else {}
    named = {"dimension_names": list(layout.axes)} if known.zarr_format == 3 else {}
    return zarr.create_array(
        str(folder),
        name=name,
        shape=layout.shape,
        dtype=dtype.newbyteorder("="),
        chunks=chunks,
        zarr_format=known.zarr_format,
        config={"write_empty_chunks": True},
        **separators,
        **named,
    )


def _described(path: Path, source: Source, layout: PictureLayout) -> ZarrImage:
    """What the store is to be: as the input, or for an .ome.zarr of another kind of file a new pyramid."""
    if source.zarr_image is not None:
        return source.zarr_image
    if not path.name.lower().endswith(".ome.zarr"):
        return ZarrImage()
    axes = [{"name": axis, **_kind(axis)} for axis in layout.axes]
    levels, shape, datasets = [], list(source.layout.shape), []
    factor = 1
    while True:
        scale = [float(factor) if axis in "yx" else 1.0 for axis in layout.axes]
        datasets.append({"path": str(len(levels)), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
        levels.append((str(len(levels)), tuple(shape)))
        if max(PictureLayout(layout.axes, tuple(shape)).size) <= PYRAMID_DOWN_TO:
            break
        factor *= 2
        shape = [-(-size // 2) if axis in "yx" else size for axis, size in zip(layout.axes, shape, strict=True)]
    multiscales = [{"name": path.name.partition(".")[0], "axes": axes, "datasets": datasets, "type": "mean"}]
    return ZarrImage(3, {OME: {"version": "0.5", "multiscales": multiscales}}, tuple(levels))


def _kind(axis: str) -> dict[str, str]:
    kinds = {"t": "time", "c": "channel", "s": "channel"} | dict.fromkeys(SPATIAL, "space")
    return {"type": kinds[axis]} if axis in kinds else {}


def _enlarged(attributes: dict[str, Any], scale: int) -> dict[str, Any]:
    """Of a picture with so many times the pixels each way: they are so much smaller."""
    attributes = copy.deepcopy(attributes)
    for multiscale in attributes.get(OME, attributes).get("multiscales", [])[:1]:
        axes = [axis if isinstance(axis, str) else axis["name"] for axis in multiscale.get("axes", "tczyx")]
        for dataset in multiscale["datasets"]:
            found = {one.get("type"): one for one in dataset.get("coordinateTransformations", [])}
            for place, axis in enumerate(axes):
                if axis not in ("y", "x") or "scale" not in found:
                    continue
                size = found["scale"]["scale"][place]
                found["scale"]["scale"][place] = size / scale
                if "translation" in found:  # it is that of the middle of the first pixel; its corner stays
                    found["translation"]["translation"][place] += (size / scale - size) / 2
    return attributes


def _scaled(layout: PictureLayout, shape: tuple[int, ...], scale: int) -> tuple[int, ...]:
    return replace(layout, shape=shape).enlarged(scale).shape


def _are_axes(axes: str, dimensions: int) -> bool:
    return len(axes) == dimensions == len(set(axes)) and {"y", "x"} <= set(axes)


def _tops(paths: list[str]) -> set[str]:
    return {path.split("/")[0] for path in paths}


def _store(path: Path, zarr: Any) -> Any:
    return zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path)
