"""What operators are made of, as a user gives it: arrays of numbers and sizes, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor


def number_tensor(name: str, values: Any) -> Tensor:
    """A tensor as it is; a copy of an array of numbers as one."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, (str, os.PathLike)):
        raise TypeError(f"the {name} must be an array or a tensor, not a path: read the file first")
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        raise TypeError(f"the {name} must be an array or a tensor of numbers, got a ragged list") from None
    if array.dtype.kind not in "buifc":
        raise TypeError(f"the {name} must be an array or a tensor of numbers, got {_kind(values, array)}")
    if array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):  # torch knows no longer ones
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _kind(values: Any, array: np.ndarray) -> str:
    return f"{array.dtype} values" if isinstance(values, np.ndarray) else type(values).__name__


def real_tensor(name: str, values: Any) -> Tensor:
    """A copy in floating point, since an operator must not change with the caller's array; checked."""
    if isinstance(values, Tensor) and values.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"the {name} requires a gradient, but an operator keeps a copy of its values without one: "
            f"give {name.replace(' ', '_')}.detach()"
        )
    tensor = values.detach().clone() if isinstance(values, Tensor) else number_tensor(name, values)
    if tensor.is_complex():
        raise TypeError(f"the {name} must be real, got {tensor.dtype}")
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.float32)
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"the {name} holds NaN or infinite values")
    return tensor


def as_size(size: int | Iterable[int]) -> tuple[int, int]:
    """Height and width of an image; one number is a square."""
    numbers: list[Any] = [size] * 2 if isinstance(size, Integral) else list(size) if isinstance(size, Iterable) else []
    if len(numbers) != 2 or any(isinstance(n, bool) or not isinstance(n, Integral) or int(n) < 1 for n in numbers):
        raise ValueError(
            f"the size must be (height, width) in pixels, positive whole numbers, or one for a square, got {size!r}"
        )
    return int(numbers[0]), int(numbers[1])
