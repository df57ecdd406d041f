"""Random pictures and measurements: sound, odd, and damaged, as arrays and as files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

CONTENTS = ("smooth", "noise", "uniform", "black", "white", "extreme")
BAD_CONTENTS = ("nan", "infinite")
DTYPES = ("uint8", "uint16", "float32", "float64")
ODD_DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "uint32",
    "int64",
    "float16",
    "longdouble",
    "complex64",
    "str",
    "struct",
)
DAMAGES = ("truncated", "flipped", "empty", "text", "long")
PILLOW_DTYPES = {
    ".png": ("uint8", "uint16", "bool"),
    ".jpg": ("uint8",),
    ".webp": ("uint8",),
    ".bmp": ("uint8", "bool"),
}
STRUCT = np.dtype([("re", "f4"), ("im", "f4")])


@dataclass(frozen=True)
class Array:
    """What an array is made of; the same again each time."""

    shape: tuple[int, ...]
    dtype: str
    content: str
    seed: int

    def build(self) -> np.ndarray:
        values = self._unit()
        if self.dtype == "struct":
            return np.zeros(self.shape, STRUCT)
        kind: np.dtype[Any] = np.dtype(self.dtype)
        if kind.kind == "b":
            return values > 0.5
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            if self.content in BAD_CONTENTS:
                values = np.zeros(self.shape)
            top = limits.max if self.content == "extreme" or kind.kind == "u" else limits.max // 4
            return (values * float(top)).clip(limits.min, float(limits.max) * (1 - 1e-12)).astype(kind)
        with np.errstate(over="ignore"):  # half precision has no 1e6
            return (values * 1e6 if self.content == "extreme" else values).astype(kind)

    def _unit(self) -> np.ndarray:
        """In 0..1, but for what cannot be."""
        random = np.random.default_rng(self.seed)
        if self.content in ("uniform", "black", "white"):
            return np.full(self.shape, {"uniform": 0.5, "black": 0.0, "white": 1.0}[self.content])
        values = random.random(self.shape)
        if self.content == "smooth" and values.size:
            values = 0.2 + 0.5 * np.linspace(0, 1, values.size).reshape(self.shape) + 0.1 * (values - 0.5)
        if self.content in BAD_CONTENTS and values.size:
            values.flat[random.integers(values.size)] = np.nan if self.content == "nan" else np.inf
        return values


@dataclass(frozen=True)
class File:
    """An array in a file, which may then have been damaged."""

    array: Array
    suffix: str
    damage: str = ""
    axes: str = ""  # of a TIFF

    def write(self, path: Path) -> None:
        path.write_bytes(self._damaged(self._bytes()))

    def _bytes(self) -> bytes:
        buffer, pixels = io.BytesIO(), self.array.build()
        if self.suffix == ".npy":
            np.save(buffer, pixels, allow_pickle=False)
        elif self.suffix == ".tif":
            import tifffile

            tifffile.imwrite(buffer, pixels, metadata={"axes": self.axes} if self.axes else None)
        else:
            from PIL import Image

            formats = {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP", ".bmp": "BMP"}
            Image.fromarray(pixels).save(buffer, formats[self.suffix])
        return buffer.getvalue()

    def _damaged(self, data: bytes) -> bytes:
        random = np.random.default_rng(self.array.seed)
        if self.damage == "truncated":
            return data[: int(random.integers(len(data)))]
        if self.damage == "flipped":
            flipped = bytearray(data)
            for place in random.integers(len(data), size=3):
                flipped[place] ^= 1 << int(random.integers(8))
            return bytes(flipped)
        return {"": data, "empty": b"", "text": b"not a picture\n", "long": data + b"\0" * 1000}[self.damage]


def side(random: Random) -> int:
    """Mostly one that the model takes as it is."""
    return random.randint(15, 34) if random.random() < 0.7 else random.randint(1, 14)


def array(
    random: Random,
    dtypes: Sequence[str] = DTYPES,
    shapes: Sequence[tuple[int, ...]] = (),
    contents: Sequence[str] = CONTENTS * 4 + BAD_CONTENTS,
) -> Array:
    """Of sound values, mostly."""
    shape = random.choice(shapes or [(side(random), side(random))])
    return Array(shape, random.choice(dtypes), random.choice(contents), random.randrange(2**16))


def any_array(random: Random, dtypes: Sequence[str] = DTYPES) -> Array:
    """Gray or colour, mostly; else what can be taken for a picture, or not."""
    height, width = side(random), side(random)
    usual = [(height, width), (height, width, 3)]
    channels = [(height, width, number) for number in (1, 2, 4, 5)]
    stacks = [(2, height, width), (2, height, width, 3), (2, 2, height, width)]
    return array(random, dtypes, usual * 6 + channels + stacks + [(height,), (), (0, width)])


def picture(random: Random) -> File:
    """A picture file, of any kind; one in five is damaged."""
    suffix = random.choice([*PILLOW_DTYPES, ".png", ".tif", ".tif", ".npy", ".npy"])
    damage = random.choice(DAMAGES) if random.random() < 0.2 else ""
    if suffix == ".npy":
        return File(any_array(random, DTYPES * 4 + ODD_DTYPES), suffix, damage)
    if suffix == ".tif":
        axes = random.choice(["YX", "YX", "YXS", "ZYX", "TYX", "CYX", "ZCYX", "TZCYX", "ZYXS", "QYX"])
        sizes = {"Y": side(random), "X": side(random), "S": random.choice([3, 4])}
        dtypes = (*DTYPES, *DTYPES, "int16", "int32", "uint32", "float16")
        return File(array(random, dtypes, [tuple(sizes.get(axis, 2) for axis in axes)]), suffix, damage, axes)
    dtype = random.choice(PILLOW_DTYPES[suffix])
    channels = [()] if dtype != "uint8" else [(), (3,)] if suffix != ".png" else [(), (2,), (3,), (4,)]
    return File(array(random, [dtype], [(side(random), side(random), *random.choice(channels))]), suffix, damage)
