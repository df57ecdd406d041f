"""A preconditioner for `A(x) = H^T H + lam W^T M(x)^2 W`, where the operator says what `H^T H` is like.

With the masks replaced by their means over the pixels, and the image by a torus, A is a circulant C. What C leaves out
is that the masks, and a `H^T H` like that of inpainting, are not the same everywhere: the diagonal D of A, divided by
its mean, tells where A is stronger and where weaker. So

    P = D^-1/2 C^-1 D^-1/2,

Hermitian and positive definite, for two transforms of one image: little beside the filters of W.

Where H keeps every s-th pixel, `H^T H` is no circulant: it mixes the s^2 frequencies that look alike to H. But it mixes
them in one way only (it has rank 1 in each such group), so `C + H^T H`, with C the penalty alone, is inverted with the
same transforms (Woodbury's formula).
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.solvers.cg import LinearMap

FLOOR = 1e-5  # of the largest eigenvalue of C, added to all: W^T W has none at the frequency 0, H^T H may have none


class Preconditioning:
    """Makes `P` for the masks of each outer iteration.

    Args:
        filters: of W, `(N, C, k, k)`, k odd; images have a multiple of C channels, each C of them their own penalty.
        reflecting: whether W mirrors the image at its border; else there are zeros beyond.
        symbol: of `H^T H`, its diagonal in the Fourier domain, in a shape that is broadcast to that of the image.
        diagonal: of `H^T H`, or a local mean of it, likewise.
        like: an image, `(B, C, H, W)`, real or complex.
        aliasing: the symbol of B, `(H, W)`, and s, where `H^T H` is `B^* S B`: B a circulant, S keeps every s-th row
            and column.
    """

    def __init__(
        self,
        filters: Tensor,
        reflecting: bool,
        symbol: Tensor,
        diagonal: Tensor,
        like: Tensor,
        aliasing: tuple[Tensor, int] | None = None,
    ):
        squares = filters.square()
        self.energy = squares.sum((2, 3))  # of each filter in each channel, (N, C)
        self.envelope = (squares.sum(0) / self.energy.sum(0)[:, None, None])[:, None]  # where it lies, on average
        self.correlations = autocorrelations(filters)
        self.reflecting, self.reach = reflecting, filters.shape[-1] // 2
        self.batch, self.complex = len(like), like.is_complex()
        self.channels = filters.shape[1]
        height, width = like.shape[-2:]
        self.aliasing = aliasing
        self.all_frequencies = self.complex or aliasing is not None
        columns = width if self.all_frequencies else width // 2 + 1
        self.rows = fourier_matrix(height, height, 2 * self.reach, like)
        self.columns = fourier_matrix(width, columns, 2 * self.reach, like)
        self.symbol = self._parts(symbol.expand(like.shape)[..., :columns])
        self.diagonal = self._parts(diagonal.expand(like.shape))

    def at(self, lam: Tensor, mean: Tensor, energy: Tensor) -> LinearMap:
        """`r -> P r`.

        Args:
            lam: `(B, 1, 1, 1)`.
            mean: of each squared mask over the pixels, `(P, N)`, for the P real images that the model sees.
            energy: of the filters, weighted by the squared masks, `(P, C, H, W)`.
        """
        if self.complex:  # real and imaginary part have masks of their own, but H^T H may mix them: one P for both
            mean, energy = (_mean_of_parts(values, len(lam)) for values in (mean, energy))
        lam = lam.repeat_interleave(len(mean) // len(lam), 0)
        inverse = self._aliased_inverse(lam, mean) if self.aliasing else self._circulant_inverse(lam, mean)
        diagonal = self.diagonal + lam * self._smoothed(energy)
        scale = (diagonal / diagonal.mean((1, 2, 3), keepdim=True)).rsqrt()

        def apply(r: Tensor) -> Tensor:
            return (scale * self._transformed(inverse, scale * self._parts(r))).view_as(r)

        return apply

    def part(self, samples: Tensor) -> Preconditioning:
        """The same for images of these samples of the batch alone."""
        some = copy.copy(self)
        some.batch = len(samples)
        some.symbol, some.diagonal = (
            values.unflatten(0, (self.batch, -1))[samples].flatten(0, 1) for values in (self.symbol, self.diagonal)
        )
        return some

    def _circulant_inverse(self, lam: Tensor, mean: Tensor) -> LinearMap:
        """`C^-1`, of spectra `(P, C, h, w)`."""
        inverse = self._inverse(lam, mean, self.symbol)
        return lambda spectrum: _times(inverse, spectrum)

    def _aliased_inverse(self, lam: Tensor, mean: Tensor) -> LinearMap:
        """`(C + u u^* / s^2)^-1`, of spectra: `H^T H` in each group of frequencies, with `u = conj(B)`.

        `C^-1 - C^-1 u (s^2 + u^* C^-1 u)^-1 u^* C^-1`. Where C is small, at low frequencies, the terms nearly cancel:
        the floor of C leaves enough digits in single precision.
        """
        assert self.aliasing is not None
        symbol, scale = self.aliasing
        inverse = self._inverse(lam, mean, torch.zeros_like(self.symbol))
        groups = _folded(symbol.abs().square() * inverse, scale)
        groups.diagonal(dim1=1, dim2=2).add_(scale**2)
        weights = _inverted(groups)

        def apply(spectrum: Tensor) -> Tensor:
            direct = _times(inverse, spectrum)
            seen = _times(weights, _folded(symbol * direct, scale))
            return direct - _times(inverse, symbol.conj() * seen.repeat(1, 1, scale, scale))

        return apply

    def _inverse(self, lam: Tensor, mean: Tensor, data: Tensor) -> Tensor:
        """Of the penalty plus the data's part at each frequency, `(P, C, C, h, w)`."""
        kernel = torch.einsum("pn,ncdyx->pcdyx", mean, self.correlations).to(self.rows.dtype)
        symbol = lam[..., None] * (self.rows @ kernel @ self.columns.mT)
        diagonal = symbol.diagonal(dim1=1, dim2=2).movedim(-1, 1)
        largest = (diagonal.real + self.symbol).amax((1, 2, 3), keepdim=True)
        diagonal += data + FLOOR * largest
        return _inverted(symbol)

    def _transformed(self, inverse: LinearMap, x: Tensor) -> Tensor:
        if not self.all_frequencies:
            return torch.fft.irfft2(inverse(torch.fft.rfft2(x)), x.shape[-2:])
        result = torch.fft.ifft2(inverse(torch.fft.fft2(x)))
        return result if self.complex else result.real

    def _smoothed(self, energy: Tensor) -> Tensor:
        """About the diagonal of `W^T M^2 W`: a mask weighs on all the pixels that its filter sees.

        Masks are at least 0.01: so it stays positive, although transforms round.
        """
        padded = F.pad(energy, (self.reach,) * 4, mode="reflect" if self.reflecting else "constant")
        size, (height, width) = padded.shape[-2:], energy.shape[-2:]
        spectrum = torch.fft.rfft2(padded) * torch.fft.rfft2(self.envelope[:, 0], size)
        return torch.fft.irfft2(spectrum, size)[..., -height:, -width:]

    def _parts(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.channels, *x.shape[-2:])


