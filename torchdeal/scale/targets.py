"""What is written part by part: arrays, and TIFF, npy and other picture files from tiles that wait in a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.io import files, tiff
from torchdeal.io.atomic import replacing
from torchdeal.io.files import TIFF, ImageFile
from torchdeal.io.metadata import Metadata
from torchdeal.scale.grid import Box, Tile, whole
from torchdeal.scale.layout import PictureLayout
from torchdeal.scale.pyramid import block_means, factors_between, reduced_shape, regions
from torchdeal.scale.unfinished import Unfinished

TIFF_TILE = 256  # side, a multiple of 16
CLASSIC_TIFF = 2**32 - 2**25  # bytes; larger files are BigTIFF
PYRAMID = 4 / 3  # so much more than the image alone it takes, with its smaller copies


class Target(ABC):
    """Where tiles go."""

    def holds(self, plane: int, tile: Tile) -> bool:
        """Whether this tile is there, from a run that was stopped."""
        return False

    @abstractmethod
    def write(self, plane: int, tile: Tile, core: np.ndarray) -> None:
        """Keep the core of a tile, as a whole or not at all."""

    def finish(self) -> list[str]:
        """All tiles are there. Returns a sentence for each thing of the input that could not be kept."""
        return []


@dataclass(frozen=True, eq=False)
class ArrayTarget(Target):
    """Anything that is written by slices."""

    array: Any
    layout: PictureLayout
    scale: int = 1

    def write(self, plane: int, tile: Tile, core: np.ndarray) -> None:
        self.array[self.layout.index(plane, tile.core.scaled(self.scale))] = self.layout.part(core)


@dataclass(frozen=True, eq=False)
class TileFiles:
    """The tiles of an image as files, `(h, w)` or `(h, w, 3)` each."""

    folder: Path
    layout: PictureLayout
    side: int  # of a tile, in pixels of this image
    dtype: np.dtype

    def path(self, plane: int, place: Sequence[int]) -> Path:
        return self.folder / f"{plane}-{place[0]}-{place[1]}.npy"

    def write(self, plane: int, place: Sequence[int], pixels: np.ndarray) -> None:
        self.folder.mkdir(exist_ok=True)
        with replacing(self.path(plane, place)) as temporary, temporary.open("wb") as file:
            np.save(file, pixels, allow_pickle=False)

    def region(self, plane: int, box: Box) -> np.ndarray:
        """A part of a picture."""
        colours = (3,) if self.layout.colours == 3 else ()
        found = np.empty((*box.size, *colours), self.dtype)
        for row in range(box.top // self.side, -(-box.bottom // self.side)):
            for column in range(box.left // self.side, -(-box.right // self.side)):
                top, left = row * self.side, column * self.side
                pixels = np.load(self.path(plane, (row, column)), mmap_mode="r", allow_pickle=False)
                common = Box(
                    max(top, box.top),
                    min(top + pixels.shape[0], box.bottom),
                    max(left, box.left),
                    min(left + pixels.shape[1], box.right),
                )
                found[common.within(box).slices] = pixels[common.within(Box(top, 0, left, 0)).slices]
        return found

    def samples(self, frame: int, box: Box) -> np.ndarray:
        """A part of a frame with all its channels, whether they are colours or pictures of their own."""
        if "s" not in self.layout.axes or self.layout.colours == 3:
            return self.region(frame, box)
        count = self.layout.length("s")
        return np.stack([self.region(frame * count + sample, box) for sample in range(count)], -1)

    def reduced(self, folder: Path, factors: tuple[int, int]) -> TileFiles:
        """A smaller copy of all pictures, by means of blocks."""
        lengths = dict(zip("yx", reduced_shape(self.layout.size, factors), strict=True))
        shape = [lengths.get(axis, self.layout.length(axis)) for axis in self.layout.axes]
        small = TileFiles(folder, replace(self.layout, shape=tuple(shape)), self.side, self.dtype)
        for plane in range(self.layout.planes):
            for rows, columns in regions(small.layout.size, (self.side, self.side)):
                height, width = self.layout.size
                box = Box(
                    rows.start * factors[0],
                    min(rows.stop * factors[0], height),
                    columns.start * factors[1],
                    min(columns.stop * factors[1], width),
                )
                part = self.region(plane, box)
                place = rows.start // self.side, columns.start // self.side
                small.write(plane, place, block_means(part, (*factors, 1)[: part.ndim]))
        return small


@dataclass(frozen=True, eq=False)
class FileTarget(Target):
    """A file that is made of tiles when all of them are there.

    Attributes:
        path: its suffix names the format.
        image: what goes along with the pixels; it has the shape of the result.
        tiles: where they wait.
        unfinished: the folder of the run.
        scale: of the result, beside the input.
        levels: shapes of smaller copies, for TIFF.
        quality: of JPEG.
        white: what 1.0 is, in floating-point pixels.
    """

    path: Path
    image: ImageFile
    tiles: TileFiles
    unfinished: Unfinished
    scale: int = 1
    levels: tuple[tuple[int, ...], ...] = ()
    quality: int | None = None
    white: float = 1.0

    def holds(self, plane: int, tile: Tile) -> bool:
        return self.tiles.path(plane, tile.place).exists()

    def write(self, plane: int, tile: Tile, core: np.ndarray) -> None:
        self.tiles.write(plane, tile.place, core)

    def finish(self) -> list[str]:
        suffix = self.path.suffix.lower()
        if suffix in TIFF:
            notes = self._write_tiff()
        elif suffix == ".npy":
            notes = self._write_npy()
        else:
            pixels = np.empty(self.image.pixels.shape, self.image.pixels.dtype)
            frames = pixels if pixels.ndim == 4 else pixels[None]
            for frame, target in enumerate(frames):
                target[...] = self.tiles.samples(frame, whole(self.tiles.layout.size)).reshape(target.shape)
            notes = files.write(self.path, replace(self.image, pixels=pixels, white=self.white), quality=self.quality)
        self.unfinished.remove()
        return notes

    def _write_npy(self) -> list[str]:
        layout = self.tiles.layout
        with replacing(self.path) as temporary:
            np.lib.format.open_memmap(temporary, "w+", self.tiles.dtype, layout.shape)
            for plane in range(layout.planes):
                for rows, columns in regions(layout.size, (self.tiles.side, self.tiles.side)):
                    box = Box(rows.start, rows.stop, columns.start, columns.stop)
                    # Opened for each tile: what was written to a memory map stays in memory while it is open.
                    array = np.lib.format.open_memmap(temporary, "r+")
                    array[layout.index(plane, box)] = layout.part(self.tiles.region(plane, box))
        return self.image.metadata.not_kept("npy", ())

    def _write_tiff(self) -> list[str]:
        stored, options, notes = tiff.options_for(self.path, self.image)
        notes = [note for note in notes if "smaller copies" not in note] if self.levels else notes
        if options.pop("imagej", False):
            notes.append("the layout of ImageJ: it has no tiles, so the stack is written as plain TIFF")
        writer_options = {"ome": options.pop("ome", False)} if "ome" in options else {}
        size = stored.dtype.itemsize * stored.size * (PYRAMID if self.levels else 1)
        pyramid = [self.tiles]
        for number, shape in enumerate(self.levels, 1):
            large = pyramid[-1].layout.size
            height, width = (_length(shape, stored.ndim, place) for place in (0, 1))
            factors = factors_between(large, (height * self.scale, width * self.scale))
            folder = self.unfinished.folder / f"level-{number}"
            pyramid.append(pyramid[-1].reduced(folder, (factors[0], factors[1])))
        with replacing(self.path) as temporary:
            _write_pages(temporary, stored, pyramid, options, {"bigtiff": size > CLASSIC_TIFF, **writer_options})
        return notes


def _length(shape: tuple[int, ...], dimensions: int, place: int) -> int:
    """Height or width of a level, whose shape ends as that of the picture does."""
    inner = shape[-3:-1] if len(shape) > 2 and shape[-1] <= 4 else shape[-2:]
    return inner[place]


def _write_pages(
    path: Path,
    stored: np.ndarray,
    pyramid: Sequence[TileFiles],
    options: dict[str, Any],
    writer_options: dict[str, Any],
) -> None:
    import tifffile

    side = min(TIFF_TILE, -(-pyramid[0].side // 16) * 16)
    samples = ("photometric", "planarconfig", "extrasamples", "colormap")
    frames = _frames(pyramid[0].layout)
    described = None if options.get("metadata") is None or "ome" in writer_options else {}
    of_picture: dict[str, Any] = {**options, "subifds": len(pyramid) - 1}
    of_copies: dict[str, Any] = {"subfiletype": 1, "metadata": described}
    of_copies |= {key: value for key, value in options.items() if key in samples}
    with tifffile.TiffWriter(path, **writer_options) as writer:
        for number, tiles in enumerate(pyramid):
            height, width = tiles.layout.size
            inner = stored.shape[-1:] if stored.ndim > 2 and _has_samples(tiles.layout) else ()
            outer = stored.shape[: stored.ndim - 2 - len(inner)]
            writer.write(
                _tiles_of(tiles, frames, side),
                shape=(*outer, height, width, *inner),
                dtype=stored.dtype,
                tile=(side, side),
                **(of_picture if number == 0 else of_copies),
            )


def _frames(layout: PictureLayout) -> int:
    return layout.planes if layout.colours == 3 or "s" not in layout.axes else layout.planes // layout.length("s")


def _has_samples(layout: PictureLayout) -> bool:
    return "s" in layout.axes and layout.length("s") > 1


def _tiles_of(tiles: TileFiles, frames: int, side: int) -> Iterator[np.ndarray]:
    """The tiles of a TIFF file, in its order. Those at the end are filled up by tifffile."""
    for frame in range(frames):
        for rows, columns in regions(tiles.layout.size, (side, side)):
            yield tiles.samples(frame, Box(rows.start, rows.stop, columns.start, columns.stop))


def grown_metadata(image: ImageFile, like: ImageFile, scale: int) -> ImageFile:
    """What goes along with a result that has `scale` times the pixels of the input each way."""
    metadata: Metadata = image.metadata
    if scale > 1:
        metadata = metadata.enlarged(scale, like.size)
    return replace(image, pixels=like.pixels, metadata=metadata)
