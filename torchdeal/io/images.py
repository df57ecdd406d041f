"""Arrays <-> float `(B, C, H, W)` tensors in 0..1, and back, unchanged in kind. Files are in `files.py`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
HALF_MAX = 65504.0
INTEGER_RANGES = {"uint8": 255.0, "uint16": 65535.0}  # the integers whose white is known
OTHER_INTEGERS = ("int8", "int16", "int32", "int64", "uint32")
FLOATS = ("float16", "bfloat16", "float32", "float64")
WITH_ALPHA = (2, 4)  # channels: gray or colour, and transparency
MOST_COLOURS = 4  # a last axis up to this is channels; a longer one may be the width of a stack


@dataclass(frozen=True)
class ImageFormat:
    """What an image was before it became a tensor; `restore` makes a result the same again."""

    kind: str  # "numpy" or "torch"
    dtype: str
    layout: str  # one of HW, HWC, BHWC, CHW, BCHW
    data_range: float  # what corresponds to 1.0
    device: torch.device
    alpha: Any = None  # untouched, put back at the end

    def restore(self, x: Tensor) -> Any:
        """A `(B, C, H, W)` tensor in 0..1 as an image of this format. Integers are rounded and clipped.

        A complex image stays complex, in the precision of the format.
        """
        if "int" in self.dtype and self.dtype not in INTEGER_RANGES:
            x = x.double()  # single precision has not all of these integers
        x = (x.detach() * self.data_range).to(self.device)
        if x.is_complex():
            image = _from_nchw(x.to(getattr(torch, self.dtype).to_complex()), self.layout)
            return image if self.kind == "torch" else image.cpu().numpy()
        if "int" in self.dtype:
            x = x.round().clamp(*_limits(self.dtype))
        if self.dtype == "float16":
            x = x.clamp(-HALF_MAX, HALF_MAX)  # beyond it is infinity
        if self.kind == "torch":
            image = _from_nchw(x, self.layout).to(getattr(torch, self.dtype))
            return image if self.alpha is None else torch.cat([image, self.alpha], dim=-3)
        array = _from_nchw(x, self.layout).cpu().numpy().astype(self.dtype)
        if self.alpha is not None:
            array = np.concatenate([array, self.alpha], axis=-1)
        return array


def to_tensor(
    image: Any,
    *,
    data_range: float | None = None,
    name: str = "image",
    check_range: bool = True,
    alpha: bool = False,
) -> tuple[Tensor, ImageFormat]:
    """An image as float `(B, C, H, W)` in 0..1, with its format.

    Args:
        image: numpy `(H, W)`, `(H, W, C)` or `(B, H, W, C)`, or torch `(H, W)`, `(C, H, W)` or `(B, C, H, W)`;
            uint8, uint16, or floating point; with `data_range` also other integers.
        data_range: the value of white; 255, 65535 or 1.0 by default, after the dtype.
        name: how error messages call it.
        check_range: refuse floating-point images that are clearly not in 0..1.
        alpha: the last of the 2 or 4 channels is transparency: it is put back as it was.
    """
    if isinstance(image, str | os.PathLike):
        raise TypeError(
            f"the {name} is a path, {os.fspath(image)!r}, but an array is wanted: "
            "read it first, such as by numpy.asarray(PIL.Image.open(path))"
        )
    if isinstance(image, np.ma.MaskedArray):
        raise TypeError(
            f"the {name} is a masked array: fill it first, or reconstruct with td.operators.Mask(~image.mask)"
        )
    if not isinstance(image, Tensor):
        image = np.asarray(image)
    dtype = _checked_dtype(image, data_range, name)
    if isinstance(image, Tensor):
        tensor, layout, transparency = _torch_to_nchw(image, name, alpha)
        kind, device = "torch", image.device
    else:
        tensor, layout, transparency = _numpy_to_nchw(image, name, alpha)
        kind, device = "numpy", torch.device("cpu")
    if tensor.numel() == 0:
        raise ValueError(f"the {name} is empty: its shape is {tuple(image.shape)}")
    tensor = tensor.to(torch.float64 if dtype == "float64" or dtype in OTHER_INTEGERS else torch.float32)
    _check_finite(tensor, name)
    if transparency is not None and not np.isfinite(_on_cpu(transparency)).all():
        raise ValueError(f"the transparency of the {name} holds NaN or infinite values: replace them first")
    if data_range is None:
        data_range = INTEGER_RANGES.get(dtype, 1.0)
        if dtype in FLOATS and check_range:
            _check_range(tensor, name)
    elif not (0 < data_range < float("inf")):
        raise ValueError(f"data_range must be a positive number, not {data_range}")
    return tensor / data_range, ImageFormat(kind, dtype, layout, float(data_range), device, transparency)


def _on_cpu(image: Tensor | np.ndarray) -> np.ndarray:
    return image.float().cpu().numpy() if isinstance(image, Tensor) else image


def luma(image: Tensor) -> Tensor:
    """Colour images `(..., 3, H, W)` as gray ones `(..., 1, H, W)`."""
    return (image * image.new_tensor(LUMA).view(3, 1, 1)).sum(-3, keepdim=True)


def _dtype_remedy(dtype: np.dtype) -> str:
    """What to do about an array that holds no pixels; empty where it does."""
    if dtype.names:
        return f"it has fields ({', '.join(dtype.names)}): stack them as channels, in the last axis"
    if dtype.kind == "b":
        return "convert it by array.astype('uint8') * 255"
    if dtype.kind == "c":
        return "give its magnitude, or real and imaginary part apart"
    if dtype.kind == "f" and dtype.itemsize > 8:
        return "convert it by array.astype('float64')"
    if dtype.kind in "iuf" and dtype.name in (*INTEGER_RANGES, *OTHER_INTEGERS, *FLOATS):
        return ""
    if dtype.kind in "iu":
        return "convert it to uint8, uint16, or floating point in 0..1"
    return "pixels are numbers: uint8, uint16, or floating point in 0..1"


def _checked_dtype(image: Tensor | np.ndarray, data_range: float | None, name: str) -> str:
    """Its name, without byte order. Raises TypeError for what are no pixels."""
    if isinstance(image, Tensor):
        dtype = str(image.dtype).removeprefix("torch.")
        if dtype == "bfloat16":  # numpy has none
            return dtype
        try:
            remedy = _dtype_remedy(np.dtype(dtype))
        except TypeError:
            remedy = "convert it to torch.float32"
    else:
        dtype, remedy = image.dtype.name, _dtype_remedy(image.dtype)
    if remedy:
        raise TypeError(f"the {name} has dtype {dtype}: {remedy}")
    if dtype in OTHER_INTEGERS and data_range is None:
        raise TypeError(
            f"the {name} has dtype {dtype}, whose white is not known: set data_range (--data-range), the value of "
            "white, or convert it to uint8, uint16, or floating point in 0..1"
        )
    return dtype


def _check_finite(tensor: Tensor, name: str) -> None:
    finite = torch.isfinite(tensor).flatten(1).all(1)
    if not bool(finite.all()):
        first = int(finite.logical_not().nonzero()[0])
        where = f" (image {first + 1} of {len(tensor)})" if len(tensor) > 1 else ""
        raise ValueError(f"the {name} holds NaN or infinite values{where}: replace them first")


def _check_range(tensor: Tensor, name: str) -> None:
    low, high = float(tensor.min()), float(tensor.max())
    if low < -2 or high > 3:  # room for the noise, but not for 0..255
        raise ValueError(
            f"the {name} is floating point and spans {low:g}..{high:g}, but white is 1.0: "
            "rescale it, or set data_range (--data-range), the value of white"
        )


def _limits(dtype: str) -> tuple[float, float]:
    """Of an integer type, as numbers that convert to it without wrapping around."""
    info = np.iinfo(dtype)
    high = float(info.max)
    return float(info.min), high if high <= info.max else math.nextafter(high, 0)


def _torch_to_nchw(image: Tensor, name: str, alpha: bool) -> tuple[Tensor, str, Tensor | None]:
    layouts = {2: "HW", 3: "CHW", 4: "BCHW"}
    if image.ndim not in layouts:
        raise ValueError(f"the {name} must be (H, W), (C, H, W) or (B, C, H, W), got {tuple(image.shape)}")
    if image.ndim > 2 and image.shape[-1] <= MOST_COLOURS < image.shape[-3]:
        order = (0, 3, 1, 2) if image.ndim == 4 else (2, 0, 1)
        raise ValueError(
            f"the {name} has shape {tuple(image.shape)}, but torch images are (B, C, H, W) or (C, H, W): "
            f"permute{order} moves the channels there"
        )
    layout, transparency, image = layouts[image.ndim], None, image.detach()
    if alpha:
        _check_alpha(name, 1 if layout == "HW" else image.shape[-3])
        image, transparency = image[..., :-1, :, :], image[..., -1:, :, :].clone()
    return image.reshape(*[1] * (4 - image.ndim), *image.shape), layout, transparency


def _numpy_to_nchw(array: np.ndarray, name: str, alpha: bool) -> tuple[Tensor, str, np.ndarray | None]:
    layouts = {2: "HW", 3: "HWC", 4: "BHWC"}
    if array.ndim not in layouts:
        raise ValueError(f"the {name} must be (H, W), (H, W, C) or (B, H, W, C), got {array.shape}")
    if array.ndim > 2 and array.shape[-3] <= MOST_COLOURS < array.shape[-1]:
        raise ValueError(
            f"the {name} has shape {array.shape}, but numpy images are (H, W, C) or (B, H, W, C): "
            "numpy.moveaxis(image, -3, -1) moves the channels there; a stack of gray images is (B, H, W, 1)"
        )
    if array.ndim == 3 and array.shape[-1] > MOST_COLOURS:
        raise ValueError(
            f"the {name} has shape {array.shape}: (H, W, C) has at most {MOST_COLOURS} channels; a stack of gray "
            "images is (B, H, W, 1), one image with more channels (1, H, W, C)"
        )
    layout, transparency = layouts[array.ndim], None
    if alpha:
        _check_alpha(name, 1 if layout == "HW" else array.shape[-1])
        array, transparency = array[..., :-1], array[..., -1:].copy()
    native = array.astype(array.dtype.newbyteorder("="))  # a copy: never written to the caller's memory
    if native.dtype == np.uint16:  # torch does little with uint16
        native = native.astype(np.float32)
    elif native.dtype.name in OTHER_INTEGERS:
        native = native.astype(np.float64)
    tensor = torch.from_numpy(np.ascontiguousarray(native))
    tensor = tensor[None, None] if layout == "HW" else tensor.view(-1, *tensor.shape[-3:]).permute(0, 3, 1, 2)
    return tensor, layout, transparency


def _check_alpha(name: str, channels: int) -> None:
    if channels not in WITH_ALPHA:
        raise ValueError(f"the {name} has {channels} channels: with alpha there are {WITH_ALPHA[0]} or {WITH_ALPHA[1]}")


def _from_nchw(x: Tensor, layout: str) -> Tensor:
    x = x if layout.startswith("B") else x[0]
    if layout.endswith("HWC"):
        return x.movedim(-3, -1)
    return x[0] if layout == "HW" else x
