"""How much faster tiles are on processes of Dask, with one thread each, than in one process with one thread.

Run as `python tools/cluster_speed.py [--processes 2 4] [--size 384] [--tile 64]`. As many plain processes, which share
the tiles evenly and say nothing to each other, show what the machine allows: how much slower Dask is than these is what
Dask costs. What limits it is shown, too:

- tile seconds, tile processor seconds: what a tile takes where it is solved, by the clock and of the processor. They
  differ where other processes use the cores.
- by processor: all tiles in one process, over the busiest worker, both in seconds of the processor: how much faster it
  would be on cores that nobody else uses.
- waiting: share of the workers' time in which no tile was solved: transfers, the scheduler, the last tiles.
- tile bytes: to the worker, weights and pixels, and back.
- overlap: pixels that are solved for each that is kept. Both runs have the same.
- load: processes that wanted a core before the run, a mean over a minute.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from threading import BrokenBarrierError
from typing import Any

import numpy as np
import torch
from distributed import get_task_stream
from frame import Given, Say, Tool, arguments_of, at_least
from skimage import data

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.operators import Identity
from torchdeal.scale.cluster import Cluster, open_cluster
from torchdeal.scale.grid import Tile, grid
from torchdeal.scale.local import local
from torchdeal.scale.remote import SentModel
from torchdeal.scale.tiled import reconstruct_tiled
from torchdeal.scale.tiles import Shared, solve_tile

SECONDS_TO_BEGIN = 600  # for all processes: one that failed must not keep the others waiting

_ready: Any = None  # in a process that solves a share of the tiles: where it waits for the others


@dataclass(frozen=True)
class SpreadTime:
    """A picture in tiles."""

    processes: str
    seconds: float
    times_faster: float
    by_processor: float
    tile_seconds: float
    tile_processor_seconds: float
    waiting: float | None
    tiles: int
    tile_bytes: int
    overlap: float
    load: float
    same_bits: str


def measure(given: Given, say: Say) -> Iterator[list[SpreadTime]]:
    """Here, then with each number of processes."""
    torch.set_num_threads(1)
    model, picture = load(given.kind), noisy_picture(given.size, given.sigma)
    options = {"sigma": given.sigma, "tile": given.tile}
    say("one process, one thread")
    reconstruct_tiled(picture[: given.tile, : given.tile], model=model, **options)  # to warm up
    used, started, busy = os.getloadavg()[0], time.perf_counter(), time.process_time()
    run = reconstruct_tiled(picture, model=model, **options)
    seconds, processor = time.perf_counter() - started, time.process_time() - busy
    read = given.tile + 2 * run.overlap
    weights = sum(array.nbytes for array in SentModel.of(model).arrays.values())
    about = (run.tiles, weights + read**2 + given.tile**2, (read / given.tile) ** 2, used, "yes")  # pixels are bytes
    found = [SpreadTime("1, without Dask", seconds, 1, 1, seconds / run.tiles, processor / run.tiles, None, *about)]
    yield found
    for count in given.processes:
        say(f"{count} processes without Dask")
        found.append(time_processes(count, given, picture, run.overlap, run.x, found[0]))
        yield found
        say(f"{count} processes of Dask")
        with open_cluster(str(count), "cpu") as cluster:
            cluster.threads = 1
            found.append(time_cluster(cluster, count, model, picture, options, run.x, found[0]))
        yield found


def time_processes(
    count: int, given: Given, picture: np.ndarray, overlap: int, x: np.ndarray, alone: SpreadTime
) -> SpreadTime:
    """Each solves its share of the tiles, from the moment when all are ready."""
    tiles = grid((len(picture), len(picture)), given.tile, overlap)
    if count > len(tiles):
        raise ValueError(f"{len(tiles)} tiles are too few for {count} processes: give a larger --size")
    spawning = multiprocessing.get_context("spawn")
    ready = spawning.Barrier(count + 1, timeout=SECONDS_TO_BEGIN)
    used = os.getloadavg()[0]
    with ProcessPoolExecutor(count, spawning, initializer=_be_ready_at, initargs=(ready,)) as pool:
        shares = [pool.submit(_solve_share, given.kind, given.sigma, picture, tiles[n::count]) for n in range(count)]
        with contextlib.suppress(BrokenBarrierError):  # the process that failed says why
            ready.wait()
        shares = [share.result() for share in shares]
    seconds = max(share.ended for share in shares) - min(share.began for share in shares)
    solving = sum(share.ended - share.began for share in shares)
    processor = [share.processor for share in shares]
    same = all(
        np.array_equal(core, x[tile.core.slices])
        for number, share in enumerate(shares)
        for core, tile in zip(share.cores, tiles[number::count], strict=True)
    )
    return replace(
        alone,
        processes=f"{count}, without Dask",
        seconds=seconds,
        times_faster=alone.seconds / seconds,
        by_processor=alone.tile_processor_seconds * alone.tiles / max(processor),
        tile_seconds=solving / len(tiles),
        tile_processor_seconds=sum(processor) / len(tiles),
        waiting=1 - solving / (count * seconds),
        load=used,
        same_bits="yes" if same else "no",
    )


@dataclass(frozen=True)
class Share:
    """What a process did: from when to when, of the clock that all have, and in how many seconds of the processor."""

    began: float
    ended: float
    processor: float
    cores: list[np.ndarray]


def _be_ready_at(barrier: Any) -> None:
    global _ready
    _ready = barrier


def _solve_share(kind: str, sigma: float, picture: np.ndarray, tiles: list[Tile]) -> Share:
    """In a process of its own, after a tile that does not count."""
    torch.set_num_threads(1)
    try:
        shared = Shared(load(kind), local(Identity()), 255.0, sigma=sigma)
        solve_tile(picture[tiles[0].read.slices], tiles[0], shared)
    except BaseException:
        _ready.abort()  # or the others would wait for this one
        raise
    _ready.wait()
    began, busy = time.monotonic(), time.process_time()
    cores = [solve_tile(picture[tile.read.slices], tile, shared)[0] for tile in tiles]
    return Share(began, time.monotonic(), time.process_time() - busy, cores)


def time_cluster(
    cluster: Cluster, count: int, model: DEAL, picture: np.ndarray, options: dict, x: np.ndarray, alone: SpreadTime
) -> SpreadTime:
    """After a run that does not count, in which all workers load the model."""
    tile = options["tile"]
    reconstruct_tiled(picture[: 2 * tile, : 2 * count * tile], model=model, cluster=cluster, **options)
    used, before = os.getloadavg()[0], cluster.client.run(time.process_time)
    stream: Any = get_task_stream(cluster.client)
    with stream:
        started = time.perf_counter()
        run = reconstruct_tiled(picture, model=model, cluster=cluster, **options)
        seconds = time.perf_counter() - started
    after = cluster.client.run(time.process_time)
    processor = [after[worker] - before[worker] for worker in before]
    solving = sum(
        step["stop"] - step["start"]
        for task in stream.data
        if "solve_there" in str(task["key"])
        for step in task["startstops"]
        if step["action"] == "compute"
    )
    return SpreadTime(
        str(count),
        seconds,
        alone.seconds / seconds,
        alone.tile_processor_seconds * alone.tiles / max(processor),
        solving / run.tiles,
        sum(processor) / run.tiles,
        1 - solving / (count * seconds),
        run.tiles,
        alone.tile_bytes,
        alone.overlap,
        used,
        "yes" if np.array_equal(run.x, x) else "no",
    )


def noisy_picture(side: int, sigma: float) -> np.ndarray:
    """The camera man of scikit-image, as often as it takes, mirrored, with noise; uint8."""
    camera = data.camera()
    missing = max(side - camera.shape[0], 0)
    clean = np.pad(camera, ((0, missing), (0, missing)), mode="symmetric")[:side, :side]
    noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
    return np.clip(clean + noise, 0, 255).round().astype(np.uint8)


PARSER = arguments_of("cluster_speed", __doc__)
PARSER.add_argument("--kind", default="gray-light", help="weights")
PARSER.add_argument("--processes", nargs="+", type=at_least(1), default=[2])
PARSER.add_argument("--size", type=at_least(16), default=384, help="side of the picture")
PARSER.add_argument("--tile", type=at_least(8), default=64)
PARSER.add_argument("--sigma", type=at_least(0.0), default=25.0)

TOOL = Tool(PARSER, measure)

if __name__ == "__main__":
    TOOL.main()
