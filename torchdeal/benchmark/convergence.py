"""Convergence: does a run end when it should, and is what it says then true?

A hundred random problems, each solved as a user would: the noise is given, all else is left as it is. Then the answer
is the start of a run that is ten times as long, in double precision, to a tolerance of 1e-5. What is asked: did the
first run end within 60 outer iterations? Is the distance that it states true? Did the long run change the PSNR?
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.core import PosedProblem, Save, Say, run_values
from torchdeal.benchmark.images import clean_image, list_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.io.checkpoint import checksum, load
from torchdeal.metrics import psnr
from torchdeal.operators import Downsample, Fourier, Mask, Operator, Radon
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.simulate import measure, random_columns
from torchdeal.solvers import Status

OURS = "deal"
PROBLEMS = 100
SIDES = {"cpu": (60, 72, 84), "cuda": (180, 240, 300)}  # multiples of 2, 3 and 4
QUICK_SIDES = (36,)
ENOUGH, TIMES_LONGER, STRICT = 60, 10, 1e-5  # outer iterations; the long run and its tolerance
HONEST = 1.5  # times the stated distance, at most, is the true one
SAME = 0.05  # dB
PICTURES = ("camera", "coins", "moon", "text", "page", "astronaut", "coffee", "chelsea", "brick", "grass", "gravel")
PROTOCOL = (
    "Problem n is of kind n modulo 7, and all of it by numpy.random.RandomState(n): the crop of a picture, the noise, "
    f"the kernel, the mask. The long run starts from the answer: at most {TIMES_LONGER} x {ENOUGH} outer iterations in "
    f"double precision, to {STRICT:g}."
)
EXPLAINED = (
    "How many of the runs converged; one that does not settle is mostly given up after 57 outer iterations. How many "
    f"ended within {ENOUGH}. How many said something true: the fixed point is at most {HONEST:g} times as far as they "
    f'stated, or they said that the distance is not known ("unknown"). How many are within {SAME:g} dB of a run that '
    f"is {TIMES_LONGER} times as long. And how many ended soon, said something true, and were within these."
)

Draws = np.random.RandomState


def _columns(acceleration: int, centre: float) -> Callable[[int, Draws], tuple[Operator, float]]:
    def scan(side: int, draws: Draws) -> tuple[Operator, float]:
        mask = random_columns((side, side), acceleration, centre, seed=int(draws.randint(2**31)))
        return Fourier(mask, centered=True), 10 ** draws.uniform(-2.7, -1.7)

    return scan


def _scaled(scale: int) -> Callable[[int, Draws], tuple[Operator, float]]:
    def camera(side: int, draws: Draws) -> tuple[Operator, float]:
        return Downsample(scale, gaussian_kernel(scale * draws.uniform(0.3, 0.6))), draws.uniform(1, 12) / 255

    return camera


def _holes(side: int, draws: Draws) -> tuple[Operator, float]:
    return Mask(torch.from_numpy(draws.uniform(size=(side, side)) < 0.2)), draws.uniform(1, 12) / 255


def _angles(side: int, draws: Draws) -> tuple[Operator, float]:
    operator = Radon(np.arange(30) * 6 + draws.uniform(0, 6), side)
    return operator, side / 2 * 10 ** draws.uniform(-2.3, -1.3)  # the longest ray through gray is side / 2


KINDS = {
    "MRI 4x": _columns(4, 0.08),
    "MRI 8x": _columns(8, 0.04),
    "super-resolution x2": _scaled(2),
    "super-resolution x3": _scaled(3),
    "super-resolution x4": _scaled(4),
    "80 % of the pixels missing": _holes,
    "CT, 30 angles": _angles,
}


def problem(number: int, pictures: Sequence[str | Path], sides: Sequence[int]) -> tuple[str, PosedProblem]:
    """The kind and the problem of that number."""
    kind, draws = list(KINDS)[number % len(KINDS)], Draws(number)
    side = sides[draws.randint(len(sides))]
    picture = pictures[draws.randint(len(pictures))]
    clean = _crop(_picture(picture), side, draws)
    operator, noise = KINDS[kind](side, draws)
    y = measure(clean, operator, noise, seed=number)
    if isinstance(operator, Fourier) and operator.mask is not None:
        y = y * operator.mask  # no noise where nothing was measured
    return kind, PosedProblem(f"{number}: {Path(picture).stem}", clean, y, operator, noise)


def _picture(picture: str | Path) -> Tensor:
    """Gray, `(1, 1, H, W)`: a file, or one of scikit-image by its name."""
    if isinstance(picture, Path):
        return clean_image(picture, 1)
    try:
        from skimage import data
    except ImportError:
        remedy = "pip install 'torchdeal[demo]', or give a folder by --images"
        raise Unavailable(f"the pictures need scikit-image: {remedy}") from None
    pixels = torch.from_numpy(getattr(data, picture)()).float() / 255
    return (pixels if pixels.ndim == 2 else pixels @ torch.tensor([0.299, 0.587, 0.114]))[None, None]


def _crop(clean: Tensor, side: int, draws: Draws) -> Tensor:
    height, width = clean.shape[-2:]
    if min(height, width) < side:
        raise ValueError(f"a picture is {height} x {width}, at least {side} x {side} is needed")
    top, left = draws.randint(height - side + 1), draws.randint(width - side + 1)
    return clean[..., top : top + side, left : left + side].contiguous()


class Convergence:
    """The experiment: one problem after the other."""

    about = "Does a run end when it should, and is what it says then true?"

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        images = options.images.resolve().name if options.images else "scikit-image"
        sides = list(QUICK_SIDES if options.quick else SIDES[options.device])
        return {"protocol": PROTOCOL, "images": images, "sides": sides, "tolerance": options.tolerance}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        pictures = list_images(options.images) if options.images else PICTURES
        sides = QUICK_SIDES if options.quick else SIDES[options.device]
        count = options.limit or (len(KINDS) if options.quick else PROBLEMS)
        chosen, kinds = options.chosen(list(KINDS)), list(KINDS)
        model = load(options.model or "gray", device=options.device)
        results.weights[OURS] = {"gray": checksum(options.model or "gray")}
        measured = {row.image for row in results.rows}
        for kind in chosen:
            results.cells.setdefault(kind, {"table": "Convergence", "column": kind})
        for number in (number for number in range(count) if kinds[number % len(kinds)] in chosen):
            kind, posed = problem(number, pictures, sides)
            if posed.image in measured:
                continue
            values = _asked(posed, model, options)
            results.add(Row(kind, posed.image, OURS, values, environment=len(results.environments) - 1))
            save()
            say(f"{kind}, {posed.image}: {values['status']} after {values['iterations']}, {_verdict(values)}")

    def sections(self, results: Results) -> Iterator[Section]:
        """One table."""
        lines = [_line(kind, [row.values for row in results.select(kind, OURS)]) for kind in results.cells]
        lines = [line for line in lines if line]
        if len(lines) > 1:
            lines.append(_line("all", [row.values for row in results.rows]))
        head = ["problems", "number", "converged", f"within {ENOUGH}", "true", "unknown", f"within {SAME:g} dB"]
        head += ["all three"]
        head += ["iterations, median", "largest change, dB"]
        yield Section("When a run ends", EXPLAINED, [Table(head, lines)] if lines else [])


def _asked(posed: PosedProblem, model: Any, options: BenchmarkOptions) -> Values:
    """What the run said, and what is true."""
    y, operator = posed.y.to(options.device), posed.operator.to(options.device)
    limits = {"tolerance": options.tolerance, "max_iterations": options.max_iterations, "data_range": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sigma at the end of the training's, and rounded
        first = reconstruct(y, operator, model=model, noise=posed.noise, **limits)
        last, iterations = _long_run(y, operator, model, first)
    (values,) = run_values(first)
    x = first.x.cpu()
    return {
        **values,
        "psnr": psnr(x, posed.clean),
        "settled": float(first.movement.settled) if first.movement else math.nan,
        "sigma": 255 * float(first.sigma),
        "away": float((x.double() - last.x.cpu()).norm() / last.x.cpu().norm()),
        "long psnr": psnr(last.x.cpu().float(), posed.clean),
        "long status": last.status.name,
        "long iterations": iterations,
    }


def _long_run(y: Tensor, operator: Operator, model: Any, first: Reconstruction) -> tuple[Reconstruction, int]:
    """From the answer, and on where a run is given up, until it has converged or is ten times as long."""
    double = copy.deepcopy(model).double()
    y = y.to(torch.complex128 if y.is_complex() else torch.float64)
    known = {"sigma": first.sigma, "lam": first.lam, "data_range": 1.0, "tolerance": STRICT}
    last, left = first, TIMES_LONGER * ENOUGH
    while left > 0:
        last = reconstruct(y, operator, model=double, start=last, max_iterations=left, **known)
        left -= int(last.iterations)
        if last.status is not Status.UNSETTLED:
            break
    return last, TIMES_LONGER * ENOUGH - left


def soon(values: Values) -> bool:
    """It ended within the iterations that a user should have to wait for."""
    return values["iterations"] <= ENOUGH


def honest(values: Values) -> bool:
    """The stated distance is not far below the true one; a run that states none is honest."""
    return values["away"] <= HONEST * stated_distance(values)


def stated_distance(values: Values) -> float:
    """Infinite where it was; files of results hold no such number."""
    stated = values.get("distance")
    return math.inf if stated is None else stated


def finished(values: Values) -> bool:
    """More iterations do not change the PSNR."""
    return abs(values["psnr"] - values["long psnr"]) <= SAME


def _verdict(values: Values) -> str:
    stated = stated_distance(values)
    change = values["long psnr"] - values["psnr"]
    return f"distance {stated:.1e}, true {values['away']:.1e}; {change:+.2f} dB after {values['long iterations']} more"


def _line(name: str, rows: Sequence[Values]) -> list[str]:
    if not rows:
        return []
    good = [all(question(row) for question in (soon, honest, finished)) for row in rows]
    unknown = sum(math.isinf(stated_distance(row)) for row in rows)
    converged = sum(row["status"] == Status.CONVERGED.name for row in rows)
    asked = (sum(map(soon, rows)), sum(map(honest, rows)), unknown, sum(map(finished, rows)), sum(good))
    counts = [len(rows), converged, *asked]
    change = max(abs(row["psnr"] - row["long psnr"]) for row in rows)
    return [name, *map(str, counts), f"{median(row['iterations'] for row in rows):g}", f"{change:.2f}"]


EXPERIMENT = Convergence()