def _inverted(symbol: Tensor) -> Tensor:
    """Of Hermitian matrices `(P, C, C, h, w)`, one for each frequency."""
    if symbol.shape[1] == 1:
        return symbol.real.reciprocal()
    inverse = torch.linalg.inv_ex(symbol.permute(0, 3, 4, 1, 2)).inverse
    return ((inverse + inverse.mH) / 2).permute(0, 3, 4, 1, 2).contiguous()


def _times(matrices: Tensor, spectrum: Tensor) -> Tensor:
    return (matrices * spectrum[:, None]).sum(2)


def _folded(spectrum: Tensor, scale: int) -> Tensor:
    """The sum over frequencies that are the same but for multiples of `size / scale`, `(..., h / s, w / s)`."""
    height, width = spectrum.shape[-2:]
    return spectrum.unflatten(-1, (scale, width // scale)).unflatten(-3, (scale, height // scale)).sum((-4, -2))


def autocorrelations(filters: Tensor) -> Tensor:
    """Of `(N, C, k, k)` filters, between any two channels, at all shifts up to `k - 1`: `(N, C, C, 2k - 1, 2k - 1)`."""
    reach = filters.shape[-1] - 1
    size = 2 * reach + 2
    spectra = torch.fft.fft2(filters, (size, size))
    products = torch.fft.ifft2(spectra[:, :, None] * spectra[:, None].conj()).real
    return products.roll((reach, reach), (-2, -1))[..., :-1, :-1]


def fourier_matrix(size: int, frequencies: int, most: int, like: Tensor) -> Tensor:
    """`exp(-2 pi i f s / size)` at the first frequencies f and the shifts s of two filters, `-most` to `most`."""
    frequency = torch.arange(frequencies, device=like.device)
    shift = torch.arange(-most, most + 1, device=like.device)
    turns = torch.remainder(frequency[:, None] * shift, size).to(like.real.dtype) / size
    return torch.exp(-2j * math.pi * turns)


def _mean_of_parts(values: Tensor, batch: int) -> Tensor:
    return values.unflatten(0, (batch, 2, -1)).mean(1).flatten(0, 1)
