"""What a picture file says beside its pixels: colour profile, EXIF, resolution, and what only TIFF knows.

It is kept where the output format can hold it. Where it cannot, a sentence says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from torchdeal.io import ome

ORIENTATION = 0x0112
RESOLUTIONS = (0x011A, 0x011B)  # pixels per unit, across and down
CAMERA = 0x8769  # the part of EXIF with exposure, lens, ...
SIZES = (0xA002, 0xA003)  # width and height, in that part
TEXTS = (0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x8298)  # description, make, model, software, date, artist, ©
GEOMETRY = (33550, 33922, 34264)  # of maps: where pixels lie
REGIONS = ("ROI", "Overlays", "Plot")  # of ImageJ, in pixels


@dataclass(frozen=True)
class TiffExtras:
    """What TIFF can hold and no other format can.

    Attributes:
        software: whose conventions the file follows, as tifffile names them: "imagej", "ome", "shaped" (its own), ...
        axes: the letters of the dimensions of a stack, such as TZC.
        details: of ImageJ, or of tifffile.
        xml: of OME.
        tags: code, type, count and value of each further one.
        resolution: pixels per unit, across and down, and the unit (1: none, or that of ImageJ; 2: inch; 3: cm).
        colormap: of gray pictures that ImageJ shows in colours, `(3, 256)`.
        rgb: the first three channels are red, green and blue.
    """

    software: str = ""
    axes: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    xml: str = ""
    tags: tuple[tuple, ...] = ()
    resolution: tuple[float, float, int] | None = None
    colormap: np.ndarray | None = None
    rgb: bool = False

    def enlarged(self, magnification: int) -> tuple[TiffExtras, list[str]]:
        """For a picture with so many times the pixels each way; and sentences about what holds for the input alone."""
        lost = []
        tags = tuple(tag for tag in self.tags if tag[0] not in GEOMETRY)
        if tags != self.tags:
            lost.append("the place of the pixels on a map: it is that of the input")
        details = {key: value for key, value in self.details.items() if key not in REGIONS}
        if len(details) < len(self.details):
            lost.append("regions of interest: they are those of the input")
        resolution = self.resolution
        if resolution is not None:
            resolution = resolution[0] * magnification, resolution[1] * magnification, resolution[2]
        xml = ome.enlarged(self.xml, magnification) if self.xml else ""
        return replace(self, tags=tags, details=details, resolution=resolution, xml=xml), lost

    def names(self) -> list[str]:
        """Of what another format loses."""
        named = {"imagej": "ImageJ metadata", "ome": "OME-XML"}
        names = [named[self.software]] if self.software in named else []
        has_other_tags = any(code not in TEXTS for code, *_ in self.tags)
        has_details = self.software == "shaped" and bool(self.details)
        return names + (["further TIFF tags"] if has_other_tags or has_details else [])


@dataclass(frozen=True)
class VolumeExtras:
    """What a file of a scanner is beside its pixels, which are as they are stored.

    Attributes:
        format: NIfTI or DICOM.
        header: what the module of this format needs to write such a file again.
        slope: a pixel means `slope * pixel + intercept`, such as Hounsfield units.
        intercept: likewise.
        made: what was done to the pixels, in a word.
    """

    format: str
    header: Any
    slope: float = 1.0
    intercept: float = 0.0
    made: str = "reconstructed"

    def in_units(self, pixels: np.ndarray) -> np.ndarray:
        """What stored pixels mean; as they are, where that is the same."""
        if (self.slope, self.intercept) == (1.0, 0.0):
            return pixels
        return (pixels.astype(np.float64) * self.slope + self.intercept).astype(np.float32)


@dataclass(frozen=True)
class Metadata:
    """What goes along with pixels, in terms that several formats know, and the rest in those of TIFF.

    Attributes:
        icc: the colour profile.
        exif: as JPEG, PNG and WebP hold it, without the orientation: pictures are turned upright as they are read.
        dpi: pixels per inch, across and down.
        premultiplied: colours are multiplied by their transparency.
        tiff: of a picture that was a TIFF.
        volume: of a file of a scanner.
        png: chunks that say what colours the numbers of a PNG mean: gAMA, cHRM, sRGB.
        notes: sentences that the user is to see: what was not read, and what was read in one of several ways.
    """

    icc: bytes = b""
    exif: bytes = b""
    dpi: tuple[float, float] | None = None
    premultiplied: bool = False
    tiff: TiffExtras | None = None
    volume: VolumeExtras | None = None
    png: dict[bytes, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def enlarged(self, magnification: int, size: tuple[int, int]) -> Metadata:
        """For a picture with so many times the pixels each way, now of this height and width."""
        exif = _resized_exif(self.exif, magnification, size) if self.exif else b""
        if magnification == 1:
            return replace(self, exif=exif)
        dpi = None if self.dpi is None else (self.dpi[0] * magnification, self.dpi[1] * magnification)
        tiff, lost = (None, []) if self.tiff is None else self.tiff.enlarged(magnification)
        return replace(self, dpi=dpi, exif=exif, tiff=tiff, notes=(*self.notes, *lost))

    def not_kept(self, format_name: str, kept: Sequence[str]) -> list[str]:
        """The notes, and a sentence for each thing that a format which keeps these (icc, exif, ...) does not."""
        has = {"icc": ["the colour profile"], "exif": ["EXIF"], "dpi": ["the resolution"]}
        names = [name for key in has if getattr(self, key) and key not in kept for name in has[key]]
        if self.tiff is not None and "tiff" not in kept:
            names += self.tiff.names()
        if self.volume is not None and "volume" not in kept:
            names.append(f"what {self.volume.format} says of the scan")
        notes = [*self.notes, *(f"not kept: {name}, which {format_name} cannot hold" for name in names)]
        # sRGB is what other formats mean; a profile says more than these.
        if self.png and "png" not in kept and b"sRGB" not in self.png and not self.icc:
            notes.append(f"gamma and primary colours: {format_name} cannot hold them")
        return notes


def read_exif(exif: Any) -> tuple[bytes, int]:
    """The fields of Pillow's `Image.Exif` without the orientation, and the orientation (1: upright)."""
    orientation = exif.pop(ORIENTATION, 1)
    orientation = orientation if orientation in range(1, 9) else 1
    try:
        return (exif.tobytes() if len(exif) else b""), orientation
    except Exception:  # fields of damaged or private kinds
        return b"", orientation


