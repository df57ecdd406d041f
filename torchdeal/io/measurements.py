"""What `reconstruct` is given, checked and turned into tensors: measurements, a start, numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.io.images import ImageFormat, to_tensor

PerSample = float | Sequence[float] | np.ndarray | Tensor


def measurements_to_tensor(
    y: Any,
    *,
    white: float | None,
    images: bool,
    check_range: bool,
    shape: tuple[int | None, ...] | None,
    alpha: bool = False,
) -> tuple[Tensor, ImageFormat]:
    """Measurements divided by the value of white, and the format in which to return an image.

    Args:
        y: an array or tensor of images, else of what the operator measures, `(B, ...)`, or `(...)` where the shape is
            known; the channel may be missing too, as in a sinogram `(angles, bins)`.
        white: None for that of the dtype.
        images: whether measurements are images; complex ones are tensors all the same.
        check_range: refuse floating-point images that are clearly not in 0..1.
        shape: of the measurements of one image, where it is known.
        alpha: the last channel of images is transparency.
    """
    if images and not (isinstance(y, Tensor) and y.is_complex()):
        return to_tensor(y, data_range=white, name="measurement", check_range=check_range, alpha=alpha)
    tensor = y.detach() if isinstance(y, Tensor) else _array_to_tensor(y)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        tensor = tensor.to(torch.float32)
    if not tensor.numel():
        raise ValueError(f"the measurements are empty: their shape is {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("the measurements hold NaN or infinite values")
    scale = 1.0 if white is None else positive("data_range", white)
    missing = 0 if shape is None else 1 + len(shape) - tensor.ndim  # leading dimensions: the batch, then the channel
    missing = missing if missing == 1 or (missing == 2 and shape and shape[0] in (None, 1)) else 0
    if missing == 1 and shape and shape[0] is None and len(tensor) > 1 and not isinstance(y, Tensor):
        raise ValueError(
            f"measurements of shape {tuple(tensor.shape)} may be those of {len(tensor)} images, or of the channels of "
            "one: give y[:, None] for the first, y[None] for the second"
        )
    kind, layouts = ("torch", ("BCHW", "CHW", "HW")) if isinstance(y, Tensor) else ("numpy", ("BHWC", "HW", "HW"))
    dtype = str(tensor.real.dtype).removeprefix("torch.")
    image_format = ImageFormat(kind, dtype, layouts[missing], scale, tensor.device)
    return tensor[(None,) * missing] / scale, image_format


def with_channels(image_format: ImageFormat, channels: int) -> ImageFormat:
    """The same for images of so many channels: measurements `(H, W)` may be those of a colour image."""
    if image_format.layout != "HW" or channels == 1:
        return image_format
    return replace(image_format, layout="CHW" if image_format.kind == "torch" else "HWC")


def _array_to_tensor(y: Any) -> Tensor:
    if isinstance(y, str | os.PathLike):
        raise TypeError(
            f"the measurements are a path, {os.fspath(y)!r}, but an array is wanted: "
            "read it first, such as by numpy.load(path)"
        )
    try:
        array = np.asarray(y)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # a copy: never the caller's memory
    except (TypeError, ValueError):
        kind = getattr(y, "dtype", type(y).__name__)
        raise TypeError(f"the measurements must be a tensor or an array of numbers, got {kind}") from None


def refuse_gradients(**given: Any) -> None:
    """Raise ValueError for a tensor that requires a gradient, which would be missing from the result in silence."""
    for name, value in given.items():
        if torch.is_grad_enabled() and isinstance(value, Tensor) and value.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, but there is none through the solver: call it under torch.no_grad(), or "
                f"give {name}.detach(). What can be differentiated is one step of the iteration, by "
                "torchdeal.solvers.implicit_solve: docs/operators.md, Gradients"
            )


def start_to_tensor(start: Any, like: Tensor, white: float | None, scale: Tensor) -> Tensor | None:
    """The first iterate, divided by the value of white, and by a scale; it must have the shape of the image `like`."""
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
    return tensor.to(like) / scale


def per_sample(
    name: str, value: PerSample, like: Tensor, *, minimum: float | None = None, above: float | None = None
) -> Tensor:
    """A number, or one per sample, as a vector `(B,)` on the device of `like`."""
    try:
        vector = torch.as_tensor(value).detach().to(like.device, like.real.dtype).flatten()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number or one number per sample, not {value!r}") from None
    if len(vector) not in (1, len(like)):
        raise ValueError(
            f"{name} has {len(vector)} values for a batch of {len(like)}: give one, or one per sample. Noise that "
            "differs from place to place is given as noise, a map like the measurements"
        )
    low = float(vector.min()) if bool(torch.isfinite(vector).all()) else math.nan
    if not (low >= minimum if minimum is not None else low > (above if above is not None else -math.inf)):
        rule = f"at least {minimum:g}" if minimum is not None else f"above {above:g}"
        raise ValueError(f"{name} must be finite and {rule}, got {value}")
    return vector.expand(len(like))


def noise_map(sigma: Any, image: Tensor) -> Tensor | None:
    """A noise level for each pixel, `(B or 1, C or 1, H, W)`; None if sigma is a number, or one per sample.

    Args:
        sigma: of a map `(H, W)`, `(H, W, C)` or `(B, H, W, C)` in numpy, `(C, H, W)` or `(B, C, H, W)` in torch.
        image: what it is for, `(B, C, H, W)`.
    """
    if not _is_map(sigma, image):
        return None
    levels = _levels(sigma, image, images=True)
    fits = levels.ndim == 4 and all(n in (1, m) for n, m in zip(levels.shape[:2], image.shape[:2], strict=True))
    if not fits or levels.shape[2:] != image.shape[2:]:
        raise ValueError(
            f"the noise map, sigma, has shape {tuple(sigma.shape)}, but the image is {image.shape[2]} x "
            f"{image.shape[3]} with {image.shape[1]} channels: give a level for each pixel"
        )
    if not bool((torch.isfinite(levels) & (levels >= 0)).all()):
        raise ValueError("the noise map, sigma, must be finite and at least 0")
    return levels


def deviation_map(noise: Any, y: Tensor, images: bool) -> Tensor | None:
    """The standard deviation of each measurement, `(B or 1, ...)`; None if it is a number, or one per sample.

    Args:
        noise: of a map, in the shape of the measurements, or one that is broadcast to it, without batch at least.
        y: the measurements, `(B, ...)`.
        images: whether they are images: arrays of numpy have their channels last then.
    """
    if not _is_map(noise, y):
        return None
    levels = _levels(noise, y, images)
    try:
        levels = levels.expand(len(levels), *y.shape[1:])
        fits = levels.ndim == y.ndim and len(levels) in (1, len(y))
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"the noise map has shape {tuple(noise.shape)}, but the measurements, as a batch, have {tuple(y.shape)}: "
            "give a level for each of them"
        )
    return levels


def _is_map(levels: Any, like: Tensor) -> bool:
    if not isinstance(levels, (np.ndarray, Tensor)) or levels.ndim < 2:
        return False
    number, is_column = len(levels.ravel()), max(levels.shape, default=0) == len(levels.ravel())
    return not (number in (1, len(like)) and is_column and tuple(levels.shape) != tuple(like.shape[-2:]))


def _levels(given: Any, like: Tensor, images: bool) -> Tensor:
    """A map with as many dimensions as `like`, or more."""
    try:
        levels = given.detach() if isinstance(given, Tensor) else torch.from_numpy(np.array(given, dtype=np.float64))
    except (TypeError, ValueError):
        raise TypeError(f"the noise map must be an array of real numbers, got {given.dtype}") from None
    if levels.is_complex():
        raise TypeError("the noise map must be real: it holds the standard deviation of real and imaginary part")
    if images and levels.ndim > 2 and not isinstance(given, Tensor):
        levels = levels.movedim(-1, -3)
    return levels.reshape((1,) * (like.ndim - levels.ndim) + levels.shape).to(like.device, like.real.dtype)


def positive(name: str, value: float) -> float:
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(value)


def positive_integer(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)
