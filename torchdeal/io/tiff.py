"""TIFF, by tifffile: pictures, stacks and hyperstacks, with what ImageJ, OME and others say about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.io import ome
from torchdeal.io.formats import ImageFile, ImageFileError, atomically, check_amount, from_stored
from torchdeal.io.metadata import (
    ORIENTATION,
    TEXTS,
    Metadata,
    TiffExtras,
    exif_of_texts,
    texts_of_exif,
    turned,
    upright,
)

OME_SUFFIXES = (".ome.tif", ".ome.tiff")
RESOLUTION_UNITS = {2: ome.PER_INCH, 3: 1e4}  # in micrometres
# What a writer makes anew: size, layout and compression of the pixels, resolution, profile, descriptions, software.
STRUCTURE = {*range(254, 267), 270, 273, 274, *range(277, 285), *range(290, 298), 301, 305, *range(317, 334)}
STRUCTURE |= {*range(338, 348), *range(512, 522), *range(529, 533), 34675, 50838, 50839}
ELSEWHERE = {330: "smaller copies of the picture", 34665: "EXIF of the camera", 34853: "EXIF of the place (GPS)"}
ASCII = 2  # the type of a tag
IMAGEJ_LAYOUT = ("ImageJ", "images", "channels", "slices", "frames", "hyperstack", "axes", "shape")


def read(path: Path) -> ImageFile:
    """All pages of a TIFF as one picture or stack; an error where they do not fit together."""
    import tifffile

    with errors_raised(path), tifffile.TiffFile(path, _multifile=False) as file:
        series = list(file.series)
        _check_series(path, series, file.is_ome)
        described = sum(len(level.pages) for one in series for level in one.levels)
        if described < len(file.pages):
            raise ImageFileError(f"{path}: says what {described} of its {len(file.pages)} pages are; save it anew")
        first = series[0]
        check_amount(path, (len(series), *first.shape) if len(series) > 1 else first.shape)
        arrays = [_asarray(path, one) for one in series]
        array, axes = (np.stack(arrays), "Q" + first.axes) if len(series) > 1 else (arrays[0], first.axes)
        return _image_file(path, file, first.keyframe, array, axes)


def _image_file(path: Path, file: Any, page: Any, array: np.ndarray, axes: str) -> ImageFile:
    import tifffile

    array, axes = _in_order(path, array, axes)
    photometric = tifffile.PHOTOMETRIC(page.photometric).name
    colormap = None
    if photometric == "PALETTE" and file.series[0].kind == "imagej":  # gray values that are shown in colours
        colormap = page.colormap
    elif photometric == "PALETTE":
        array, axes = _colours(page.colormap, array), axes + "S"
    elif photometric not in ("MINISBLACK", "RGB"):
        raise ImageFileError(f"{path}: a TIFF of kind {photometric}; convert it to plain gray or RGB first")
    if array.dtype == bool:
        array = array.astype(np.uint8) * 255
    orientation = page.tags.valueof(ORIENTATION, default=1)
    array = upright(array, orientation, rows=axes.index("Y"))
    pixels, dimensions = from_stored(array, has_channels=axes.endswith("S"))
    alpha, premultiplied = _transparency(path, page, array.shape[-1] if axes.endswith("S") else 1)
    metadata = _metadata(file, page, axes[: len(dimensions)], colormap, photometric == "RGB")
    return ImageFile(pixels, alpha, dimensions, replace(metadata, premultiplied=premultiplied))


@contextmanager
def errors_raised(path: Path) -> Iterator[None]:
    """What tifffile only logs: pages that are not there, in a file that ends early. Its warnings are not shown."""
    complaints: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            complaints.append(record.getMessage())
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(note)
    try:
        yield
    finally:
        logger.removeFilter(note)
    if complaints:
        raise ImageFileError(f"{path}: damaged, or it ends early ({complaints[0].splitlines()[0]})")


def _check_series(path: Path, series: list[Any], is_ome: bool) -> None:
    if not series:
        raise ImageFileError(f"{path}: holds no picture")
    kinds = {(one.axes, one.shape, one.dtype) for one in series}
    if len(kinds) > 1:
        sizes = ", ".join(f"{' x '.join(map(str, one.shape))} {one.dtype}" for one in series[:4])
        raise ImageFileError(f"{path}: {len(series)} pictures of different kinds ({sizes}); save each as a file")
    if (is_ome and series[0].kind != "ome") or any(page is None for one in series for page in one.pages):
        raise ImageFileError(f"{path}: a part of the pictures is in other files; save them as one file")
    if any(one.dtype is None for one in series):
        raise ImageFileError(f"{path}: pixels of a kind that is not known; convert it first")


def _asarray(path: Path, series: Any) -> np.ndarray:
    try:
        array = series.asarray()
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        compression = series.keyframe.compression.name
        raise ImageFileError(
            f"{path}: compressed by {compression}: pip install 'torchdeal[tiff]', or save it without compression"
        ) from None
    if array.shape != series.shape or array.size == 0:
        raise ImageFileError(
            f"{path}: damaged: pixels of the shape {series.shape} are promised, {array.shape} are there"
        )
    return array


def _in_order(path: Path, array: np.ndarray, axes: str) -> tuple[np.ndarray, str]:
    """Rows, columns and samples last."""
    if "Y" not in axes or "X" not in axes:
        raise ImageFileError(f"{path}: a TIFF with axes {axes}; rows Y and columns X are needed")
    order = "".join(axis for axis in axes if axis not in "YXS") + "YX" + ("S" if "S" in axes else "")
    return array.transpose([axes.index(axis) for axis in order]), order


def _colours(colormap: np.ndarray, array: np.ndarray) -> np.ndarray:
    """Indices as the colours that they stand for, in 8 bits where these say all."""
    whole = ((colormap & 255 == 0) | (colormap & 255 == colormap >> 8)).all()
    table = (colormap >> 8).astype(np.uint8) if whole else colormap
    return table.T[array]


def _transparency(path: Path, page: Any, channels: int) -> tuple[bool, bool]:
    """Whether the last channel is transparency, and whether colours are multiplied by it."""
    import tifffile

    extra = [tifffile.EXTRASAMPLE(kind).name for kind in page.extrasamples]
    if not {"ASSOCALPHA", "UNASSALPHA"} & set(extra):
        return False, False
    if len(extra) > 1 or channels not in (2, 4):
        raise ImageFileError(f"{path}: transparency among {channels} channels; save it with gray or RGB alone")
    return True, extra == ["ASSOCALPHA"]


def _metadata(file: Any, page: Any, axes: str, colormap: np.ndarray | None, rgb: bool) -> Metadata:
    import tifffile

    software, details, xml = file.series[0].kind, {}, ""
    if software == "imagej":
        details = dict(file.imagej_metadata or {})
    elif software == "ome":
        xml = file.ome_metadata
    elif software == "shaped":
        details = {key: value for key, value in file.shaped_metadata[0].items() if key not in ("shape", "axes")}
    texts = {code: tag.value for code in TEXTS if (tag := page.tags.get(code)) and isinstance(tag.value, str)}
    if software in ("imagej", "ome", "shaped"):
        texts.pop(TEXTS[0], None)  # the description is that of the software
    if texts.get(0x0131) == "tifffile.py":
        del texts[0x0131]
    tags, lost = _other_tags(page)
    tags += [(code, ASCII, 0, text, True) for code, text in texts.items()]
    extras = TiffExtras(software, axes, details, xml, tuple(tags), _resolution(page), colormap, rgb)
    pages = [one for series in file.series for one in series.pages if isinstance(one, tifffile.TiffPage)]
    told = {one.tags.valueof(TEXTS[0]) for one in pages} - {None}
    if len(told) > 1:
        lost += ["what is told of single pages: it is kept of the first alone"]
    if file.series[0].is_pyramidal:
        lost += ["the smaller copies of the picture: they are not written"]
    icc = page.tags.valueof(34675, default=b"") or b""
    return Metadata(icc, exif_of_texts(texts), _dpi(extras), tiff=extras, notes=tuple(lost))


def _resolution(page: Any) -> tuple[float, float, int] | None:
    """Pixels per unit and the unit; None where nothing is told, as 1 pixel per unit that is not named."""
    try:
        columns, rows = (page.tags[code].value[0] / page.tags[code].value[1] for code in (282, 283))
        across, down = turned((columns, rows), page.tags.valueof(ORIENTATION, default=1)) or (0.0, 0.0)
        unit = int(page.resolutionunit)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down, unit) if min(across, down) > 0 and (across, down, unit) != (1.0, 1.0, 1) else None


def _other_tags(page: Any) -> tuple[list[tuple], list[str]]:
    """Tags that can be written as they are; and sentences about those that cannot."""
    tags, lost = [], []
    for tag in page.tags.values():
        if tag.code in ELSEWHERE:
            lost.append(f"not kept: {ELSEWHERE[tag.code]}, which is not read")
        elif tag.code not in STRUCTURE and tag.code not in TEXTS:
            values = tag.value if isinstance(tag.value, tuple) else (tag.value,)
            if all(isinstance(value, int | float | str | bytes) for value in values):
                tags.append((tag.code, int(tag.dtype), tag.count, tag.value, True))
            else:
                lost.append(f"not kept: the TIFF tag {tag.name}, which is not read")
    return tags, sorted(set(lost))


def _dpi(extras: TiffExtras) -> tuple[float, float] | None:
    """Pixels per inch, where the unit is known."""
    if extras.software == "ome":
        pixel = ome.pixel_size(extras.xml)
        return None if pixel is None else (ome.PER_INCH / pixel[0], ome.PER_INCH / pixel[1])
    if extras.resolution is None:
        return None
    across, down, unit = extras.resolution
    length = RESOLUTION_UNITS.get(unit) or ome.MICROMETRES.get(str(extras.details.get("unit", "")))
    return None if length is None else (across * ome.PER_INCH / length, down * ome.PER_INCH / length)


def described(path: Path, file: Any) -> ImageFile:
    """What `read` returns of an open file with one series, but for its pixels, of which none is read."""
    with errors_raised(path):
        series = list(file.series)
        _check_series(path, series[:1], file.is_ome)
    page = series[0].keyframe
    nothing = np.broadcast_to(np.zeros((), series[0].dtype), series[0].shape)
    return _image_file(path, file, page, nothing, series[0].axes)


def write(path: Path, image: ImageFile) -> list[str]:
    """A sentence for each thing that the file does not keep."""
    import tifffile

    stored, options, notes = options_for(path, image)
    atomically(path, lambda file: tifffile.imwrite(file, stored, **options))
    return notes


def options_for(path: Path, image: ImageFile) -> tuple[np.ndarray, dict[str, Any], list[str]]:
    """The pixels as they are stored, what tifffile is told beside them, and what the file does not keep."""
    extras = image.metadata.tiff or TiffExtras()
    stored, options, notes = _arranged(path, image, extras)
    options |= _sample_options(image, extras)
    if extras.resolution is not None:
        options |= {"resolution": extras.resolution[:2], "resolutionunit": extras.resolution[2]}
    elif image.metadata.dpi is not None and "ome" not in options:
        options |= {"resolution": image.metadata.dpi, "resolutionunit": 2}
    if image.metadata.icc:
        options["iccprofile"] = image.metadata.icc
    tags = list(extras.tags)
    notes = [*image.metadata.not_kept("TIFF", ("icc", "exif", "dpi", "tiff")), *notes]
    if image.metadata.tiff is None and image.metadata.exif:
        texts, more = texts_of_exif(image.metadata.exif)
        tags += [(code, ASCII, 0, text, True) for code, text in texts.items()]
        notes += ["not kept: EXIF beyond author, camera and date, which is not written to TIFF"] if more else []
    for code, name in ((270, "description"), (305, "software")):  # that tifffile writes itself
        texts = [_encoded(tag[3]) for tag in tags if tag[0] == code]
        if texts and name == "description" and "ome" in options:  # the tag holds the XML
            options["metadata"]["Description"] = texts[0].rstrip(b"\0").decode()
        elif texts and name not in options:
            options[name] = texts[0]
    options["extratags"] = [(*tag[:3], _encoded(tag[3]), tag[4]) for tag in tags if tag[0] not in (270, 305)]
    return stored, options, notes


def _arranged(path: Path, image: ImageFile, extras: TiffExtras) -> tuple[np.ndarray, dict[str, Any], list[str]]:
    """The pixels in the dimensions of the input; what says so, in the terms of the software that wrote it; notes."""
    stored, axes, details = image.as_stored(), extras.axes, extras.details
    if extras.software == "imagej":
        details = {key: value for key, value in details.items() if key not in IMAGEJ_LAYOUT}
    if image.channels == 1 and stored.ndim > len(image.dimensions) + 2:
        stored = stored[..., 0]
    rows = "YX" if image.channels == 1 else "YXS"
    if extras.software == "ome":
        xml = ome.for_planes_in_order(extras.xml, *image.size, image.frames, image.channels)
        return stored, {"metadata": None, "description": xml.encode()}, []
    if path.name.lower().endswith(OME_SUFFIXES):
        if image.pixels.ndim == 4 and not (axes and ome.KNOWN_AXES.issuperset(axes)):
            stored, axes = image.pixels.reshape(image.frames, *stored.shape[-len(rows) :]), "Z"
        metadata, names = ome.description(axes + rows, image.metadata.dpi, details)
        whose = "ImageJ" if extras.software == "imagej" else "tifffile"
        notes = [f"{', '.join(names)} of {whose}: OME-TIFF is written without them"] if names else []
        return stored, {"ome": True, "metadata": metadata}, notes
    if extras.software == "imagej":
        return stored, {"imagej": True, "metadata": {**details, "axes": axes + rows}}, []
    return stored, {"metadata": details | ({"axes": axes + rows} if axes else {})}, []


def _sample_options(image: ImageFile, extras: TiffExtras) -> dict[str, Any]:
    """What the channels are."""
    if image.channels == 1:
        gray = {"photometric": "minisblack"}
        return gray if extras.colormap is None else {"photometric": "palette", "colormap": extras.colormap}
    rgb = image.colours == 3 or (extras.rgb and image.colours > 3)
    kinds = ["unspecified"] * (image.channels - (3 if rgb else 1))
    if image.alpha:
        kinds[-1] = "assocalpha" if image.metadata.premultiplied else "unassalpha"
    options: dict[str, Any] = {"photometric": "rgb" if rgb else "minisblack", "planarconfig": "contig"}
    return options | ({"extrasamples": kinds} if kinds else {})


def _encoded(value: Any) -> Any:
    return value.encode() + b"\0" if isinstance(value, str) else value
