"""What the data tell before they are reconstructed: their noise, their range, and sigma and lam from both.

The noise of k-space is estimated in `mri.calibration`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdeal.io.images import to_tensor
from torchdeal.io.measurements import PerSample, per_sample
from torchdeal.model import SIGMA_MAX, Weights
from torchdeal.operators import Operator
from torchdeal.solvers import conjugate_gradient, sample_norms

AUTO = "auto"
PLAUSIBLE = (0.3, 3.0)  # ranges of images that were meant to be in 0..1
PATCH = 7
MEDIAN_OF_NORMAL = 0.6744897501960817  # of the absolute value of a standard normal variable
FEWEST_SQUARES = 100  # of four known pixels, to estimate the noise of a picture with holes
RANGE_ITERATIONS = 10
LEAST_SPREAD = 3.0  # with less noise lam would be so small that the problem is hard to solve, for little
SIGMA_FACTOR, SIGMA_POWER, SIGMA_MIN = 1.4, 0.8, 6.5  # of the rule for sigma, on the 0..255 scale
LAM_FACTOR = 0.7  # of the rule for lam


def estimate_sigma(image: Any, *, data_range: float | None = None) -> list[float]:
    """The standard deviation of white Gaussian noise in each image of a batch, in the units of the data.

    Image structure lives in a few principal components of small patches; the others hold noise alone, and their
    variances are all sigma^2. From the largest down, components are dropped until the mean of the rest equals their
    median, as it does for noise (the criterion of Chen, Zhu and Heng, ICCV 2015).
    """
    tensor, image_format = to_tensor(image, data_range=data_range)
    if min(tensor.shape[-2:]) < 2 * PATCH:
        raise ValueError(f"the image is too small to estimate its noise: at least {2 * PATCH} x {2 * PATCH} is needed")
    return [_noise_level(sample.double()) * image_format.data_range for sample in tensor]


def _noise_level(image: Tensor) -> float:
    """Of one image `(C, H, W)`: the mean over its channels, whose noise is taken to be equal."""
    levels = []
    for channel in image:
        patches = channel.unfold(0, PATCH, 1).unfold(1, PATCH, 1).reshape(-1, PATCH * PATCH)
        patches = patches - patches.mean(0)
        variances = torch.linalg.eigvalsh(patches.T @ patches / len(patches))  # ascending
        count = len(variances)
        while count > 1 and variances[:count].mean() > variances[:count].median():
            count -= 1
        levels.append(float(variances[:count].mean().clamp_min(0).sqrt()))
    return sum(levels) / len(levels)


def deviation(values: Tensor) -> float:
    """The standard deviation of normal values around 0, by their median: some of them may be something else."""
    return float(values.abs().median()) / MEDIAN_OF_NORMAL


def estimate_known_sigma(image: Tensor, known: Tensor) -> float:
    """The noise of a picture `(B, C, H, W)` of which only some pixels, `(H, W)`, are known.

    It is that of the differences across squares of four known pixels: pictures are smooth there more often than not.
    """
    corners = [(slice(None, -1), slice(None, -1)), (slice(None, -1), slice(1, None))]
    corners += [(slice(1, None), slice(None, -1)), (slice(1, None), slice(1, None))]
    whole = torch.stack([known[rows, columns] for rows, columns in corners]).all(0)
    if int(whole.sum()) < FEWEST_SQUARES:
        raise ValueError(
            "too few known pixels are neighbours to estimate the noise: give sigma, or on the command line give --sigma"
        )
    a, b, c, d = (image[..., rows, columns][..., whole] for rows, columns in corners)
    return deviation((a - b - c + d) / 2)


def estimate_sinogram_noise(sinogram: Tensor) -> float:
    """From third differences along the detector, the last dimension: line integrals are smooth there, noise is not."""
    return deviation(sinogram.double().diff(n=3, dim=-1) / math.sqrt(20))  # 1 + 9 + 9 + 1


def choose_parameters(
    weights: Weights,
    operator: Operator,
    b: Tensor,
    sigma: PerSample | None,
    lam: PerSample | None,
    noise: PerSample | None,
    *,
    white: Tensor,
) -> tuple[Tensor, Tensor]:
    """Sigma on the 0..255 scale, `(B,)`, and lam, `(B, 1, 1, 1)`: as given, learned, or by the rule.

    Args:
        weights: of the model.
        operator: `H`.
        b: `H^T y`.
        sigma: the noise level of the model, in the units of the data, or None.
        lam: the strength, or None.
        noise: standard deviation of the noise in the measurements, in their units, or None.
        white: the value of white in each image, `(B,)`.
    """
    denoising = operator.is_identity
    if denoising and sigma is None:
        sigma, noise = noise, None
    if noise is None and (sigma is None or (lam is None and not denoising)):
        missing = " and ".join(name for name, value in (("sigma", sigma), ("lam", lam)) if value is None)
        raise ValueError(
            "sigma, the noise level, is needed"
            if denoising
            else f"{missing} missing: give noise, the standard deviation of the noise in the measurements"
        )
    level = None if sigma is None else per_sample("sigma", sigma, b, minimum=0.0) * (255 / white)
    if level is not None:
        _warn_untrained(level, white)
    strength = None if lam is None else per_sample("lam", lam, b, above=0.0).view(-1, 1, 1, 1)
    if denoising and level is not None and strength is None:
        strength = weights.lam(level)
    if level is None or strength is None:
        assert noise is not None
        measured = per_sample("noise", noise, b, above=0.0) * (255 / white)
        default_level, default_strength = default_parameters(weights, operator, b, measured, level)
        level = default_level if level is None else level
        strength = default_strength if strength is None else strength
    return level, strength


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
    weights: Weights, operator: Operator, like: Tensor, noise: Tensor, sigma: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sigma and lam for an inverse problem, from the noise in its measurements.

    The model with noise level s is a prior with the weight `kappa(s) / s^2` against the data's `1 / noise^2`: so lam is
    `kappa(s) (noise / s)^2`, times a factor. (In denoising, with `s = noise` and without the factor, it is the learned
    value; that needs no rule.) What is left is s, which grows with the noise that a plain inversion would leave in a
    pixel, `noise / gain(H)`, which is taken to be 3 at least. Factors and power were fitted on tuning images.

    Args:
        weights: of the model.
        operator: `H`.
        like: an image of the right shape, `(B, C, H, W)`.
        noise: standard deviation of the noise in the measurements, `(B,)`, with the image on the 0..255 scale.
        sigma: where it is known already, `(B,)`.

    Returns:
        sigma on the 0..255 scale, `(B,)`, and lam, `(B, 1, 1, 1)`.
    """
    spread_of_one = 1 / gain(operator, like).clamp_min(torch.finfo(noise.dtype).tiny)
    noise = torch.maximum(noise, LEAST_SPREAD / spread_of_one)
    if sigma is None:
        sigma = (SIGMA_FACTOR * (noise * spread_of_one) ** SIGMA_POWER).clamp(SIGMA_MIN, SIGMA_MAX)
    return sigma, LAM_FACTOR * weights.lam(sigma) * (noise / sigma).square().view(-1, 1, 1, 1)


def gain(operator: Operator, like: Tensor) -> Tensor:
    """The root of the mean of the diagonal of `H^T H`, per sample: about `||H z|| / ||z||` for random signs z."""
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, like.shape[1:], generator=generator).to(like.device, like.dtype) * 2 - 1
    signs = signs.expand_as(like)  # the same for all samples, whose results must not depend on one another
    return sample_norms(operator.forward(signs)) / sample_norms(signs)


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
