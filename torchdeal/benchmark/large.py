"""Large: pictures in tiles. Is the result that of the whole picture, how much memory is taken, how does time grow?

Memory is measured over the whole grid of a picture of 16,384 x 16,384 pixels, from file to file. A few tiles are
solved. For the others a stand-in takes as much memory as these did and returns the pixels as they are: the reading,
the writing and the memory are those of the whole, and the time of the whole follows from the tiles that were solved.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchdeal.benchmark.alone import run_alone
from torchdeal.benchmark.core import Save, Say
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reach import OPERATORS, bundled_picture, middle
from torchdeal.benchmark.reporting.tables import Section, Table, number
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.io.checkpoint import checksum, load
from torchdeal.operators import Mask
from torchdeal.reconstruct import reconstruct
from torchdeal.scale.grid import Tile
from torchdeal.scale.large import run_tiles
from torchdeal.scale.local import local
from torchdeal.scale.sources import open_source
from torchdeal.scale.tiled import Plan, file_target, reconstruct_tiled
from torchdeal.scale.tiles import Shared, TileRun, solve_tiles
from torchdeal.scale.unfinished import Unfinished
from torchdeal.simulate import measure
from torchdeal.solvers import Status

WEIGHTS, METHOD = "gray-light", "deal-light"
SIDE, SOLVED, SIGMA = 16384, 2, 25.0  # of the large picture: its side, the tiles that are solved, the noise
SIDES, TILE, GROWTH_SIGMA = (192, 384, 768), 64, 5.0  # of the pictures whose time is compared
EQUAL_SIDE, EQUAL_TILE = 160, 64
EQUAL = {"denoising": (5, 15, 25, 50), "blur": (5,), "inpainting": (5,), "upscaling": (5,)}  # and their noise
QUICK = {"side": 256, "sides": (96, 128), "equal": 96, "problems": ("denoising", "inpainting")}
MOST_SECONDS = 7200.0
MIB = 2**20
PROTOCOL = "The light weights, and the camera man of scikit-image, as often as it takes, mirrored, with white noise."


class Large:
    """The experiment: three questions."""

    about = "Pictures in tiles: is the result the same, and what do they cost?"

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        return {"protocol": PROTOCOL, "images": "scikit-image", "quick": options.quick}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        if options.device != "cpu":
            raise Unavailable("memory and time are those of the CPU: use --device cpu")
        results.weights[METHOD] = {WEIGHTS: checksum(WEIGHTS)}
        names = QUICK["problems"] if options.quick else EQUAL
        equal = {f"equal, {name}, sigma {sigma:g}": (name, sigma) for name in names for sigma in EQUAL[name]}
        growth = {f"growth, {side} x {side}": side for side in (QUICK["sides"] if options.quick else SIDES)}
        side = QUICK["side"] if options.quick else SIDE
        whole = f"memory, {side} x {side}"
        for cell in options.chosen([*equal, *growth, whole]):
            if results.select(cell, METHOD):
                continue
            if cell in equal:
                values = difference(*equal[cell], QUICK["equal"] if options.quick else EQUAL_SIDE)
            elif cell in growth:
                values = run_alone(seconds_of, growth[cell], most_seconds=MOST_SECONDS)
            else:
                values = run_alone(memory_of, side, most_seconds=MOST_SECONDS)
            results.cells[cell] = {"table": "Large", "column": cell}
            results.add(Row(cell, "camera", METHOD, values, environment=len(results.environments) - 1))
            save()
            say(f"{cell}: {', '.join(f'{key} {value:.3g}' for key, value in values.items())}")

    def sections(self, results: Results) -> Iterator[Section]:
        """One for each question."""
        rows = [(row.cell, row.values) for row in results.rows]
        yield Section("Large: the same result", EQUAL_TEXT, _tables(EQUAL_HEAD, rows, "equal, ", _equal_line))
        growing = [(cell, values) for cell, values in rows if cell.startswith("growth, ")]
        tables = _tables(GROWTH_HEAD, rows, "growth, ", _growth_line)
        yield Section("Large: time", GROWTH_TEXT, tables, notes=_exponent(growing))
        yield Section("Large: memory", MEMORY_TEXT, _tables(MEMORY_HEAD, rows, "memory, ", _memory_line))


EQUAL_TEXT = (
    f"{EQUAL_SIDE} x {EQUAL_SIDE} pixels as a whole, and in tiles of {EQUAL_TILE} with the same sigma and lam, each "
    "run to the default tolerance of 1e-3. The difference of the two results: its root mean square, relative to that "
    "of the image, and the largest of a pixel, on the 0..255 scale."
)
GROWTH_TEXT = (
    f"Seconds of one thread of the processor, sigma {GROWTH_SIGMA:g}, tiles of {TILE} pixels, to the default tolerance."
)
MEMORY_TEXT = (
    f"Pixels of 8 bits, sigma {SIGMA:g}, TIFF to TIFF, in a process of its own. {SOLVED} tiles are solved; for the "
    "others a stand-in takes the memory that these took, so that all are read and written. Hours of all: what all "
    "tiles would take, from those that were solved, on a machine that others used, too. Of the processor: the hours "
    "that its threads worked for it, divided by their number."
)
EQUAL_HEAD = ["", "overlap", "difference", "largest of a pixel"]
GROWTH_HEAD = ["pixels", "tiles", "seconds", "microseconds per pixel"]
MEMORY_HEAD = [
    "pixels",
    "tiles",
    "peak memory, MiB",
    "seconds of a tile",
    "hours of all",
    "of the processor",
    "to write the file",
]


def difference(name: str, sigma: float, side: int) -> Values:
    """Between a picture that is solved in tiles and the same as a whole."""
    model, operator = load(WEIGHTS), OPERATORS[name](side)
    margins = local(operator).margins
    clean = middle(bundled_picture("camera"), side + margins[2] + margins[3], side + margins[0] + margins[1])
    y = measure(clean, operator, sigma / 255, seed=0)
    y = operator.forward(y) if isinstance(operator, Mask) else y
    known: dict[str, Any] = {"sigma": sigma / 255} if operator.is_identity else {"noise": sigma / 255}
    whole = reconstruct(y, operator, model=model, data_range=1.0, **known)
    x = local(operator).measured(whole.x)[0, 0].numpy()
    found = reconstruct_tiled(
        y[0, 0].numpy(),
        None,
        operator,
        model=model,
        sigma=float(whole.sigma.max()),
        lam=None if operator.is_identity else float(whole.lam.max()),
        tile=EQUAL_TILE // local(operator).scale,
        data_range=1.0,
        progress=None,
    )
    away = found.x - x
    size = math.sqrt(float((x**2).mean()))
    return {
        "difference": math.sqrt(float((away**2).mean())) / size,
        "pixel": 255 * float(np.abs(away).max()),
        "overlap": found.overlap,
        "tiles": found.tiles,
        "whole distance": float(whole.distance.max()),
        "tile distance": found.distance,
    }


def seconds_of(side: int) -> Values:
    """Of a thread, for a picture of so many pixels each way."""
    torch.set_num_threads(1)
    y, model = noisy(side, side, GROWTH_SIGMA), load(WEIGHTS)
    reconstruct_tiled(y[:TILE, :TILE], model=model, sigma=GROWTH_SIGMA, tile=TILE)  # to warm up
    started = time.process_time()
    run = reconstruct_tiled(y, model=model, sigma=GROWTH_SIGMA, tile=TILE)
    return {"seconds": time.process_time() - started, "tiles": run.tiles, "overlap": run.overlap}


def memory_of(side: int) -> Values:
    """From file to file: the most that the process has at any time, in MiB, and seconds."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path, target = Path(folder, "in.tif"), Path(folder, "out.tif")
        _write_noisy(path, side)
        model = load(WEIGHTS)
        source = open_source(path)
        plan = Plan(source, Shared(model, local(OPERATORS["denoising"](side)), 255.0, noise=SIGMA), None, None)
        solve = _Partly(SOLVED)
        unfinished = Unfinished(target, plan.settings(), resume=False)
        made = file_target(target, source, plan.core, 1, unfinished)
        started = time.perf_counter()
        ended: list[float] = []

        def told(done: int, of: int) -> None:
            if done == of:
                ended.append(time.perf_counter())

        run = run_tiles(
            source, made, plan.core, plan.for_each(lambda _: plan.knobs), unfinished=unfinished, told=told, solve=solve
        )
        finished = time.perf_counter()
    tile = sum(solve.seconds) / len(solve.seconds)
    others = (ended[0] - started - sum(solve.seconds)) / run.tiles  # reading and writing a tile, beside the solving
    return {
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB,
        "tiles": run.tiles,
        "core": plan.core,
        "overlap": run.overlap,
        "tile seconds": tile,
        "processor seconds": sum(solve.processor) / len(solve.processor),
        "threads": torch.get_num_threads(),
        "other seconds": others,
        "file seconds": finished - ended[0],
        "hours": (tile + others) * run.tiles / 3600,
    }


