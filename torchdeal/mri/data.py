"""What a k-space file holds, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.given import as_size

Image = TypeVar("Image", Tensor, np.ndarray)

MIDDLE, ALL = "middle", "all"
LARGEST = 2**29  # complex numbers that are read at once: 4 GiB
LINES = 0.9  # share of non-zero samples in whole rows and columns, from which on the rest is taken for measured zeros


class KSpaceError(ValueError):
    """A file or an array that cannot be used as k-space, and why."""


@dataclass(frozen=True, eq=False)
class KSpace:
    """Cartesian k-space as `Fourier` and `MultiCoilFourier` take it, but for the batch dimension.

    Of all slices of a file `(slices, coils, H, W)` is a batch; one slice becomes one by `kspace[None]`.
    """

    kspace: Tensor  # complex, (coils, H, W), or (slices, coils, H, W); a single coil is coils = 1
    mask: Tensor  # bool, (H, W): what was measured
    maps: Tensor | None = None  # coil sensitivities, of the shape of the k-space
    centered: bool = True  # the zero frequency is in the middle, else at [0, 0]
    source: str = ""  # file and format
    slice_index: int | None = None  # which slice this is, or None for all
    slices: int = 1  # how many the file has
    image_size: tuple[int, int] | None = None  # to crop the image to, where the file says it: see `centre_crop`
    reference: Tensor | None = None  # the image that came with the data (fastMRI: root of the sum of squares)

    def __post_init__(self) -> None:
        if not bool(self.mask.any()):
            raise KSpaceError("the k-space is zero everywhere, or nothing of it was measured")


def centre_crop(image: Image, size: int | tuple[int, int]) -> Image:
    """The middle of an image `(..., H, W)`: what readout oversampling added is cut off.

    The pixel in the middle stays there. An image that is smaller than `size`, height and width, or one number for a
    square, stays as it is, each way on its own.
    """
    if image.ndim < 2:
        raise ValueError(f"the image must be (..., H, W), got {tuple(image.shape)}")
    rows, columns = (
        slice(max(have // 2 - wanted // 2, 0), max(have // 2 - wanted // 2, 0) + min(have, wanted))
        for have, wanted in zip(image.shape[-2:], as_size(size), strict=True)
    )
    return image[..., rows, columns]


def infer_mask(kspace: Tensor | np.ndarray) -> Tensor:
    """What was measured, bool `(H, W)`: where a coil (or a slice) is not zero.

    Where these are whole rows and columns, single zeros inside them count as measured.
    """
    values = torch.as_tensor(kspace)
    measured = (values != 0).reshape(-1, *values.shape[-2:]).any(0)
    lines = measured.any(1, keepdim=True) & measured.any(0, keepdim=True)
    return lines if int(measured.sum()) >= LINES * int(lines.sum()) else measured


def as_kspace(values: Tensor | np.ndarray, what: str = "the k-space") -> Tensor:
    """Complex `(coils, H, W)` or `(slices, coils, H, W)`, checked."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "c":
            raise KSpaceError(f"{what} must be complex, got {values.dtype}")
        values = torch.from_numpy(np.ascontiguousarray(values, np.complex128 if values.itemsize > 8 else np.complex64))
    if not isinstance(values, Tensor):
        kind = type(values).__name__
        raise KSpaceError(f"{what} must be a complex array or tensor, got a {kind}; read_kspace reads files")
    if not values.is_complex():
        raise KSpaceError(f"{what} must be complex, got {values.dtype}")
    values = values[None] if values.ndim == 2 else values
    if values.ndim not in (3, 4) or values.numel() == 0:
        raise KSpaceError(
            f"{what} must be (H, W), (coils, H, W) or (slices, coils, H, W) and not empty, got {tuple(values.shape)}"
        )
    if not bool(torch.isfinite(torch.view_as_real(values)).all()):
        raise KSpaceError(f"{what} holds NaN or infinite values")
    return values


def as_mask(values: Tensor | np.ndarray, size: tuple[int, int], what: str = "the mask") -> Tensor:
    """Bool `(H, W)`, from `(H, W)` or, for whole columns, `(W,)`."""
    array = np.asarray(values)
    if array.dtype.kind not in "buif" or not np.isfinite(array).all():
        raise KSpaceError(f"{what} must be true and false or finite numbers, got {array.dtype}")
    array = array.reshape(size[1:]) if array.size == size[1] else array  # (1, W, 1) and the like
    if array.shape not in (size, size[1:]):
        raise KSpaceError(f"{what} must be (W,) or (H, W) for k-space of {size}, got {array.shape}")
    mask = torch.from_numpy(np.broadcast_to(array != 0, size).copy())
    if not bool(mask.any()):
        raise KSpaceError(f"{what} says that nothing was measured")
    return mask


def measured_mask(kspace: Tensor, mask: Tensor | np.ndarray | None) -> Tensor:
    """What was measured, bool `(H, W)`, on the CPU: what the mask says, or where there is none, what is not zero."""
    if mask is None:
        return infer_mask(kspace).cpu()
    return as_mask(torch.as_tensor(mask).cpu().numpy(), (kspace.shape[-2], kspace.shape[-1]))


def choose_slice(index: int | str, slices: int) -> int | None:
    """The number of the slice, None for all."""
    if index == ALL:
        return None
    number = slices // 2 if index == MIDDLE else int(index)
    if not 0 <= number < slices:
        raise KSpaceError(f"has {slices} slices, 0 to {slices - 1}; there is no slice {index}")
    return number


def check_size(numbers: int) -> None:
    """Refuse what would fill the memory: a damaged or hostile file, or all slices of many."""
    if numbers > LARGEST:
        raise KSpaceError(
            f"asks for {numbers:,} complex numbers ({numbers / 2**27:,.1f} GiB), more than {LARGEST:,}: "
            "read one slice, or split the file"
        )
