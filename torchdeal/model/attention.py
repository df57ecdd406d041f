"""The attention M: which filter responses are noise, to be penalised, and which are structure, to be kept."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torchdeal.model.boundary import Boundary, reflect
from torchdeal.model.filters import REACH, Bank, analysis, valid_convolutions
from torchdeal.model.spline import even_spline

MASK_FLOOR = 0.01  # eps_M: keeps A positive definite
MASK_REACH = REACH + 2  # the bank, then two 3 x 3 convolutions


def attention(
    x: Tensor,
    *,
    mask_filters: Bank,
    mix: Bank,
    phi: tuple[Tensor, Tensor, Tensor],
    alpha: Tensor,
    boundary: Boundary,
) -> Tensor:
    """`M(x) = clip(phi3(alpha mix2 phi2(mix1 phi1(W_mask x))), 0.01, 1)`.

    Args:
        x: images, `(B, C, H, W)`, in 0..1.
        mask_filters: the bank `W_mask`.
        mix: two kernels `(N, N, 3, 3)`.
        phi: the values of phi1, phi2 and phi3 at their knots.
        alpha: the scaling of phi3 at each sample's noise level, `(B, N, 1, 1)`.
        boundary: `REFLECT` pads the image once, so that no layer sees an artificial border.

    Returns:
        the masks, `(B, N, H, W)`.
    """
    if boundary is Boundary.REFLECT:
        features, padding = valid_convolutions(reflect(x, MASK_REACH), mask_filters), 0
    else:
        features, padding = analysis(x, mask_filters, boundary), 1
    features = F.conv2d(even_spline(features, phi[0]), mix[0], padding=padding)
    features = F.conv2d(even_spline(features, phi[1]), mix[1], padding=padding)
    return even_spline(features * alpha, phi[2]).clamp(MASK_FLOOR, 1)
