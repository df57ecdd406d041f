"""How accurately error bars are computed: `uncertainty` against the dense inverse, problem by problem.

`python tools/deviations.py [--probes N ...] [--size N] [--images DIR] [--cells TEXT ...]` solves the problems of
`deal benchmark uncertainty` for one small picture, inverts the matrix of each, and compares the root of its diagonal.
The error is relative, its root mean square over the pixels. The cost is the time in reconstructions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from frame import Given, Say, Tool, arguments_of, at_least
from torch import Tensor

from torchdeal.benchmark.images import sample_picture
from torchdeal.benchmark.uncertainty import problems
from torchdeal.io.checkpoint import load
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.uncertainty import PROBES, Posterior, uncertainty

DEFAULT_PROBES = (PROBES // 2, PROBES, 2 * PROBES)


@dataclass(frozen=True)
class Accuracy:
    """Of one number of probes on one problem."""

    problem: str
    probes: int
    error: float  # relative, root mean square
    mean_error: float
    cost: float  # in reconstructions


def _parser():
    parser = arguments_of("deviations", __doc__)
    parser.add_argument("--probes", nargs="+", type=at_least(1), default=DEFAULT_PROBES)
    parser.add_argument("--size", type=at_least(16), default=32, help="of the picture, in pixels each way")
    parser.add_argument("--images", type=Path, metavar="DIR", help="its first picture; by default one of scikit-image")
    parser.add_argument("--cells", nargs="+", default=("",), metavar="TEXT", help="only problems whose names hold this")
    parser.add_argument("--kind", choices=("gray", "gray-light"), default="gray", help="the weights")
    return parser


def measure(given: Given, say: Say) -> Iterator[list[Accuracy]]:
    """Problem by problem."""
    name, clean = sample_picture(given.images, 1, int(given.size))
    model, results = load(given.kind, device=given.device), []
    for problem, measured in problems().items():
        if not any(text in problem for text in given.cells):
            continue
        posed = measured(name, clean, 0)
        known: dict[str, Any] = {"sigma" if problem.startswith("denoising") else "noise": posed.noise}
        started = time.perf_counter()
        rec = reconstruct(posed.y.to(given.device), posed.operator.to(given.device), model=model, data_range=1, **known)
        seconds = time.perf_counter() - started
        expected = dense_deviation(rec)
        for probes in map(int, given.probes):
            started = time.perf_counter()
            found = uncertainty(rec, probes=probes).cpu().double()
            ratio = found / expected - 1
            cost = (time.perf_counter() - started) / seconds
            error = float(ratio.square().mean().sqrt())
            results.append(Accuracy(problem, probes, error, float(ratio.mean()), cost))
            say(f"{problem}, {probes} probes: {error:.1%}")
        yield results


@torch.no_grad()
def dense_deviation(rec: Reconstruction) -> Tensor:
    """By the inverse of the matrix, column by column; `uncertainty` is this, but for the error of the probes."""
    posterior = Posterior.of(rec)
    x, apply = posterior.x, posterior.system.apply
    columns = torch.eye(x.numel(), dtype=x.dtype, device=x.device)
    matrix = torch.stack([apply(one.view_as(x)).flatten() for one in columns]).double()
    inverse = torch.linalg.inv((matrix + matrix.T) / 2).diagonal().view_as(x)
    return (posterior.scale * inverse.sqrt()).cpu()


TOOL = Tool(_parser(), measure)

if __name__ == "__main__":
    TOOL.main()
