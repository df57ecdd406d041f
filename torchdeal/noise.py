"""How much white noise is in a picture, in the known pixels of one, or in a sinogram.

That of k-space is estimated in `mri.calibration`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from torchdeal.io.images import to_tensor

SIDE = 8  # of the blocks of pixels that are looked at
LEAST_SIDE = 4  # smaller blocks have hardly any high frequencies
MOST_BLOCKS = 2**15  # about, in a channel: a large picture is sampled
FLATTEST, FEWEST = 0.005, 64  # share, and least number, of the blocks that are taken for flat
UNCLIPPED = 0.01  # share of the blocks that are left to choose from, however many pixels are clipped
LOST = 1.5  # times the share of clipped pixels: so much larger the noise may have been before it was clipped
DETAIL = 3.0  # of what middle frequencies have more than high ones: so much detail may be in the high ones
SPREAD = 4.0  # of the interval, in standard errors: blocks overlap, and detail may hide below the noise
ROUNDING = 1 / (255 * math.sqrt(12))  # the noise that rounding to 8 bits adds, where white is 1
CLEAN = 2 * ROUNDING  # what clean pictures of 8 bits have at most
MOST_DETAIL = 8 / 255  # the estimates of small clean pictures are seldom higher, where white is 1
MEDIAN_OF_NORMAL = 0.6744897501960817  # of the absolute value of a standard normal variable
FEWEST_SQUARES = 100  # of four known pixels, to estimate the noise of a picture with holes
REMEDY = "give it, as sigma in denoising, else as noise; on the command line give --sigma"


@dataclass(frozen=True)
class NoiseLevel:
    """The standard deviation of white noise, in the units of the data, and how sure that is.

    Attributes:
        sigma: the estimate.
        low: there is at least so much. It is 0 where all of sigma may be detail of the picture.
        high: there is at most so much.
    """

    sigma: float
    low: float
    high: float

    def may_be_none(self, white: float) -> bool:
        """Whether all of it may be rounding and detail; `white` is in the units of the data."""
        return self.low <= CLEAN * white and self.sigma <= MOST_DETAIL * white

    def __str__(self) -> str:
        return f"{self.sigma:.3g}, between {self.low:.3g} and {self.high:.3g}"


def estimate_sigma(image: Any, *, data_range: float | None = None, alpha: bool = False) -> list[float]:
    """The standard deviation of white noise in each image of a batch, in the units of the data."""
    return [level.sigma for level in noise_levels(image, data_range=data_range, alpha=alpha)]


def pooled_level(levels: Sequence[NoiseLevel]) -> NoiseLevel:
    """The noise that the frames of a stack share: the medians of their estimates, and of the ends of their intervals.

    So neither a frame that shows nothing, nor one full of detail, counts much. One without any noise at all, such as an
    empty slice, does not count.
    """
    levels = [level for level in levels if level.high > 0] or levels
    columns = ([level.sigma for level in levels], [level.low for level in levels], [level.high for level in levels])
    return NoiseLevel(*(median(column) for column in columns))


def noise_levels(image: Any, *, data_range: float | None = None, alpha: bool = False) -> list[NoiseLevel]:
    """The white noise of each image of a batch, with an interval; of a colour image the mean over its channels.

    It is measured at the high frequencies of the flattest blocks of pixels: those with the least energy at the other
    frequencies. White noise has the same energy at all of them, and the high ones have no part in the choice, so the
    choice does not bias them (the idea of Ponomarenko et al., 2007). What is left is detail. It has more energy at
    middle frequencies than at high ones; where these blocks have, the interval reaches further down. Blocks with
    clipped pixels, where noise is missing, are avoided.

    Args:
        image: as `denoise` takes it; of any size from 4 x 4 on.
        data_range: the value of white; 255, 65535 or 1.0 by default, after the dtype.
        alpha: the last channel is transparency, which has no noise.
    """
    tensor, image_format = to_tensor(image, data_range=data_range, alpha=alpha)
    if min(tensor.shape[-2:]) < LEAST_SIDE:
        raise ValueError(
            f"the image is too small to estimate its noise: at least {LEAST_SIDE} x {LEAST_SIDE} is needed; {REMEDY}"
        )
    blocks = _Blocks(torch.ones(tensor.shape[-2:], dtype=torch.bool))
    return [_mean_level(sample * image_format.data_range, blocks) for sample in tensor.double().cpu()]


def known_noise_level(image: Tensor, known: Tensor) -> NoiseLevel:
    """The same for a picture `(B, C, H, W)` of which only some pixels, `(H, W)`, are known.

    Where too few blocks are known as a whole, it is that of the differences across squares of four known pixels:
    pictures are smooth there more often than not, but all of it may be detail.
    """
    image, known = image.double().cpu(), known.cpu()
    blocks = _Blocks(known) if min(known.shape) >= LEAST_SIDE else None
    if blocks is not None and len(blocks.places) >= FEWEST:
        return _mean_level(image.flatten(0, 1), blocks)
    corners = [(slice(None, -1), slice(None, -1)), (slice(None, -1), slice(1, None))]
    corners += [(slice(1, None), slice(None, -1)), (slice(1, None), slice(1, None))]
    squares = torch.stack([known[rows, columns] for rows, columns in corners]).all(0)
    if int(squares.sum()) < FEWEST_SQUARES:
        raise ValueError(f"too few known pixels are neighbours to estimate the noise: {REMEDY}")
    a, b, c, d = (image[..., rows, columns][..., squares] for rows, columns in corners)
    sigma = deviation((a - b - c + d) / 2)
    return NoiseLevel(sigma, 0.0, sigma * _error_factor(int(squares.sum()) / 4))


def estimate_sinogram_noise(sinogram: Tensor) -> float:
    """From third differences along the detector, the last dimension: line integrals are smooth there, noise is not."""
    return deviation(sinogram.double().diff(n=3, dim=-1) / math.sqrt(20))  # 1 + 9 + 9 + 1


def deviation(values: Tensor) -> float:
    """The standard deviation of normal values around 0, by their median: some of them may be something else."""
    return float(values.abs().median()) / MEDIAN_OF_NORMAL


class _Blocks:
    """Overlapping square blocks of the known pixels of a picture."""

    def __init__(self, known: Tensor) -> None:
        self.side = min(SIDE, *known.shape)
        # An odd step meets the blocks of JPEG at all of their offsets: aligned with them, noise would look too small.
        self.step = math.ceil(math.sqrt(known.numel() / MOST_BLOCKS)) | 1
        self.known = known
        self.places = self._all(known).all(-1).all(-1).nonzero()  # of blocks that are known as a whole, (N, 2)
        frequency = torch.arange(self.side)[:, None] + torch.arange(self.side)
        self.high = frequency > self.side
        self.middle = (frequency >= self.side / 2) & ~self.high
        self.others = (frequency > 1) & ~self.high  # a slope counts as flat

    def of(self, image: Tensor) -> Tensor:
        """`(N, side, side)`, from `(H, W)`."""
        return self._all(image)[tuple(self.places.T)]

    def energies(self, image: Tensor) -> Tensor:
        """The squares of their orthonormal cosine transforms, `(N, side, side)`."""
        place = torch.arange(self.side, dtype=image.dtype)
        cosines = torch.cos(math.pi / self.side * (place + 0.5) * place[:, None]) * math.sqrt(2 / self.side)
        cosines[0] /= math.sqrt(2)
        blocks = self.of(image)
        blocks = blocks - blocks[:, :1, :1]  # where all pixels are equal, the energies are exactly 0
        return (cosines @ blocks @ cosines.T).square()

    def distinct_pixels(self, chosen: Tensor) -> int:
        """How many pixels some of the blocks, by number, have together."""
        covered = torch.zeros_like(self.known)
        for offset in torch.cartesian_prod(*[torch.arange(self.side)] * 2):
            covered[tuple((self.places[chosen] * self.step + offset).T)] = True
        return int(covered.sum())

    def _all(self, image: Tensor) -> Tensor:
        return image.unfold(0, self.side, self.step).unfold(1, self.side, self.step)


def _mean_level(channels: Tensor, blocks: _Blocks) -> NoiseLevel:
    """Of `(C, H, W)`."""
    levels = [_channel_level(channel, blocks) for channel in channels]
    sums = (sum(values) for values in zip(*((x.sigma, x.low, x.high) for x in levels), strict=True))
    return NoiseLevel(*(total / len(levels) for total in sums))


def _channel_level(channel: Tensor, blocks: _Blocks) -> NoiseLevel:
    """Of `(H, W)`."""
    energies = blocks.energies(channel)
    clipped = _clipped_shares(channel, blocks)
    chosen = _flattest(energies[:, blocks.others].mean(1), energies[:, blocks.high].mean(1), clipped)
    pixels = blocks.distinct_pixels(chosen)
    bands = (energies[chosen][:, band] for band in (blocks.high, blocks.middle))
    high, middle = (_typical(band, pixels / blocks.side**2) for band in bands)
    error = _error_factor(pixels * float(blocks.high.double().mean()))
    # Detail of the picture, or noise that is not white, has more energy at middle frequencies than at high ones.
    surely = max(high - DETAIL * max(middle - high, 0.0), 0.0)
    most = math.sqrt(max(high, middle)) * (1 + LOST * float(clipped[chosen].mean()))
    return NoiseLevel(math.sqrt(high), math.sqrt(surely) / error, most * error)


def _typical(energies: Tensor, independent: float) -> float:
    """The variance of white noise in these frequencies, `(N, frequencies)`: a pattern may have disturbed some."""
    # The median of sums of few squares is below their mean.
    return float(energies.mean(0).median()) / (1 - 2 / (9 * max(independent, 1))) ** 3


def _flattest(others: Tensor, high: Tensor, clipped: Tensor) -> Tensor:
    """The numbers of the little clipped blocks with the least energy at frequencies other than the high ones."""
    allowed = clipped <= clipped.kthvalue(math.ceil(UNCLIPPED * len(clipped))).values
    others = torch.where(allowed, others, torch.inf)
    order = others.argsort(stable=True)
    least = min(max(math.ceil(FLATTEST * len(order)), FEWEST), int(allowed.sum()))
    # With much noise most blocks look alike: all that are as flat as noise alone makes them are as good.
    as_flat = int((others <= high[order[:least]].mean()).sum())
    return order[: max(least, as_flat)]


def _clipped_shares(channel: Tensor, blocks: _Blocks) -> Tensor:
    """The share of the pixels of each block that are clipped."""
    clipped = torch.zeros_like(blocks.known)
    for values in (channel, -channel):
        values = values.masked_fill(~blocks.known, torch.inf)
        at_end = values == values.min()
        inside = values.masked_fill(at_end, torch.inf)
        # Clipping gathers pixels at an end of the scale. Without it the next value is more frequent.
        if int(at_end.sum()) > int((inside == inside.min()).sum()):
            clipped |= at_end
    return blocks.of(clipped).double().mean((-1, -2))


def _error_factor(independent_values: float) -> float:
    """What an estimate of a standard deviation is multiplied with, and divided by, for its interval."""
    return math.exp(SPREAD / math.sqrt(2 * independent_values))
