"""How much faster tiles are on processes of Dask, with one thread each, than in one process with one thread.

Run as `python tools/cluster_speed.py [--processes 2 4] [--size 384] [--tile 64]`. What limits it is shown, too:

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

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from distributed import get_task_stream
from frame import Given, Say, Tool, arguments_of, at_least
from skimage import data

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.scale.cluster import Cluster, open_cluster
from torchdeal.scale.remote import SentModel
from torchdeal.scale.tiled import reconstruct_tiled


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
        say(f"{count} processes of Dask")
        with open_cluster(str(count), "cpu") as cluster:
            cluster.threads = 1
            found.append(time_cluster(cluster, count, model, picture, options, run.x, found[0]))
        yield found


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

if __name__ == "__main__":
    Tool(PARSER, measure).main()
