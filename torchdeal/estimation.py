"""What an image is before it is reconstructed: its range, and sigma and lam from the noise.

The noise is estimated in `noise`, that of k-space in `mri.calibration`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchdeal.equivalent_noise import equivalent_noise
from torchdeal.io.measurements import PerSample, noise_map, per_sample
from torchdeal.model import SIGMA_MAX, Weights
from torchdeal.operators import Operator
from torchdeal.solvers import conjugate_gradient, sample_norms
from torchdeal.solvers.result import per_sample_column

AUTO = "auto"
PLAUSIBLE = (0.3, 3.0)  # ranges of images that were meant to be in 0..1
RANGE_ITERATIONS = 10
LEAST_SPREAD = 3.0  # with less noise lam would be so small that the problem is hard to solve, for little
SIGMA_MIN = 6.5  # of the rule for sigma, on the 0..255 scale
# And at most so many times the noise that a plain inversion would leave in a pixel: beyond that lam is next to nothing,
# and the answer depends on where the run begins
MOST_SPREADS = 8.0
LAM_FACTOR = 0.7  # of the rule for lam
KEPT = 1e-3  # lam of pixels without noise among others: they change by less than 1e-4 of white
FAR = 1024.0  # gains that are more than so many times larger or smaller than 1 are scaled away
FEW_PIXELS, PROBES_OF_FEW = 256, 16  # an image of so few values is probed as often
MOST_APART = 1e6  # gains within a batch: beyond this the smaller ones are lost in rounding


class Parameters(NamedTuple):
    """Of a reconstruction, on the scale of the model; maps are `(B, C or 1, H, W)`."""

    sigma: Tensor  # on the 0..255 scale, (B,), or a map
    lam: Tensor  # (B, 1, 1, 1), or a map
    noise: Tensor | None  # in the measurements, where white is 1: (B, 1, 1, 1), or a map; None if it is not known


def unless_automatic(value: Any) -> Any:
    """What was given; None where it is to be found."""
    return None if isinstance(value, str) and value == AUTO else value


def choose_parameters(
    weights: Weights,
    operator: Operator,
    b: Tensor,
    sigma: PerSample | None,
    lam: PerSample | None,
    noise: PerSample | None,
    *,
    white: Tensor,
    unit: float = 1.0,
) -> Parameters:
    """Sigma and lam: as given, learned, or by the rule. In denoising sigma may be a map: then both are maps.

    Args:
        weights: of the model.
        operator: `H`.
        b: `H^T y`.
        sigma: the noise level of the model, in the units of the data, or None.
        lam: the strength, or None.
        noise: standard deviation of the noise in the measurements, in their units, or None.
        white: the value of white in each image, `(B,)`.
        unit: what `H` and the measurements were divided by; lam and noise are given as they were before.
    """
    denoising = operator.is_identity
    if denoising and sigma is None:
        sigma, noise = noise, None
    if noise is None and (sigma is None or (lam is None and not denoising)):
        missing = " and ".join(name for name, value in (("sigma", sigma), ("lam", lam)) if value is None)
        raise ValueError(f"{missing} missing: give noise, the standard deviation of the noise in the measurements")
    levels = noise_map(sigma, b) if denoising else None
    if levels is not None:
        return _map_parameters(weights, levels, lam, white)
    level = None if sigma is None else per_sample("sigma", sigma, b, minimum=0.0) * (255 / white)
    if level is not None:
        _warn_untrained(level, white)
    # Not divided by the square, which could overflow.
    strength = None if lam is None else per_sample("lam", lam, b, above=0.0).view(-1, 1, 1, 1) / unit / unit
    if denoising and level is not None and strength is None:
        strength = weights.lam(level)
    measured = level if denoising else None
    if noise is not None:
        measured = per_sample("noise", noise, b, above=0.0) / unit * (255 / white)
    if level is None or strength is None:
        assert measured is not None
        default_level, default_strength = default_parameters(weights, operator, b, measured, level)
        level = default_level if level is None else level
        strength = default_strength if strength is None else strength
    return Parameters(level, strength, None if measured is None else measured.view(-1, 1, 1, 1) / 255)


def _map_parameters(weights: Weights, levels: Tensor, lam: PerSample | None, white: Tensor) -> Parameters:
    if lam is not None:
        raise ValueError(
            "lam was given for noise that differs from pixel to pixel (a noise map, or counted photons): "
            "leave lam out, it follows from the noise"
        )
    levels = levels * (255 / white).view(-1, 1, 1, 1)
    _warn_untrained(levels.flatten(1).amax(1), white)
    # What has no noise is kept. The learned strength for it is that of pictures in which nothing has any.
    return Parameters(levels, torch.where(levels > 0, weights.lam(levels), KEPT), levels / 255)


def _warn_untrained(level: Tensor, white: Tensor) -> None:
    worst = int(level.argmax())
    if float(level[worst]) > SIGMA_MAX * (1 + 1e-6):
        scale = float(white[worst]) / 255
        warnings.warn(
            f"sigma = {float(level[worst]) * scale:g} is beyond the noise levels of the training, "
            f"0 to {SIGMA_MAX * scale:g} for data in this range: expect a poor result",
            stacklevel=4,
        )


def default_parameters(
    weights: Weights, operator: Operator, b: Tensor, noise: Tensor, sigma: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sigma and lam for an inverse problem, from its measurements and the noise in them.

    Sigma is the level of the white noise that would leave as large an error in the image as these measurements do
    (`equivalent_noise`). The model with this level s is a prior with the weight `kappa(s) / s^2` against the data's
    `1 / noise^2`: so lam is `kappa(s) (noise / s)^2`, times a factor. (In denoising, with `s = noise` and without the
    factor, it is the learned value; that needs no rule.) The noise is taken to be so large at least that a plain
    inversion would leave noise of level 3 in a pixel, and sigma to be at most 8 times what such an inversion leaves.

    Args:
        weights: of the model.
        operator: `H`.
        b: `H^T y`, `(B, C, H, W)`.
        noise: standard deviation of the noise in the measurements, `(B,)`, with the image on the 0..255 scale.
        sigma: where it is known already, `(B,)`.

    Returns:
        sigma on the 0..255 scale, `(B,)`, and lam, `(B, 1, 1, 1)`.
    """
    mean_gain = gain(operator, b)
    noise = torch.maximum(noise, LEAST_SPREAD * mean_gain)
    if sigma is None:
        levels = [equivalent_noise(operator, b, noise / 255, signs) for signs in _random_signs(b)]
        sigma = torch.minimum(255 * torch.stack(levels).mean(0), MOST_SPREADS * noise / mean_gain)
        sigma = sigma.clamp(SIGMA_MIN, SIGMA_MAX)
    elif not bool((sigma > 0).all()):
        raise ValueError("sigma 0 has no lam of its own: give lam too, or a sigma above 0")
    return sigma, LAM_FACTOR * weights.lam(sigma) * (noise / sigma).square().view(-1, 1, 1, 1)


