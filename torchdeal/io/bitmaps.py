"""PNG, JPEG, WebP and BMP, by Pillow."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.io import deep_png
from torchdeal.io.formats import BY_SUFFIX, ImageFile, ImageFileError, TooManyValuesError, atomically, check_amount
from torchdeal.io.metadata import Metadata, read_exif, turned, upright

PILLOW = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}
KEPT = {"PNG": ("icc", "exif", "dpi", "png"), "JPEG": ("icc", "exif", "dpi"), "WEBP": ("icc", "exif"), "BMP": ("dpi",)}
OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"subsampling": 0}, "WEBP": {"lossless": True, "exact": True}}
UNREAD = {"xmp": "XMP", "XML:com.adobe.xmp": "XMP", "comment": "the comment", "photoshop": "Photoshop's resources"}
JPEG_QUALITY = 95
MOST_DPI = {"JPEG": 65535, "BMP": 5e7, "PNG": 1e8}  # beyond, the number does not fit into its field


def read(path: Path) -> ImageFile:
    """The picture, upright, in 8 or 16 bits; palettes become colours."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `check_amount` does this
        try:
            with Image.open(path, formats=sorted(set(PILLOW.values()))) as image:
                check_amount(path, (image.height, image.width, len(image.getbands())))
                return _read(path, image)
        except Image.DecompressionBombError as error:
            amount = str(error).split(",")[0]
            raise TooManyValuesError(f"{path}: {amount}; cut it into parts, or save it as TIFF") from None


def _read(path: Path, image: Any) -> ImageFile:
    """The picture that Pillow has opened, in its own bit depth."""
    notes = []
    if getattr(image, "n_frames", 1) > 1:
        if image.format != "MPO":
            raise ImageFileError(f"{path}: an animation; extract its frames first")
        notes += ["further pictures in the file, such as a preview: only the first is read"]
    with path.open("rb") as file:
        deep = deep_png.is_deep(file.read(26))
    image.load()
    exif, orientation = read_exif(image.getexif())
    notes += sorted({f"not kept: {name}, which is not read" for key, name in UNREAD.items() if image.info.get(key)})
    if getattr(image, "text", None):
        notes += ["not kept: text in the PNG, which is not read"]
    icc = image.info.get("icc_profile") or b""
    if deep:
        pixels = deep_png.decode(path.read_bytes())
        alpha = pixels.shape[-1] in (2, 4)
        pixels = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    else:
        plain = _in_plain_mode(image)
        if plain.mode.rstrip("A") != image.mode.rstrip("A") and image.mode not in ("1", "P", "PA"):
            notes += [f"colours in {image.mode}: they are read as {plain.mode}"]
            notes += [f"the colour profile: it is that of {image.mode}, not of {plain.mode}"] if icc else []
            icc = b""
        pixels, alpha = np.asarray(plain), plain.mode in ("LA", "RGBA")
    dpi = turned(_dpi(image), orientation)
    metadata = Metadata(icc, exif, dpi, png=_colour_chunks(image.info), notes=tuple(notes))
    return ImageFile(upright(pixels, orientation).copy(), alpha, metadata=metadata)


def _in_plain_mode(image: Any) -> Any:
    """As gray, colour or float, with transparency where there is some."""
    mode = image.mode
    if mode in ("P", "PA") or (mode in ("L", "RGB") and "transparency" in image.info):
        return image.convert("RGBA" if mode == "PA" or "transparency" in image.info else "RGB")
    if mode not in ("L", "LA", "RGB", "RGBA", "F"):
        return image.convert("L" if mode == "1" else "RGB")
    return image


def _colour_chunks(info: dict[Any, Any]) -> dict[bytes, bytes]:
    """What a PNG says that its numbers mean, as it is stored there."""
    chunks = {}
    if "gamma" in info:
        chunks[b"gAMA"] = struct.pack(">I", round(info["gamma"] * 1e5))
    if "chromaticity" in info:
        chunks[b"cHRM"] = struct.pack(">8I", *(round(value * 1e5) for value in info["chromaticity"]))
    if "srgb" in info:
        chunks[b"sRGB"] = bytes([info["srgb"]])
    return chunks


def _dpi(image: Any) -> tuple[float, float] | None:
    across, down = (float(value) for value in image.info.get("dpi", (0, 0)))
    return (across, down) if 0 < min(across, down) <= max(across, down) < float("inf") else None


def write(path: Path, image: ImageFile, quality: int | None) -> list[str]:
    """A sentence for each thing that the file does not keep."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    kind, pixels = PILLOW[path.suffix.lower()], image.pixels
    pixels = pixels[0] if pixels.ndim == 4 else pixels
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if np.issubdtype(pixels.dtype, np.floating):
        pixels = ((pixels / image.white).clip(0, 1) * 255).round().astype(np.uint8)
    metadata, options = image.metadata, dict(OPTIONS.get(kind, {}))
    if kind == "JPEG":
        options["quality"] = JPEG_QUALITY if quality is None else quality
    kept = [key for key in KEPT[kind] if key != "dpi" or max(metadata.dpi or (0.0,)) <= MOST_DPI[kind]]
    for key, name in (("icc", "icc_profile"), ("exif", "exif"), ("dpi", "dpi")):
        if key in kept and getattr(metadata, key):
            options[name] = getattr(metadata, key)
    if kind == "PNG" and metadata.png:
        options["pnginfo"] = PngInfo()
        for chunk, content in metadata.png.items():
            options["pnginfo"].add(chunk, content)
    if pixels.dtype == np.uint16 and pixels.ndim == 3:
        atomically(path, lambda file: file.write(deep_png.encode(pixels, **options)))
    else:
        atomically(path, lambda file: Image.fromarray(pixels).save(file, kind, **options))
    return metadata.not_kept(BY_SUFFIX[path.suffix.lower()].name, kept)
