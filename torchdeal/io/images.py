"""Arrays <-> float `(B, C, H, W)` tensors in 0..1, and back, unchanged in kind. Files are in `files.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)
INTEGER_RANGES = {"uint8": 255.0, "uint16": 65535.0}


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
        x = (x.detach() * self.data_range).to(self.device)
        if x.is_complex():
            return x.to(getattr(torch, self.dtype).to_complex())
        if self.dtype in INTEGER_RANGES:
            x = x.round().clamp(0, INTEGER_RANGES[self.dtype])
        if self.kind == "torch":
            image = _from_nchw(x, self.layout).to(getattr(torch, self.dtype))
            return image if self.alpha is None else torch.cat([image, self.alpha], dim=-3)
        array = _from_nchw(x, self.layout).cpu().numpy().astype(self.dtype)
        if self.alpha is not None:
            array = np.concatenate([array, self.alpha], axis=-1)
        return array


def to_tensor(
    image: Any, *, data_range: float | None = None, name: str = "image", check_range: bool = True
) -> tuple[Tensor, ImageFormat]:
    """An image as float `(B, C, H, W)` in 0..1, with its format.

    Args:
        image: numpy `(H, W)`, `(H, W, C)` or `(B, H, W, C)`, or torch `(H, W)`, `(C, H, W)` or `(B, C, H, W)`;
            uint8, uint16, or floating point. The last of 4 channels (in numpy arrays also of 2) is alpha.
        data_range: the value of white; 255, 65535 or 1.0 by default, after the dtype.
        name: how error messages call it.
        check_range: refuse floating-point images that are clearly not in 0..1.
    """
    if isinstance(image, Tensor):
        tensor, layout, alpha, kind = _torch_to_nchw(image, name)
        device, dtype = image.device, str(image.dtype).removeprefix("torch.")
    else:
        array = image if isinstance(image, np.ndarray) else np.asarray(image)
        tensor, layout, alpha, kind = _numpy_to_nchw(array, name)
        device, dtype = torch.device("cpu"), array.dtype.name
    is_float = dtype.startswith(("float", "bfloat"))
    if dtype not in INTEGER_RANGES and not is_float:
        raise TypeError(f"the {name} has dtype {dtype}: convert it to uint8, uint16, or floating point in 0..1")
    if tensor.numel() == 0:
        raise ValueError(f"the {name} is empty: its shape is {tuple(image.shape)}")
    tensor = tensor.to(torch.float64 if dtype == "float64" else torch.float32)
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"the {name} holds NaN or infinite values: replace them first")
    if data_range is None:
        data_range = INTEGER_RANGES.get(dtype, 1.0)
        if is_float and check_range:
            _check_range(tensor, name)
    elif not (0 < data_range < float("inf")):
        raise ValueError(f"data_range must be a positive number, not {data_range}")
    return tensor / data_range, ImageFormat(kind, dtype, layout, float(data_range), device, alpha)


def luma(image: Tensor) -> Tensor:
    """Colour images `(..., 3, H, W)` as gray ones `(..., 1, H, W)`."""
    return (image * image.new_tensor(LUMA).view(3, 1, 1)).sum(-3, keepdim=True)


def _check_range(tensor: Tensor, name: str) -> None:
    low, high = float(tensor.min()), float(tensor.max())
    if low < -2 or high > 3:  # room for the noise, but not for 0..255
        raise ValueError(
            f"the {name} is floating point and spans {low:g}..{high:g}, but white is 1.0: "
            "rescale it, or set data_range, the value of white"
        )


def _torch_to_nchw(image: Tensor, name: str) -> tuple[Tensor, str, Tensor | None, str]:
    layouts = {2: "HW", 3: "CHW", 4: "BCHW"}
    if image.ndim not in layouts:
        raise ValueError(f"the {name} must be (H, W), (C, H, W) or (B, C, H, W), got {tuple(image.shape)}")
    layout, alpha, image = layouts[image.ndim], None, image.detach()
    if layout != "HW" and image.shape[-3] == 4:
        image, alpha = image[..., :3, :, :], image[..., 3:, :, :].clone()
    return image.reshape(*[1] * (4 - image.ndim), *image.shape), layout, alpha, "torch"


def _numpy_to_nchw(array: np.ndarray, name: str) -> tuple[Tensor, str, np.ndarray | None, str]:
    layouts = {2: "HW", 3: "HWC", 4: "BHWC"}
    if array.ndim not in layouts or (array.ndim > 2 and array.shape[-1] > 4):
        raise ValueError(
            f"the {name} must be (H, W), (H, W, C) or (B, H, W, C) with at most 4 channels, got {array.shape}"
        )
    layout, alpha = layouts[array.ndim], None
    if layout != "HW" and array.shape[-1] in (2, 4):
        array, alpha = array[..., :-1], array[..., -1:].copy()
    native = array.astype(array.dtype.newbyteorder("="))  # a copy: never written to the caller's memory
    if native.dtype == np.uint16:  # torch does little with uint16
        native = native.astype(np.float32)
    tensor = torch.from_numpy(np.ascontiguousarray(native))
    tensor = tensor[None, None] if layout == "HW" else tensor.view(-1, *tensor.shape[-3:]).permute(0, 3, 1, 2)
    return tensor, layout, alpha, "numpy"


def _from_nchw(x: Tensor, layout: str) -> Tensor:
    x = x if layout.startswith("B") else x[0]
    if layout.endswith("HWC"):
        return x.movedim(-3, -1)
    return x[0] if layout == "HW" else x
