"""One tile, and what all tiles of an image share so that they fit together.

A tile is read with its halo, reconstructed like any image, and its core is kept. What a reconstruction finds out about
an image (noise, the value of white, sigma and lam) is found once for the whole image: were it found for each tile,
seams could be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch

from torchdeal.io.images import to_tensor
from torchdeal.model import DEAL
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.scale.batches import attempt
from torchdeal.scale.grid import Box, Tile
from torchdeal.scale.local import LocalOperator
from torchdeal.solvers import Progress, Status
from torchdeal.symmetries import check_symmetries

SAMPLES = 5  # tiles in which sigma and lam are looked for, at most


@dataclass(frozen=True, eq=False)
class Shared:
    """What every tile of an image is solved with.

    Attributes:
        model: of one channel for gray images, of three for colour.
        operator: what was measured of the image.
        white: the value of white, in the units of the pixels.
        sigma: the noise level that the model assumes, in the units of the pixels; None: see `with_parameters`.
        lam: strength; None: in denoising the learned one.
        noise: standard deviation of the noise, in the units of the pixels, where sigma or lam follow from it.
        tolerance: on the estimated relative distance of each tile to its fixed point.
        max_iterations: of a tile, at most.
        channelwise: apply a gray model to each channel.
        leave: the pixels are the answer already.
        symmetries: how many a result is the mean over.
    """

    model: DEAL
    operator: LocalOperator
    white: float
    sigma: float | None = None
    lam: float | None = None
    noise: float | None = None
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    channelwise: bool = False
    leave: bool = False
    symmetries: int = 1

    def __post_init__(self) -> None:
        check_symmetries(self.symmetries)


@dataclass(frozen=True)
class TileRun:
    """How the run of a tile ended."""

    status: Status
    distance: float
    iterations: int
    cg_iterations: int


def solve_tile(pixels: np.ndarray, tile: Tile, shared: Shared) -> tuple[np.ndarray, TileRun]:
    """The core of a tile, and how the run ended.

    Args:
        pixels: what was measured in `tile.read`, `(h, w)` or `(h, w, C)`; uint8, uint16 or floating point.
        tile: which part of the image that is.
        shared: what all tiles of the image share.

    Returns:
        the result in `tile.core`, of the same dtype and layout, `operator.scale` times as many pixels each way.
    """
    ((core, run),) = solve_tiles([pixels], [tile], shared)
    return core, run


def solve_tiles(
    pixels: Sequence[np.ndarray],
    tiles: Sequence[Tile],
    shared: Shared,
    callback: Callable[[Progress], None] | None = None,
) -> list[tuple[np.ndarray, TileRun]]:
    """The same for several tiles that were read in one size, together: on a GPU that is faster.

    Where memory runs out, fewer are solved together.
    """
    if shared.leave:
        cores = [part[tile.core.within(tile.read).slices] for part, tile in zip(pixels, tiles, strict=True)]
        return [(core, TileRun(Status.CONVERGED, 0.0, 0, 0)) for core in cores]
    parts = list(zip(pixels, tiles, strict=True))
    found = attempt(lambda some: _solved_together(some, shared, callback), parts, all_or_none=True)
    return [answer for answer in found if not isinstance(answer, Exception)]  # none is


def _solved_together(
    parts: Sequence[tuple[np.ndarray, Tile]], shared: Shared, callback: Callable[[Progress], None] | None
) -> list[tuple[np.ndarray, TileRun]]:
    pixels, tiles = zip(*parts, strict=True)
    found, restore = _reconstructed(pixels, [tile.read for tile in tiles], shared, callback)
    x = shared.operator.measured(found.x)
    cores = []
    for number, tile in enumerate(tiles):
        rows, columns = tile.core.within(tile.read).scaled(shared.operator.scale).slices
        core = x[number : number + 1, :, rows, columns]
        if not bool(core.isfinite().all()):
            raise ValueError(
                f"the result holds NaN or infinite values in rows {tile.core.top} to {tile.core.bottom}, columns "
                f"{tile.core.left} to {tile.core.right} ({found.statuses[number].name}): check the pixels and sigma"
            )
        cores.append(restore(core))
    numbers = zip(found.statuses, found.distance, found.iterations, found.cg_iterations, strict=True)
    runs = [TileRun(status, float(away), int(outer), int(inner)) for status, away, outer, inner in numbers]
    return list(zip(cores, runs, strict=True))


def with_parameters(shared: Shared, read: Callable[[Box], np.ndarray], tiles: Sequence[Tile]) -> Shared:
    """With the sigma and lam of the whole image, where they are not given: medians over a few of its tiles.

    In denoising sigma is the noise, and lam the value learned for it.

    Args:
        shared: with `noise` in it.
        read: the pixels of a part of the image.
        tiles: all tiles of the image.
    """
    if is_denoising(shared.operator):
        return replace(shared, sigma=shared.noise if shared.sigma is None else shared.sigma, noise=None)
    if shared.sigma is not None and shared.lam is not None:
        return replace(shared, noise=None)
    step = max(len(tiles) // SAMPLES, 1)
    one_step = replace(shared, max_iterations=1, symmetries=1)
    found = [_reconstructed([read(tile.read)], [tile.read], one_step)[0] for tile in tiles[step // 2 :: step][:SAMPLES]]
    sigma = median(float(one.sigma.max()) for one in found) * shared.white
    lam = median(float(one.lam.max()) for one in found)
    return replace(
        shared,
        sigma=sigma if shared.sigma is None else shared.sigma,
        lam=lam if shared.lam is None else shared.lam,
        noise=None,
    )


def is_denoising(operator: LocalOperator) -> bool:
    """Whether it is denoising."""
    return getattr(getattr(operator, "operator", None), "is_identity", False)


def _reconstructed(
    pixels: Sequence[np.ndarray],
    boxes: Sequence[Box],
    shared: Shared,
    callback: Callable[[Progress], None] | None = None,
) -> tuple[Any, Callable[[torch.Tensor], np.ndarray]]:
    """What `reconstruct` finds, with white at 1; and how a result becomes pixels again."""
    converted = [to_tensor(part, data_range=shared.white, name="tile") for part in pixels]
    y, image_format = torch.cat([tensor for tensor, _ in converted]).float(), converted[0][1]

    def in_units(value: float | None) -> float | None:
        return None if value is None else value / shared.white

    found = reconstruct(
        y,
        shared.operator.on(*boxes),
        model=shared.model,
        sigma=in_units(shared.sigma),
        lam=shared.lam,
        noise=in_units(shared.noise),
        tolerance=shared.tolerance,
        max_iterations=shared.max_iterations,
        data_range=1.0,
        channelwise=shared.channelwise,
        symmetries=shared.symmetries,
        callback=callback,
    )
    return found, image_format.restore
