"""Operators of magnetic resonance imaging."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchdeal.operators.base import Operator, real_tensor


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
        x = _transform(self._sampled(y), torch.fft.ifft2, self.centered)
        return x.real if self.real else x

    def normal_symbol(self, like: Tensor) -> Tensor:
        if self.mask is None:
            return like.real.new_ones(1, 1)
        symbol = self.mask.square()
        symbol = torch.fft.ifftshift(symbol, (-2, -1)) if self.centered else symbol
        if not self.real:
            return symbol
        opposite = symbol.flip(-2, -1).roll((1, 1), (-2, -1))  # a real image has the same there, conjugate
        return (symbol + opposite) / 2

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
        self.maps = checked_maps(maps)
        self.fourier = Fourier(mask, centered=centered, real=False)
        self.real = real
        size = tuple(self.maps.shape[-2:])
        if self.fourier.mask is not None and tuple(self.fourier.mask.shape[-2:]) != size:
            raise ValueError(f"the mask is for {tuple(self.fourier.mask.shape[-2:])}, the maps are for {size}")
        self.image_shape, self.measurement_shape = (1, *size), tuple(self.maps.shape[-3:])
        self.batch = self.maps.shape[0] if self.maps.ndim == 4 and self.maps.shape[0] > 1 else self.fourier.batch

    def _forward(self, x: Tensor) -> Tensor:
        return self.fourier.forward(self.maps * x)

    def _adjoint(self, y: Tensor) -> Tensor:
        x = (self.maps.conj() * self.fourier.adjoint(y)).sum(1, keepdim=True)
        return x.real if self.real else x


def checked_maps(maps: Tensor | np.ndarray) -> Tensor:
    """Coil sensitivities `(coils, H, W)` or `(B, coils, H, W)`."""
    values = torch.as_tensor(maps)
    if values.ndim not in (3, 4):
        raise ValueError(f"the maps must be (coils, H, W) or (B, coils, H, W), got {tuple(values.shape)}")
    if not bool(torch.isfinite(torch.view_as_real(values) if values.is_complex() else values).all()):
        raise ValueError("the maps hold NaN or infinite values")
    return values


def _transform(x: Tensor, transform, centered: bool) -> Tensor:
    """Orthonormal, of the last two dimensions."""
    if not centered:
        return transform(x, norm="ortho")
    return torch.fft.fftshift(transform(torch.fft.ifftshift(x, (-2, -1)), norm="ortho"), (-2, -1))


def _mask(mask: Tensor | np.ndarray) -> Tensor:
    values = real_tensor("mask", mask)
    if values.ndim not in (2, 4) or (values.ndim == 4 and values.shape[1] != 1):
        raise ValueError(f"the mask must be (H, W) or (B, 1, H, W), got {tuple(values.shape)}")
    return values
