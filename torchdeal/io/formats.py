"""What a picture file is, what each format can hold, and how large a file may be."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from torchdeal.io.atomic import replacing
from torchdeal.io.metadata import Metadata

MOST_VALUES = 2**29  # pixels times channels times frames of a file: 2 GiB in single precision, in several copies
MOST_VALUES_VARIABLE = "TORCHDEAL_MAX_VALUES"  # the environment may set another limit


class ImageFileError(Exception):
    """A file that cannot be read or written, and why."""


class TooManyValuesError(ImageFileError):
    """A file with more pixels than are read."""


@dataclass(frozen=True)
class ImageFile:
    """The pixels of a file, `(H, W)`, `(H, W, C)` or a stack `(B, H, W, C)`, and what goes along with them.

    A file of several gray frames is a stack `(B, H, W, 1)`, however many dimensions they are ordered in.
    """

    pixels: np.ndarray
    alpha: bool = False  # the last channel is transparency
    dimensions: tuple[int, ...] = ()  # of a stack in the file, before height and width; their product is B
    metadata: Metadata = field(default_factory=Metadata)
    white: float = 1.0  # what 1.0 is, in floating-point pixels
    channel_axis: bool = False  # the file has an axis for channels even where there is one

    @property
    def is_volume(self) -> bool:
        """Whether it is of a scanner: its values are in units of their own, and its frames are slices of one object."""
        return self.metadata.volume is not None

    @property
    def frames(self) -> int:
        return len(self.pixels) if self.pixels.ndim == 4 else 1

    @property
    def channels(self) -> int:
        return self.pixels.shape[-1] if self.pixels.ndim > 2 else 1

    @property
    def colours(self) -> int:
        """Channels without transparency."""
        return self.channels - self.alpha

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.pixels.shape[-3:-1] if self.pixels.ndim > 2 else self.pixels.shape
        return height, width

    def without_alpha(self, *notes: str) -> ImageFile:
        """The colours alone; the notes are for pictures that had transparency."""
        if not self.alpha:
            return self
        metadata = replace(self.metadata, premultiplied=False, notes=(*self.metadata.notes, *notes))
        return replace(self, pixels=self.pixels[..., :-1], alpha=False, metadata=metadata)

    def as_stored(self) -> np.ndarray:
        """The pixels in the dimensions that the file had."""
        if self.pixels.ndim < 4 or not self.dimensions:
            return self.pixels
        channels = (self.channels,) if self.channels > 1 or self.channel_axis else ()
        return self.pixels.reshape(*self.dimensions, *self.size, *channels)


def from_stored(array: np.ndarray, has_channels: bool) -> tuple[np.ndarray, tuple[int, ...]]:
    """Pixels and dimensions of an `ImageFile`, from an array `(..., H, W)` or `(..., H, W, C)`."""
    inner = array.shape[-3:] if has_channels else (*array.shape[-2:], 1)
    dimensions = array.shape[: -3 if has_channels else -2]
    return (array.reshape(-1, *inner), dimensions) if dimensions else (array, ())


@dataclass(frozen=True)
class Format:
    """What the files of a kind can hold."""

    name: str
    suffixes: tuple[str, ...]
    anything: bool = False  # stacks, any number of channels, any type of number
    bits: int = 8  # of a channel, at most
    transparency: bool = False
    longest_side: float = math.inf

    def misfit(self, image: ImageFile, magnification: int = 1) -> str:
        """What of the picture the format cannot hold; empty where it holds all, floats in 8 bits."""
        dtype = image.pixels.dtype
        if self.anything:
            return ""
        if image.is_volume:
            return "the values of a scan"
        if image.frames > 1:
            return f"a stack of {image.frames} pictures"
        if image.colours not in (1, 3):
            return f"{image.colours} channels"
        if image.alpha and not self.transparency:
            return "transparency"
        if image.metadata.premultiplied:
            return "colours that are multiplied by their transparency"
        if dtype.kind not in "uf" or (dtype.kind == "u" and dtype.itemsize > 2):
            return f"pixels of type {dtype.name}"
        if dtype.kind == "u" and 8 * dtype.itemsize > self.bits:
            return f"{8 * dtype.itemsize} bits per channel"
        if max(image.size) * magnification > self.longest_side:
            return f"more than {self.longest_side} pixels in a row or column"
        return ""


FORMATS = (
    Format("PNG", (".png",), bits=16, transparency=True),
    Format("JPEG", (".jpg", ".jpeg"), longest_side=65500),
    Format("WebP", (".webp",), transparency=True, longest_side=16383),
    Format("BMP", (".bmp",)),
    Format("TIFF", (".tif", ".tiff"), anything=True),
    Format("npy", (".npy",), anything=True),
)
BY_SUFFIX = {suffix: kind for kind in FORMATS for suffix in kind.suffixes}
NIFTI = (".nii", ".nii.gz")
DICOM = (".dcm", ".dicom", ".ima")
VOLUMES = (*NIFTI, *DICOM)  # suffixes of scanners; files of DICOM often have none
LONGEST_SIDE = 2**15 - 1  # of NIfTI


def suffix_of(path: Path) -> str:
    """In lower case; `.nii.gz` is one."""
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()


def check_holds(path: Path, image: ImageFile, magnification: int = 1) -> None:
    """Raise if the format that the path names cannot hold this picture, so many times larger each way."""
    suffix = suffix_of(path)
    if suffix in VOLUMES or suffix not in BY_SUFFIX:  # a folder of DICOM has no suffix
        return _check_holds_volume(path, image, magnification)
    misfit = BY_SUFFIX[suffix].misfit(image, magnification)
    if misfit:
        others = [kind.suffixes[0] for kind in FORMATS if not kind.misfit(image, magnification)]
        name = BY_SUFFIX[path.suffix.lower()].name
        raise ImageFileError(f"{path}: {name} cannot hold {misfit}; write {' or '.join(others)}")


def _check_holds_volume(path: Path, image: ImageFile, magnification: int) -> None:
    volume, is_nifti = image.metadata.volume, suffix_of(path) in NIFTI
    name = "NIfTI" if is_nifti else "DICOM"
    if volume is not None and volume.format != name:
        raise ImageFileError(f"{path}: {volume.format} is not written as {name}; write {volume.format}, .tif or .npy")
    if volume is None and not is_nifti:
        raise ImageFileError(f"{path}: DICOM is written of DICOM alone; write .tif or .npy")
    if volume is not None and magnification > 1:
        raise ImageFileError(f"{path}: a scan is not enlarged: {name} says where its pixels lie; write .tif or .npy")
    if image.channels > 1:
        raise ImageFileError(f"{path}: {name} holds gray pictures alone here; write .tif or .npy")
    if max(*image.size, *image.dimensions) > LONGEST_SIDE:
        raise ImageFileError(f"{path}: {name} holds at most {LONGEST_SIDE} pixels each way; write .npy or .tif")


def check_amount(path: Path, shape: Sequence[int]) -> None:
    """Raise if an array of this shape is too large to be read: what a small file asks for can fill the memory."""
    text = os.environ.get(MOST_VALUES_VARIABLE, "")
    limit = int(text) if text.isdecimal() else MOST_VALUES
    amount = math.prod(int(length) for length in shape)
    if amount > limit:
        raise TooManyValuesError(
            f"{path}: {' x '.join(map(str, shape))} values, {amount / 1e6:.0f} million, are more than the "
            f"{limit / 1e6:.0f} million that are read; cut it into parts, or set {MOST_VALUES_VARIABLE}"
        )


def atomically(path: Path, save: Callable) -> None:
    """Let `save` write an open file, which takes the place of `path` when all went well."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            save(file)
    except OSError as error:
        raise ImageFileError(f"{path}: could not be written ({error.strerror or error})") from error