class _Partly:
    """Solves the first tiles; then takes as much memory as that did, and returns the pixels."""

    def __init__(self, solved: int):
        self.left, self.bytes = solved, 0
        self.seconds: list[float] = []  # of each tile
        self.processor: list[float] = []  # likewise, of all threads together: a busy neighbour changes them less

    def __call__(
        self, pixels: Sequence[np.ndarray], tiles: Sequence[Tile], shared: Shared
    ) -> list[tuple[np.ndarray, TileRun]]:
        if self.left:
            before, started, worked = _most(), time.perf_counter(), time.process_time()
            found = solve_tiles(pixels, tiles, shared)
            self.seconds.append(time.perf_counter() - started)
            self.processor.append(time.process_time() - worked)
            self.bytes = max(self.bytes, _most() - before)
            self.left -= 1
            return found
        np.ones(self.bytes, np.uint8)
        cores = [part[tile.core.within(tile.read).slices] for part, tile in zip(pixels, tiles, strict=True)]
        return [(core, TileRun(Status.MAX_ITERATIONS, math.inf, 0, 0)) for core in cores]


def noisy(height: int, width: int, sigma: float, seed: int = 0) -> np.ndarray:
    """A picture of any size, of 8 bits: the camera man, again and again, each time mirrored, with noise."""
    picture = bundled_picture("camera")[0, 0].numpy() * 255
    sizes = zip((height, width), picture.shape, strict=True)
    places = [np.abs((np.arange(n) + m - 1) % (2 * m - 2) - (m - 1)) for n, m in sizes]
    clean = picture[places[0]][:, places[1]]
    noise = np.random.default_rng(seed).standard_normal(clean.shape, dtype=np.float32)
    return np.clip(clean + sigma * noise, 0, 255).astype(np.uint8)


