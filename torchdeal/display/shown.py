"""Images as a person sees them: one picture in gray or colour, with what black and white stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators import Mask, Operator, Scaled, Weighted

if TYPE_CHECKING:
    from torchdeal.reconstruction import Reconstruction

LITTLE = 0.3  # share of the range: what uses less of it is spread from black to white
COLOURS = 3
OTHER_UNITS = 50  # times larger or smaller than the image, a truth is in other units: 0..1 in place of 0..255, say


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture, in the units of the data.

    Attributes:
        values: `(H, W)`, or `(H, W, 3)` in colour.
        low: what is black.
        high: what is white.
        part: which part of the image it is, in words; empty if it is all of it.
    """

    values: np.ndarray
    low: float
    high: float
    part: str = ""

    @property
    def pixels(self) -> np.ndarray:
        """In 0..1."""
        return ((self.values - self.low) / max(self.high - self.low, 1e-30)).clip(0, 1)


def answer(rec: Reconstruction, sample: int = 0) -> Shown:
    """What was reconstructed. Where its white is known, and it uses enough of the range, that is its range."""
    equation, image = rec.posed()
    white = _white(rec, sample)
    values, part = _visible(image[sample] * white, equation.operator.complex_channels)
    low, high = _spread(values)
    if equation.operator.measures_images and not part and high - low > LITTLE * white:
        low, high = 0.0, white
    return Shown(values, 0.0 if part.startswith("magnitude") else low, high, part)


def measured(rec: Reconstruction, sample: int = 0) -> tuple[Shown, bool]:
    """What it was reconstructed from, and whether that is an image. If not, it is `H^T y`, with a range of its own."""
    (equation, _), like = rec.posed(), answer(rec, sample)
    white, operator = _white(rec, sample), equation.operator
    if operator.measures_images:
        values, part = _visible(_without_weights(operator, equation.y)[sample] * white, operator.complex_channels)
        return Shown(values, like.low, like.high, part), True
    values, part = _visible(equation.b[sample] * white, operator.complex_channels)
    return Shown(values, *_spread(values), part), False


def given_truth(rec: Reconstruction, truth: Any, sample: int = 0) -> Shown:
    """An image like the result, numpy or torch, in the range of the answer. Raises ValueError for another shape."""
    (equation, image), like = rec.posed(), answer(rec, sample)
    tensor = truth.detach().cpu() if isinstance(truth, Tensor) else torch.from_numpy(_plain(np.asarray(truth)))
    if equation.image_format.layout.endswith("HWC") and tensor.ndim > 2:
        tensor = tensor.movedim(-1, -3)
    tensor = tensor[(None,) * (4 - tensor.ndim)]
    if tensor.shape != image.shape:
        raise ValueError(f"the truth has shape {np.shape(truth)}, but the image {np.shape(rec.x)}: give one like rec.x")
    values, part = _visible(tensor[sample], equation.operator.complex_channels)
    sizes = float(abs(values).mean()), float(abs(like.values).mean())
    if min(sizes) * OTHER_UNITS < max(sizes) and min(sizes) > 0:
        raise ValueError(f"the truth is {sizes[0] / sizes[1]:.2g} times the image: give it in the units of rec.x")
    return Shown(values, like.low, like.high, part)


def peak(rec: Reconstruction, truth: Shown, sample: int = 0) -> float:
    """What PSNR is relative to: white where measurements are images, else the largest value of the truth."""
    known = rec.posed()[0].operator.measures_images
    return _white(rec, sample) if known else max(float(np.abs(truth.values).max()), 1e-30)


def _white(rec: Reconstruction, sample: int) -> float:
    """In the units of the data, what is 1 inside."""
    equation, _ = rec.posed()
    return float(equation.scale[sample]) * equation.image_format.data_range


def _plain(array: np.ndarray) -> np.ndarray:
    """In a precision that torch computes with."""
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def _visible(image: Tensor, complex_channels: bool) -> tuple[np.ndarray, str]:
    """An image `(C, H, W)` as `(H, W)` or `(H, W, 3)`, and which part of it that is."""
    part = ""
    if complex_channels and len(image) == 2:
        image = torch.complex(image[0].double(), image[1].double())[None]
    if image.is_complex():
        image, part = image.abs(), "magnitude"
    array = np.nan_to_num(image.double().cpu().numpy())
    if len(array) == COLOURS:
        return np.moveaxis(array, 0, -1), part
    if len(array) > 1:
        part = f"{part}{', ' if part else ''}channel 1 of {len(array)}"
    return array[0], part


def _spread(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _without_weights(operator: Operator, y: Tensor) -> Tensor:
    """Measurements as they would be of a plain operator: a picture that is weighted by its noise looks like no other.

    Where nothing was measured they are 0.
    """
    if isinstance(operator, Scaled):
        return _without_weights(operator.operator, y / operator.factor)
    if isinstance(operator, Weighted):
        return _without_weights(operator.operator, _divided(y, operator.weight))
    return _divided(y, operator.mask) if isinstance(operator, Mask) else y


def _divided(y: Tensor, weight: Tensor) -> Tensor:
    return torch.where(weight > 0, y / weight.where(weight > 0, 1), 0)
