"""The passes between the convolutions and transforms of the packed backend, in plain torch.

`kernels` has the same functions as Triton kernels, for CUDA; these run everywhere and say what is meant.
"""

from __future__ import annotations

import functools
import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.model.attention import MASK_FLOOR
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.spline import even_spline

Packing = tuple[int, int]  # rows and columns of the image that become one pixel


def pack(image: Tensor, packing: Packing) -> Tensor:
    """`(B, C, H, W) -> (B, rows columns C, H / rows, W / columns)`; the channels of a pixel stay together."""
    batch, channels, height, width = image.shape
    rows, columns = packing
    cells = image.reshape(batch, channels, height // rows, rows, width // columns, columns)
    return cells.permute(0, 3, 5, 1, 2, 4).reshape(batch, -1, height // rows, width // columns)


def unpack(packed: Tensor, packing: Packing) -> Tensor:
    """The inverse of `pack`."""
    batch, _, height, width = packed.shape
    rows, columns = packing
    cells = packed.reshape(batch, rows, columns, -1, height, width).permute(0, 3, 4, 1, 5, 2)
    return cells.reshape(batch, -1, height * rows, width * columns)


def pack_image(x: Tensor, mean: Tensor, variance: Tensor, out: Tensor, top: int, reach: int, packing: Packing) -> None:
    """`(x - mean) / sqrt(variance)`, mirrored by `reach`, from row `top` on, packed into `out`; 0 beyond."""
    scaled = (x - mean.view(-1, 1, 1, 1)) / variance.view(-1, 1, 1, 1).sqrt()
    height, width = out.shape[-2] * packing[0], out.shape[-1] * packing[1]
    visible = reflect(scaled, reach)[..., top : top + height, :width]
    out.copy_(pack(_zero_padded(visible, height, width), packing))


def fold_packed(packed: Tensor, variance: Tensor, out: Tensor, reach: int, packing: Packing) -> None:
    """The adjoint of `pack_image` (with mean 0), times the variance: what was divided out before."""
    height, width = (size + 2 * reach for size in out.shape[-2:])
    padded = unpack(packed, packing)[..., :height, :width].to(out.dtype)
    out.copy_(fold(padded, reach) * variance.view(-1, 1, 1, 1).sqrt())


def overlap_add(columns: Tensor, out: Tensor, taps: tuple[int, int]) -> None:
    """The sum of `columns`, `(B, h, w, *taps, C)`, each shifted by its tap, into `out`."""
    height, width = (size - tap + 1 for size, tap in zip(out.shape[-2:], taps, strict=True))
    columns = columns.view(len(out), height, width, *taps, -1).permute(3, 4, 0, 5, 1, 2)
    out.zero_()
    for row, column in itertools.product(range(taps[0]), range(taps[1])):
        out[..., row : row + height, column : column + width] += columns[row, column]


def unpacked_spline(packed: Tensor, coefficients: Tensor, out: Tensor, packing: Packing) -> None:
    """`phi` of packed responses, into `out`, cropped to its size."""
    responses = unpack(packed, packing)[..., : out.shape[-2], : out.shape[-1]]
    out.copy_(even_spline(responses.to(coefficients.dtype), coefficients))


def packed_squared_mask(
    features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor, top: int, height: int, packing: Packing
) -> None:
    """`clip(phi(alpha features), floor, 1)^2` of a strip whose first row is `top`, into packed `out`."""
    masks = torch.empty_like(features, dtype=coefficients.dtype)
    squared_mask(features, alpha, coefficients, masks)
    packed_rows = -(-masks.shape[-2] // packing[0])
    strip = out.narrow(-2, top // packing[0], packed_rows)
    strip.copy_(pack(_zero_padded(masks, packed_rows * packing[0], out.shape[-1] * packing[1]), packing))


def spline_in_place(values: Tensor, coefficients: Tensor) -> None:
    """`phi(|values|)`."""
    values.copy_(even_spline(values.to(coefficients.dtype), coefficients))


def squared_mask(features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor) -> None:
    """`clip(phi(alpha features), floor, 1)^2`."""
    out.copy_(even_spline(features.to(coefficients.dtype) * alpha, coefficients).clamp_(MASK_FLOOR, 1).square_())


def mixing_weights(kernel: Tensor) -> Tensor:
    """A 3 x 3 kernel as `mixing` takes it."""
    return kernel


def mixing(
    responses: Tensor, alpha: Tensor, mix: list[Tensor], phi: tuple[Tensor, Tensor, Tensor], out: Tensor
) -> None:
    """`clip(phi3(alpha mix2 phi2(mix1 phi1(responses))), floor, 1)^2`; `responses` may be larger than needed."""
    height, width = (size + 2 * len(mix) for size in out.shape[-2:])
    features = responses[..., :height, :width].contiguous()
    for kernel, coefficients in zip(mix, phi[:2], strict=True):
        spline_in_place(features, coefficients)
        features = F.conv2d(features, kernel)
    squared_mask(features, alpha, phi[2], out)


def pack_mask(mask: Tensor, out: Tensor, packing: Packing) -> None:
    """A mask `(B, N, H, W)` in the packed layout, 0 beyond the image."""
    out.copy_(pack(_zero_padded(mask, out.shape[-2] * packing[0], out.shape[-1] * packing[1]), packing))


def weigh(responses: Tensor, mask: Tensor) -> None:
    """`responses *= mask` in place, where there is a mask, at the top left; 0 elsewhere."""
    height, width = mask.shape[-2:]
    responses[..., :height, :width] *= mask
    responses[..., height:, :] = 0
    responses[..., :height, width:] = 0


def expand(image: Tensor, filters: Tensor) -> Tensor:
    """`sum_c image_c conj(filters_nc)`, `(B, C, h, w)` and `(N, C, h, w)` to `(B, N, h, w)`."""
    products = (image[:, c, None] * filters[:, c].conj() for c in range(image.shape[1]))
    return functools.reduce(torch.add, products)


def contract(spectra: Tensor, filters: Tensor) -> Tensor:
    """`sum_n spectra_n filters_nc`, `(B, N, h, w)` and `(N, C, h, w)` to `(B, C, h, w)`."""
    return torch.stack([(spectra * channel).sum(1) for channel in filters.unbind(1)], 1)


def _zero_padded(image: Tensor, height: int, width: int) -> Tensor:
    return F.pad(image, (0, width - image.shape[-1], 0, height - image.shape[-2]))