def _write_noisy(path: Path, side: int) -> None:
    import tifffile

    strip = 512
    rows = (noisy(strip, side, SIGMA, seed=top) for top in range(0, side, strip))
    tiles = (part for band in rows for part in np.split(band, range(strip, side, strip), 1))
    tifffile.imwrite(path, tiles, shape=(side, side), dtype=np.uint8, tile=(strip, strip), photometric="minisblack")


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tables(head: Sequence[str], rows: Sequence[tuple[str, Values]], begin: str, line: Any) -> list[Table]:
    lines = [[cell.removeprefix(begin), *line(values)] for cell, values in rows if cell.startswith(begin)]
    return [Table(head, lines)] if lines else []


def _equal_line(values: Values) -> list[str]:
    return [f"{values['overlap']}", f"{values['difference']:.1e}", f"{values['pixel']:.2g}"]


def _growth_line(values: Values) -> list[str]:
    pixels = values["tiles"] * TILE**2
    return [f"{values['tiles']}", number(values["seconds"]), number(1e6 * values["seconds"] / pixels)]


def _memory_line(values: Values) -> list[str]:
    tiles = f"{values['tiles']} of {values['core']}, overlap {values['overlap']}"
    processor = values["processor seconds"] * values["tiles"] / values["threads"] / 3600
    return [
        tiles,
        number(values["peak"]),
        number(values["tile seconds"]),
        number(values["hours"]),
        f"{number(processor)} h",
        f"{number(values['file seconds'])} s",
    ]


def _exponent(rows: Sequence[tuple[str, Values]]) -> list[str]:
    """Of the growth of time with the number of pixels: the slope of a line through the logarithms."""
    if len(rows) < 2:
        return []
    pixels = [math.log(values["tiles"] * TILE**2) for _, values in rows]
    seconds = [math.log(values["seconds"]) for _, values in rows]
    slope = np.polyfit(pixels, seconds, 1)[0]
    return [f"time grows as the number of pixels to the power {slope:.2f}"]


EXPERIMENT = Large()