def gain(operator: Operator, like: Tensor) -> Tensor:
    """The root of the mean of the diagonal of `H^T H`, per sample: about `||H z|| / ||z||` for random signs z."""
    found = [sample_norms(operator.forward(signs)) / sample_norms(signs) for signs in _random_signs(like)]
    mean = found[0] if len(found) == 1 else torch.stack(found).square().mean(0).sqrt()
    if not bool(torch.isfinite(mean).all()):
        raise ValueError(f"{operator.known_as()}: the forward operator returned NaN, infinite or huge values")
    return mean


def _random_signs(like: Tensor) -> Iterator[Tensor]:
    """The same for all samples, whose results must not depend on one another. Few signs may cancel by chance."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(1 if like[0].numel() > FEW_PIXELS else PROBES_OF_FEW):
        signs = torch.randint(0, 2, like.shape[1:], generator=generator).to(like.device, like.dtype) * 2 - 1
        yield signs.expand_as(like).contiguous()


def far_unit(operator: Operator, like: Tensor) -> float:
    """The power of 2 next to the gain, where that is far from 1; else 1. It is that of the largest gain of a batch.

    With `H` and the measurements divided by it nothing overflows, and by a power of 2 nothing is rounded.
    """
    gains = torch.stack([_gains(operator, signs) for signs in _random_signs(like)]).amax(0)
    if not bool(((gains > 0) & (gains < math.inf)).all()):
        return 1.0
    least, largest = float(gains.min()), float(gains.max())
    if largest > MOST_APART * least:
        raise ValueError(
            f"the operator has gains from {least:.1e} to {largest:.1e} for the samples of a batch: "
            "reconstruct such samples one by one"
        )
    return 1.0 if 1 / FAR < largest < FAR else 2.0 ** round(math.log2(largest))


def _gains(operator: Operator, signs: Tensor) -> Tensor:
    """`||H z|| / ||z||`, whatever its size: divided by the largest, numbers have squares that do not overflow."""
    measured = operator.forward(signs).abs()
    size = measured.flatten(1).amax(1).double()
    divided = measured / per_sample_column(torch.where(size > 0, size, 1.0).to(measured.dtype), measured)
    return size * sample_norms(divided) / sample_norms(signs)


@dataclass(frozen=True)
class DataRange:
    """The value of white in the image: given, that of the dtype, or found from the data.

    Attributes:
        given: what measurements and start are divided by as they are read; None for the value of their dtype.
        estimated: each image is then divided by the range of a rough reconstruction.
        keep_plausible: but not if that is near 1: the image was meant to be in 0..1.
    """

    given: float | None
    estimated: bool = False
    keep_plausible: bool = False

    @classmethod
    def of(cls, asked: float | str | None, operator: Operator) -> DataRange:
        """What `reconstruct` was asked for, or the operator says; by default estimated for what are no images."""
        asked = operator.data_range if asked is None else asked
        if isinstance(asked, str) and asked != AUTO:
            raise ValueError(f"data_range must be a positive number or {AUTO!r}, not {asked!r}")
        if isinstance(asked, str) or (asked is None and not operator.measures_images):
            return cls(1.0, estimated=True, keep_plausible=asked is None)
        return cls(asked)

    def scale(self, operator: Operator, b: Tensor) -> Tensor:
        """What each image is divided by after it was read, `(B,)`, from `b = H^T y`."""
        if not self.estimated:
            return b.real.new_ones(len(b))
        found = estimate_range(operator, b)
        if not bool(torch.isfinite(found).all()):
            raise ValueError(f"{operator.known_as()}: it returned NaN, infinite or huge values for a finite image")
        plausible = self.keep_plausible & (found > PLAUSIBLE[0]) & (found < PLAUSIBLE[1])
        return torch.where(plausible, 1.0, found)


def estimate_range(operator: Operator, b: Tensor) -> Tensor:
    """The range of values of each image, `(B,)`, from `b = H^T y`: that of a rough least-squares solution.

    A thousandth of the pixels at either end does not count. Of a complex image it is the largest magnitude.
    """
    size = b.abs().amax((1, 2, 3), keepdim=True)
    size = torch.where(size > 0, size, 1.0)  # squares of what is far from 1 could underflow
    x = conjugate_gradient(operator.normal, b / size, tolerance=1e-2, max_iterations=RANGE_ITERATIONS).x * size
    if operator.complex_channels:
        x = torch.complex(*x.split(1, 1))
    values = (x.abs() if x.is_complex() else x).flatten(1)
    beyond = values.shape[1] // 1000
    high = values.kthvalue(values.shape[1] - beyond, dim=1).values
    low = torch.zeros_like(high) if x.is_complex() else values.kthvalue(1 + beyond, dim=1).values
    return torch.where(high > low, high - low, 1.0)
