"""The passes between the convolutions and transforms of the packed backend: what they are, and in plain torch.

Images and features are `(B, C, H, W)`. What is packed, and the features of the rough half, are channels-last.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends.cuda.packing import PACK, pack, packed_size, unpack
from torchdeal.model.attention import MASK_FLOOR
from torchdeal.model.boundary import fold, reflect
from torchdeal.model.spline import even_spline


class Passes(Protocol):
    """Each is one read and one write of memory, if it can be. What has an `out` writes there."""

    def pack_image(self, x: Tensor, mean: Tensor, variance: Tensor, out: Tensor, top: int, reach: int) -> None:
        """`(x - mean) / sqrt(variance)`, mirrored by `reach`, from row `top` on, packed; 0 beyond."""

    def fold_packed(self, packed: Tensor, variance: Tensor, out: Tensor, reach: int) -> None:
        """The adjoint of `pack_image` (with mean 0), times the variance: what was divided out before."""

    def overlap_add(self, columns: Tensor, out: Tensor, taps: int) -> None:
        """The sum of `columns`, `(B, h, w, taps, taps, C)`, each shifted by its tap."""

    def unpacked_spline(self, packed: Tensor, coefficients: Tensor, out: Tensor) -> None:
        """`phi` of packed responses, unpacked, cropped to the size of `out`."""

    def spline_in_place(self, values: Tensor, coefficients: Tensor) -> None:
        """`phi(|values|)`, in any dense layout."""

    def packed_squared_mask(self, features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor, top: int) -> None:
        """`clip(phi(alpha features), floor, 1)^2`, packed, of a strip whose first row is `top`, 0 beyond the image."""

    def pack_mask(self, mask: Tensor, out: Tensor) -> None:
        """A mask `(B, N, H, W)`, packed, 0 beyond the image."""

    def mixing_weights(self, kernel: Tensor) -> Any:
        """A 3 x 3 kernel as `mixing` takes it."""

    def mixing(self, responses: Tensor, alpha: Tensor, mix: list[Any], phi: tuple[Tensor, ...], out: Tensor) -> None:
        """`clip(phi3(alpha mix2 phi2(mix1 phi1(responses))), floor, 1)^2`, in full precision.

        `responses` may be larger than needed, and `out` part of a larger tensor.
        """

    def weigh(self, responses: Tensor, mask: Tensor) -> None:
        """`responses *= mask` in place, where there is a mask, at the top left; 0 elsewhere."""

    def expand(self, image: Tensor, filters: Tensor) -> Tensor:
        """`sum_c image_c conj(filters_nc)`, `(B, C, h, w)` and `(N, C, h, w)` to `(B, N, h, w)`."""
        ...

    def contract(self, spectra: Tensor, filters: Tensor) -> Tensor:
        """`sum_n spectra_n filters_nc`, `(B, N, h, w)` and `(N, C, h, w)` to `(B, C, h, w)`."""
        ...


class TorchPasses:
    """They run everywhere, in any precision, and say what is meant."""

    def pack_image(self, x: Tensor, mean: Tensor, variance: Tensor, out: Tensor, top: int, reach: int) -> None:
        scaled = (x - mean.view(-1, 1, 1, 1)) / variance.view(-1, 1, 1, 1).sqrt()
        height, width = (PACK * size for size in out.shape[-2:])
        self.pack_mask(reflect(scaled, reach)[..., top : top + height, :width], out)

    def fold_packed(self, packed: Tensor, variance: Tensor, out: Tensor, reach: int) -> None:
        height, width = (size + 2 * reach for size in out.shape[-2:])
        padded = unpack(packed)[..., :height, :width].to(out.dtype)
        out.copy_(fold(padded, reach) * variance.view(-1, 1, 1, 1).sqrt())

    def overlap_add(self, columns: Tensor, out: Tensor, taps: int) -> None:
        height, width = (size - taps + 1 for size in out.shape[-2:])
        columns = columns.view(len(out), height, width, taps, taps, -1).permute(3, 4, 0, 5, 1, 2)
        out.zero_()
        for row, column in itertools.product(range(taps), repeat=2):
            out[..., row : row + height, column : column + width] += columns[row, column]

    def unpacked_spline(self, packed: Tensor, coefficients: Tensor, out: Tensor) -> None:
        responses = unpack(packed)[..., : out.shape[-2], : out.shape[-1]]
        out.copy_(even_spline(responses.to(coefficients.dtype), coefficients))

    def spline_in_place(self, values: Tensor, coefficients: Tensor) -> None:
        values.copy_(even_spline(values.to(coefficients.dtype), coefficients))

    def packed_squared_mask(self, features: Tensor, alpha: Tensor, coefficients: Tensor, out: Tensor, top: int) -> None:
        strip = out.narrow(-2, top // PACK, packed_size(features.shape[-2]))
        self.pack_mask(_squared_mask(features, alpha, coefficients), strip)

    def pack_mask(self, mask: Tensor, out: Tensor) -> None:
        height, width = (PACK * size for size in out.shape[-2:])
        out.copy_(pack(F.pad(mask, (0, width - mask.shape[-1], 0, height - mask.shape[-2]))))

    def mixing_weights(self, kernel: Tensor) -> Tensor:
        return kernel

    def mixing(self, responses: Tensor, alpha: Tensor, mix: list[Tensor], phi: tuple[Tensor, ...], out: Tensor) -> None:
        height, width = (size + 2 * len(mix) for size in out.shape[-2:])
        features = responses[..., :height, :width]
        for kernel, coefficients in zip(mix, phi[:2], strict=True):
            features = F.conv2d(even_spline(features, coefficients), kernel)
        out.copy_(_squared_mask(features, alpha, phi[2]))

    def weigh(self, responses: Tensor, mask: Tensor) -> None:
        height, width = mask.shape[-2:]
        responses[..., :height, :width] *= mask
        responses[..., height:, :] = 0
        responses[..., :height, width:] = 0

    def expand(self, image: Tensor, filters: Tensor) -> Tensor:
        products = (image[:, c, None] * filters[:, c].conj() for c in range(image.shape[1]))
        return functools.reduce(torch.add, products)

    def contract(self, spectra: Tensor, filters: Tensor) -> Tensor:
        return torch.stack([(spectra * channel).sum(1) for channel in filters.unbind(1)], 1)


def _squared_mask(features: Tensor, alpha: Tensor, coefficients: Tensor) -> Tensor:
    scaled = features.to(coefficients.dtype) * alpha
    return even_spline(scaled, coefficients).clamp_(MASK_FLOOR, 1).square_()
