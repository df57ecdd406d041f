"""How sure a reconstruction is: a standard deviation for each pixel, and samples of what else it could be.

With its masks frozen at the fixed point the model is Gaussian: `||H x - y||^2 + lam ||M W x||^2`, divided by twice the
squared noise, is the negative logarithm of a normal density. Its mean is the reconstruction, its covariance
`noise^2 A^-1` with `A = H^T H + lam W^T M^2 W`. What is left out is that the masks are themselves found from the noisy
data. One number, `CALIBRATION`, could make up for that on average; in denoising it turned out to be 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.estimation import LAM_FACTOR
from torchdeal.io.measurements import positive_integer
from torchdeal.model.boundary import Boundary, fold
from torchdeal.model.filters import REACH, impulse_responses, synthesis
from torchdeal.precision import full_precision
from torchdeal.reconstruction import PosedEquation, Reconstruction, posed_by
from torchdeal.solvers import System, conjugate_gradient
from torchdeal.system import as_seen, seen_by_model

PROBES = 16
CALIBRATION = 1.0  # as the model states it: `deal benchmark uncertainty --cells Set12` covers 90 % in denoising with it
TOLERANCE, CG_LIMIT = 1e-2, 1000  # of the solves
SIGNS = 32  # random vectors for the diagonal of H^T H: they are cheap beside a solve

Told = Callable[[int, int], None]  # how many solves are done, and how many there are


def uncertainty(rec: Reconstruction, *, probes: int = PROBES, seed: int = 0, callback: Told | None = None) -> Any:
    """The standard deviation of each pixel, in the units and the layout of the image.

    It is the root of the diagonal of `CALIBRATION^2 noise^2 A^-1`. In denoising and inpainting 87 to 92 % of the pixels
    of the truth are within 1.645 deviations. Where `H` hides detail (blur, missing frequencies) it is too small, by a
    factor of 1.1 to 1.7: see docs/trust.md.

    Args:
        rec: what `reconstruct` returned.
        probes: linear solves. With 16 the deviation of a pixel is known to 2 to 6 % (root mean square, against dense
            inverses: `tools/deviations.py`), for about the time of a reconstruction; the error falls with the root.
        seed: of the random numbers.
        callback: told after each solve how many are done, and how many there are.

    Returns:
        floating point, numpy or torch as the image is. Of a complex image it is the deviation of real and imaginary
        part, the root of the mean of both squares.
    """
    posterior, probes = Posterior.of(rec), positive_integer("probes", probes)
    with torch.no_grad(), full_precision(posterior.x.device):
        variance = posterior.variance(posterior.draws(probes, seed, callback), probes)
        if posterior.x.is_complex():
            variance = variance.unflatten(1, (2, -1)).mean(1)
        return as_floats(posterior.equation).restored(posterior.scale * variance.sqrt())


def sample(rec: Reconstruction, n: int, *, seed: int = 0, callback: Told | None = None) -> Any:
    """Images that agree with the data and the model about as well as the reconstruction, `(n, ...)`.

    They are `x + c noise A^-1 (H^T n1 + sqrt(lam) W^T M n2)` with white n1 and n2 and `c = CALIBRATION`: x plus normal
    deviations of covariance `c^2 noise^2 A^-1`. The first samples do not depend on how many there are.

    Args:
        rec: what `reconstruct` returned.
        n: how many.
        seed: of the random numbers.
        callback: told after each sample how many are done, and how many there are.

    Returns:
        floating point, numpy or torch as the image is, with one dimension more, the first.
    """
    posterior, n = Posterior.of(rec), positive_integer("n", n)
    with torch.no_grad(), full_precision(posterior.x.device):
        floats = as_floats(posterior.equation)
        images = [
            floats.restored(posterior.x + posterior.scale * draw.x) for draw in posterior.draws(n, seed, callback)
        ]
    return torch.stack(images) if isinstance(images[0], Tensor) else np.stack(images)


@dataclass(frozen=True)
class Draw:
    """A normal vector of covariance `A^-1`, and `A x`."""

    x: Tensor
    b: Tensor


@dataclass(frozen=True)
class Posterior:
    """The normal density about a reconstruction, of mean x and covariance `scale^2 A^-1`."""

    equation: PosedEquation
    x: Tensor
    system: System
    mask: Tensor  # M, of all images that the model sees

    @classmethod
    def of(cls, rec: Reconstruction) -> Posterior:
        """Of a reconstruction. Raises TypeError for an image."""
        equation, x = posed_by(rec)
        with torch.no_grad(), full_precision(x.device):
            weights = equation.weights
            images = seen_by_model(x, weights.filters[0].shape[1])
            alpha = weights.alpha(equation.sigma)
            mask = weights.mask(images, alpha.repeat_interleave(len(images) // len(alpha), 0))
            return cls(equation, x, equation.system().precise(x), mask)

    @property
    def scale(self) -> Tensor:
        """What the deviations of `A^-1` are multiplied by, `(B, 1, 1, 1)` or a map."""
        return CALIBRATION * self.noise

    @property
    def noise(self) -> Tensor:
        """The noise that sigma and lam stand for, `(B, 1, 1, 1)` or a map.

        At level sigma the model is a prior of precision `kappa(sigma) / sigma^2 W^T M^2 W`, with kappa the learned
        strength. Beside data of precision `1 / noise^2` its strength is `lam = kappa(sigma) (noise / sigma)^2`; in
        inverse problems the rule for lam has a factor. Where lam is larger than the noise asks for, the answer is
        smoother, and further from the truth. In denoising the noise is sigma at least: a smaller lam leaves more of it.
        """
        sigma, lam = self.equation.sigma, self.equation.lam
        if sigma.ndim > 1:  # the levels of a map, as its equation weighs them
            assert self.equation.noise is not None
            return self.equation.noise
        level, strength = sigma.view(-1, 1, 1, 1) / 255, self.equation.weights.lam(sigma)
        if self.equation.operator.is_identity:
            return level * (lam / strength).sqrt().clamp_min(1)
        return level * (lam / (LAM_FACTOR * strength)).sqrt()

    def draws(self, count: int, seed: int, callback: Told | None) -> Iterator[Draw]:
        """Independent ones, for each image of the batch."""
        generator = torch.Generator(self.x.device).manual_seed(seed)
        for done in range(1, count + 1):
            b = self._perturbation(generator)
            x = conjugate_gradient(
                self.system.for_solves,
                b,
                tolerance=TOLERANCE,
                max_iterations=CG_LIMIT,
                preconditioner=self.system.preconditioner,
            ).x
            if callback:
                callback(done, count)
            yield Draw(x, b)

    def _perturbation(self, generator: torch.Generator) -> Tensor:
        """`H^T n1 + sqrt(lam) W^T M n2`, of covariance A."""
        weights, y = self.equation.weights, self.equation.y
        data = self.equation.operator.adjoint(_normal(y, generator))
        prior = synthesis(self.mask * _normal(self.mask, generator), weights.filters, weights.boundary)
        return data + self.equation.lam.sqrt() * as_seen(prior, self.x)

    def variance(self, draws: Iterator[Draw], count: int) -> Tensor:
        """The diagonal of `A^-1`, `(B, C, H, W)`, or `(B, 2 C, H, W)` for a complex image.

        Given all the other pixels, pixel i is normal with the variance `1 / A_ii` about a mean that lies
        `(A x)_i / A_ii` from x_i. So `(A^-1)_ii = 1 / A_ii + var(x_i - (A x)_i / A_ii)`: only the second term, which
        is often the smaller one, is estimated from draws (Rao and Blackwell's theorem). It hardly changes from pixel to
        pixel once it is multiplied by `A_ii^1.5`, and is averaged with its neighbours.
        """
        diagonal = self._diagonal
        spread = torch.zeros_like(diagonal)
        for draw in draws:
            spread += (diagonal * _parts(draw.x) - _parts(draw.b)).square() / count
        weight = diagonal.sqrt()
        return 1 / diagonal + weight * _local_mean(spread / weight) / diagonal.square()

    @cached_property
    def _diagonal(self) -> Tensor:
        """About that of A."""
        weights = self.equation.weights
        squares = impulse_responses(weights.filters).square()
        mirrored = weights.boundary is Boundary.REFLECT
        # Near the border a filter sees pixels twice, in the mirror: the product of both is left out.
        penalty = F.conv_transpose2d(self.mask.square(), squares, padding=0 if mirrored else REACH)
        penalty = fold(penalty, REACH) if mirrored else penalty
        data = diagonal_of(self.equation.operator.normal, self.x)
        return data + self.equation.lam * penalty.reshape(data.shape)


def as_floats(equation: PosedEquation) -> PosedEquation:
    """The equation with results in floating point: in 8 bits most deviations would be 0 or 1. Alpha is left out."""
    known = equation.image_format
    dtype = "float64" if known.dtype == "float64" else "float32"
    return replace(equation, image_format=replace(known, dtype=dtype, alpha=None))


def diagonal_of(apply: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """About the diagonal of a positive semidefinite map of images, by random signs z: the mean of `z * apply(z)`.

    What varies no more from pixel to pixel than by the chance of the draws is replaced by its local mean.
    """
    generator = torch.Generator(like.device).manual_seed(0)
    total, squares = (torch.zeros_like(_parts(like)) for _ in range(2))
    for _ in range(SIGNS):
        signs = _normal(like, generator)
        signs = torch.complex(signs.real.sign(), signs.imag.sign()) if like.is_complex() else signs.sign()
        found = _parts(signs) * _parts(apply(signs))
        total += found / SIGNS
        squares += found.square() / SIGNS
    chance = (squares - total.square()).clamp_min(0) / (SIGNS - 1)
    smooth = total
    for _ in range(4):
        smooth = _local_mean(smooth)
    everywhere = (1, 2, 3)
    beyond_chance = ((total - smooth).square() - chance).mean(everywhere, keepdim=True).clamp_min(0)
    share = torch.where(chance > 0, beyond_chance / (beyond_chance + chance), 1)
    return (smooth + share * (total - smooth)).clamp_min(0)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """White noise of variance 1, of the real and of the imaginary part where it is complex."""
    shape = torch.view_as_real(like).shape if like.is_complex() else like.shape
    draws = torch.randn(shape, generator=generator, dtype=like.real.dtype, device=like.device)
    return torch.view_as_complex(draws) if like.is_complex() else draws


def _parts(x: Tensor) -> Tensor:
    """A complex image as a real one, `(B, 2 C, H, W)`; a real one as it is."""
    return torch.view_as_real(x).movedim(-1, 1).flatten(1, 2) if x.is_complex() else x


def _local_mean(x: Tensor) -> Tensor:
    """With the weights 1, 2, 1 in rows and in columns."""
    for dim in (-2, -1):
        size = x.shape[dim]
        first, last = x.narrow(dim, 0, 1), x.narrow(dim, size - 1, 1)
        before = torch.cat([first, x.narrow(dim, 0, size - 1)], dim)
        after = torch.cat([x.narrow(dim, 1, size - 1), last], dim)
        x = (before + 2 * x + after) / 4
    return x
