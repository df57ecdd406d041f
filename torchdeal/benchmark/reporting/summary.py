"""Statistics of a table: means over images, paired differences, and intervals by resampling the images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np

from torchdeal.benchmark.results import Row

RESAMPLES, LEVEL, SEED = 2000, 0.95, 0

Interval = tuple[float, float]


def image_means(rows: Iterable[Row], name: str = "psnr") -> dict[str, float]:
    """Of each image the mean over its variants. Rows without that value are left out."""
    return _means({(row.image, row.variant): row.values[name] for row in rows if row.values.get(name) is not None})


def paired_differences(ours: Iterable[Row], others: Iterable[Row], name: str = "psnr") -> dict[str, float]:
    """Ours minus the other's, of each image: the mean over those of its variants that both have."""
    left, right = (
        {(row.image, row.variant): row.values[name] for row in rows if row.values.get(name) is not None}
        for rows in (ours, others)
    )
    return _means({key: left[key] - right[key] for key in left if key in right})


def bootstrap_interval(values: Sequence[float]) -> Interval | None:
    """Where the mean lies in 95 % of the cases, if the values were drawn anew from themselves. None below two values.

    The same values give the same interval.
    """
    if len(values) < 2:
        return None
    # RandomState gives the same numbers with every version of numpy
    drawn = np.random.RandomState(SEED).randint(len(values), size=(RESAMPLES, len(values)))
    means = np.asarray(values, dtype=float)[drawn].mean(1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _means(values: dict[tuple[str, str], float]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for (image, _), value in values.items():
        groups.setdefault(image, []).append(value)
    return {image: fmean(group) for image, group in groups.items()}
