"""What `reconstruct` is given, checked and turned into tensors: measurements, a start, numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.io.images import ImageFormat, to_tensor

PerSample = float | Sequence[float] | np.ndarray | Tensor


def measurements_to_tensor(
    y: Any, *, white: float | None, images: bool, check_range: bool, needed_by: str
) -> tuple[Tensor, ImageFormat]:
    """Measurements divided by the value of white, and the format in which to return an image.

    Args:
        y: arrays or tensors of images, else a tensor `(B, ...)`.
        white: None for that of the dtype.
        images: whether measurements are images; complex ones are tensors all the same.
        check_range: refuse floating-point images that are clearly not in 0..1.
        needed_by: the name of the operator, for messages.
    """
    if images and not (isinstance(y, Tensor) and y.is_complex()):
        return to_tensor(y, data_range=white, name="measurement", check_range=check_range)
    if not isinstance(y, Tensor) or not (y.is_floating_point() or y.is_complex()):
        raise TypeError(
            f"{needed_by} needs its measurements as a floating-point torch tensor (B, ...), got {type(y).__name__}"
        )
    if not bool(torch.isfinite(y).all()):
        raise ValueError("the measurements hold NaN or infinite values")
    scale = 1.0 if white is None else positive("data_range", white)
    dtype = str(y.real.dtype).removeprefix("torch.")
    return y.detach() / scale, ImageFormat("torch", dtype, "BCHW", scale, y.device)


def start_to_tensor(start: Any, like: Tensor, white: float | None) -> Tensor | None:
    """The first iterate, divided by the value of white; it must have the shape of the image `like`."""
    if start is None:
        return None
    if isinstance(start, Tensor) and start.is_complex() and like.is_complex():
        tensor = start.detach() / (white or 1.0)
        if not bool(torch.isfinite(torch.view_as_real(tensor)).all()):
            raise ValueError("the start holds NaN or infinite values: replace them first")
    else:
        tensor, _ = to_tensor(start, data_range=white, name="start")
    if tensor.shape != like.shape:
        raise ValueError(f"the start has shape {tuple(tensor.shape)} as (B, C, H, W), the image {tuple(like.shape)}")
    return tensor.to(like)


def per_sample(
    name: str, value: PerSample, like: Tensor, *, minimum: float | None = None, above: float | None = None
) -> Tensor:
    """A number, or one per sample, as a vector `(B,)` on the device of `like`."""
    try:
        vector = torch.as_tensor(value).detach().to(like.device, like.real.dtype).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number or one number per sample, not {value!r}") from None
    if len(vector) not in (1, len(like)):
        raise ValueError(f"{name} has {len(vector)} values for a batch of {len(like)}: give one, or one per sample")
    low = float(vector.min()) if bool(torch.isfinite(vector).all()) else math.nan
    if not (low >= minimum if minimum is not None else low > (above if above is not None else -math.inf)):
        rule = f"at least {minimum:g}" if minimum is not None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {rule}, got {value}")
    return vector.expand(len(like))


def positive(name: str, value: float) -> float:
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def positive_integer(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)
