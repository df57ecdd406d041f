"""MMR: the mask of a majorise-minimise scheme, learned (Pourya, Neumayer and Unser 2024).

Ten problems `min over x in [0, 1]^n of 0.5 ||x - y||^2 + lam ||M W x||_1`, the mask M being 1 for the first and then
made of the solution before: `M(x) = B^T phi(B |W x|)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable, inference, need_channels
from torchdeal.benchmark.peers.weights import read_weights

LEVELS = (5, 15, 25)
REACH = 3  # of the filters of each layer, on each side
MENDED = 3 * REACH  # pixels at the border of which the first REACH results of two layers are made
PROBLEMS, MAX_STEPS = 10, 100
LOOSE, TIGHT, DECREASE = 1e-3, 1e-5, 0.398  # tolerances, from problem to problem


@dataclass(frozen=True, eq=False)
class MMR:
    """One model for each noise level. The images of a batch are denoised one by one."""

    peers_dir: Path | None
    device: str = "cpu"

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        if sigma not in LEVELS:
            raise Unavailable(f"MMR has weights for sigma {', '.join(map(str, LEVELS))}, not for {sigma:g}")
        model = MaskedRegularizer(read_weights(self.peers_dir, f"mmr_gray_s{int(sigma):02d}", self.device))
        return torch.cat([model.denoise(image) for image in noisy.split(1)])


@dataclass(frozen=True, eq=False)
class MaskedRegularizer:
    """W, the masks, and the problems in turn."""

    weights: dict[str, Tensor]
    spectra: dict[tuple[int, int, torch.dtype], Tensor] = field(default_factory=dict)

    def denoise(self, y: Tensor) -> Tensor:
        """Of one image `(1, 1, H, W)`."""
        x, mask, tolerance = y, None, LOOSE
        for problem in range(PROBLEMS):
            x = self.minimise(y, x, mask, tolerance, first=problem == 0)
            mask, tolerance = self.mask(x), max(tolerance * DECREASE, TIGHT)
        return x

    def minimise(self, y: Tensor, start: Tensor, mask: Tensor | None, tolerance: float, *, first: bool) -> Tensor:
        """`argmin_x 0.5 ||x - y||^2 + lam ||M W x||_1`, by accelerated projected gradients of the dual problem."""
        lam, step = float(self.weights["lam"]), 1 / float(self.weights["lip"])

        def forward(x: Tensor) -> Tensor:
            return self.filter(x) if mask is None else mask * self.filter(x)

        def backward(u: Tensor) -> Tensor:
            return self.filter_adjoint(u if mask is None else mask * u)

        def objective(x: Tensor) -> float:
            return float(0.5 * (x - y).square().sum() + lam * forward(x).abs().sum())

        stops = _small_step(tolerance) if first else _small_decrease(tolerance, objective)
        u = v = forward(start)
        pulled = pulled_ahead = backward(u)  # of u and v: the latter follows by linearity
        x, t = start, 5 / 3 if first else 1.0
        for j in range(MAX_STEPS):
            latest = (v + step * forward((y - pulled_ahead).clamp(0, 1))).clamp(-lam, lam)
            pulled_latest = backward(latest)
            ahead = (j + 6) / 3 if first else (1 + math.sqrt(1 + 4 * t**2)) / 2
            v = torch.lerp(u, latest, 1 + (t - 1) / ahead)
            pulled_ahead = torch.lerp(pulled, pulled_latest, 1 + (t - 1) / ahead)
            u, pulled, t, x = latest, pulled_latest, ahead, (y - pulled_latest).clamp(0, 1)
            if stops(x, j):
                break
        return x

    def mask(self, x: Tensor) -> Tensor:
        """`B^T phi(B |W x|)`, in [0, 1]."""
        blurs = [self.weights[f"mask_conv{i}.weight"].to(x) for i in range(2)]
        u = self.filter(x).abs()
        for blur in blurs:
            u = F.conv2d(u, blur, padding=3, groups=len(blur))
        u = self._shape(u)
        for blur in reversed(blurs):
            u = F.conv_transpose2d(u, blur, padding=3, groups=len(blur))
        return u

    def filter(self, x: Tensor) -> Tensor:
        """W, of one image."""
        return self._mended(self._correlated, self._layers, x)

    def filter_adjoint(self, u: Tensor) -> Tensor:
        """`W^T`, of the responses of one image."""
        return self._mended(self._convolved, self._layers_adjoint, u)

    def _mended(self, quick: Callable[[Tensor], Tensor], layered: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """By one bank of filters. Near the border the zeros between the two layers matter: there, by both in turn."""
        if min(x.shape[-2:]) < 2 * MENDED:
            return layered(x)
        result = quick(x)
        for dim in (-2, -1):
            size = x.shape[dim]
            ends = torch.cat([x.narrow(dim, 0, MENDED), x.narrow(dim, size - MENDED, MENDED)])
            first, last = layered(ends).split(1)
            result.narrow(dim, 0, REACH).copy_(first.narrow(dim, 0, REACH))
            result.narrow(dim, size - REACH, REACH).copy_(last.narrow(dim, MENDED - REACH, REACH))
        return result

    def _layers(self, x: Tensor) -> Tensor:
        for i in range(2):
            x = F.conv2d(x, self.weights[f"conv{i}.weight"].to(x), padding=REACH)
        return x

    def _layers_adjoint(self, u: Tensor) -> Tensor:
        for i in (1, 0):
            kernel = self.weights[f"conv{i}.weight"].to(u)
            u = F.conv2d(u, kernel.transpose(0, 1).flip(2, 3), padding=REACH)  # quicker than conv_transpose2d
        return u

    def _correlated(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        spectrum = self._spectrum(height, width, x)
        framed = torch.fft.rfft2(F.pad(x, (2 * REACH,) * 4), s=_frame(height, width))
        return torch.fft.irfft2(framed * spectrum.conj(), s=_frame(height, width))[..., :height, :width].contiguous()

    def _convolved(self, u: Tensor) -> Tensor:
        height, width = u.shape[-2:]
        product = torch.fft.rfft2(u, s=_frame(height, width)) * self._spectrum(height, width, u)
        whole = torch.fft.irfft2(product.sum(1, keepdim=True), s=_frame(height, width))
        return whole[..., 2 * REACH :, 2 * REACH :][..., :height, :width].contiguous()

    def _spectrum(self, height: int, width: int, like: Tensor) -> Tensor:
        """Of the filters that both layers are together, `(1, channels, ...)`."""
        key = (height, width, like.dtype)
        if key not in self.spectra:
            first, second = (self.weights[f"conv{i}.weight"].to(like) for i in range(2))
            bank = F.conv2d(second, first.transpose(0, 1).flip(2, 3), padding=2 * REACH)
            self.spectra[key] = torch.fft.rfft2(bank, s=_frame(height, width)).transpose(0, 1)
        return self.spectra[key]

    def _shape(self, u: Tensor) -> Tensor:
        """`clip(S_c(scale_c u), 0, 1)`, with the linear spline S_c continued linearly."""
        values, knots = self.weights["mask_spline"].to(u), self.weights["mask_spline_knots"]
        place = self.weights["mask_scale"].to(u).view(-1, 1, 1) * u / float(knots[1] - knots[0])
        left = place.floor().clamp(0, len(knots) - 2)
        channel = torch.arange(len(values), device=u.device).view(-1, 1, 1) * values.shape[1]
        index = left.long() + channel
        low, high = values.flatten()[index], values.flatten()[index + 1]
        return (low + (place - left) * (high - low)).clamp(0, 1)


def _frame(height: int, width: int) -> tuple[int, int]:
    """A size of transforms that hold an image and the filters side by side."""
    across, along = (-(-(side + 4 * REACH) // 32) * 32 for side in (height, width))
    return across, along


def make_mmr(peers_dir: Path | None, channels: int, device: str) -> MMR:
    """MMR for gray images."""
    need_channels(channels, (1,), "MMR")
    read_weights(peers_dir, f"mmr_gray_s{LEVELS[0]:02d}", device)
    return MMR(peers_dir, device)


def _small_step(tolerance: float) -> Callable[[Tensor, int], bool]:
    """Whether the image changes by less than the tolerance, relatively, after some steps."""
    before: list[Tensor] = []

    def stops(x: Tensor, j: int) -> bool:
        small = j > 5 and float((x - before[0]).norm()) < tolerance * float(before[0].norm())
        before[:] = [x]
        return small

    return stops


def _small_decrease(tolerance: float, objective: Callable[[Tensor], float]) -> Callable[[Tensor, int], bool]:
    """Whether the objective changes by less than the tolerance, relatively."""
    before: list[float] = []

    def stops(x: Tensor, j: int) -> bool:
        value = objective(x)
        small = bool(before) and abs(value - before[0]) < tolerance * abs(before[0])
        before[:] = [value]
        return small

    return stops
