"""How long a picture takes where several of one size are denoised together: what `--batch` should be.

Run as `python tools/batch_sizes.py [--device cuda] [--kind gray] [--size 481x321 ...] [--batch 1 2 4 ...]`. Pictures
are crops of those of scikit-image, with noise of their own. The memory is the most that torch had in use, on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from frame import Given, Say, Tool, arguments_of, at_least
from skimage import data

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.scale.stacks import reconstruct_many

PICTURES = ("camera", "coins", "moon", "brick", "grass", "gravel")  # of scikit-image, gray


@dataclass(frozen=True)
class BatchTime:
    """Seconds and memory of a picture among so many."""

    size: str
    batch: int
    seconds_per_picture: float
    bytes_per_pixel_and_filter: float | None  # on a GPU
    outer_iterations: float  # mean


def noisy_pictures(count: int, height: int, width: int, colours: int, sigma: float) -> list[np.ndarray]:
    """Different parts of different pictures, with noise, float32 in 0..1; small ones are mirrored at their ends."""
    generator = np.random.default_rng(0)
    found = []
    for index in range(count):
        picture = getattr(data, PICTURES[index % len(PICTURES)])() / 255
        rows, columns = (max(0, want - have) for want, have in zip((height, width), picture.shape, strict=True))
        picture = np.pad(picture, ((0, rows), (0, columns)), mode="symmetric")
        offset = 37 * (index // len(PICTURES))
        picture = np.roll(picture, (-offset, -offset), (0, 1))[:height, :width]
        picture = picture if colours == 1 else np.repeat(picture[..., None], colours, -1)
        found.append((picture + generator.normal(0, sigma / 255, picture.shape)).astype(np.float32))
    return found


def measure(given: Given, say: Say) -> Iterator[list[BatchTime]]:
    """One size and batch after the other."""
    model = load(given.kind, device=given.device)
    found: list[BatchTime] = []
    for size in given.size:
        height, width = (int(number) for number in size.split("x"))
        for batch in given.batch:
            say(f"{size}, {batch} at once")
            found.append(time_batch(model, given, height, width, batch))
            yield found


def time_batch(model: DEAL, given: Given, height: int, width: int, batch: int) -> BatchTime:
    """Of two batches, after one that does not count."""
    pictures = noisy_pictures(3 * batch, height, width, model.channels, given.sigma)

    def run(part: list[np.ndarray]) -> list[int]:
        options = {"sigma": given.sigma / 255, "tolerance": given.tolerance, "batch": batch, "data_range": 1.0}
        return [int(rec.iterations[0]) for rec in reconstruct_many(part, model=model, **options)]

    on_gpu, before = given.device == "cuda", 0
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    run(pictures[:batch])
    started = time.perf_counter()
    iterations = run(pictures[batch:])
    if on_gpu:
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - started) / (2 * batch)
    memory = None
    if on_gpu:
        memory = (torch.cuda.max_memory_allocated() - before) / (batch * height * width * model.features)
    return BatchTime(f"{height}x{width}", batch, seconds, memory, sum(iterations) / len(iterations))


PARSER = arguments_of("batch_sizes", __doc__)
PARSER.add_argument("--kind", default="gray-light", help="weights")
PARSER.add_argument("--size", nargs="+", default=["64x64", "128x128"], metavar="HEIGHTxWIDTH")
PARSER.add_argument("--batch", nargs="+", type=at_least(1), default=[1, 2, 4])
PARSER.add_argument("--sigma", type=at_least(0.0), default=25.0)
PARSER.add_argument("--tolerance", type=at_least(1e-6), default=1e-3)

if __name__ == "__main__":
    Tool(PARSER, measure).main()
