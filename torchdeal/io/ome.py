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
    attributes = _all_pixels(ElementTree.fromstring(xml))[0].attrib
    across, down = (
        _number(attributes.get(f"PhysicalSize{axis}"))
        * MICROMETRES.get(attributes.get(f"PhysicalSize{axis}Unit", "µm"), math.nan)
        for axis in "XY"
    )
    return (across, down) if 0 < across < math.inf and 0 < down < math.inf else None


def enlarged(xml: str, magnification: int) -> str:
    """Of a picture with so many times the pixels each way. Regions, which are in pixels, are left out."""
    root = ElementTree.fromstring(xml)
    for pixels in _all_pixels(root):
        for name in ("PhysicalSizeX", "PhysicalSizeY"):
            if _number(pixels.get(name)) > 0:
                pixels.set(name, repr(_number(pixels.get(name)) / magnification))
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child) in ("ROI", "ROIRef")]:
            parent.remove(child)
    return _text(root)


def for_planes_in_order(xml: str, height: int, width: int, planes: int, samples: int) -> str:
    """For a file of its own with so many planes of this size and so many samples per pixel, one after the other.

    Each of the images that the XML tells of has its planes after those of the image before. Raises ValueError where
    it does not fit: a palette that has become colours, transparency that is gone.
    """
    root = ElementTree.fromstring(xml)
    root.attrib.pop("UUID", None)  # that of the input
    first = 0
    for pixels in _all_pixels(root):
        places = [child for child in pixels if _name(child) == "TiffData"]
        if not places:  # an image without data
            continue
        count, rest = divmod(math.prod(int(pixels.attrib[f"Size{axis}"]) for axis in "ZTC"), samples)
        if rest:
            raise ValueError(f"the OME-XML is not that of pixels with {samples} samples")
        pixels.attrib |= {"SizeX": str(width), "SizeY": str(height)}
        if pixels.get("Type") == "bit":  # these become bytes
            pixels.set("Type", "uint8")
        where, tag = list(pixels).index(places[0]), places[0].tag
        for child in places:
            pixels.remove(child)
        pixels.insert(where, ElementTree.Element(tag, IFD=str(first), PlaneCount=str(count)))
        first += count
    if first != planes:
        raise ValueError(f"the OME-XML is that of {first} planes, not of {planes}")
    return _text(root)


def description(
    axes: str, dpi: tuple[float, float] | None, details: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What tifffile makes OME-XML of; and the names of those details of ImageJ that OME has no place for."""
    metadata: dict[str, Any] = {"axes": axes}
    left = dict(details)
    for axis, density in zip("XY", dpi or (), strict=False):
        metadata |= {f"PhysicalSize{axis}": PER_INCH / density, f"PhysicalSize{axis}Unit": "µm"}
    unit = "zunit" if "zunit" in details else "unit"
    depth = _number(details.get("spacing")) * MICROMETRES.get(str(details.get(unit)), math.nan)
    if 0 < depth < math.inf:
        metadata |= {"PhysicalSizeZ": depth, "PhysicalSizeZUnit": "µm"}
        left = {key: value for key, value in left.items() if key not in ("spacing", "zunit")}
    if len(metadata) > 1:  # each length has its unit
        left.pop("unit", None)
    seconds = _number(details.get("finterval"))
    if 0 < seconds < math.inf:
        metadata |= {"TimeIncrement": seconds, "TimeIncrementUnit": "s"}
        del left["finterval"]
    return metadata, sorted(left)


def _all_pixels(root: ElementTree.Element) -> list[ElementTree.Element]:
    """One for each image."""
    return [element for element in root.iter() if _name(element) == "Pixels"]


def _number(value: Any) -> float:
    """NaN where there is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _name(element: ElementTree.Element) -> str:
    """Without its namespace."""
    return element.tag.rpartition("}")[2]


def _text(root: ElementTree.Element) -> str:
    namespace = root.tag[1:].partition("}")[0]
    ElementTree.register_namespace("", namespace)
    return ElementTree.tostring(root, encoding="unicode")
