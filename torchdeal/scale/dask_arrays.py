"""Arrays of Dask: reconstructed block by block when they are computed, on any scheduler of Dask."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from torchdeal.extras import optional
from torchdeal.io.checkpoint import default_weights, load
from torchdeal.io.images import INTEGER_RANGES
from torchdeal.model import DEAL
from torchdeal.operators import Identity, Operator
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE
from torchdeal.scale.cluster import EXTRA
from torchdeal.scale.grid import Tile, whole
from torchdeal.scale.layout import PictureLayout, guessed_layout
from torchdeal.scale.local import LocalOperator, SameEverywhere, local
from torchdeal.scale.reach import DEFAULT_HALO_TOLERANCE
from torchdeal.scale.remote import SentModel, solve_there, without_model
from torchdeal.scale.sources import of_array
from torchdeal.scale.tiled import Plan, with_noise_of
from torchdeal.scale.tiles import Shared


def reconstruct_blocks(
    array: Any,
    H: Operator | LocalOperator | None = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    sigma: float | None = None,
    lam: float | None = None,
    noise: float | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    device: str = "auto",
    data_range: float | None = None,
    channelwise: bool = False,
    symmetries: int = 1,
    overlap: int | None = None,
    halo_tolerance: float = DEFAULT_HALO_TOLERANCE,
) -> Any:
    """An array of Dask that will be reconstructed block by block, with an overlap, when it is computed.

    Blocks are the chunks of the array, each with its halo. What all of them share (noise, white, sigma, lam) is found
    at once, from parts of the array, where it is not given.

    Args:
        array: a `dask.array` `(..., H, W)` or `(..., H, W, 3)`. Of a stack, sigma must be given.
        H: `Identity` (None), or a `Blur` with boundary reflect. Others: `reconstruct_tiled` with a cluster.
        model: as for `reconstruct`.
        sigma: likewise, one number for all blocks.
        lam: likewise.
        noise: standard deviation of the noise; by default estimated.
        tolerance: on the estimated relative distance of each block to its fixed point.
        max_iterations: of a block.
        device: of those who compute: "cpu", "cuda", or "auto": on a GPU where there is one.
        data_range: the value of white; by default 1.0, 255 or 65535, after the dtype.
        channelwise: apply a gray model to each channel of a colour image.
        symmetries: as for `reconstruct`.
        overlap: width of the halo; by default by the rule of `torchdeal.scale.reach`.
        halo_tolerance: what the halos may change, relative to the root mean square of the image.
    """
    dask_array = optional("dask.array", "arrays of Dask", EXTRA)
    operator, layout = local(Identity() if H is None else H), guessed_layout(array.shape)
    _check(operator, sigma, layout)
    name = model if model is not None else default_weights(layout.colours, channelwise)
    loaded = name if isinstance(name, DEAL) else load(name)
    white = data_range or INTEGER_RANGES.get(np.dtype(array.dtype).name, 1.0)
    limits = tolerance, max_iterations
    knobs = Shared(loaded, operator, white, sigma, lam, noise, *limits, channelwise, symmetries=symmetries)
    source = of_array(array)
    plan = Plan(source, knobs, None, overlap, halo_tolerance)
    shared, width = plan.for_each(lambda plane: with_noise_of(knobs, source, plane, data_range))(0)
    if layout.colours == 3:
        array = array.rechunk({array.ndim - 1: -1})
    rows = layout.axes.index("y")
    return dask_array.map_overlap(
        partial(_solve_block, SentModel.of(loaded, device), without_model(shared, ()), layout.colours),
        array,
        depth={rows: width, rows + 1: width},
        boundary="none",
        dtype=array.dtype,
        meta=np.empty((0,) * array.ndim, array.dtype),
    )


def _check(operator: LocalOperator, sigma: float | None, layout: PictureLayout) -> None:
    if not isinstance(operator, SameEverywhere) or operator.scale != 1 or any(operator.margins):
        raise ValueError(
            "blocks of an array of Dask are for denoising and blur with boundary reflect: for others use "
            "reconstruct_tiled with a cluster"
        )
    if "s" in layout.axes and layout.colours != 3:
        raise ValueError(f"an array of shape {layout.shape}: move channels to the front, unless they are 3 colours")
    if sigma is None and layout.planes > 1:
        raise ValueError(f"a stack of {layout.planes} pictures has no noise level of its own: give sigma")


def _solve_block(sent: SentModel, knobs: Shared, colours: int, block: np.ndarray) -> np.ndarray:
    """A block with its halo, which may hold several pictures."""
    inner = 3 if colours == 3 else 2
    pictures = block.reshape(-1, *block.shape[block.ndim - inner :])
    box = whole((pictures.shape[1], pictures.shape[2]))
    found = [solve_there(sent, knobs, [picture], [Tile((0, 0), box, box)])[0][0] for picture in pictures]
    return np.stack(found).reshape(block.shape)
