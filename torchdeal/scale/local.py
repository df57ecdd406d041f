"""Operators that are local: what they are on a part of an image, and how far they look."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.operators import Blur, BlurBoundary, Downsample, Identity, Mask, Operator, Scaled
from torchdeal.scale.grid import Box

LARGEST_HOLE = 256  # pixels from its edge to its middle


class LocalOperator(ABC):
    """An operator that can be cut: a measurement depends on the pixels around its place alone.

    Attributes:
        support: so many pixels of the result around its place a measurement depends on.
        scale: the result has so many times the pixels of the measurements, each way.
        margins: left, right, top, bottom: what of the result lies beyond the measurements, on all sides of a part.
    """

    support: int = 0
    scale: int = 1
    margins: tuple[int, int, int, int] = (0, 0, 0, 0)

    @abstractmethod
    def on(self, *boxes: Box) -> Operator:
        """What measures this part of the measurements, and nothing else; or several of one size, as a batch."""

    @abstractmethod
    def known_as(self) -> str:
        """What tells it from others, when a run is resumed."""

    def measured(self, x: Tensor) -> Tensor:
        """Of the result of a part, what is not beyond the measurements."""
        return F.pad(x, [-margin for margin in self.margins])


@dataclass(frozen=True, eq=False)
class SameEverywhere(LocalOperator):
    """An operator that is the same everywhere: the identity, a blur."""

    operator: Operator
    support: int = 0
    scale: int = 1
    margins: tuple[int, int, int, int] = (0, 0, 0, 0)

    def on(self, *boxes: Box) -> Operator:
        return self.operator

    def known_as(self) -> str:
        found = hashlib.sha256()
        for part in _all_parts(self.operator):
            for value in vars(part).values():
                found.update(value.cpu().numpy().tobytes() if isinstance(value, Tensor) else repr(value).encode())
        return f"{self.operator.known_as()} {found.hexdigest()[:16]}"


@dataclass(frozen=True, eq=False)
class Holes(LocalOperator):
    """Inpainting: what is known, by a function that reads it for a part of the image, bool `(h, w)`."""

    known: Callable[[Box], np.ndarray]
    name: str  # which mask
    size: tuple[int, int]  # of all of it
    support: int = 0  # see `hole_radius`

    def on(self, *boxes: Box) -> Operator:
        known = np.stack([self._known(box) for box in boxes])
        return Mask(torch.from_numpy(known if len(boxes) == 1 else known[:, None]))

    def known_as(self) -> str:
        return self.name

    def _known(self, box: Box) -> np.ndarray:
        known = np.asarray(self.known(box))
        if not known.any():
            raise ValueError(
                f"no pixel is known in rows {box.top} to {box.bottom}, columns {box.left} to {box.right}: "
                "give a larger --tile or --overlap"
            )
        return known.astype(np.float32)


def local(H: Operator | LocalOperator) -> LocalOperator:
    """The operator as one that can be cut. Raises ValueError for one that cannot."""
    if isinstance(H, LocalOperator):
        return H
    if isinstance(H, Identity):
        return SameEverywhere(H)
    if isinstance(H, Mask):
        mask = H.mask if H.mask.ndim == 2 else None
        if mask is not None and bool(((mask == 0) | (mask == 1)).all()):
            known = mask.bool().cpu().numpy()
            if not known.any():
                raise ValueError("the mask is black: no pixel is known")
            name = hashlib.sha256(known.tobytes()).hexdigest()[:16]
            height, width = known.shape
            return Holes(lambda box: known[box.slices], f"mask {name}", (height, width), hole_radius(known))
        raise ValueError("a mask can be cut into tiles if it is (H, W) and says known or missing")
    if isinstance(H, Blur):
        _check_boundary(H)
        margins = H.margins() if H.boundary is BlurBoundary.VALID else (0, 0, 0, 0)
        return SameEverywhere(H, support=max(H.margins()), margins=margins)
    if isinstance(H, Downsample) and H.size is None:
        support = H.scale
        if isinstance(H.blur, Blur):
            _check_boundary(H.blur)
            support += max(H.blur.margins())
        return SameEverywhere(H, support=support, scale=H.scale)
    if isinstance(H, Scaled):
        inner = local(H.operator)
        if isinstance(inner, SameEverywhere):
            return SameEverywhere(H, inner.support, inner.scale, inner.margins)
    raise ValueError(
        f"{H.known_as()} cannot be cut into tiles: only denoising, blur, masks and downsampling depend on the "
        "pixels around a place alone"
    )


def check_mask_size(mask: tuple[int, int], picture: tuple[int, int], name: str = "") -> None:
    """Raise for a mask of another size than that of the picture."""
    if mask != picture:
        have, want = (" x ".join(map(str, lengths)) for lengths in (mask, picture))
        raise ValueError(f"{name}the mask is {have}, the picture {want}: make them equal")


def hole_radius(known: np.ndarray, core: Box | None = None) -> int:
    """How far, at most, a missing pixel is from a known one; rows, columns and diagonals count alike.

    Args:
        known: bool `(H, W)`. Beyond its border nothing is known.
        core: the part in which missing pixels count; by default all.
    """
    missing = torch.from_numpy(np.asarray(known, dtype=bool)).logical_not()[None, None].float()
    inside = (..., *core.slices) if core else ...
    radius = 0
    while bool(missing[inside].any()):
        if radius == LARGEST_HOLE:
            raise ValueError(f"a hole reaches further than {LARGEST_HOLE} pixels from what is known: too far for tiles")
        padded = F.pad(missing, (1, 1, 1, 1), value=1.0)
        missing, radius = -F.max_pool2d(-padded, 3, stride=1), radius + 1
    return radius


def _all_parts(operator: Operator) -> Iterator[Operator]:
    yield operator
    for part in operator.parts():
        yield from _all_parts(part)


def _check_boundary(blur: Blur) -> None:
    if blur.boundary in (BlurBoundary.CIRCULAR, BlurBoundary.ZERO):
        raise ValueError(
            f"a blur with boundary {blur.boundary.value} cannot be cut into tiles: use reflect or valid, "
            "or no tiles (--tile 0)"
        )
