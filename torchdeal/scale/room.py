"""How large a tile can be: what its reconstruction takes, in the memory that is there."""

from __future__ import annotations

from torchdeal.memory import memory_of
from torchdeal.model import DEAL

BYTES_PER_FILTER = 26  # and pixel, while an image is reconstructed: measured on the CPU, with room to spare
SHARE = 0.5  # of the memory that is there
LARGEST, SMALLEST = 512, 64  # side of the core: beyond the first nothing gets faster
ROUND = 32


def memory_needed(model: DEAL, pixels: int) -> int:
    """In bytes, about, of a reconstruction with so many pixels."""
    return BYTES_PER_FILTER * model.features * pixels


def fits(model: DEAL, pixels: int) -> bool:
    """Whether an image can be reconstructed as a whole; True where the system does not say what there is."""
    available = memory_of(model.kappa.device)
    return available is None or memory_needed(model, pixels) <= SHARE * available


def core_side(model: DEAL, overlap: int, scale: int = 1) -> int:
    """The side of a tile without its halo, in pixels of the measurements."""
    side = max(LARGEST // scale, SMALLEST)
    while side > SMALLEST and not fits(model, ((side + 2 * overlap) * scale) ** 2):
        side -= ROUND
    return side