def upright(pixels: np.ndarray, orientation: int, rows: int = 0) -> np.ndarray:
    """Pixels turned and mirrored as the orientation of EXIF or TIFF says; the axis `rows` is followed by columns."""
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, rows, rows + 1)
    if orientation in (3, 4, 7, 8):
        pixels = np.flip(pixels, rows)
    if orientation in (2, 3, 6, 7):
        pixels = np.flip(pixels, rows + 1)
    return np.ascontiguousarray(pixels)


def turned(across_and_down: tuple[float, float] | None, orientation: int) -> tuple[float, float] | None:
    """A resolution after `upright`."""
    if across_and_down is None or orientation not in (5, 6, 7, 8):
        return across_and_down
    across, down = across_and_down
    return down, across


def exif_of_texts(texts: dict[int, str]) -> bytes:
    """EXIF with description, artist, ... of a TIFF, for formats that know EXIF."""
    from PIL import Image

    exif = Image.Exif()
    exif.update({code: text for code, text in texts.items() if code in TEXTS})
    return exif.tobytes() if len(exif) else b""


def texts_of_exif(exif: bytes) -> tuple[dict[int, str], bool]:
    """What of EXIF a TIFF can hold as its own tags; and whether there is more."""
    fields = _load_exif(exif)
    texts = {code: str(value) for code, value in fields.items() if code in TEXTS}
    others = set(fields) - set(TEXTS) - set(RESOLUTIONS) - {0x0128, 0x0213}  # units, and where colours are sampled
    return texts, bool(others)


def _resized_exif(exif: bytes, magnification: int, size: tuple[int, int]) -> bytes:
    fields = _load_exif(exif)
    for code in RESOLUTIONS:
        if code in fields:
            fields[code] = float(fields[code]) * magnification
    camera = fields.get_ifd(CAMERA)
    for code, length in zip(SIZES, reversed(size), strict=True):
        if code in camera:
            camera[code] = length
    return fields.tobytes()


def _load_exif(exif: bytes) -> Any:
    from PIL import Image

    fields = Image.Exif()
    fields.load(exif)
    return fields
