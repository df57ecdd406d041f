"""Seconds to a given true distance from the fixed point: ours beside the method as the paper writes it, in one run.

Every method gets the same weights, noisy picture, start (zero) and precision (float32, no TF32), so that all look for
the same fixed point. That point is found beforehand, more accurately; afterwards each iterate is compared with it.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.comparison import Comparison
from torchdeal.benchmark.core import DENOISING, Cell, PosedProblem, Save, Say, run_values
from torchdeal.benchmark.curves import FIXED_POINT, METHODS, REFERENCES, Curve, curve_values, speed_sections
from torchdeal.benchmark.images import sample_picture
from torchdeal.benchmark.methods import find_method
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.tables import Section
from torchdeal.benchmark.results import Results, Row, Values, device_name
from torchdeal.benchmark.simulated import noisy
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.reconstruct import reconstruct
from torchdeal.reference import ReferenceResult, reference_reconstruct
from torchdeal.solvers import Progress, Solution

KINDS = {"gray": 1, "colour": 3}
SIZES, QUICK_SIZES = {"cpu": (128, 256), "cuda": (128, 512, 1024, 2048)}, (48,)
SIGMA = 25.0
# A reference that takes longer is stopped, and its ratios become lower bounds: whole runs would take hours.
REFERENCE_SECONDS, QUICK_REFERENCE_SECONDS = {"cpu": 100.0, "cuda": 10.0}, 5.0

OURS_TOLERANCE = 1e-4  # so that the path of ours passes all thresholds
TIGHT_TOLERANCE = 1e-6  # of the tight reference: of CG relative to ||b||, and of the relative change of the image
TRUTH_TOLERANCE, TRUTH_ITERATIONS = 1e-5, 2000
DOUBLE_UP_TO = 256  # the size up to which the truth is computed in float64, on the CPU

ORDER = ("ours", "default", *REFERENCES)  # what takes longest comes last
WARM_UP = dict.fromkeys(REFERENCES, 1) | {"ours": 6, "default": 6}  # six: loose and accurate steps both occur
PROTOCOL = (
    "Denoising from zero, noise by numpy.random.RandomState(0). Relative distances to the fixed point, which is found "
    f"at a tolerance of {TRUTH_TOLERANCE:g} before. Recording the iterates does not count as time."
)


class Speed(Comparison):
    """Instead of answers, runs on the way to them."""

    def names(self) -> list[str]:
        return list(METHODS)

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        return {**super().settings(options), **circumstances(options)}

    def measure(self, cell: Cell, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """The runs that are missing, in each cell after finding the fixed point."""
        methods = [method for method in ORDER if method in (options.methods or ORDER)]
        try:
            _measure(cell, methods, options, results, save, say)
        except (Unavailable, torch.OutOfMemoryError) as error:
            reason = str(error) if isinstance(error, Unavailable) else f"not enough memory on {options.device}"
            missing = [method for method in methods if not results.select(cell.name, method)]
            results.reasons[cell.name] = dict.fromkeys(missing, reason)
            say(f"{cell.name}: {reason}")

    def sections(self, results: Results) -> Iterator[Section]:
        return speed_sections(results)


def circumstances(options: BenchmarkOptions) -> dict[str, Any]:
    """What must be equal where seconds are compared."""
    images = options.images.resolve().name if options.images else "scikit-image"
    return {"device": device_name(options.device), "threads": torch.get_num_threads(), "images": images}


def _cells(options: BenchmarkOptions) -> Iterator[Cell]:
    for kind, channels in KINDS.items():
        for sigma in options.sigmas or (SIGMA,):
            for size in QUICK_SIZES if options.quick else SIZES[options.device]:
                problems = partial(noisy_sample, options, channels, size, sigma)
                name = f"{size} x {size} {kind}, sigma {sigma:g}"
                yield Cell(name, "Speed", name, DENOISING, channels, problems)


def noisy_sample(options: BenchmarkOptions, channels: int, size: int, sigma: float) -> list[PosedProblem]:
    """The picture with noise."""
    return [noisy(*sample_picture(options.images, channels, size), sigma)]


def _measure(cell: Cell, methods: list[str], options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
    """The runs that are missing, each after a warm-up, in which CUDA compiles its kernels."""
    missing = {method: _missing_runs(results, cell, method, options) for method in methods}
    if not any(missing.values()):
        return
    (problem,), ours, place = cell.problems(), find_method("deal", cell, options), len(results.environments) - 1
    timed = TimedProblem(problem, ours.model, options)
    say(f"{cell.name}: the fixed point, for the distances")
    found = timed.find_fixed_point()
    if not results.select(cell.name, FIXED_POINT):
        results.add(Row(cell.name, problem.image, FIXED_POINT, found, environment=place))
    for method in filter(missing.get, methods):
        results.weights.setdefault(method, {}).update(ours.weights)
        say(f"{cell.name}: {METHODS[method]}, warm-up")
        timed.solve(method, most=WARM_UP[method])
        for run in missing[method]:
            values = timed.measure(method)
            results.add(Row(cell.name, problem.image, method, values, run, place))
            save()
            end = f"{values['total_seconds']:.3g} s, distance {values['end_distance']:.1e}, {values['psnr']:.2f} dB"
            say(f"{cell.name}: {METHODS[method]}, {run}: {end}")


def _missing_runs(results: Results, cell: Cell, method: str, options: BenchmarkOptions) -> list[str]:
    """References take long: one run each."""
    measured = {row.variant for row in results.select(cell.name, method)}
    wanted = 1 if options.quick or method in REFERENCES else options.repeats
    return [run for run in (f"run {count + 1}" for count in range(wanted)) if run not in measured]


class _OutOfTimeError(Exception):
    """The way out of a run that takes too long, with what it has so far."""

    def __init__(self, result: ReferenceResult):
        self.result = result


class Recorder:
    """The iterates of a run and when each was there, not counting the time it takes to record them."""

    def __init__(self, device: torch.device, most_seconds: float = math.inf):
        self.device, self.most_seconds = device, most_seconds
        self.points: list[tuple[float, Tensor]] = []
        self.recording = 0.0
        self.started = self._clock()

    def record(self, state: Progress | ReferenceResult | Solution) -> None:
        """Take the iterate; a reference that is late ends here."""
        arrived = self._clock()
        self.points.append((arrived - self.started - self.recording, state.x.clone()))
        self.recording += self._clock() - arrived
        if isinstance(state, ReferenceResult) and self.points[-1][0] > self.most_seconds:
            raise _OutOfTimeError(state)

    def curve(self, truth: Tensor) -> Curve:
        """The distances, in double precision."""
        norm = float(truth.norm())
        return [(seconds, float((x.double() - truth).norm()) / norm) for seconds, x in self.points]

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class TimedProblem:
    """A noisy picture on its device, its weights, and the fixed point once it is found."""

    def __init__(self, problem: PosedProblem, model: DEAL, options: BenchmarkOptions):
        self.model, self.options, self.device = model, options, torch.device(options.device)
        self.noisy, self.clean, self.sigma = problem.y.to(self.device), problem.clean, problem.noise

    def find_fixed_point(self) -> Values:
        """By our solver, more accurately than anything that is measured."""
        double = self.device.type == "cpu" and self.noisy.shape[-1] <= DOUBLE_UP_TO
        solution = reconstruct(
            self.noisy.double() if double else self.noisy,
            model=copy.deepcopy(self.model).double() if double else self.model,
            sigma=self.sigma,
            tolerance=TRUTH_TOLERANCE,
            max_iterations=TRUTH_ITERATIONS,
        )
        self.truth = solution.x.double()
        dtype, before = "float64" if double else "float32", psnr(self.noisy, self.clean)
        return {**self._ended(solution), "dtype": dtype, "noisy_psnr": before}

    def measure(self, method: str) -> Values:
        """One run: its curve, and how it ended."""
        limit = QUICK_REFERENCE_SECONDS if self.options.quick else REFERENCE_SECONDS[self.device.type]
        recorder, stopped = Recorder(self.device, limit), False
        try:
            end = self.solve(method, recorder)
            recorder.record(end)
        except _OutOfTimeError as late:
            end, stopped = late.result, True
        return {**curve_values(recorder.curve(self.truth)), **self._ended(end), "stopped": stopped}

    def solve(
        self, method: str, recorder: Recorder | None = None, most: int | None = None
    ) -> Solution | ReferenceResult:
        """A run of at most so many outer iterations, else as many as the method wants."""
        callback = recorder.record if recorder else None
        if method in REFERENCES:
            limits: dict[str, Any] = {} if most is None else {"max_outer": most}
            if method == "tight":
                limits["inner_tolerance"] = (TIGHT_TOLERANCE * float(self.noisy.norm())) ** 2
                limits["outer_tolerance"] = TIGHT_TOLERANCE
            with full_precision(self.device):
                # References need not repeat their bits: they may have the faster convolutions.
                torch.backends.cudnn.deterministic = False
                return reference_reconstruct(
                    self.noisy, self.model, sigma=255 * self.sigma, callback=callback, **limits
                )
        return reconstruct(
            self.noisy,
            model=self.model,
            sigma=self.sigma,
            tolerance=self.options.tolerance if method == "default" else OURS_TOLERANCE,
            max_iterations=most or self.options.max_iterations,
            callback=callback,
        )

    def _ended(self, end: Solution | ReferenceResult) -> Values:
        values: Values = {"iterations": end.iterations, "cg_iterations": end.cg_iterations}
        if isinstance(end, Solution):
            (values,) = run_values(end)
            values["estimate"] = values.pop("distance")
        return {**values, "psnr": psnr(end.x, self.clean)}


EXPERIMENT = Speed(
    "Seconds to a given distance from the fixed point, beside the method as the paper writes it.", _cells, PROTOCOL
)
