"""Masks that are files: what is known of a picture, read part by part."""

from __future__ import annotations

import numpy as np

from torchdeal.scale.grid import Box, grid
from torchdeal.scale.local import LARGEST_HOLE, Holes, check_mask_size, hole_radius
from torchdeal.scale.sources import Source

PART = 1024  # side of the parts in which holes are measured


def holes_of(mask: Source, size: tuple[int, int]) -> Holes:
    """Inpainting of a picture of this size. What is not black in the mask is known."""
    if mask.layout.planes > 1:
        raise ValueError(f"{mask.name}: a mask is one picture, this file has {mask.layout.planes}")
    check_mask_size(mask.layout.size, size, f"{mask.name}: ")

    def known(box: Box) -> np.ndarray:
        found = mask.read(0, box)
        if np.isnan(found).any():
            raise ValueError(f"{mask.name}: the mask holds NaN; write 0 where the picture is missing, 1 where known")
        return found != 0 if found.ndim == 2 else (found != 0).any(-1)

    parts = grid(size, PART, LARGEST_HOLE + 1)
    if not any(known(part.core).any() for part in parts):
        raise ValueError(f"{mask.name}: the mask is black: no pixel is known")
    radius = max(hole_radius(known(part.read), part.core.within(part.read)) for part in parts)
    return Holes(known, f"mask {mask.identity or mask.name}", size, radius)
