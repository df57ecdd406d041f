"""What several GPUs tell each other in a training step, and how much of the time that may take.

Run as `python tools/communication.py [--kinds gray color]`. Two processes on this machine make steps under
`DistributedDataParallel`, through gloo.

- measured: the bytes that are reduced in a step, and how long a reduction of as many takes between the two processes.
- assumed: the seconds of a step on one GPU (`--step`), the bandwidth of a link (`--link`), and that nothing else is in
  the way. A ring of n processes sends `2 (n - 1) / n` times the bytes through each link. Nothing of it is hidden behind
  the backward pass, which makes the efficiency too small; messages begin at once, which makes it too large.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from frame import Given, Say, Tool, arguments_of, at_least
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from torchdeal.benchmark.reporting.tables import Table, number
from torchdeal.io.checkpoint import BUNDLED, load
from torchdeal.operators import Identity
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.step import TrainingStep

PROCESSES = 2  # here
PATCH = 32  # side: the gradient has as many numbers for any
STEPS = {"gray": 0.035, "color": 0.083}  # seconds on one H200, at best: docs/notes/2026-11-training-runs.md
LINKS = {"NVLink 4": 450e9, "PCIe 5": 50e9, "Ethernet 100 Gb/s": 10e9}  # bytes a second, each way


@dataclass(frozen=True)
class Reduced:
    """The gradients of a model in one step, and what follows for several GPUs."""

    weights: str
    parameters: int
    bytes: int
    messages: int  # in which they are sent
    gloo_seconds: float  # of a reduction of as many bytes, median
    step_seconds: float | None  # assumed
    expected: dict[str, Expected]  # by link


@dataclass(frozen=True)
class Expected:
    """What follows from a bandwidth."""

    bandwidth: float
    reduce_seconds: float
    efficiency: float | None  # of all GPUs


def measure(given: Given, say: Say) -> Iterator[list[Reduced]]:
    """One kind of weights after the other."""
    found: list[Reduced] = []
    links, steps = {**LINKS, **dict(given.link)}, {**STEPS, **dict(given.step)}
    for kind in given.kinds:
        parameters = sum(parameter.numel() for parameter in load(kind).parameters())
        sizes, seconds = between_processes(kind, given.repeats)
        say(f"{kind}: {sum(sizes)} bytes in {len(sizes)} messages, {1e3 * seconds:.2f} ms")
        step = steps.get(kind)
        expected = {name: expect(sum(sizes), wide, step, given.gpus) for name, wide in links.items()}
        found.append(Reduced(kind, parameters, sum(sizes), len(sizes), seconds, step, expected))
        yield found


def expect(size: int, bandwidth: float, step: float | None, gpus: int) -> Expected:
    """A ring: each process sends all but its own part twice, once to be added and once as a sum."""
    seconds = 2 * (gpus - 1) / gpus * size / bandwidth
    return Expected(bandwidth, seconds, None if step is None else step / (step + seconds))


def between_processes(kind: str, repeats: int) -> tuple[list[int], float]:
    """The bytes of each message of a step, and the seconds of a reduction of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_work, (folder, kind, repeats), PROCESSES)
        return torch.load(Path(folder, "found"))


def _work(rank: int, folder: str, kind: str, repeats: int) -> None:
    """What each process does. The first step shows torch in which order gradients come, the second one counts."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
    sizes: list[int] = []

    def counted(group, bucket):  # torch looks at the types of a hook, and does not take their names
        sizes.append(bucket.buffer().nbytes)
        return allreduce_hook(group, bucket)

    step = DistributedDataParallel(TrainingStep(load(kind).train().requires_grad_(True), LossConfig(), engine="direct"))
    step.register_comm_hook(dist.group.WORLD, counted)
    for _ in range(2):
        sizes.clear()
        batch = _batch(step.module.model.channels)
        step(batch, batch.measured).loss.backward()
    seconds = _median_seconds(torch.zeros(sum(sizes), dtype=torch.uint8).view(torch.float32), repeats)
    if rank == 0:
        torch.save((sizes, seconds), Path(folder, "found"))
    Path(folder, f"ended-{rank}").touch()
    while len(list(Path(folder).glob("ended-*"))) < PROCESSES:  # who leaves first closes connections that others use
        time.sleep(0.01)
    dist.destroy_process_group()


def _batch(channels: int) -> Batch:
    clean = torch.rand(1, channels, PATCH, PATCH, generator=torch.Generator().manual_seed(0))
    return Batch(clean, Identity(), clean, torch.tensor([15.0]))


def _median_seconds(values: torch.Tensor, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(values)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def show(found: Sequence[Reduced]) -> Iterator[Table]:
    """What was measured, then what follows."""
    head = ["weights", "parameters", "bytes a step", "messages", "gloo, 2 processes, ms"]
    rows = [[r.weights, *map(str, (r.parameters, r.bytes, r.messages)), number(1e3 * r.gloo_seconds)] for r in found]
    yield Table(head, rows, "Measured")
    head = ["weights", "step of one GPU, ms", "link", "GB/s", "reduction, ms", "efficiency"]
    yield Table(head, [row for one in found for row in _expected_rows(one)], "Assumed, and what follows")


def _expected_rows(found: Reduced) -> Iterator[list[str]]:
    step = "-" if found.step_seconds is None else number(1e3 * found.step_seconds)
    for link, one in found.expected.items():
        share = "-" if one.efficiency is None else f"{100 * one.efficiency:.2f} %"
        yield [found.weights, step, link, number(one.bandwidth / 1e9), number(1e3 * one.reduce_seconds), share]


def named(text: str) -> tuple[str, float]:
    """The type of an option: NAME=NUMBER."""
    name, _, value = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"give NAME=NUMBER, got {text}")
    return name, at_least(1e-9)(value)


def _arguments() -> argparse.ArgumentParser:
    parser = arguments_of("communication", __doc__)
    parser.add_argument("--kinds", nargs="+", choices=BUNDLED, default=list(BUNDLED), help="weights")
    parser.add_argument("--gpus", type=at_least(2), default=8, help="for which the efficiency is told (default: 8)")
    parser.add_argument("--step", nargs="+", type=named, default=[], metavar="KIND=SECONDS", help="of one GPU")
    parser.add_argument("--link", nargs="+", type=named, default=[], metavar="NAME=BYTES", help="a second, each way")
    parser.add_argument("--repeats", type=at_least(1), default=50, help="reductions that are timed (default: 50)")
    return parser


TOOL = Tool(_arguments(), measure, show)

if __name__ == "__main__":
    TOOL.main()
