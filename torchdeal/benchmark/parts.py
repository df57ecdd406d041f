"""What the two parts of an iteration cost, the mask `M(x)^2` and the penalty `W^T M^2 W x`, backend by backend.

Run as `python -m torchdeal.benchmark.parts [--device cuda] [--size N ...] [--kind color] [--threads N]`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from torchdeal.backends import BACKENDS, choose_backend
from torchdeal.io.checkpoint import load
from torchdeal.precision import full_precision

SIGMA = 25.0
SUITABLE = {"cpu": ("direct", "fft"), "cuda": ("direct", "packed")}


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


@torch.no_grad()
def measure(device: torch.device, kind: str, batch: int, size: int, backend: str, repeats: int) -> dict[str, float]:
    """Milliseconds of each part; rough ones only where they differ."""
    weights = load(kind, device=device).weights()
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, 3 if kind == "color" else 1, size, size, generator=generator).to(device)
    alpha = weights.alpha(torch.full((batch,), SIGMA, device=device))
    chosen = choose_backend(weights, x, backend)
    found = {}
    for precise in (True, False) if backend == "packed" else (True,):
        name = "" if precise else ", rough"
        with full_precision(device):
            mask = chosen.squared_mask(x, alpha, precise=precise)
            found[f"mask{name}"] = milliseconds(
                lambda p=precise: chosen.squared_mask(x, alpha, precise=p), device, repeats
            )
            found[f"penalty{name}"] = milliseconds(
                lambda p=precise, m=mask: chosen.penalty(x, m, precise=p), device, repeats
            )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per backend and size."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.parts", description=__doc__)
    parser.add_argument("--device", choices=list(SUITABLE), default="cpu")
    parser.add_argument("--kind", choices=("gray", "color"), default="gray")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--size", type=int, nargs="+", default=[256])
    parser.add_argument("--backend", choices=BACKENDS, action="append")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    for size in given.size:
        for backend in given.backend or SUITABLE[given.device]:
            parts = measure(torch.device(given.device), given.kind, given.batch, size, backend, given.repeats)
            times = ", ".join(f"{name} {value:.3g} ms" for name, value in parts.items())
            print(f"{given.kind} {given.batch} x {size} x {size}, {backend}: {times}", flush=True)


if __name__ == "__main__":
    main()
