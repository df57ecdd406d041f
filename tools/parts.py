"""What the two parts of an iteration cost, the mask `M(x)^2` and the penalty `W^T M^2 W x`, backend by backend.

Run as `python tools/parts.py [--device cuda] [--size N ...] [--kind color] [--threads N]`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tables import bundled_weights, show_all

from torchdeal.backends import BACKENDS, choose_backend
from torchdeal.benchmark.frame import Benchmark, Say
from torchdeal.benchmark.plan import Plan, option
from torchdeal.io.checkpoint import load
from torchdeal.precision import full_precision

SIGMA = 25.0
SUITABLE = {"cpu": ("direct", "fft"), "cuda": ("direct", "packed")}


@dataclass(frozen=True, kw_only=True)
class PartsPlan(Plan):
    """Which images and backends."""

    kind: str = option("gray", "of image and weights", choices=("gray", "color"))
    batch: int = option(1, "images at a time", least=1)
    sizes: tuple[int, ...] = option((256,), "height and width, one or several", nargs="+", action="extend")
    backends: tuple[str, ...] = option((), "by default those for the device", choices=BACKENDS)
    repeats: int = option(7, "calls of which the median is taken", least=1)


@dataclass(frozen=True)
class PartTimes:
    """Milliseconds of each part; rough ones only where they differ."""

    image: str
    backend: str
    mask_ms: float
    penalty_ms: float
    rough_mask_ms: float | None = None
    rough_penalty_ms: float | None = None


def measure(plan: PartsPlan, say: Say) -> Iterator[list[PartTimes]]:
    """One size and backend after the other."""
    found: list[PartTimes] = []
    for size in plan.sizes:
        for backend in plan.backends or SUITABLE[plan.device]:
            name = f"{plan.kind} {plan.batch} x {size} x {size}"
            say(f"{name}, {backend}")
            found.append(PartTimes(name, backend, **time_parts(plan, size, backend)))
            yield found


@torch.no_grad()
def time_parts(plan: PartsPlan, size: int, backend: str) -> dict[str, float]:
    """Milliseconds of each part of one backend."""
    device = torch.device(plan.device)
    model = load(plan.kind, device=device)
    weights = model.weights()
    x = torch.rand(plan.batch, model.channels, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    alpha = weights.alpha(torch.full((plan.batch,), SIGMA, device=device))
    chosen = choose_backend(weights, x, backend)
    found = {}
    for precise in (True, False) if backend == "packed" else (True,):
        rough = "" if precise else "rough_"
        with full_precision(device):
            mask = chosen.squared_mask(x, alpha, precise=precise)
            parts = {
                "mask": lambda p=precise: chosen.squared_mask(x, alpha, precise=p),
                "penalty": lambda p=precise, m=mask: chosen.penalty(x, m, precise=p),
            }
            found |= {f"{rough}{name}_ms": milliseconds(part, device, plan.repeats) for name, part in parts.items()}
    return found


def milliseconds(function: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median time of a call, after two that do not count."""
    for _ in range(2):
        function()
    timer = _cuda_milliseconds if device.type == "cuda" else _cpu_milliseconds
    return statistics.median(timer(function) for _ in range(repeats))


def _cpu_milliseconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - started)


def _cuda_milliseconds(function: Callable[[], object], calls: int = 5) -> float:
    """Between two events, with several calls in a row, as a solver makes them."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / calls


BENCHMARK = Benchmark("parts", PartsPlan, PartTimes, measure, bundled_weights, show_all, tool=__doc__ or "")

if __name__ == "__main__":
    BENCHMARK.main()
