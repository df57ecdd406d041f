"""Operators of photography and microscopy."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.choice import Choice
from torchdeal.operators.base import Operator
from torchdeal.operators.given import real_tensor


class Identity(Operator):
    """`H x = x`: denoising."""

    trusted = measures_images = replayable = is_identity = True

    def _forward(self, x: Tensor) -> Tensor:
        return x

    def _adjoint(self, y: Tensor) -> Tensor:
        return y

    def normal_symbol(self, like: Tensor) -> Tensor:
        return like.real.new_ones(1, 1)

    def weighted(self, weight: Tensor) -> Operator:
        return Mask(weight)

    def symbol(self, like: Tensor) -> Tensor:
        """As that of a blur."""
        return like.real.new_ones(like.shape[-2:])


class Mask(Operator):
    """`H x = mask * x`: inpainting, where the mask is 1 on known pixels and 0 on missing ones.

    Args:
        mask: `(H, W)`, `(C, H, W)` or `(B, C, H, W)`, bool or numbers (weights are allowed).
    """

    trusted = measures_images = replayable = True

    def __init__(self, mask: Tensor | np.ndarray):
        self.mask = real_tensor("mask", mask)
        if self.mask.ndim not in (2, 3, 4):
            raise ValueError(f"the mask must have 2 to 4 dimensions, got shape {tuple(self.mask.shape)}")
        channels = self.mask.shape[-3] if self.mask.ndim > 2 else 1
        self.image_shape = (None if channels == 1 else channels, *self.mask.shape[-2:])
        self.measurement_shape = self.image_shape
        self.batch = self.mask.shape[0] if self.mask.ndim == 4 and self.mask.shape[0] > 1 else None

    def _forward(self, x: Tensor) -> Tensor:
        return self.mask * x

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.mask * y

    def normal(self, x: Tensor) -> Tensor:
        return self.mask.square() * x

    def normal_symbol(self, like: Tensor) -> Tensor:
        return self.mask.square().mean((-2, -1), keepdim=True)

    def normal_diagonal(self, like: Tensor) -> Tensor:
        return self.mask.square()

    def weighted(self, weight: Tensor) -> Operator:
        return Mask(weight * self.mask)

    def _of_samples(self, samples: Tensor) -> Operator:
        return self._with_samples_of(["mask"], samples)


class BlurBoundary(Choice):
    """What a blur sees beyond the border of the image."""

    CIRCULAR = "circular"  # the opposite border
    ZERO = "zero"  # black
    REFLECT = "reflect"  # the mirror image, the border pixel not repeated
    VALID = "valid"  # nothing: the result is smaller, only where the kernel fits into the image


class Blur(Operator):
    """`H x = k * x`, the true convolution with a kernel; the result has the size of the image (unless `"valid"`).

    Args:
        kernel: `(h, w)`, for all channels; its centre is at `(h // 2, w // 2)`.
        boundary: `"circular"` (by FFT), `"zero"`, `"reflect"`, or `"valid"`, as a camera sees: pixels near its border
            depend on what it does not see. The image is then larger than what was measured. Where the kernel is larger
            than the image, the first and the third repeat it as often as it takes.
    """

    trusted = measures_images = replayable = True

    def __init__(self, kernel: Tensor | np.ndarray, boundary: BlurBoundary | str = BlurBoundary.CIRCULAR):
        self.kernel = real_tensor("kernel", kernel)
        if self.kernel.ndim != 2 or not self.kernel.numel():
            raise ValueError(f"the kernel must be (height, width), got shape {tuple(self.kernel.shape)}")
        self.boundary = BlurBoundary(boundary)

    def _forward(self, x: Tensor) -> Tensor:
        if self.boundary is BlurBoundary.CIRCULAR:
            return self._filter(x, self._symbol(x))
        return _per_channel(lambda z: F.conv2d(self._padded(z), self._correlation_kernel()), x)

    def _adjoint(self, y: Tensor) -> Tensor:
        if self.boundary is BlurBoundary.VALID:
            return _per_channel(lambda z: F.conv_transpose2d(z, self._correlation_kernel()), y)
        if self.boundary is BlurBoundary.CIRCULAR:
            return self._filter(y, self._symbol(y).conj())
        return _per_channel(lambda z: self._unpadded(F.conv_transpose2d(z, self._correlation_kernel())), y)

    def normal(self, x: Tensor) -> Tensor:
        if self.boundary is BlurBoundary.CIRCULAR:
            symbol = self._symbol(x)
            return self._filter(x, symbol.abs().square())
        return super().normal(x)

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        if self.boundary is not BlurBoundary.CIRCULAR:
            return None
        return self.symbol(like).abs().square()

    def symbol(self, like: Tensor) -> Tensor:
        """The Fourier transform of the kernel, at all frequencies of an image like that."""
        return torch.fft.fft2(self._kernel_at_origin(like))

    def _symbol(self, x: Tensor) -> Tensor:
        """That, or the half of it that a real image needs."""
        return self.symbol(x) if x.is_complex() else torch.fft.rfft2(self._kernel_at_origin(x))

    def _kernel_at_origin(self, x: Tensor) -> Tensor:
        """The kernel in an image of the size of x, its centre at pixel (0, 0)."""
        height, width = self.kernel.shape
        turns = -(-height // x.shape[-2]), -(-width // x.shape[-1])  # of a kernel that is larger than the image
        padded = F.pad(self.kernel, (0, turns[1] * x.shape[-1] - width, 0, turns[0] * x.shape[-2] - height))
        if turns != (1, 1):
            padded = padded.view(turns[0], x.shape[-2], turns[1], x.shape[-1]).sum((0, 2))
        return padded.roll((-(height // 2), -(width // 2)), (0, 1))

    @staticmethod
    def _filter(x: Tensor, symbol: Tensor) -> Tensor:
        if x.is_complex():
            return torch.fft.ifft2(torch.fft.fft2(x) * symbol)
        return torch.fft.irfft2(torch.fft.rfft2(x) * symbol, x.shape[-2:])

    def _correlation_kernel(self) -> Tensor:
        return self.kernel.flip(0, 1)[None, None]

    def margins(self) -> tuple[int, int, int, int]:
        """Left, right, top, bottom: what the convolution reads beyond the border."""
        height, width = self.kernel.shape
        return (width - 1) - width // 2, width // 2, (height - 1) - height // 2, height // 2

    def _padded(self, x: Tensor) -> Tensor:
        if self.boundary is BlurBoundary.VALID:
            self._check_size(x)
            return x
        if self.boundary is BlurBoundary.REFLECT and self._mirrors_often(x.shape[-2:]):
            left, right, top, bottom = self.margins()
            return x[..., _mirrored(x.shape[-2], top, bottom), :][..., _mirrored(x.shape[-1], left, right)]
        mode = "reflect" if self.boundary is BlurBoundary.REFLECT else "constant"
        return F.pad(x, self.margins(), mode=mode)

    def _mirrors_often(self, size: Sequence[int]) -> bool:
        left, right, top, bottom = self.margins()
        return max(top, bottom) >= size[-2] or max(left, right) >= size[-1]

    def _unpadded(self, padded: Tensor) -> Tensor:
        """The adjoint of `_padded`."""
        left, right, top, bottom = self.margins()
        sizes = padded.shape[-2] - top - bottom, padded.shape[-1] - left - right
        often = self.boundary is BlurBoundary.REFLECT and self._mirrors_often(sizes)
        for dim, before, after in ((-2, top, bottom), (-1, left, right)):
            size = sizes[dim]
            if often:
                places = _mirrored(size, before, after).to(padded.device)
                shape = [*padded.shape[:dim], size, *padded.shape[dim:][1:]]
                padded = padded.new_zeros(shape).index_add_(dim, places, padded)
                continue
            inside = padded.narrow(dim, before, size).clone()
            if self.boundary is BlurBoundary.REFLECT:
                inside.narrow(dim, 1, before).add_(padded.narrow(dim, 0, before).flip(dim))
                mirrored = padded.narrow(dim, before + size, after).flip(dim)
                inside.narrow(dim, size - 1 - after, after).add_(mirrored)
            padded = inside
        return padded

    def _check_size(self, x: Tensor) -> None:
        height, width = self.kernel.shape
        if x.shape[-2] < height or x.shape[-1] < width:
            raise ValueError(
                f"the image ({x.shape[-2]} x {x.shape[-1]}) is smaller than the blur kernel ({height} x {width})"
            )


class Downsample(Operator):
    """`H x`: every `scale`-th pixel of the image after an anti-aliasing blur, `(k * x)[0::s, 0::s]`.

    Args:
        scale: a whole number, at least 1.
        kernel: `(h, w)`, of the blur; None: no blur.
        boundary: of the blur.
        size: `(H, W)` of the image. By default that of the measurement times the scale.
    """

    trusted = measures_images = replayable = True

    def __init__(
        self,
        scale: int,
        kernel: Tensor | np.ndarray | None = None,
        boundary: BlurBoundary | str = BlurBoundary.CIRCULAR,
        size: tuple[int, int] | None = None,
    ):
        if isinstance(scale, bool) or not isinstance(scale, Integral) or scale < 1:
            shown = scale if isinstance(scale, (int, float, str)) else type(scale).__name__
            raise ValueError(f"the scale must be a whole number, at least 1, got {shown}")
        if BlurBoundary(boundary) is BlurBoundary.VALID:
            raise ValueError("the blur of Downsample needs a boundary: circular, zero or reflect")
        self.scale, self.size = int(scale), size
        self.blur = Identity() if kernel is None else Blur(kernel, boundary)
        if size is not None:
            self.image_shape = (None, *size)
            self.measurement_shape = (None, *(-(-length // self.scale) for length in size))

    def _forward(self, x: Tensor) -> Tensor:
        if self.size is None and any(length % self.scale for length in x.shape[-2:]):
            height, width = x.shape[-2:]
            raise ValueError(
                f"the image ({height} x {width}) is no multiple of the scale {self.scale}: "
                "crop it, or give Downsample its size"
            )
        return self.blur.forward(x)[..., :: self.scale, :: self.scale]

    def _adjoint(self, y: Tensor) -> Tensor:
        size = self.size or tuple(length * self.scale for length in y.shape[-2:])
        spread = y.new_zeros(*y.shape[:-2], *size)
        spread[..., :: self.scale, :: self.scale] = y
        return self.blur.adjoint(spread)

    def normal_symbol(self, like: Tensor) -> Tensor | None:
        symbol = self.blur.normal_symbol(like)
        return None if symbol is None else self._share(like) * symbol

    def normal_diagonal(self, like: Tensor) -> Tensor:
        return self._share(like) * self.blur.normal_diagonal(like)

    def normal_aliasing(self, like: Tensor) -> tuple[Tensor, int] | None:
        if any(length % self.scale for length in like.shape[-2:]) or self.normal_symbol(like) is None:
            return None
        return self.blur.symbol(like), self.scale

    def _share(self, like: Tensor) -> float:
        """Of the pixels that are kept."""
        height, width = like.shape[-2:]
        return -(-height // self.scale) * -(-width // self.scale) / (height * width)


def _mirrored(size: int, before: int, after: int) -> Tensor:
    """The places of the pixels of a row, and of its mirror images as far as wanted on both sides."""
    period = max(2 * (size - 1), 1)
    places = torch.arange(-before, size + after) % period
    return torch.minimum(places, period - places)


def _per_channel(function, x: Tensor) -> Tensor:
    """A real function of one-channel images, on each channel, and on real and imaginary part."""
    if x.is_complex():
        return torch.complex(_per_channel(function, x.real), _per_channel(function, x.imag))
    flat = function(x.reshape(-1, 1, *x.shape[-2:]))
    return flat.reshape(*x.shape[:-2], *flat.shape[-2:])
