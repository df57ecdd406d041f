"""Image files: reading without loss, writing all or nothing."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.io.atomic import replacing

PILLOW = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
TIFF = (".tif", ".tiff")
SUFFIXES = (*PILLOW, *TIFF, ".npy")


class ImageFileError(Exception):
    """A file that cannot be read or written, and why."""


@dataclass(frozen=True)
class ImageFile:
    """The pixels of a file, `(H, W)`, `(H, W, C)` or a stack `(B, H, W, C)`, and what goes along with them.

    A TIFF of several gray frames is a stack `(B, H, W, 1)`.
    """

    pixels: np.ndarray
    extras: dict[str, bytes] = field(default_factory=dict)  # colour profile, for Pillow's formats
    white: float = 1.0  # what 1.0 is, in floating-point pixels


def read(path: Path) -> ImageFile:
    """The image in a PNG, JPEG, WebP, TIFF or npy file, in its own bit depth."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ImageFileError(f"{path}: unknown format; use one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise ImageFileError(f"{path}: no such file")
    reader = _read_npy if suffix == ".npy" else _read_tiff if suffix in TIFF else _read_pillow
    try:
        return reader(path)
    except ImageFileError:
        raise
    except Exception as error:
        # Decoders raise whatever they like on damaged files: OSError, SyntaxError, struct.error, ...
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ImageFileError(f"{path}: not a readable image ({reason})") from error


def write(path: Path, image: ImageFile) -> None:
    """Write the pixels in the format that the suffix names; an existing file is replaced only when all went well."""
    suffix = path.suffix.lower()
    check_writable(path)
    if suffix == ".npy":
        atomically(path, lambda file: np.save(file, image.pixels, allow_pickle=False))
    elif suffix in TIFF:
        _write_tiff(path, image)
    else:
        _write_pillow(path, image)


def check_writable(path: Path) -> None:
    """Raise if the path cannot become an image file: better before the work than after."""
    check_format(path)
    check_place(path)


def check_format(path: Path) -> None:
    """Raise if the suffix names no format that can be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ImageFileError(f"{path}: unknown format to write; use one of {', '.join(SUFFIXES)}")


def check_place(path: Path) -> None:
    """Raise if no file can be written there."""
    if path.is_dir():
        raise ImageFileError(f"{path}: is a folder")
    if not path.parent.is_dir():
        raise ImageFileError(f"{path}: the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise ImageFileError(f"{path}: no permission to write into {path.parent}")


def _read_npy(path: Path) -> ImageFile:
    pixels = np.load(path, allow_pickle=False)
    if not isinstance(pixels, np.ndarray) or pixels.size == 0:
        raise ImageFileError(f"{path}: does not hold one array with pixels")
    return ImageFile(pixels)


def _read_tiff(path: Path) -> ImageFile:
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        photometric = tifffile.PHOTOMETRIC(series.keyframe.photometric).name
        if photometric not in ("MINISBLACK", "RGB"):
            raise ImageFileError(f"{path}: a TIFF of kind {photometric}; convert it to plain gray or RGB first")
        axes, pixels = series.axes, series.asarray()
    if axes == "SYX":  # colour planes one after the other
        axes, pixels = "YXS", np.moveaxis(pixels, 0, -1)
    if axes in ("YX", "YXS"):
        return ImageFile(pixels)
    if len(axes) == 3 and axes.endswith("YX"):
        return ImageFile(pixels[..., None])
    raise ImageFileError(f"{path}: a TIFF with axes {axes}; only single images and stacks of gray images are read")


def _read_pillow(path: Path) -> ImageFile:
    from PIL import Image, ImageOps

    if _is_deep_colour_png(path):
        raise ImageFileError(
            f"{path}: a PNG with 16 bits per colour channel; convert it to TIFF, which is read in full"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                raise ImageFileError(f"{path}: an animation; extract its frames first")
            image.load()
            extras = {"icc_profile": image.info["icc_profile"]} if image.info.get("icc_profile") else {}
            upright = ImageOps.exif_transpose(image)
    mode = upright.mode
    if mode.startswith("I;16") or mode == "I":  # "I" in older versions of Pillow
        return ImageFile(np.asarray(upright).astype(np.uint16), extras=extras)
    if mode in ("P", "PA") or (mode in ("L", "RGB") and "transparency" in upright.info):
        upright = upright.convert("RGBA" if mode == "PA" or "transparency" in upright.info else "RGB")
    elif mode not in ("L", "LA", "RGB", "RGBA", "F"):
        upright, extras = upright.convert("L" if mode == "1" else "RGB"), {}  # the profile was for the old mode
    return ImageFile(np.asarray(upright).copy(), extras=extras)


def _is_deep_colour_png(path: Path) -> bool:
    """Whether Pillow would silently drop the lower 8 bits."""
    with path.open("rb") as file:
        head = file.read(26)
    if len(head) < 26 or head[:8] != b"\x89PNG\r\n\x1a\n":
        return False
    depth, colour_type = struct.unpack("BB", head[24:26])
    return depth == 16 and colour_type != 0


def _write_tiff(path: Path, image: ImageFile) -> None:
    import tifffile

    pixels = image.pixels
    options: dict[str, Any] = {"photometric": "minisblack"}
    if pixels.ndim > 2 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    elif pixels.ndim > 2:
        options = {"photometric": "rgb" if pixels.shape[-1] > 2 else "minisblack", "planarconfig": "contig"}
        if pixels.shape[-1] in (2, 4):
            options["extrasamples"] = "unassalpha"
    atomically(path, lambda file: tifffile.imwrite(file, pixels, **options))


def _write_pillow(path: Path, image: ImageFile) -> None:
    from PIL import Image

    kind, pixels = PILLOW[path.suffix.lower()], image.pixels
    if pixels.ndim > 3:
        raise ImageFileError(f"{path}: {kind} holds one image, not a stack; write .tif or .npy")
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if np.issubdtype(pixels.dtype, np.floating):
        pixels = ((pixels / image.white).clip(0, 1) * 255).round().astype(np.uint8)
    if pixels.dtype == np.uint16 and not (kind == "PNG" and pixels.ndim == 2):
        raise ImageFileError(f"{path}: {kind} cannot hold 16 bits per channel of this image; write .tif or .npy")
    has_alpha = pixels.ndim == 3 and pixels.shape[-1] in (2, 4)
    if kind == "JPEG" and has_alpha:
        raise ImageFileError(f"{path}: JPEG has no transparency; write .png, .webp or .tif")
    picture = Image.fromarray(pixels)
    options = {"PNG": {}, "JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True, "exact": True}}[kind]
    atomically(path, lambda file: picture.save(file, kind, **options, **image.extras))


def atomically(path: Path, save: Callable) -> None:
    """Let `save` write an open file, which takes the place of `path` when all went well."""
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            save(file)
    except OSError as error:
        raise ImageFileError(f"{path}: could not be written ({error.strerror or error})") from error
