"""Filter banks: three convolutions in a row, their adjoint and their norm.

A bank is a tuple of three kernels `(C_out, C_in, 9, 9)`. `W` and `W_mask` are both banks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model.boundary import Boundary, fold, reflect

KERNEL_SIZE = 9
LAYERS = 3
REACH = LAYERS * (KERNEL_SIZE // 2)  # 12: how far a bank sees, its support is 25 x 25

Bank = Sequence[Tensor]


def zero_mean(bank: Bank) -> tuple[Tensor, ...]:
    """The bank with zero-mean filters in its first layer, so that it maps constants to 0."""
    first = bank[0] - bank[0].mean((1, 2, 3), keepdim=True)
    return (first, *bank[1:])


def normalised(bank: Bank) -> tuple[Tensor, ...]:
    """The bank divided by its norm on the torus, so that `||W||_2 = 1`. Differentiable."""
    return (bank[0] * squared_norm(bank).rsqrt(), *bank[1:])


def analysis(x: Tensor, bank: Bank, boundary: Boundary) -> Tensor:
    """`W x`, `(B, C, H, W) -> (B, N, H, W)`."""
    if boundary is Boundary.REFLECT:
        return valid_convolutions(reflect(x, REACH), bank)
    for kernel in bank:
        x = F.conv2d(x, kernel, padding=KERNEL_SIZE // 2)
    return x


def synthesis(z: Tensor, bank: Bank, boundary: Boundary) -> Tensor:
    """`W^T z`, the adjoint of `analysis`, `(B, N, H, W) -> (B, C, H, W)`."""
    if boundary is Boundary.REFLECT:
        for kernel in reversed(bank):
            z = F.conv_transpose2d(z, kernel)
        return fold(z, REACH)
    for kernel in reversed(bank):
        z = F.conv_transpose2d(z, kernel, padding=KERNEL_SIZE // 2)
    return z


def valid_convolutions(x: Tensor, bank: Bank) -> Tensor:
    """The convolutions of a bank on an image that is already padded."""
    for kernel in bank:
        x = F.conv2d(x, kernel)
    return x


def impulse_responses(bank: Bank) -> Tensor:
    """The bank as one layer of 25 x 25 filters, `(N, C, 25, 25)`, to be correlated with the image."""
    channels = bank[0].shape[1]
    identity = torch.eye(channels, dtype=bank[0].dtype, device=bank[0].device).view(channels, channels, 1, 1)
    impulse = F.pad(identity, (2 * REACH,) * 4)
    return valid_convolutions(impulse, bank).flip(-2, -1).transpose(0, 1)


def squared_norm(bank: Bank) -> Tensor:
    """`||W||_2^2` of the bank on the (infinite) torus, a scalar, differentiable. Nothing waits for the host.

    At the frequency w the bank is the `N x C` matrix `f(w)`, and `||W||^2` is the largest eigenvalue of
    `G(w) = f(w)^* f(w)` over all w. The maximiser is found without gradient; the value is then computed at
    that frequency alone, with the gradient that the envelope theorem makes exact.
    """
    filters = impulse_responses(bank)
    with torch.no_grad():
        rows, columns = _peak_frequency(filters)
    return _largest_eigenvalue(_gram(filters, rows.view(1, 1), columns.view(1, 1))).squeeze()


def _peak_frequency(filters: Tensor) -> Tensor:
    """The frequency (2 numbers in radians) at which the filters amplify most."""
    size = 128
    spectra = torch.fft.rfft2(filters, (size, size)).permute(2, 3, 0, 1)
    spacing = 2 * math.pi / size
    peaks = _local_maxima(_largest_eigenvalue(spectra.mH @ spectra)) * spacing
    offsets = torch.linspace(-1, 1, 9, dtype=filters.dtype, device=filters.device)
    highest = peaks[:, 0]
    for _ in range(5):  # finer and finer grids around each of them
        rows, columns = (peaks[:, i, None] + spacing * offsets for i in (0, 1))
        gain = _largest_eigenvalue(_gram(filters, rows, columns)).flatten(1)
        highest, place = gain.max(1)
        row, column = (place // len(offsets))[:, None], (place % len(offsets))[:, None]
        peaks = torch.cat([rows.gather(1, row), columns.gather(1, column)], 1)
        spacing /= 4
    return peaks.index_select(0, highest.argmax().view(1))[0]  # (an index by a single number would wait for the host)


def _local_maxima(gain: Tensor, count: int = 6) -> Tensor:
    """Row and column of the highest peaks on a grid. The true maximum lies between grid points, near one of them."""
    highest_around = F.max_pool2d(gain[None], 3, stride=1, padding=1)[0]
    peaks = torch.where(gain >= highest_around, gain, -math.inf).flatten()
    indices = peaks.topk(min(count, peaks.numel())).indices
    return torch.stack([indices // gain.shape[1], indices % gain.shape[1]], 1).to(gain.dtype)


def _gram(filters: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`f^* f` of `(N, C, h, w)` filters on P grids of frequencies, `(P, R)` x `(P, S)`: `(P, R, S, C, C)`."""
    positions = torch.arange(filters.shape[-1], device=filters.device, dtype=filters.dtype)
    vertical, horizontal = (torch.exp(-1j * frequency[..., None] * positions) for frequency in (rows, columns))
    transfer = torch.einsum("ncyx,pry,psx->prsnc", filters.to(vertical.dtype), vertical, horizontal)
    return transfer.mH @ transfer


def _largest_eigenvalue(gram: Tensor) -> Tensor:
    """Of Hermitian positive semidefinite matrices in the last two dimensions."""
    channels = gram.shape[-1]
    if channels == 1:
        return gram[..., 0, 0].real
    if channels == 3:
        return _largest_of_three(gram)
    return torch.linalg.eigvalsh(gram)[..., -1]


def _largest_of_three(gram: Tensor) -> Tensor:
    """The largest eigenvalue of 3 x 3 matrices by the formula of Cardano and Viete.

    (torch's own takes many times as long on a GPU, and waits for the host.)
    """
    a, b, c = (gram[..., i, i].real for i in range(3))
    d, e, f = (gram[..., i, j] for i, j in ((0, 1), (0, 2), (1, 2)))
    mean = (a + b + c) / 3
    a, b, c = a - mean, b - mean, c - mean
    d2, e2, f2 = (entry.real.square() + entry.imag.square() for entry in (d, e, f))
    spread = ((a * a + b * b + c * c + 2 * (d2 + e2 + f2)) / 6).sqrt()
    determinant = a * b * c + 2 * (d * f * e.conj()).real - a * f2 - b * e2 - c * d2
    info = torch.finfo(spread.dtype)
    # Within (-1, 1): at the ends, where two eigenvalues meet, the arc cosine has no derivative.
    cosine = (determinant / (2 * spread**3).clamp_min(info.tiny)).clamp(info.eps - 1, 1 - info.eps)
    return mean + 2 * spread * torch.cos(torch.acos(cosine) / 3)
