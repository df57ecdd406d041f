"""What an outer iteration of the solver costs the host beside the system and its solves: microseconds of bookkeeping.

Run as `python tools/host_time.py [--samples 1 16]`. The problem has 8 x 8 numbers, on the CPU, and a solve is one
product. The time of the system and of the solves is measured too, and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from frame import Given, Say, Tool, arguments_of, at_least
from torch import Tensor

from torchdeal.solvers import LinearSolution, System, solve_fixed_point

SIZE = 8
SLOWEST_RATE = 0.9  # of contraction
TOLERANCE = 1e-6  # so that there are some 30 iterations, the last ones accurate, as in a default run


@dataclass(frozen=True)
class HostTime:
    """Of one outer iteration, in the run with the least: the others were disturbed."""

    samples: int
    iterations: int
    microseconds: float
    of_them_system: float
    bookkeeping: float


class Stopwatch:
    """Adds up the seconds of what it is put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def one_run(samples: int) -> HostTime:
    """`T(x) = 1 + q (x - 1)`, of which one solve is a product."""
    system = Stopwatch()
    b = torch.ones(samples, 1, SIZE, SIZE, dtype=torch.float64)
    start = torch.rand(b.shape, dtype=b.dtype, generator=torch.Generator().manual_seed(0))
    rates = torch.linspace(0.3, SLOWEST_RATE, SIZE, dtype=b.dtype)
    images: list[Tensor] = []

    def linearise(x: Tensor) -> System:
        images[:] = [1 + rates * (x - 1)]
        return System(system.around(lambda p: p / images[0]))

    def solve(key: Any, apply: Any, b: Tensor, **options: Any) -> LinearSolution:
        none = b.new_zeros(len(b))
        return LinearSolution(images[0] * b, none, none, none.long(), none == 0)

    options = {"tolerance": TOLERANCE, "max_iterations": 500, "replayed": system.around(solve)}
    started = time.perf_counter()
    found = solve_fixed_point(system.around(linearise), b, start, **options)
    seconds = time.perf_counter() - started
    iterations = int(found.iterations.max())
    each = [1e6 * part / iterations for part in (seconds, system.seconds, seconds - system.seconds)]
    return HostTime(samples, iterations, *each)


def measure(given: Given, say: Say) -> Iterator[list[HostTime]]:
    """One size of a batch after the other."""
    found: list[HostTime] = []
    for samples in given.samples:
        say(f"{samples} samples")
        runs = (one_run(samples) for _ in range(given.runs))
        found.append(min(runs, key=lambda run: run.bookkeeping))
        yield found


PARSER = arguments_of("host_time", __doc__)
PARSER.add_argument("--samples", nargs="+", type=at_least(1), default=[1, 16], help="of a batch")
PARSER.add_argument("--runs", type=at_least(1), default=50, help="of which the fastest counts")
TOOL = Tool(PARSER, measure)

if __name__ == "__main__":
    TOOL.main()
