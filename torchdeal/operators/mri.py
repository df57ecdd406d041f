"""Operators of magnetic resonance imaging."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.operators.base import Linear, Operator
from torchdeal.operators.given import as_size, number_tensor, real_tensor

MANY = 16  # samples, and pixels: with fewer, low frequencies alone are no mistake
PRECISION = 1e-14  # of FINUFFT, relative; the work is in double precision: little is to gain by asking for less


class Fourier(Operator):
    """`H x = mask * F x`, single-coil Cartesian MRI, with the orthonormal Fourier transform.

    Args:
        mask: `(H, W)` or `(B, 1, H, W)`, what is sampled, bool or weights, laid out as the k-space; None: everything.
        centered: the zero frequency is in the middle, of the image and of the k-space (as in fastMRI); by default it is
            at [0, 0], as in `numpy.fft` and `torch.fft`.
        real: the image is real-valued, and so is what the adjoint returns.
    """

    trusted = replayable = True

    def __init__(self, mask: Tensor | np.ndarray | None = None, *, centered: bool = False, real: bool = True):
        self.mask = None if mask is None else _mask(mask)
        self.centered, self.real = centered, real
        if self.mask is not None:
            self.image_shape = self.measurement_shape = (None, *self.mask.shape[-2:])
            self.batch = self.mask.shape[0] if self.mask.ndim == 4 and self.mask.shape[0] > 1 else None

    def _forward(self, x: Tensor) -> Tensor:
        return self._sampled(_transform(x, torch.fft.fft2, self.centered))

    def _adjoint(self, y: Tensor) -> Tensor:
        return _combined(_transform(self._sampled(y), torch.fft.ifft2, self.centered), None, self.real)

    def normal_symbol(self, like: Tensor) -> Tensor:
        if self.mask is None:
            return like.real.new_ones(1, 1)
        symbol = self.mask.square()
        symbol = torch.fft.ifftshift(symbol, (-2, -1)) if self.centered else symbol
        if not self.real:
            return symbol
        opposite = symbol.flip(-2, -1).roll((1, 1), (-2, -1))  # a real image has the same there, conjugate
        return (symbol + opposite) / 2

    def weighted(self, weight: Tensor) -> Operator:
        if weight.shape[1] != 1:  # each channel has its own
            return super().weighted(weight)
        return Fourier(self._sampled(weight), centered=self.centered, real=self.real)

    def _of_samples(self, samples: Tensor) -> Fourier:
        return self._with_samples_of(["mask"], samples)

    def _sampled(self, kspace: Tensor) -> Tensor:
        return kspace if self.mask is None else self.mask * kspace


class MultiCoilFourier(Operator):
    """`H x = (mask * F(s_1 x), mask * F(s_2 x), ...)`: an image seen by several coils.

    Measurements are `(B, coils, H, W)`, complex, of an image `(B, 1, H, W)`.

    Args:
        maps: coil sensitivities, `(coils, H, W)` or `(B, coils, H, W)`, complex.
        mask: as in `Fourier`.
        centered: as in `Fourier`.
        real: as in `Fourier`.
    """

    trusted = replayable = True

    def __init__(
        self,
        maps: Tensor | np.ndarray,
        mask: Tensor | np.ndarray | None = None,
        *,
        centered: bool = False,
        real: bool = True,
    ):
        self.maps = _maps(maps)
        self.fourier = Fourier(mask, centered=centered, real=False)
        self.real = real
        size = tuple(self.maps.shape[-2:])
        if self.fourier.mask is not None and tuple(self.fourier.mask.shape[-2:]) != size:
            raise ValueError(f"the mask is for {tuple(self.fourier.mask.shape[-2:])}, the maps are for {size}")
        self.image_shape, self.measurement_shape = (1, *size), tuple(self.maps.shape[-3:])
        self.batch = self.maps.shape[0] if self.maps.ndim == 4 and self.maps.shape[0] > 1 else self.fourier.batch
        if self.fourier.batch not in (None, self.batch):
            raise ValueError(f"the mask is for a batch of {self.fourier.batch}, the maps are for one of {self.batch}")

    def _forward(self, x: Tensor) -> Tensor:
        return self.fourier.forward(self.maps * x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return _combined(self.fourier.adjoint(y), self.maps, self.real)

    def _of_samples(self, samples: Tensor) -> Operator:
        some = self._with_samples_of(["maps"], samples)
        if some is not self:
            some.fourier = self.fourier._of_samples(samples)
        return some


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
        size: `(H, W)` of the image, or one number for a square.
        maps: coil sensitivities, `(coils, H, W)` or `(B, coils, H, W)`, complex.
        real: the image is real-valued, and so is what the adjoint returns.
    """

    trusted = True

    def __init__(
        self,
        trajectory: Tensor | np.ndarray,
        size: int | tuple[int, int],
        maps: Tensor | np.ndarray | None = None,
        *,
        real: bool = True,
    ):
        size = as_size(size)
        self.nufft = _Nufft(_points(trajectory, size), size)
        self.spectrum = self.nufft.normal_spectrum()
        self.maps = None if maps is None else _maps(maps)
        self.real = real
        samples = self.nufft.points.shape[1]
        self.image_shape, self.measurement_shape = (None, *size), (None, samples)
        if self.maps is not None:
            if tuple(self.maps.shape[-2:]) != size:
                raise ValueError(f"the maps are for {tuple(self.maps.shape[-2:])}, the image is {size}")
            self.image_shape, self.measurement_shape = (1, *size), (self.maps.shape[-3], samples)
            self.batch = self.maps.shape[0] if self.maps.ndim == 4 and self.maps.shape[0] > 1 else None

    def _forward(self, x: Tensor) -> Tensor:
        return Linear.apply(self._seen_by_coils(x).to(x.dtype.to_complex()), self.nufft.apply, False)  # pyright: ignore

    def _adjoint(self, y: Tensor) -> Tensor:
        images = Linear.apply(y.to(y.dtype.to_complex()), self.nufft.apply, True)
        return _combined(images, self.maps, self.real)  # pyright: ignore

    def normal(self, x: Tensor) -> Tensor:
        """`H^T H x`, a convolution of the image padded to twice its size with zeros."""
        height, width = self.nufft.size
        transformed = torch.fft.fft2(self._seen_by_coils(x), s=(2 * height, 2 * width))
        images = torch.fft.ifft2(self.spectrum * transformed)[..., :height, :width]
        return _combined(images, self.maps, self.real)

    def _of_samples(self, samples: Tensor) -> Operator:
        return self._with_samples_of(["maps"], samples)

    def _seen_by_coils(self, x: Tensor) -> Tensor:
        return x if self.maps is None else self.maps * x


