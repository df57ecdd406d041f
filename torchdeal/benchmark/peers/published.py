"""What the competitors should reach: values of their recipes and papers, PSNR in dB, nothing clipped.

A recipe's value is for the first images of a set in the order of their names, with the noise of the protocol, and was
measured with the weights in the folder; a published value is for the whole set, by the authors.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchdeal.benchmark.paper import PAPER

WHOLE = 68
RECIPE, PUBLISHED, QUOTED = "recipe", "published", "paper of DEAL"
GRAY, COLOUR = "BSD68", "CBSD68"
CROPS = "CBSD68 crops"  # their noise is not that of the whole images
BM3D_IN_PAPER = {sigma: PAPER["denoising"][f"{GRAY}, sigma {sigma}"]["BM3D"] for sigma in (5, 15, 25)}


@dataclass(frozen=True)
class Expected:
    """One value."""

    method: str  # of the denoisers
    folder: str
    sigma: int
    images: int  # the first so many
    value: float
    source: str = RECIPE
    crop: int | None = None  # side of the square at the centre, cut out of the noisy image
    skip: int = 0  # so many images before the first


def _levels(method: str, folder: str, images: int, values: dict[int, float], source: str = RECIPE) -> list[Expected]:
    return [Expected(method, folder, sigma, images, value, source) for sigma, value in values.items()]


def known_values() -> dict[tuple[str, str], dict[str, Expected]]:
    """Those for many images: method and source to cell of the denoising benchmark to value."""
    known = [one for one in EXPECTED if one.images > 1 and one.crop is None]
    for cell, values in PAPER["denoising"].items():
        folder, _, sigma = cell.partition(", sigma ")
        for method, name in (("bm3d", "BM3D"), ("dncnn", "DnCNN")):
            if folder == CROPS and name in values:
                known.append(Expected(method, CROPS, int(sigma), WHOLE, values[name], QUOTED))
    found: dict[tuple[str, str], dict[str, Expected]] = {}
    for one in sorted(known, key=lambda one: one.images):  # where there are two, that for more images stays
        found.setdefault((one.method, one.source), {})[f"{one.folder}, sigma {one.sigma}"] = one
    return found


EXPECTED: list[Expected] = [
    *_levels("dncnn", GRAY, 8, {15: 31.675, 25: 29.13}),
    *_levels("dncnn", GRAY, WHOLE, {25: 29.238}),
    *_levels("dncnn", GRAY, WHOLE, {15: 31.73, 25: 29.23}, PUBLISHED),
    *_levels("dncnn", COLOUR, 8, {5: 40.922, 15: 34.675, 25: 32.080}),
    *_levels("dncnn", COLOUR, WHOLE, {25: 31.332}),
    *_levels("dncnn", COLOUR, WHOLE, {5: 40.50, 15: 33.99, 25: 31.31}, PUBLISHED),  # github.com/cszn/DnCNN/issues/4
    *_levels("fdncnn", GRAY, 8, {5: 37.970, 15: 31.629, 25: 29.110, 50: 26.122}),
    *_levels("fdncnn", GRAY, WHOLE, {15: 31.69, 25: 29.22, 50: 26.27}, PUBLISHED),
    *_levels("fdncnn", COLOUR, 8, {5: 40.555, 15: 34.548, 25: 31.981}),
    *_levels("pnp-dncnn", GRAY, 8, {5: 38.070, 15: 31.648}),
    *_levels("ffdnet", GRAY, WHOLE, {15: 31.63, 25: 29.19, 50: 26.29}, PUBLISHED),  # with the weights of its authors
    *_levels("ffdnet", COLOUR, WHOLE, {15: 33.87, 25: 31.21, 50: 27.96}, PUBLISHED),  # likewise
    *_levels("wcrr", GRAY, 1, {5: 35.07, 15: 28.10, 25: 25.68}),
    *_levels("wcrr", GRAY, 8, {5: 37.748, 15: 31.205, 25: 28.617}),
    *_levels("wcrr", GRAY, WHOLE, {5: 37.65, 15: 31.21, 25: 28.68}, PUBLISHED),
    *_levels("crr", GRAY, 1, {5: 34.55, 15: 27.63, 25: 25.21}),
    *_levels("crr", GRAY, 4, {5: 37.079, 15: 30.642, 25: 28.174}),
    *_levels("crr", GRAY, WHOLE, {5: 36.96, 15: 30.54, 25: 28.10}, PUBLISHED),
    Expected("mmr", GRAY, 5, 1, 36.411, crop=96, skip=2),
    Expected("mmr", GRAY, 15, 1, 29.819, crop=96, skip=2),
    Expected("fdncnn", GRAY, 5, 1, 36.461, crop=96, skip=2),
    Expected("fdncnn", GRAY, 15, 1, 30.187, crop=96, skip=2),
    *_levels("mmr", GRAY, WHOLE, {5: 37.67, 15: 31.06, 25: 28.61}, PUBLISHED),
    *_levels("bm3d", GRAY, WHOLE, {15: 31.07, 25: 28.57, 50: 25.62}, PUBLISHED),  # as the paper of DnCNN has them
    *_levels("bm3d", COLOUR, WHOLE, {5: 40.24, 15: 33.52, 25: 30.71, 50: 27.38}, PUBLISHED),  # as colour DnCNN
    *_levels("epll", GRAY, WHOLE, {15: 31.21, 25: 28.68, 50: 25.67}, PUBLISHED),  # as the paper of DnCNN has them
    *_levels("bm3d", GRAY, WHOLE, BM3D_IN_PAPER, QUOTED),  # the package is newer than the paper of DnCNN
]
