"""How far information travels, and so how wide the halo of a tile must be.

The fixed point is nearly local: what is far from a pixel hardly changes it. `deal benchmark reach` measures by how
much. What a halo of h pixels leaves of a difference, relative to the root mean square of the image, falls about as
`10^-(h / pixels per decade)`. More noise makes the model look further.
"""

from __future__ import annotations

import math

from torchdeal.scale.local import LocalOperator

AT_THE_BORDER = 3e-2  # the difference without a halo, at most
PIXELS_PER_DECADE, MORE_WITH_NOISE = 8.0, 0.2  # at sigma 0, and for each level of sigma, on the 0..255 scale
LEAST_TOLERANCE = 1e-4  # that the rule was measured for
DEFAULT_HALO_TOLERANCE = 1e-3
LARGEST_LEVEL = 50.0  # that models are trained for


def reach(level: float, tolerance: float = DEFAULT_HALO_TOLERANCE) -> int:
    """So many pixels around its place an answer depends on, but for the tolerance.

    Args:
        level: sigma of the model, on the 0..255 scale.
        tolerance: the root mean square of the difference, relative to that of the image.
    """
    if not tolerance > 0:
        raise ValueError(f"the tolerance of tiles must be above 0, got {tolerance:g}")
    decades = math.log10(AT_THE_BORDER / max(min(tolerance, AT_THE_BORDER), LEAST_TOLERANCE))
    return math.ceil(decades * (PIXELS_PER_DECADE + MORE_WITH_NOISE * level))


def overlap_for(level: float, operator: LocalOperator, tolerance: float = DEFAULT_HALO_TOLERANCE) -> int:
    """The width of the halo, in pixels of the measurements: the reach, and what the operator itself looks at."""
    return math.ceil((reach(level, tolerance) + operator.support) / operator.scale)
