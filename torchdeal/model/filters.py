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
    impulse = bank[0].new_zeros(channels, channels, 4 * REACH + 1, 4 * REACH + 1)
    impulse[range(channels), range(channels), 2 * REACH, 2 * REACH] = 1
    return valid_convolutions(impulse, bank).flip(-2, -1).transpose(0, 1)


def squared_norm(bank: Bank) -> Tensor:
    """`||W||_2^2` of the bank on the (infinite) torus, a scalar, differentiable.

    At the frequency w the bank is the `N x C` matrix `f(w)`, and `||W||^2` is the largest eigenvalue of
    `G(w) = f(w)^* f(w)` over all w. The maximiser is found without gradient; the value is then computed at
    that frequency alone, with the gradient that the envelope theorem makes exact.
    """
    filters = impulse_responses(bank)
    with torch.no_grad():
        peak = _peak_frequency(filters)
    return _largest_eigenvalue(_transfer(filters, peak[None, :1], peak[None, 1:])).squeeze()


def _peak_frequency(filters: Tensor) -> Tensor:
    """The frequency (2 numbers in radians) at which the filters amplify most."""
    size = 128
    gain = _largest_eigenvalue(torch.fft.rfft2(filters, (size, size)).permute(2, 3, 0, 1))
    spacing = 2 * math.pi / size
    best, peak = -math.inf, None
    for row, column in _local_maxima(gain):
        value, frequency = _zoom(filters, filters.new_tensor([row * spacing, column * spacing]), spacing)
        if value > best:
            best, peak = value, frequency
    if peak is None:
        raise ValueError("the filters hold NaN or infinite values, so they have no norm")
    return peak


def _local_maxima(gain: Tensor, count: int = 6) -> list[list[int]]:
    """Row and column of the highest peaks on a grid. The true maximum lies between grid points, near one of them."""
    highest_around = F.max_pool2d(gain[None], 3, stride=1, padding=1)[0]
    peaks = torch.where(gain >= highest_around, gain, -math.inf).flatten()
    indices = peaks.topk(min(count, peaks.numel())).indices
    return torch.stack([indices // gain.shape[1], indices % gain.shape[1]], 1).tolist()


def _zoom(filters: Tensor, peak: Tensor, spacing: float) -> tuple[float, Tensor]:
    """The highest gain near a grid point, and where, by finer and finer grids."""
    offsets = torch.linspace(-1, 1, 9, dtype=filters.dtype, device=filters.device)
    value = -math.inf
    for _ in range(5):
        rows, columns = peak[0] + spacing * offsets, peak[1] + spacing * offsets
        gain = _largest_eigenvalue(_transfer(filters, rows[:, None], columns[:, None]))
        row, column = divmod(int(gain.argmax()), gain.shape[1])
        value, peak = float(gain[row, column]), torch.stack([rows[row], columns[column]])
        spacing /= 4
    return value, peak


def _transfer(filters: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Fourier transform of `(N, C, h, w)` filters at rows `(R, 1)` x columns `(S, 1)`: `(R, S, N, C)`."""
    positions = torch.arange(filters.shape[-1], device=filters.device, dtype=filters.dtype)
    vertical, horizontal = (torch.exp(-1j * frequency * positions) for frequency in (rows, columns))
    return torch.einsum("ncyx,ry,sx->rsnc", filters.to(vertical.dtype), vertical, horizontal)


def _largest_eigenvalue(transfer: Tensor) -> Tensor:
    """Largest eigenvalue of `f^* f` for matrices `f` in the last two dimensions."""
    if transfer.shape[-1] == 1:
        return transfer.abs().square().sum((-2, -1))
    return torch.linalg.eigvalsh(transfer.mH @ transfer)[..., -1]
