"""EPLL: the expected log likelihood of patches under a mixture of Gaussians (Zoran and Weiss 2011).

The prior knows 8 x 8 patches without their mean. Half-quadratic splitting alternates the most likely patches, for
noise of variance `1 / beta`, and the image that fits them and the data; beta grows. Near the border fewer patches
overlap; their mean has the same weight there as elsewhere, so that the border does not stay noisy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable, first_image, fitted_image, inference, need_channels, tunable
from torchdeal.benchmark.peers.weights import read_weights
from torchdeal.operators import Operator

SIDE = 8  # of a patch
FILE = "epll_gray"
DENOISING_BETAS = (1.0, 4.0, 8.0, 16.0, 32.0)  # in units of 1 / noise^2
DOUBLINGS = 7  # of beta in other problems
AT_ONCE = 2**16  # patches, of which responsibilities are held in memory
LEAST_VARIANCE = 1e-6  # about that of rounding to 8 bits
LEAST_WEIGHT = 1e-6  # patches; below, a component is empty


@dataclass(frozen=True, eq=False)
class PatchMixture:
    """Gaussians of mean zero: logarithms of their weights `(K,)` and covariances `(K, D, D)`."""

    log_weights: Tensor
    covariances: Tensor

    def log_likelihoods(self, patches: Tensor, variance: float) -> Tensor:
        """Log of weight times density of each component, `(N, K)`, of patches `(N, D)` with noise of that variance."""
        factors = self._factors(variance)
        size = patches.shape[1]
        whitening = torch.linalg.solve_triangular(factors, torch.eye(size).to(factors), upper=False)
        half_determinants = factors.diagonal(dim1=1, dim2=2).log().sum(1)
        constants = self.log_weights - half_determinants - 0.5 * size * math.log(2 * math.pi)
        # One component after the other: all at once would need K times the memory of the patches.
        squares = torch.stack([(patches @ inverse.T).square().sum(1) for inverse in whitening.to(patches)], 1)
        return constants.to(patches) - 0.5 * squares

    def most_likely(self, patches: Tensor, variance: float) -> Tensor:
        """The Wiener filter of the likeliest component, of patches `(N, D)`; their means are kept."""
        means = patches.mean(1, keepdim=True)
        centred = patches - means
        parts = [self.log_likelihoods(part, variance).argmax(1) for part in centred.split(AT_ONCE)]
        chosen = torch.cat(parts)
        filters = torch.cholesky_solve(self.covariances, self._factors(variance)).to(patches)
        for component in chosen.unique().tolist():
            members = chosen == component
            centred[members] = centred[members] @ filters[component]  # (C + v I)^-1 C is symmetric
        return centred + means

    def _factors(self, variance: float) -> Tensor:
        noise = variance * torch.eye(self.covariances.shape[-1]).to(self.covariances)
        return torch.linalg.cholesky(self.covariances + noise)


@dataclass(frozen=True, eq=False)
class EPLLDenoiser:
    """With the betas of the paper."""

    mixture: PatchMixture

    @inference
    def __call__(self, noisy: Tensor, sigma: float) -> Tensor:
        if sigma <= 0:
            return noisy
        x, precision = noisy, (255 / sigma) ** 2
        for beta in DENOISING_BETAS:
            fitted = averaged(self.mixture.most_likely(unfolded(x), 1 / (beta * precision)), x)
            x = (noisy + beta * fitted) / (1 + beta)
        return x


@dataclass(frozen=True, eq=False)
class EPLLSolver:
    """For any H: the image that fits patches and data is found by conjugate gradients."""

    mixture: PatchMixture
    # the first weight, for images in 0..1
    beta: float = tunable(50.0, 3.125, 6.25, 12.5, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0)

    @inference
    def __call__(self, y: Tensor, H: Operator, noise: float) -> Tensor:
        backprojected = H.adjoint(y)
        x = first_image(y, H, backprojected)
        for doubling in range(DOUBLINGS):
            beta = self.beta * 2**doubling
            fitted = averaged(self.mixture.most_likely(unfolded(x), 1 / beta), x)
            x = fitted_image(H, backprojected, fitted, beta * noise**2, x)
        return x


def unfolded(x: Tensor) -> Tensor:
    """All patches of gray images `(B, 1, H, W)`, `(N, 64)`."""
    return F.unfold(x, SIDE).transpose(1, 2).reshape(-1, SIDE**2)


def averaged(patches: Tensor, like: Tensor) -> Tensor:
    """Images like that, each pixel the mean of the patches `(N, 64)` that it is in."""
    return _folded(patches, like) / _folded(torch.ones_like(patches), like)


def fit_mixture(patches: Tensor, components: int, iterations: int, seed: int = 0) -> PatchMixture:
    """By expectation maximisation, of patches `(N, D)`, whose means are taken away."""
    centred = patches - patches.mean(1, keepdim=True)
    assigned = F.one_hot(_first_clusters(centred, components, seed), components).to(centred)
    mixture = _maximised([(centred, assigned)], components)
    for _ in range(iterations):
        parts = centred.split(AT_ONCE)
        expected = ((part, mixture.log_likelihoods(part, LEAST_VARIANCE).softmax(1)) for part in parts)
        mixture = _maximised(expected, components)
    return mixture


def make_epll(peers_dir: Path | None, channels: int, device: str) -> PatchMixture:
    """The mixture that `python -m torchdeal.benchmark.peers --fit-epll` has left in the folder of weights."""
    need_channels(channels, (1,), "EPLL")
    try:
        weights = read_weights(peers_dir, FILE, device)
    except Unavailable as error:
        remedy = "fit it by python -m torchdeal.benchmark.peers --peers-dir DIR --fit-epll IMAGES"
        raise Unavailable(f"{error}, or {remedy}") from None
    return PatchMixture(weights["log_weights"].double(), weights["covariances"].double())


def _folded(patches: Tensor, like: Tensor) -> Tensor:
    """The sum of patches in their places."""
    return F.fold(patches.view(len(like), -1, SIDE**2).transpose(1, 2), like.shape[-2:], SIDE)


def _first_clusters(centred: Tensor, components: int, seed: int) -> Tensor:
    """Each patch belongs to the example that is most like it in direction and contrast."""
    generator = torch.Generator(centred.device).manual_seed(seed)
    examples = torch.randperm(len(centred), generator=generator, device=centred.device)[:components]
    contrast = centred.norm(dim=1).clamp_min(LEAST_VARIANCE**0.5)
    direction, contrast = centred / contrast[:, None], contrast.log()
    parts = zip(direction.split(AT_ONCE), contrast.split(AT_ONCE), strict=True)
    return torch.cat(
        [
            ((d @ direction[examples].T).square() - (0.5 * (c[:, None] - contrast[examples])).square()).argmax(1)
            for d, c in parts
        ]
    )


def _maximised(expected: Iterable[tuple[Tensor, Tensor]], components: int) -> PatchMixture:
    """The mixture that is likeliest, given patches `(N, D)` and how much each belongs to each component, `(N, K)`."""
    weights: Tensor | float = 0.0
    scatter: Tensor | float = 0.0
    for patches, shares in expected:
        weights = weights + shares.sum(0).double()
        squares = [(patches * shares[:, k, None]).T @ patches for k in range(components)]
        scatter = scatter + torch.stack(squares).double()
    assert isinstance(weights, Tensor)
    assert isinstance(scatter, Tensor)
    weights = weights.clamp_min(LEAST_WEIGHT)
    return PatchMixture((weights / weights.sum()).log(), scatter / weights.view(-1, 1, 1))
