"""The DEAL model: its parameters, and the constrained weights that enter the equations."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from torchdeal.model.attention import MASK_REACH, attention
from torchdeal.model.boundary import Boundary
from torchdeal.model.filters import KERNEL_SIZE, analysis, normalised, synthesis, zero_mean
from torchdeal.model.spline import (
    PHI_END,
    PHI_KNOTS,
    SIGMA_END,
    SIGMA_START,
    non_decreasing,
    non_increasing,
    sigma_spline,
)
from torchdeal.precision import full_precision

SYMMETRIES = 8  # of the square: four turns, each also mirrored
LAM_FLOOR = 1e-3  # kappa(sigma) stays above it: lam > 0 is what makes A positive definite
SIGMA_MAX = 50.0  # the largest noise level seen in training, on the 0..255 scale


@dataclass(frozen=True)
class Weights:
    """The weights as they stand in the equations: every constraint holds.

    `T(z) = argmin_x ||H x - y||^2 + lam ||M(z) W x||^2`, with `M` and `W` given here.
    """

    filters: tuple[Tensor, ...]  # W: zero mean, norm 1
    mask_filters: tuple[Tensor, ...]  # W_mask: zero mean
    mix: tuple[Tensor, ...]
    phi: tuple[Tensor, Tensor, Tensor]  # values at the knots, monotone
    log_scaling: Tensor  # s_c, (N, 14)
    kappa: Tensor  # (53,)
    boundary: Boundary

    def turned(self, symmetry: int) -> Weights:
        """The weights that see an image as these see it turned.

        With S this symmetry of the square, and w the turned weights: `M_w(x) = S^-1 M(S x)`, and likewise for W.

        Args:
            symmetry: 0 to 3 for so many quarter turns; 4 to 7 for the same, and then mirrored.
        """
        if symmetry == 0:
            return self
        filters, mask_filters, mix = (
            tuple(_turned_back(kernel, symmetry) for kernel in kernels)
            for kernels in (self.filters, self.mask_filters, self.mix)
        )
        return replace(self, filters=filters, mask_filters=mask_filters, mix=mix)

    def lam(self, sigma: Tensor) -> Tensor:
        """`kappa(sigma)`, the strength for denoising, `(B,) -> (B, 1, 1, 1)`; the same shape for maps of sigma."""
        if sigma.ndim > 1:
            return self.lam(sigma.flatten()).view_as(sigma)
        return sigma_spline(self.kappa, sigma).clamp_min(LAM_FLOOR).view(-1, 1, 1, 1)

    def alpha(self, sigma: Tensor) -> Tensor:
        """`exp(s_c(sigma)) / (sigma + 1e-5)`, the scaling of phi3, `(B,) -> (B, N, 1, 1)`.

        Of maps `(B, 1, H, W)` it is `(B, N, H, W)`.
        """
        if sigma.ndim > 1:
            return self.alpha(sigma.flatten()).view(len(sigma), *sigma.shape[2:], -1).movedim(-1, 1)
        scaling = sigma_spline(self.log_scaling, sigma).exp() / (sigma + 1e-5)
        return scaling.t()[:, :, None, None]

    def mask(self, x: Tensor, alpha: Tensor) -> Tensor:
        """`M(x)`, `(B, C, H, W) -> (B, N, H, W)`."""
        return attention(
            x,
            mask_filters=self.mask_filters,
            mix=self.mix,
            phi=self.phi,
            alpha=alpha,
            boundary=self.boundary,
        )

    def penalty(self, x: Tensor, squared_mask: Tensor) -> Tensor:
        """`W^T M^2 W x`, `(B, C, H, W) -> (B, C, H, W)`."""
        responses = analysis(x, self.filters, self.boundary)
        return synthesis(squared_mask * responses, self.filters, self.boundary)


class DEAL(nn.Module):
    """Deep attentive least squares: the parameters of `W`, `M` and `kappa`.

    The module holds parameters and configuration, nothing of a call. `weights()` gives what the solvers use.

    Args:
        channels: of the image, 1 (gray) or 3 (colour).
        boundary: `"reflect"`, or `"zero"` for weights trained with the paper's public code.
        features: number of filters; 128 in the paper, 48 in `gray-light`, 64 in `color-light`.
    """

    def __init__(self, channels: int = 1, boundary: Boundary | str = Boundary.REFLECT, features: int = 128):
        super().__init__()
        if channels < 1 or features < 1:
            raise ValueError(f"channels and features must be positive, not {channels} and {features}")
        self.channels, self.features, self.boundary = channels, features, Boundary(boundary)
        widths = [channels, 4 * channels, 8 * channels, features]
        self.filters = _bank(widths)
        self.mask_filters = _bank(widths)
        self.mix = nn.ParameterList(_kernel(features, features, 3) for _ in range(2))
        knots = torch.linspace(0, PHI_END, PHI_KNOTS)
        self.phi1 = nn.Parameter(knots.clone())
        self.phi2 = nn.Parameter(knots.clone())
        self.phi3 = nn.Parameter(torch.exp(-(knots**2)))
        self.kappa = nn.Parameter(torch.linspace(SIGMA_START, SIGMA_END, 53))
        self.scaling = nn.Parameter(torch.full((features, 14), 3.0))
        self._cached: tuple[object, Weights] | None = None

    @property
    def min_size(self) -> int:
        """The smallest height and width of an image: mirroring needs one pixel more than it mirrors."""
        return MASK_REACH + 1 if self.boundary is Boundary.REFLECT else 1

    def weights(self) -> Weights:
        """The constrained weights: recomputed where gradients are recorded, cached where they are not."""
        if torch.is_grad_enabled() or any(p.is_inference() for p in self.parameters()):
            return self.constrained()
        key = self._fingerprint()
        if self._cached is None or self._cached[0] != key:
            with torch.inference_mode(False), torch.no_grad():
                constrained = self.constrained()
            if not bool(torch.isfinite(constrained.filters[0]).all()):
                raise ValueError("the filters hold NaN or infinite values, so they have no norm")
            self._cached = key, constrained
        return self._cached[1]

    def _fingerprint(self) -> object:
        """What changes with the parameters. Their values count too: `.data` can be written past version counters."""
        parameters = list(self.parameters())
        values = [measure(p.detach()) for p in parameters for measure in (torch.sum, torch.linalg.vector_norm)]
        return [(p.data_ptr(), p._version, p.dtype, p.device) for p in parameters], torch.stack(values).tolist()

    def constrained(self) -> Weights:
        """The constrained weights, computed anew; nothing waits for the host."""
        # Trained filters have many frequencies of nearly the same, largest gain: TF32 would pick a wrong one.
        with full_precision(self.kappa.device):
            filters = normalised(zero_mean(tuple(self.filters)))
        return Weights(
            filters=filters,
            mask_filters=zero_mean(tuple(self.mask_filters)),
            mix=tuple(self.mix),
            phi=(non_decreasing(self.phi1), non_decreasing(self.phi2), non_increasing(self.phi3)),
            log_scaling=self.scaling,
            kappa=self.kappa,
            boundary=self.boundary,
        )

    def extra_repr(self) -> str:
        return f"channels={self.channels}, boundary={self.boundary.value}, features={self.features}"


def _turned_back(kernel: Tensor, symmetry: int) -> Tensor:
    mirrored = kernel.flip(-1) if symmetry >= SYMMETRIES // 2 else kernel
    return mirrored.rot90(-symmetry, (-2, -1)).contiguous()


def _bank(widths: list[int]) -> nn.ParameterList:
    return nn.ParameterList(_kernel(wide, narrow, KERNEL_SIZE) for narrow, wide in itertools.pairwise(widths))


def _kernel(outputs: int, inputs: int, size: int) -> nn.Parameter:
    return nn.Parameter(nn.init.kaiming_uniform_(torch.empty(outputs, inputs, size, size), a=math.sqrt(5)))
