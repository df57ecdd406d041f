"""MRI along any trajectory, by the non-uniform fast Fourier transform of FINUFFT."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.operators.base import Operator
from torchdeal.operators.mri import checked_maps

PRECISION = 1e-14  # relative; the work is in double precision, of which little is left to gain by asking for less


class NonCartesianFourier(Operator):
    """Samples of the Fourier transform of an image at any frequencies, of each coil if there are maps.

    `(H x)_k = 1 / sqrt(N) sum_n x_n exp(-2 pi i (k_1 n_1 / H + k_2 n_2 / W))`, with `n` counted from the middle pixel
    and `N = H W`: on the grid of whole `k` it is `Fourier`, centered. `H^T H` is a convolution, done by FFT on the
    device of the image; `H` and `H^T` alone are computed on the CPU, wherever their argument is.

    Measurements are `(B, coils, samples)`, complex, of an image `(B, 1, H, W)`; without maps `(B, C, samples)` of an
    image `(B, C, H, W)`. That samples are denser in the middle of k-space needs no compensation in least squares.

    Args:
        trajectory: `(samples, 2)`, the frequency along rows `(-H/2 .. H/2)` and along columns `(-W/2 .. W/2)`, in
            cycles per field of view, as in SigPy and BART.
        size: `(H, W)` of the image.
        maps: coil sensitivities, `(coils, H, W)` or `(B, coils, H, W)`, complex.
        real: the image is real-valued, and so is what the adjoint returns.
    """

    trusted = True

    def __init__(
        self,
        trajectory: Tensor | np.ndarray,
        size: tuple[int, int],
        maps: Tensor | np.ndarray | None = None,
        *,
        real: bool = True,
    ):
        self.nufft = _Nufft(_points(trajectory, size), (int(size[0]), int(size[1])))
        self.spectrum = self.nufft.normal_spectrum()
        self.maps = None if maps is None else checked_maps(maps)
        self.real = real
        samples = self.nufft.points.shape[1]
        self.image_shape, self.measurement_shape = (None, *size), (None, samples)
        if self.maps is not None:
            if tuple(self.maps.shape[-2:]) != tuple(size):
                raise ValueError(f"the maps are for {tuple(self.maps.shape[-2:])}, the image is {tuple(size)}")
            self.image_shape, self.measurement_shape = (1, *size), (self.maps.shape[-3], samples)
            self.batch = self.maps.shape[0] if self.maps.ndim == 4 and self.maps.shape[0] > 1 else None

    def _forward(self, x: Tensor) -> Tensor:
        return _Transform.apply(self._seen_by_coils(x).to(x.dtype.to_complex()), self.nufft, False)  # pyright: ignore

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._combined(_Transform.apply(y.to(y.dtype.to_complex()), self.nufft, True))  # pyright: ignore

    def normal(self, x: Tensor) -> Tensor:
        """`H^T H x`, a convolution of the image padded to twice its size with zeros."""
        height, width = self.nufft.size
        transformed = torch.fft.fft2(self._seen_by_coils(x), s=(2 * height, 2 * width))
        return self._combined(torch.fft.ifft2(self.spectrum * transformed)[..., :height, :width])

    def _seen_by_coils(self, x: Tensor) -> Tensor:
        return x if self.maps is None else self.maps * x

    def _combined(self, images: Tensor) -> Tensor:
        x = images if self.maps is None else (self.maps.conj() * images).sum(1, keepdim=True)
        return x.real if self.real else x


@dataclass(frozen=True)
class _Nufft:
    """The transform of numpy arrays `(n, H, W)` to `(n, samples)`, its adjoint, and the product of the two."""

    points: np.ndarray  # (2, samples), radians per pixel; no tensor, so that it stays in double precision
    size: tuple[int, int]

    def forward(self, images: np.ndarray) -> np.ndarray:
        options = {"eps": PRECISION, "isign": -1, "nthreads": torch.get_num_threads()}
        return _finufft().nufft2d2(*self.points, images, **options) / self.scale

    def adjoint(self, samples: np.ndarray) -> np.ndarray:
        return self._gathered(samples, self.size) / self.scale

    def normal_spectrum(self) -> Tensor:
        """Of the kernel `psf[d] = 1 / N sum_k exp(2 pi i k d)`, for differences d of two pixels of the image."""
        height, width = self.size
        ones = np.ones((1, self.points.shape[1]), np.complex128)
        kernel = self._gathered(ones, (2 * height, 2 * width))[0] / self.scale**2
        kernel[0] = kernel[:, 0] = 0  # no two pixels are that far apart; without them the spectrum is real
        return torch.fft.fft2(torch.fft.ifftshift(torch.from_numpy(kernel))).real.contiguous()

    def _gathered(self, samples: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        # On one thread: the order of the sum, and so its last bits, would depend on the others.
        return _finufft().nufft2d1(*self.points, samples, size, eps=PRECISION, isign=1, nthreads=1)

    @property
    def scale(self) -> float:
        return math.sqrt(self.size[0] * self.size[1])


class _Transform(torch.autograd.Function):
    """The transform of complex tensors; the gradient of a linear map is its adjoint."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, nufft: _Nufft, adjoint: bool) -> Tensor:
        ctx.nufft, ctx.adjoint = nufft, adjoint
        dimensions = 1 if adjoint else 2
        array = values.detach().cpu().to(torch.complex128).resolve_conj().numpy()
        flat = np.ascontiguousarray(array).reshape(-1, *array.shape[-dimensions:])
        result = nufft.adjoint(flat) if adjoint else nufft.forward(flat)
        shape = (*values.shape[:-dimensions], *result.shape[1:])
        return torch.from_numpy(result).reshape(shape).to(values.device, values.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _Transform.apply(gradients[0], ctx.nufft, not ctx.adjoint), None, None  # pyright: ignore


def _finufft() -> ModuleType:
    return optional("finufft", "NonCartesianFourier", "mri")


def _points(trajectory: Tensor | np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The trajectory in radians per pixel, `(2, samples)`."""
    values = torch.as_tensor(trajectory).detach().cpu().numpy()
    if values.ndim != 2 or values.shape[1] != 2 or not len(values) or values.dtype.kind not in "fiu":
        raise ValueError(f"the trajectory must be real, (samples, 2), got {values.dtype} {values.shape}")
    if len(size) != 2 or any(length < 1 for length in size):
        raise ValueError(f"the size must be (H, W), got {size}")
    if not np.isfinite(values).all():
        raise ValueError("the trajectory holds NaN or infinite values")
    values = values.astype(np.float64)
    highest = np.abs(values).max(0)
    if (highest > np.array(size) / 2 + 1).any():
        raise ValueError(
            f"the trajectory reaches {highest[0]:g} x {highest[1]:g} cycles per field of view, an image of "
            f"{size[0]} x {size[1]} has frequencies up to {size[0] / 2:g} x {size[1] / 2:g}: is the unit right?"
        )
    return np.ascontiguousarray((values * (2 * np.pi / np.array(size))).T)