@dataclass(frozen=True)
class _Nufft:
    """The non-uniform fast Fourier transform of FINUFFT, from `(..., H, W)` to `(..., samples)`."""

    points: np.ndarray  # (2, samples), radians per pixel; no tensor, so that it stays in double precision
    size: tuple[int, int]

    def apply(self, values: Tensor, adjoint: bool) -> Tensor:
        """Of complex tensors, or its adjoint, on the CPU."""
        inner = 1 if adjoint else 2  # dimensions of a sample
        array = values.detach().cpu().to(torch.complex128).resolve_conj().numpy()
        flat = np.ascontiguousarray(array).reshape(-1, *array.shape[-inner:])
        result = (self._gathered(flat, self.size) if adjoint else self._sampled(flat)) / self.scale
        shape = (*values.shape[:-inner], *result.shape[1:])
        return torch.from_numpy(result).reshape(shape).to(values.device, values.dtype)

    def normal_spectrum(self) -> Tensor:
        """Of the kernel `psf[d] = 1 / N sum_k exp(2 pi i k d)`, for differences d of two pixels of the image."""
        height, width = self.size
        ones = np.ones((1, self.points.shape[1]), np.complex128)
        kernel = self._gathered(ones, (2 * height, 2 * width))[0] / self.scale**2
        kernel[0] = kernel[:, 0] = 0  # no two pixels are that far apart; without them the spectrum is real
        return torch.fft.fft2(torch.fft.ifftshift(torch.from_numpy(kernel))).real.contiguous()

    def _sampled(self, images: np.ndarray) -> np.ndarray:
        options = {"eps": PRECISION, "isign": -1, "nthreads": torch.get_num_threads()}
        return _finufft().nufft2d2(*self.points, images, **options)

    def _gathered(self, samples: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        # On one thread: the order of the sum, and so its last bits, would depend on the others.
        return _finufft().nufft2d1(*self.points, samples, size, eps=PRECISION, isign=1, nthreads=1)

    @property
    def scale(self) -> float:
        return math.sqrt(self.size[0] * self.size[1])


def _finufft() -> ModuleType:
    return optional("finufft", "NonCartesianFourier", "mri")


def _maps(maps: Tensor | np.ndarray) -> Tensor:
    """Coil sensitivities `(coils, H, W)` or `(B, coils, H, W)`."""
    values = number_tensor("maps", maps)
    if values.ndim not in (3, 4) or not values.numel():
        raise ValueError(
            f"the maps must be (coils, H, W) or (B, coils, H, W) and not empty, got {tuple(values.shape)}; "
            "one coil needs none: Fourier(mask)"
        )
    if not bool(torch.isfinite(values).all()):
        raise ValueError("the maps hold NaN or infinite values")
    return values


def _combined(images: Tensor, maps: Tensor | None, real: bool) -> Tensor:
    """The image that the coils see, from what each of them saw."""
    x = images if maps is None else (maps.conj() * images).sum(1, keepdim=True)
    return x.real if real else x


def _transform(x: Tensor, transform, centered: bool) -> Tensor:
    """Orthonormal, of the last two dimensions."""
    if not centered:
        return transform(x, norm="ortho")
    return torch.fft.fftshift(transform(torch.fft.ifftshift(x, (-2, -1)), norm="ortho"), (-2, -1))


def _mask(mask: Tensor | np.ndarray) -> Tensor:
    values = real_tensor("mask", mask)
    if values.ndim not in (2, 4) or (values.ndim == 4 and values.shape[1] != 1) or not values.numel():
        columns = "; of whole columns it is numpy.broadcast_to(columns, (H, W))" if values.ndim == 1 else ""
        raise ValueError(f"the mask must be (H, W) or (B, 1, H, W) and not empty, got {tuple(values.shape)}{columns}")
    return values


def _points(trajectory: Tensor | np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The trajectory in radians per pixel, `(2, samples)`."""
    values = number_tensor("trajectory", trajectory).detach().cpu().numpy()
    if values.ndim != 2 or values.shape[1] != 2 or not len(values) or values.dtype.kind not in "fiu":
        raise ValueError(
            f"the trajectory must be real, (samples, 2), got {values.dtype} {values.shape}; "
            "spokes (spokes, samples, 2) become it by reshape(-1, 2), (2, samples) by transposing"
        )
    if not np.isfinite(values).all():
        raise ValueError("the trajectory holds NaN or infinite values")
    values = values.astype(np.float64)
    highest = np.abs(values).max(0)
    units = (
        f"the trajectory reaches {highest[0]:.3g} x {highest[1]:.3g} cycles per field of view, an image of "
        f"{size[0]} x {size[1]} has frequencies up to {size[0] / 2:g} x {size[1] / 2:g}"
    )
    if (highest > np.array(size) / 2 + 1).any():
        raise ValueError(f"{units}: is the unit right?")
    if len(values) >= MANY and highest.max() < 3.2 and min(size) >= MANY:
        warnings.warn(
            f"{units}: if it is in cycles per pixel, multiply it by (H, W); if in radians per pixel, by (H, W) / 2 pi",
            stacklevel=3,
        )
    return np.ascontiguousarray((values * (2 * np.pi / np.array(size))).T)
