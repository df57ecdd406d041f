"""How far information travels, and so how wide the halo of a tile must be.

The fixed point is nearly local: what is far from a pixel hardly changes it. `deal benchmark reach` measures by how
much. What a halo of h pixels lets through, relative to the root mean square of the image, falls at first as
`10^-(h / pixels per decade)`; more noise makes the model look further. Below about 5e-4 it falls more slowly where
there is much noise, and the rule ends there. Nor does it hold where the model's sigma is at its end, 50, in problems
other than denoising: there answers can depend on what is far away.
"""

from __future__ import annotations

import math

from torchdeal.model import SIGMA_MAX
from torchdeal.scale.local import LocalOperator

AT_THE_BORDER = 3e-2  # what no halo lets through, at most
PIXELS_PER_DECADE, MORE_WITH_NOISE = 8.0, 0.2  # at sigma 0, and for each level of sigma, on the 0..255 scale
LEAST_TOLERANCE = 5e-4  # for which the rule holds
DEFAULT_HALO_TOLERANCE = 1e-3
LARGEST_LEVEL = float(SIGMA_MAX)
CERTAIN_LEVEL = 47.5  # up to which the rule holds in problems other than denoising, too


def reach(level: float, tolerance: float = DEFAULT_HALO_TOLERANCE) -> int:
    """So many pixels around its place an answer depends on, but for the tolerance.

    What was measured with this halo is at most 0.8 of the tolerance, but for levels above `CERTAIN_LEVEL` in
    problems other than denoising.

    Args:
        level: sigma of the model, on the 0..255 scale.
        tolerance: the root mean square of the difference, relative to that of the image.
    """
    if not tolerance >= LEAST_TOLERANCE:
        raise ValueError(
            f"the overlap is known for differences of at least {LEAST_TOLERANCE:g}, not of {tolerance:g}: "
            "give the overlap itself"
        )
    decades = math.log10(max(AT_THE_BORDER / tolerance, 1.0))
    return math.ceil(decades * (PIXELS_PER_DECADE + MORE_WITH_NOISE * min(level, LARGEST_LEVEL)))


def overlap_for(level: float, operator: LocalOperator, tolerance: float = DEFAULT_HALO_TOLERANCE) -> int:
    """The width of the halo, in pixels of the measurements: the reach, and what the operator itself looks at."""
    return math.ceil((reach(level, tolerance) + operator.support) / operator.scale)
