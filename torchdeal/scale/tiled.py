"""`reconstruct_tiled`: the verb for images of any size, from arrays or files to arrays or files."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import torchdeal
from torchdeal.io import files
from torchdeal.io.checkpoint import default_weights, load, on_device
from torchdeal.io.images import INTEGER_RANGES, to_tensor
from torchdeal.model import DEAL
from torchdeal.noise import noise_levels
from torchdeal.operators import Identity, Operator
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE
from torchdeal.scale.grid import grid
from torchdeal.scale.large import TiledRun, run_tiles, sample
from torchdeal.scale.layout import PictureLayout
from torchdeal.scale.local import Holes, LocalOperator, check_mask_size, local
from torchdeal.scale.reach import CERTAIN_LEVEL, DEFAULT_HALO_TOLERANCE, LARGEST_LEVEL, overlap_for
from torchdeal.scale.room import core_side
from torchdeal.scale.sources import Source, is_zarr, no_pixels, of_array, open_source
from torchdeal.scale.targets import ArrayTarget, FileTarget, Target, TileFiles, grown_metadata
from torchdeal.scale.tiles import Shared, is_denoising, with_parameters
from torchdeal.scale.unfinished import Unfinished

if TYPE_CHECKING:
    from torchdeal.scale.cluster import Cluster


def reconstruct_tiled(
    source: Any,
    target: Any = None,
    H: Operator | LocalOperator | None = None,
    *,
    model: DEAL | str | os.PathLike[str] | None = None,
    sigma: float | None = None,
    lam: float | None = None,
    noise: float | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    device: torch.device | str | None = None,
    data_range: float | None = None,
    channelwise: bool = False,
    symmetries: int = 1,
    tile: int | None = None,
    overlap: int | None = None,
    halo_tolerance: float = DEFAULT_HALO_TOLERANCE,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    cluster: Cluster | None = None,
) -> TiledRun:
    """Reconstruct an image of any size by tiles with overlap; the result is that of the whole image, but for a little.

    Args:
        source: an array `(..., H, W)` or `(..., H, W, C)` that is read by slices (numpy, a memory map, Zarr, h5py), or
            the path of a file: TIFF, npy, Zarr, OME-Zarr, other pictures. Dimensions before these are looped over.
        target: where the result goes: an array of the right shape, or the path of a file. None: a new numpy array.
        H: an operator that is local: `Identity` (None), `Blur` with boundary reflect or valid, `Mask`, `Downsample`.
        model: as for `reconstruct`.
        sigma: as for `reconstruct`, one number for all tiles.
        lam: likewise.
        noise: standard deviation of the noise, in the units of the data; by default estimated, once for each picture.
        tolerance: on the estimated relative distance of each tile to its fixed point.
        max_iterations: of a tile.
        device: where to compute.
        data_range: the value of white; by default 1.0, 255 or 65535, after the dtype.
        channelwise: apply a gray model to each channel of a colour image.
        symmetries: as for `reconstruct`.
        tile: side of a tile without its halo; by default what fits into the memory, at most 512.
        overlap: width of the halo; by default by the rule of `torchdeal.scale.reach`.
        halo_tolerance: what the halos may change, relative to the root mean square of the image.
        resume: go on with a run that was stopped (only for files).
        progress: called with the number of tiles that are done, and of all.
        cluster: whose workers solve the tiles; see `torchdeal.scale.cluster`.

    Returns:
        how the tiles ended, and the result as `x`: the array, or the path of the file.
    """
    read = source if isinstance(source, Source) else _source(source)
    operator = local(Identity() if H is None else H)
    if isinstance(operator, Holes):
        check_mask_size(operator.size, read.layout.size)
    name = model if model is not None else default_weights(read.layout.colours, channelwise)
    loaded = on_device(name, device) if isinstance(name, DEAL) else load(name, device=device)
    knobs = Shared(
        loaded,
        operator,
        data_range or INTEGER_RANGES.get(read.dtype.name, 1.0),
        sigma,
        lam,
        noise,
        tolerance,
        max_iterations,
        channelwise,
        symmetries=symmetries,
    )
    plan = Plan(read, knobs, tile, overlap, halo_tolerance)
    shared = plan.for_each(lambda plane: with_noise_of(knobs, read, plane, data_range))
    told = progress or (lambda done, of: None)
    elsewhere = {"engine": cluster.solve, "together": cluster.together} if cluster else {}
    if not isinstance(target, str | os.PathLike):
        made = _array_target(target, read, operator.scale)
        run = run_tiles(read, made, plan.core, shared, told=told, **elsewhere)
        run.x = made.array
        return run
    path = Path(target)
    check_target(path, read, operator.scale)
    with Unfinished(path, plan.settings(), resume) as unfinished:
        made = file_target(path, read, plan.core, operator.scale, unfinished, white=data_range or 1.0)
        run = run_tiles(read, made, plan.core, shared, unfinished=unfinished, told=told, **elsewhere)
    run.x = path
    return run


@dataclass(frozen=True, eq=False)
class Plan:
    """How an image is cut, and what its tiles share."""

    source: Source
    knobs: Shared
    tile: int | None
    overlap: int | None
    halo_tolerance: float = DEFAULT_HALO_TOLERANCE

    def __post_init__(self) -> None:
        if self.tile is not None and self.tile < 1:
            raise ValueError(f"a tile has at least 1 pixel each way, got {self.tile}")
        if self.overlap is not None and self.overlap < 0:
            raise ValueError(f"the overlap must be at least 0, got {self.overlap}")

    @cached_property
    def core(self) -> int:
        """Side of the tiles without their halos. The memory that is free now decides once."""
        if self.tile is not None:
            return self.tile
        widest = overlap_for(LARGEST_LEVEL, self.knobs.operator, self.halo_tolerance)
        return core_side(self.knobs.model, widest, self.knobs.operator.scale)

    def for_each(self, with_noise: Callable[[int], Shared]) -> Callable[[int], tuple[Shared, int]]:
        """For each picture what its tiles share, and their overlap; `with_noise` says its noise and its white."""

        def shared(plane: int) -> tuple[Shared, int]:
            told = with_noise(plane)
            widest = overlap_for(LARGEST_LEVEL, told.operator, self.halo_tolerance)
            some = grid(self.source.layout.size, self.core, widest if self.overlap is None else self.overlap)
            found = with_parameters(told, lambda box: self.source.read(plane, box), some)
            level = 255 * (found.sigma or 0.0) / found.white
            if level > CERTAIN_LEVEL and not is_denoising(found.operator):
                warnings.warn(
                    f"the model's sigma is at its end, {LARGEST_LEVEL:g}: answers may depend on what is far away, and "
                    "tiles may not fit together",
                    stacklevel=2,
                )
            wide = overlap_for(level, found.operator, self.halo_tolerance) if self.overlap is None else self.overlap
            return found, wide

        return shared

    def settings(self, **more: Any) -> dict[str, Any]:
        """All that the result depends on, so that a run is resumed with the same."""
        knobs = self.knobs
        names = ("sigma", "lam", "noise", "tolerance", "max_iterations", "symmetries")
        numbers = {name: getattr(knobs, name) for name in names}
        return {
            **self.source.identity,
            "version": torchdeal.__version__,
            "operator": knobs.operator.known_as(),
            "weights": _digest(*(parameter for parameter in knobs.model.state_dict().values())),
            "device": knobs.model.kappa.device.type,
            "white": knobs.white,
            "channelwise": knobs.channelwise,
            "tile": self.core,
            "overlap": self.overlap if self.overlap is not None else f"by the rule for {self.halo_tolerance:g}",
            **numbers,
            **more,
        }


def file_target(
    path: Path,
    source: Source,
    core: int,
    scale: int,
    unfinished: Unfinished,
    quality: int | None = None,
    white: float = 1.0,
) -> Target:
    """The file that a result is written to, by its name."""
    layout, side = source.layout.enlarged(scale), core * scale
    if is_zarr(path):
        from torchdeal.scale.zarr_files import ZarrTarget

        return ZarrTarget(path, layout, source.dtype, side, source, scale, unfinished)
    layout = in_order(layout)
    image = grown_metadata(source.image, no_pixels(layout, source.dtype), scale)
    tiles = TileFiles(unfinished.folder / "tiles", layout, side, source.dtype)
    return FileTarget(path, image, tiles, unfinished, scale, source.levels, quality, white)


def check_target(path: Path, source: Source, scale: int = 1) -> None:
    """Raise, before any work, if the result cannot be written there."""
    if not is_zarr(path):
        files.check_writable(path)
        files.check_holds(path, source.image, scale)
        return
    if path.is_dir() and any(path.iterdir()) and not any((path / name).is_file() for name in MARKS):
        raise files.ImageFileError(f"{path}: a folder that is no Zarr store; choose another output")
    if path.name.lower().endswith(".zip"):
        raise files.ImageFileError(f"{path}: zipped stores are read, not written; write .zarr")
    if path.is_file():
        raise files.ImageFileError(f"{path}: a file; a Zarr store is a folder: choose another output")
    if not path.parent.is_dir():
        raise files.ImageFileError(f"{path}: the folder {path.parent} does not exist; create it first")


def in_order(layout: PictureLayout) -> PictureLayout:
    """Rows, columns and samples last, as picture files have them."""
    axes = "".join(axis for axis in layout.axes if axis not in "yxs") + "yx" + ("s" if "s" in layout.axes else "")
    return PictureLayout(axes, tuple(layout.length(axis) for axis in axes))


MARKS = ("zarr.json", ".zarray", ".zgroup")  # files of a Zarr store


def _source(given: Any) -> Source:
    if isinstance(given, str | os.PathLike):
        return open_source(Path(given))
    return of_array(given)


def _array_target(target: Any, source: Source, scale: int) -> ArrayTarget:
    layout = source.layout.enlarged(scale)
    if target is None:
        target = np.empty(layout.shape, source.dtype)
    if tuple(target.shape) != layout.shape:
        raise ValueError(f"the target has shape {tuple(target.shape)}, the result has {layout.shape}")
    return ArrayTarget(target, layout, scale)


def with_noise_of(knobs: Shared, source: Source, plane: int, data_range: float | None) -> Shared:
    """What all tiles of a picture share, with its noise, estimated if need be."""
    sampled = sample(source, plane)
    to_tensor(sampled, data_range=data_range, check_range=is_denoising(knobs.operator))  # raises for what is no picture
    known = knobs.sigma is not None and (knobs.lam is not None or is_denoising(knobs.operator))
    if knobs.noise is not None or known:
        return knobs
    return replace(knobs, noise=noise_levels(sampled, data_range=knobs.white)[0].sigma)


def _digest(*tensors: torch.Tensor) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
