"""What the two parts of an iteration cost, the mask `M(x)^2` and the penalty `W^T M^2 W x`, backend by backend.

Run as `python tools/parts.py [--device cuda] [--size N ...] [--kind color] [--threads N]`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from frame import Given, Say, Tool, arguments_of, at_least

from torchdeal.backends import BACKENDS, choose_backend
from torchdeal.io.checkpoint import load
from torchdeal.precision import full_precision

SIGMA = 25.0
SUITABLE = {"cpu": ("direct", "fft"), "cuda": ("direct", "packed")}


@dataclass(frozen=True)
class PartTimes:
    """Milliseconds of each part; rough ones only where they differ."""

    image: str
    backend: str
    mask_ms: float
    penalty_ms: float
    rough_mask_ms: float | None = None
    rough_penalty_ms: float | None = None


def measure(given: Given, say: Say) -> Iterator[list[PartTimes]]:
    """One size and backend after the other."""
    found: list[PartTimes] = []
    for size in given.size:
        for backend in given.backend or SUITABLE[given.device]:
            name = f"{given.kind} {given.batch} x {size} x {size}"
            say(f"{name}, {backend}")
            found.append(PartTimes(name, backend, **time_parts(given, size, backend)))
            yield found


@torch.no_grad()
def time_parts(given: Given, size: int, backend: str) -> dict[str, float]:
    """Milliseconds of each part of one backend."""
    device = torch.device(given.device)
    model = load(given.kind, device=device)
    weights = model.weights()
    x = torch.rand(given.batch, model.channels, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    alpha = weights.alpha(torch.full((given.batch,), SIGMA, device=device))
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
            found |= {f"{rough}{name}_ms": milliseconds(part, device, given.repeats) for name, part in parts.items()}
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


def _arguments() -> argparse.ArgumentParser:
    parser = arguments_of("parts", __doc__)
    parser.add_argument("--kind", choices=("gray", "color"), default="gray", help="of image and weights")
    parser.add_argument("--batch", type=at_least(1), default=1, help="images at a time (default: 1)")
    parser.add_argument("--size", type=at_least(1), nargs="+", default=[256], help="height and width (default: 256)")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, help="by default those for the device")
    parser.add_argument("--repeats", type=at_least(1), default=7, help="calls to take the median of (default: 7)")
    return parser


TOOL = Tool(_arguments(), measure)

if __name__ == "__main__":
    TOOL.main()
