"""Lengths in microscopy, and OME-XML, the description inside OME-TIFF files (openmicroscopy.org)."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

PER_INCH = 25400.0  # micrometres
MICROMETRES = {  # of a unit, as ImageJ and OME write it
    **dict.fromkeys(("micron", "microns", "um", "µm", "μm", "\\u00B5m", "micrometer"), 1.0),
    **dict.fromkeys(("nm", "nanometer"), 1e-3),
    **dict.fromkeys(("mm", "millimeter"), 1e3),
    **dict.fromkeys(("cm", "centimeter"), 1e4),
    **dict.fromkeys(("m", "meter"), 1e6),
    **dict.fromkeys(("in", "inch", "inches"), PER_INCH),
}
KNOWN_AXES = frozenset("TZC")


def pixel_size(xml: str) -> tuple[float, float] | None:
    """Width and height of a pixel in micrometres, where they are told."""
    attributes = _pixels(ElementTree.fromstring(xml)).attrib
    across, down = (
        _number(attributes.get(f"PhysicalSize{axis}"))
        * MICROMETRES.get(attributes.get(f"PhysicalSize{axis}Unit", "µm"), math.nan)
        for axis in "XY"
    )
    return (across, down) if 0 < across < math.inf and 0 < down < math.inf else None


def enlarged(xml: str, magnification: int) -> str:
    """Of a picture with so many times the pixels each way. Regions, which are in pixels, are left out."""
    root = ElementTree.fromstring(xml)
    pixels = _pixels(root)
    for name in ("PhysicalSizeX", "PhysicalSizeY"):
        if _number(pixels.get(name)) > 0:
            pixels.set(name, repr(_number(pixels.get(name)) / magnification))
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child) in ("ROI", "ROIRef")]:
            parent.remove(child)
    return _text(root)


def for_planes_in_order(xml: str, height: int, width: int, planes: int) -> str:
    """For a file of its own with pictures of this size, one after the other."""
    root = ElementTree.fromstring(xml)
    root.attrib.pop("UUID", None)  # that of the input
    pixels = _pixels(root)
    pixels.attrib |= {"SizeX": str(width), "SizeY": str(height)}
    if pixels.get("Type") == "bit":  # these become bytes
        pixels.set("Type", "uint8")
    places = [child for child in pixels if _name(child) == "TiffData"]
    where, tag = list(pixels).index(places[0]), places[0].tag
    for child in places:
        pixels.remove(child)
    pixels.insert(where, ElementTree.Element(tag, IFD="0", PlaneCount=str(planes)))
    return _text(root)


def description(axes: str, dpi: tuple[float, float] | None) -> dict[str, Any]:
    """What tifffile makes OME-XML of."""
    metadata: dict[str, Any] = {"axes": axes}
    for axis, density in zip("XY", dpi or (), strict=False):
        metadata |= {f"PhysicalSize{axis}": PER_INCH / density, f"PhysicalSize{axis}Unit": "µm"}
    return metadata


def _pixels(root: ElementTree.Element) -> ElementTree.Element:
    return next(element for element in root.iter() if _name(element) == "Pixels")


def _number(text: str | None) -> float:
    """NaN where there is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _name(element: ElementTree.Element) -> str:
    """Without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(root: ElementTree.Element) -> str:
    namespace = root.tag[1:].partition("}")[0]
    ElementTree.register_namespace("", namespace)
    return ElementTree.tostring(root, encoding="unicode")
