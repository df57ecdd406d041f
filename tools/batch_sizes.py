"""How many pictures of one size are denoised in a second, one at a time and several together: what `--batch` should be.

Run as `python tools/batch_sizes.py [--device cuda] [--kind gray] [--size 321x481 ...] [--batch 1 16 32 64]`. Pictures
are random textures with edges, each of its own, and go through `td.reconstruct_many`. After a run of each batch size
that does not count, all sizes take turns, so that a machine that becomes slower is so for all; the median of each
counts. The memory is the most that torch had in use, on a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from frame import Given, Say, Tool, arguments_of, at_least

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.scale.stacks import reconstruct_many


@dataclass(frozen=True)
class BatchTime:
    """Time and memory of pictures, so many at once."""

    size: str
    batch: int
    pictures_per_second: float
    times_the_first: float
    bytes_per_pixel_and_filter: float | None  # on a GPU
    outer_iterations: float  # mean
    most_outer_iterations: int


def noisy_pictures(count: int, height: int, width: int, colours: int, sigma: float) -> list[np.ndarray]:
    """Clouds with edges, some rougher than others, and noise, float32 around 0..1."""
    generator = np.random.default_rng(0)
    found = []
    for index in range(count):
        cloud, other = (clouds(generator, height, width, 1.2 + 0.8 * (index % 4) / 3) for _ in range(2))
        picture = np.clip(0.5 + 0.12 * cloud + 0.15 * np.sign(other), 0, 1)
        picture = picture if colours == 1 else np.repeat(picture[..., None], colours, -1)
        found.append((picture + generator.normal(0, sigma / 255, picture.shape)).astype(np.float32))
    return found


def clouds(generator: np.random.Generator, height: int, width: int, power: float) -> np.ndarray:
    """Random, of variance 1, with a spectrum that falls by this power of the frequency, as that of photographs does."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(generator.normal(size=(height, width))) / frequency**power
    field = np.fft.irfft2(spectrum, (height, width))
    return field / field.std()


def measure(given: Given, say: Say) -> Iterator[list[BatchTime]]:
    """One size of pictures after the other."""
    model = load(given.kind, device=given.device)
    found: list[BatchTime] = []
    for size in given.size:
        height, width = (int(number) for number in size.split("x"))
        found += time_batches(model, given, height, width, say)
        yield found


def time_batches(model: DEAL, given: Given, height: int, width: int, say: Say) -> list[BatchTime]:
    """All batch sizes in turn, each with pictures enough for one batch, and for a mean."""
    pictures = noisy_pictures(max(*given.batch, given.least), height, width, model.channels, given.sigma)

    def run(batch: int) -> list[int]:
        options = {"sigma": given.sigma / 255, "tolerance": given.tolerance, "batch": batch, "data_range": 1.0}
        some = pictures[: max(batch, given.least)]
        return [int(rec.iterations[0]) for rec in reconstruct_many(some, model=model, **options)]

    iterations, memory = {}, {}
    for batch in given.batch:
        say(f"{height} x {width}, {batch} at once: before it counts")
        iterations[batch], memory[batch] = peak_memory(given.device, lambda batch=batch: run(batch))
    seconds: dict[int, list[float]] = {batch: [] for batch in given.batch}
    for repeat in range(given.repeats):
        for batch in given.batch:
            say(f"{height} x {width}, {batch} at once: {repeat + 1} of {given.repeats}")
            seconds[batch].append(timed(given.device, lambda batch=batch: run(batch)) / len(iterations[batch]))
    rates = {batch: 1 / statistics.median(each) for batch, each in seconds.items()}
    return [
        BatchTime(
            size=f"{height}x{width}",
            batch=batch,
            pictures_per_second=rate,
            times_the_first=rate / rates[given.batch[0]],
            bytes_per_pixel_and_filter=memory[batch] and memory[batch] / (batch * height * width * model.features),
            outer_iterations=statistics.mean(iterations[batch]),
            most_outer_iterations=max(iterations[batch]),
        )
        for batch, rate in rates.items()
    ]


def timed(device: str, run: Callable[[], Any]) -> float:
    """Seconds."""
    started = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_memory(device: str, run: Callable[[], list[int]]) -> tuple[list[int], int | None]:
    """What it returns, and the bytes that it needed, on a GPU."""
    if device != "cuda":
        return run(), None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    return run(), torch.cuda.max_memory_allocated() - before


PARSER = arguments_of("batch_sizes", __doc__)
PARSER.add_argument("--kind", default="gray-light", help="weights")
PARSER.add_argument("--size", nargs="+", default=["64x64", "128x128"], metavar="HEIGHTxWIDTH")
PARSER.add_argument("--batch", nargs="+", type=at_least(1), default=[1, 2, 4])
PARSER.add_argument("--sigma", type=at_least(0.0), default=25.0)
PARSER.add_argument("--tolerance", type=at_least(1e-6), default=1e-3)
PARSER.add_argument("--repeats", type=at_least(1), default=3, help="of which the median counts")
PARSER.add_argument("--least", type=at_least(1), default=8, help="pictures in each, if a batch has fewer")
TOOL = Tool(PARSER, measure)

if __name__ == "__main__":
    TOOL.main()
