"""Plug-and-play: a denoiser D in the place of a proximal operator (Ryu et al. 2019).

The alternating direction method of multipliers for `f(x) = 0.5 ||H x - y||^2`:

    x = argmin_x f(x) + weight / 2 ||x - (v - u)||^2,   v = D(x + u),   u = u + x - v

Where it converges, x is v and solves `x = D(x - grad f(x) / weight)`. The forward-backward method of the same paper,
`x <- D(x - a grad f(x))`, has the same solutions for `a = 1 / weight`, but it needs `a < 2 / ||H||^2`: with a denoiser
that is made for more noise than there is, it can only smooth too much. The authors stretch what they denoise from its
range to 0..1; images are in 0..1 here, and as they are the level of D means the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchdeal.benchmark.peers.base import PeerDenoiser, choice, first_image, fitted_image, inference, tunable
from torchdeal.operators import Operator


@dataclass(frozen=True, eq=False)
class PlugAndPlay:
    """With `weight = strength (255 noise / level)^2`, from `first_image`. Convergence is not guaranteed.

    So strength 1 is what denoising has, whatever the noise: D is made for noise of `level`.
    """

    denoiser: PeerDenoiser
    iterations: int = 50  # at a strength of 1 images change little after 30
    level: float = choice(15.0, 5.0, 15.0)  # of the denoiser, 0..255
    strength: float = tunable(1.0, *(2.0**k for k in range(-4, 9)))

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        weight = self.strength * (255 * noise / self.level) ** 2
        backprojected = H.adjoint(y)
        x = v = first_image(y, H, backprojected)
        u = torch.zeros_like(x)
        for _ in range(self.iterations):
            x = fitted_image(H, backprojected, v - u, weight, x)
            v = self.denoiser(x + u, self.level)
            u = u + x - v
        return x
