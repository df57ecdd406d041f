"""Plug-and-play: a denoiser in the place of a proximal operator (Ryu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from torchdeal.benchmark.peers.base import PeerDenoiser, inference, squared_norm, tunable
from torchdeal.operators import Operator


@dataclass(frozen=True, eq=False)
class PlugAndPlay:
    """Forward-backward splitting, `x <- D(x - a H^T (H x - y))`, from `H^T y`.

    The step is `a = step / ||H||^2`. What is returned is the last argument of D, as the authors do, or, if `denoised`
    is 1, its value. Convergence is not guaranteed.
    """

    denoiser: PeerDenoiser
    iterations: int = 100
    level: float = tunable(5.0, 5.0, 15.0)  # of the denoiser, 0..255
    step: float = tunable(0.4, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 1.9)
    denoised: float = tunable(0, 0, 1)

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        x = backprojected = H.adjoint(y)
        step = self.step / squared_norm(H, tuple(x.shape[1:]))
        argument = x
        for _ in range(self.iterations):
            argument = x - step * (H.normal(x) - backprojected)
            x = in_range(self.denoiser, argument, self.level)
        return x if self.denoised else argument


def in_range(denoiser: PeerDenoiser, x: Tensor, sigma: float) -> Tensor:
    """The denoiser on each image mapped from its own range to one of length `1 + sigma / 510` around 1/2, and back."""
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    length = 1 + sigma / 510
    spread = (high - low).clamp_min(1e-12)  # a constant image stays one
    scaled = (x - low) / spread * length + (1 - length) / 2
    return (denoiser(scaled, sigma) - (1 - length) / 2) / length * spread + low
