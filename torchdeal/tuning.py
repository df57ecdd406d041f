"""Sigma and lam on images whose truth is known: the pair with the best score, from coarse to fine.

So the paper chooses them. Where no truth is known, `estimation` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchdeal.model import SIGMA_MAX

STEPS = (2.0, 2**0.5, 2**0.25)  # factors between neighbouring pairs: one after the other
SIGMA_LEAST = 1.0  # on the 0..255 scale
FURTHEST = 2.0**10  # times the first lam, or its inverse
# Sigma, lam, and both in step: the best pairs lie along a ridge.
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1))


@dataclass(frozen=True)
class ScoredPair:
    """A pair, and the mean PSNR that it has, in dB."""

    sigma: float  # on the 0..255 scale
    lam: float
    psnr: float


@dataclass(frozen=True)
class TunedPair:
    """What a search found; all trials, in the order in which they were made."""

    best: ScoredPair
    trials: tuple[ScoredPair, ...]

    def as_json(self) -> dict[str, Any]:
        """The pair, and the whole surface."""
        surface = [[trial.sigma, trial.lam, trial.psnr] for trial in self.trials]
        return {"sigma": self.best.sigma, "lam": self.best.lam, "psnr": self.best.psnr, "surface": surface}


def search_pair(score: Callable[[float, float], float], sigma: float, lam: float) -> TunedPair:
    """Walk uphill from a pair: to the best of its neighbours, until none is better; then with smaller steps.

    Args:
        score: of sigma, on the 0..255 scale, and lam; it may be nan.
        sigma: to begin with.
        lam: to begin with.
    """
    found: dict[tuple[float, float], ScoredPair] = {}
    first_lam = lam

    def tried(sigma: float, lam: float) -> ScoredPair:
        key = round(sigma, 6), round(math.log2(lam), 6)
        if key not in found:
            level = score(sigma, lam)
            found[key] = ScoredPair(sigma, lam, -math.inf if math.isnan(level) else level)
        return found[key]

    best = tried(min(max(sigma, SIGMA_LEAST), SIGMA_MAX), lam)
    for step in STEPS:
        while True:
            around = [
                tried(min(max(best.sigma * step**across, SIGMA_LEAST), SIGMA_MAX), best.lam * step**along)
                for across, along in DIRECTIONS
                if 1 / FURTHEST <= best.lam * step**along / first_lam <= FURTHEST
            ]
            better = max(around, key=lambda trial: trial.psnr)
            if better.psnr <= best.psnr:
                break
            best = better
    return TunedPair(best, tuple(found.values()))
