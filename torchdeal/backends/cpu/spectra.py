"""Filters in the Fourier domain, two real ones in each complex transform."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def paired_spectra(filters: Tensor, size: list[int]) -> Tensor:
    """Transforms that correlate with two filters at once, `(N / 2, C, *size)` for `(N, C, k, k)`.

    For an odd N the last one has a filter of zeros beside it.
    """
    filters = F.pad(filters, (0, 0, 0, 0, 0, 0, 0, len(filters) % 2))
    return torch.fft.fft2(torch.complex(filters[::2], -filters[1::2]), size).conj().resolve_conj()


def filtered(image: Tensor, filters: Tensor) -> Tensor:
    """`sum_c image_c filters_nc` in the Fourier domain: `(C, h, w)` and `(n, C, h, w)` to `(n, h, w)`."""
    total = image[0] * filters[:, 0]
    for channel, spectrum in zip(image[1:], filters.unbind(1)[1:], strict=True):
        total.addcmul_(channel, spectrum)
    return total
