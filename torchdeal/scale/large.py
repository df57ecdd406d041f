"""Images of any size, from file to file: cut, solve tile by tile, put together, and go on after a stop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchdeal.scale.batches import batch_size
from torchdeal.scale.grid import Box, Tile, grid
from torchdeal.scale.sources import Source
from torchdeal.scale.targets import Target
from torchdeal.scale.tiles import Shared, TileRun, solve_tiles
from torchdeal.scale.unfinished import Unfinished
from torchdeal.solvers import Status

SAMPLE_SIDE, SAMPLES_EACH_WAY = 256, 4  # of the parts from which the noise of a large picture is estimated

Solve = Callable[[Sequence[np.ndarray], Sequence[Tile], Shared], list[tuple[np.ndarray, TileRun]]]


@dataclass(frozen=True, eq=False)
class TileWork:
    """Tiles of a picture that are solved together, as they were read."""

    plane: int
    tiles: Sequence[Tile]
    pixels: Sequence[np.ndarray]
    shared: Shared


Together = Callable[[int, int], int]
TileEngine = Callable[[Iterable[TileWork]], Iterator[tuple[TileWork, list[tuple[np.ndarray, TileRun]]]]]  # in order


@dataclass
class TiledRun:
    """How all tiles ended."""

    x: Any = None  # the result: an array, or the path of a file
    tiles: int = 0
    overlap: int = 0  # the widest
    resumed: int = 0  # of them: were there already
    statuses: Counter[str] = field(default_factory=Counter)
    distance: float = 0.0  # the largest that is stated
    iterations: int = 0
    cg_iterations: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def converged(self) -> bool:
        return set(self.statuses) <= {Status.CONVERGED.name}

    def add(self, entry: dict[str, Any]) -> None:
        """What the journal has of a tile."""
        self.statuses[entry["status"]] += 1
        self.distance = max(self.distance, math.inf if entry["distance"] is None else entry["distance"])
        self.iterations += entry["iterations"]
        self.cg_iterations += entry["cg_iterations"]


def run_tiles(
    source: Source,
    target: Target,
    core: int,
    shared: Callable[[int], tuple[Shared, int]],
    *,
    unfinished: Unfinished | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
    solve: Solve = solve_tiles,
    engine: TileEngine | None = None,
    together: Together | None = None,
) -> TiledRun:
    """Solve all tiles that the target does not hold yet, and finish it.

    Args:
        source: what is read.
        target: where the cores go.
        core: side of the tiles, without their halos.
        shared: for each picture of the source, what its tiles share, and their overlap.
        unfinished: where notes on each tile are kept, so that a resumed run can report all of them.
        told: hears how many tiles of how many are done.
        solve: what is done to a batch of tiles.
        engine: what has that done elsewhere, such as on a cluster; by default batches are solved here, one by one.
        together: how many tiles of so many pixels are solved together there, by a model of so many features.
    """
    run = TiledRun()
    run.tiles = source.layout.planes * len(grid(source.layout.size, core, 0))
    known = {(entry["plane"], *entry["place"]): entry for entry in unfinished.noted()} if unfinished else {}
    missing, done = _missing(source, target, core, shared, run, together), 0
    solved = engine(missing) if engine else ((work, solve(work.pixels, work.tiles, work.shared)) for work in missing)
    for work, answers in solved:
        for tile, (pixels, ended) in zip(work.tiles, answers, strict=True):
            target.write(work.plane, tile, pixels)
            entry = known[work.plane, tile.place[0], tile.place[1]] = _entry(work.plane, tile, ended)
            if unfinished:
                unfinished.note(entry)
        done += len(work.tiles)
        told(run.resumed + done, run.tiles)
    for entry in known.values():
        run.add(entry)
    run.notes = target.finish()
    return run


def _missing(
    source: Source,
    target: Target,
    core: int,
    shared: Callable[[int], tuple[Shared, int]],
    run: TiledRun,
    together: Together | None,
) -> Iterator[TileWork]:
    """What the target does not hold yet, read when it is asked for."""
    bare = grid(source.layout.size, core, 0)
    for plane in range(source.layout.planes):
        if all(target.holds(plane, tile) for tile in bare):
            run.resumed += len(bare)
            continue
        of_plane, overlap = shared(plane)
        run.overlap = max(run.overlap, overlap)
        tiles = grid(source.layout.size, core, overlap)
        for batch in _batches(tiles, _batch_size(of_plane, core + 2 * overlap, together)):
            if all(target.holds(plane, tile) for tile in batch):
                run.resumed += len(batch)
            else:
                yield TileWork(plane, batch, [source.read(plane, tile.read) for tile in batch], of_plane)


def sample(source: Source, plane: int) -> np.ndarray:
    """A picture that stands for a large one: parts of it, spread evenly, side by side; all of it if it is small."""
    return mosaic(lambda box: source.read(plane, box), source.layout.size)


def mosaic(read: Callable[[Box], np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """The same of anything that is read by boxes, such as a mask."""
    rows, columns = (_spread(length) for length in size)
    boxes = [[Box(*vertical, *horizontal) for horizontal in columns] for vertical in rows]
    return np.concatenate([np.concatenate([read(box) for box in line], 1) for line in boxes])


def _spread(length: int) -> list[tuple[int, int]]:
    if length <= SAMPLE_SIDE * SAMPLES_EACH_WAY:
        return [(0, length)]
    step = (length - SAMPLE_SIDE) / (SAMPLES_EACH_WAY - 1)
    starts = [round(number * step) for number in range(SAMPLES_EACH_WAY)]
    return [(start, start + SAMPLE_SIDE) for start in starts]


def _batch_size(shared: Shared, side: int, together: Together | None) -> int:
    """How many tiles, of so many pixels of the measurements each way, are solved together."""
    pixels, model = (side * shared.operator.scale) ** 2, shared.model
    return together(pixels, model.features) if together else batch_size(pixels, model.features, model.kappa.device)


def _batches(tiles: Sequence[Tile], size: int) -> Iterator[list[Tile]]:
    """Tiles of one size that are solved together: always the same, and a batch with a tile missing is done again.

    A neighbour in a batch can change a result, within the tolerance.
    """
    groups: dict[tuple[int, int], list[Tile]] = {}
    for tile in tiles:
        groups.setdefault(tile.read.size if size > 1 else (0, 0), []).append(tile)
    for group in groups.values():
        yield from (list(group[first : first + size]) for first in range(0, len(group), size))


def _entry(plane: int, tile: Tile, ended: TileRun) -> dict[str, Any]:
    return {
        "plane": plane,
        "place": list(tile.place),
        "status": ended.status.name,
        "distance": ended.distance if math.isfinite(ended.distance) else None,
        "iterations": ended.iterations,
        "cg_iterations": ended.cg_iterations,
    }
