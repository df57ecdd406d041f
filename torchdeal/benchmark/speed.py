"""Seconds to a given true distance from the fixed point: ours beside the method as the paper writes it, in one run.

Every method gets the same weights, noisy picture, start (zero) and precision (float32, no TF32), so that all look for
the same fixed point. That point is found beforehand, more accurately; afterwards each iterate is compared with it.

    python -m torchdeal.benchmark.speed --image x.png --save out.json    # on a bare machine with a GPU
    deal benchmark speed --from out.json --plot out.png                  # anywhere
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark import curves
from torchdeal.benchmark.curves import BASELINES, METHODS, THRESHOLDS, Curve, Measurement, Target, TimedProblem
from torchdeal.benchmark.frame import Benchmark, Say, run_details
from torchdeal.benchmark.images import PICTURES, fit, read_picture
from torchdeal.benchmark.plan import Plan, Settings, option
from torchdeal.io.checkpoint import checksum, load
from torchdeal.io.images import to_tensor
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.reference import ReferenceResult, reference_reconstruct
from torchdeal.solvers import Progress

TRUTH_TOLERANCE = 1e-5
TRUTH_ITERATIONS = 2000
DOUBLE_UP_TO = 256  # the size up to which the truth is computed in float64, on the CPU

ORDER = ("ours", "default", *BASELINES)  # what takes minutes comes last
TOLERANCES = {"ours": 1e-4, "default": DEFAULT_TOLERANCE}  # the path of ours passes all thresholds

KINDS = {"gray": 1, "color": 3}
SIZES = {"cpu": (128, 256), "cuda": (128, 512, 1024, 2048)}
WARM_UP = {"paper-literal": 2, "tight": 2, "ours": 6, "default": 6}  # six, so that loose and accurate steps both occur


def parse_methods(text: str) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, kw_only=True)
class SpeedPlan(Plan):
    """Which pictures, noise levels and methods."""

    DEVICES = (*Plan.DEVICES, "mps")

    sizes: tuple[int, ...] = option((), "height and width; by default 128 256, on CUDA 128 512 1024 2048")
    kinds: tuple[str, ...] = option(("gray",), "the bundled picture and weights", choices=list(KINDS))
    sigmas: tuple[float, ...] = option((25.0,), "noise level on the 0..255 scale")
    model: str | None = option(None, "bundled weights, or a file, for all methods; by default those of the kind")
    image: Path | None = option(None, "a picture in place of scikit-image's camera (gray) and astronaut (color)")
    repeats: int = option(3, "runs of ours", least=1)
    baseline_repeats: int = option(1, "runs of each reference, which take minutes", least=1)
    methods: tuple[str, ...] = option(
        tuple(METHODS), "comma-separated, to leave some out", flag="--methods", type=parse_methods
    )
    max_seconds: float | None = option(None, "stop a reference after this long; its ratios are then lower bounds")
    truth_tolerance: float = option(
        TRUTH_TOLERANCE, "tolerance of the fixed point that distances refer to; 1e-3 is enough for times"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sizes", self.sizes or SIZES.get(self.device, SIZES["cpu"]))
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(f"there is no method {method!r}: choose from {','.join(METHODS)}")
        if not self.methods:
            raise ValueError(f"no method is left: choose from {','.join(METHODS)}")
        for sigma in self.sigmas:
            if not 0 <= sigma < math.inf:
                raise ValueError(f"sigma must be finite and at least 0, got {sigma:g}")
        for name, value in {"truth-tolerance": self.truth_tolerance, "max-seconds": self.max_seconds}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, got {value:g}")

    def weights(self, kind: str) -> str:
        """The name or file of the model for this kind of picture."""
        return self.model or kind


def measure(plan: SpeedPlan, say: Say) -> Iterator[list[TimedProblem]]:
    """One method after the other on each problem."""
    pictures = {kind: read_picture(kind, plan.image) for kind in plan.kinds}
    models = {kind: _model(kind, plan) for kind in plan.kinds}
    problems: list[TimedProblem] = []
    for kind, sigma, size in ((k, g, n) for k in plan.kinds for g in plan.sigmas for n in plan.sizes):
        noisy = _NoisyPicture(plan, kind, models[kind], fit(pictures[kind], size), sigma)

        def tell(step: str, name: str = f"{size} x {size} {kind}, sigma {sigma:g}") -> None:
            say(f"{name}: {step}")

        tell("the fixed point, for the distances")
        problems.append(noisy.with_its_fixed_point())
        for method in (m for m in ORDER if m in plan.methods):
            problems[-1].measurements.append(noisy.measure(method, tell))
            tell(str(problems[-1].measurements[-1]))
            yield problems


class _OutOfTimeError(Exception):
    """The way out of a run that takes too long, with what it has so far."""

    def __init__(self, result: ReferenceResult):
        self.result = result


class Recorder:
    """The iterates of a run and when each was there, not counting the time it takes to record them."""

    def __init__(self, device: torch.device, limit: float | None):
        self.device, self.limit = device, math.inf if limit is None else limit
        self.points: list[tuple[float, Tensor]] = []
        self.recording = 0.0
        self.started = self._clock()

    def record(self, state: Progress | ReferenceResult | TimedRun) -> None:
        """Take the iterate; a reference that is late ends here."""
        arrived = self._clock()
        self.points.append((arrived - self.started - self.recording, state.x.clone()))
        self.recording += self._clock() - arrived
        if isinstance(state, ReferenceResult) and self.points[-1][0] > self.limit:
            raise _OutOfTimeError(state)

    def curve(self, truth: Tensor) -> Curve:
        """The distances, in double precision."""
        norm = float(truth.norm())
        return [(seconds, float((x.to(truth.device).double() - truth).norm()) / norm) for seconds, x in self.points]

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()


class _NoisyPicture:
    """A noisy picture, its weights, and the fixed point once it is found."""

    def __init__(self, plan: SpeedPlan, kind: str, model: DEAL, clean: np.ndarray, sigma: float):
        self.plan, self.kind, self.model, self.sigma = plan, kind, model, sigma
        self.device = torch.device(plan.device)
        noisy = clean + np.random.default_rng(0).normal(0, sigma / 255, clean.shape)
        self.clean = to_tensor(clean)[0]
        self.noisy = to_tensor(noisy)[0].float().to(self.device)

    def with_its_fixed_point(self) -> TimedProblem:
        """Found by our solver from zero, more accurately than anything that is measured."""
        started = time.perf_counter()
        double = self.device.type == "cpu" and self.noisy.shape[-1] <= DOUBLE_UP_TO
        solution = reconstruct(
            self.noisy.double() if double else self.noisy,
            model=copy.deepcopy(self.model).double() if double else self.model,
            sigma=self.sigma / 255,
            tolerance=self.plan.truth_tolerance,
            max_iterations=TRUTH_ITERATIONS,
        )
        self.truth = solution.x.to("cpu" if self.device.type == "mps" else self.device).double()  # MPS has no float64
        seconds = time.perf_counter() - started
        return TimedProblem(
            size=self.noisy.shape[-1],
            kind=self.kind,
            sigma=self.sigma,
            picture=self.plan.image.name if self.plan.image else PICTURES[self.kind],
            noisy_psnr=psnr(self.noisy, self.clean),
            noisy_norm=float(self.noisy.norm()),
            truth=Target("float64" if double else "float32", seconds=seconds, **run_details(solution)),
        )

    def measure(self, method: str, tell: Say) -> Measurement:
        """All repeats of a method, after a warm-up, in which CUDA compiles its kernels."""
        label = METHODS[method]
        tell(f"{label}, warm-up")
        solve(method, self.noisy, self.model, self.sigma, limit=WARM_UP[method])
        repeats = self.plan.baseline_repeats if method in BASELINES else self.plan.repeats
        found, runs = [], []
        for repeat in range(repeats):
            tell(f"{label}, run {repeat + 1} of {repeats}")
            recorder = Recorder(self.device, self.plan.max_seconds)
            runs.append(solve(method, self.noisy, self.model, self.sigma, recorder=recorder))
            if not runs[-1].stopped:
                recorder.record(runs[-1])
            found.append(recorder.curve(self.truth))
        last = runs[-1]
        return Measurement(
            method,
            found,
            last.iterations,
            last.cg_iterations,
            psnr(last.x, self.clean),
            last.status,
            last.estimate,
            any(run.stopped for run in runs),
        )


@dataclass(frozen=True)
class TimedRun:
    """The last iterate of a run, and how it got there."""

    x: Tensor
    iterations: int
    cg_iterations: int
    status: str | None = None
    estimate: float | None = None
    stopped: bool = False


def solve(
    method: str, noisy: Tensor, model: DEAL, sigma: float, *, limit: int | None = None, recorder: Recorder | None = None
) -> TimedRun:
    """One run of a method on an image `(1, C, H, W)`, `sigma` on the 0..255 scale; the recorder sees each iterate.

    With a `limit`, so many outer iterations at most; else as many as the method wants.
    """
    callback = recorder.record if recorder else None
    if method not in BASELINES:
        solution = reconstruct(
            noisy,
            model=model,
            sigma=sigma / 255,
            tolerance=TOLERANCES[method],
            max_iterations=limit or DEFAULT_MAX_ITERATIONS,
            callback=callback,
        )
        details = run_details(solution)
        cg_iterations = int(solution.cg_iterations.max())
        return TimedRun(solution.x, details["iterations"], cg_iterations, details["status"], details["distance"])
    options: dict[str, Any] = {} if limit is None else {"max_outer": limit}
    if method == "tight":
        options["inner_tolerance"] = (curves.TIGHT_INNER * float(noisy.norm())) ** 2
        options["outer_tolerance"] = curves.TIGHT_OUTER
    with full_precision(noisy.device):
        # Baselines need not repeat their bits: they may have the faster convolutions.
        torch.backends.cudnn.deterministic = False
        try:
            result, stopped = reference_reconstruct(noisy, model, sigma=sigma, callback=callback, **options), False
        except _OutOfTimeError as end:
            result, stopped = end.result, True
    return TimedRun(result.x, result.iterations, result.cg_iterations, stopped=stopped)


def _model(kind: str, plan: SpeedPlan) -> DEAL:
    model = load(plan.weights(kind), device=plan.device)
    if model.channels != KINDS[kind]:
        raise ValueError(f"{plan.model}: the model has {model.channels} channels, --kind {kind} has {KINDS[kind]}")
    if min(plan.sizes) < model.min_size:
        raise ValueError(f"size must be at least {model.min_size} for this model, got {min(plan.sizes)}")
    return model


def _settings(plan: SpeedPlan) -> Settings:
    sources = {kind: plan.weights(kind) for kind in plan.kinds}
    tight = {"inner": curves.TIGHT_INNER, "outer": curves.TIGHT_OUTER}
    return {
        "weights": {kind: {"source": source, "sha256": checksum(source)} for kind, source in sources.items()},
        "picture": str(plan.image) if plan.image else "scikit-image",
        "noise": "numpy.random.default_rng(0)",
        "tolerances": {**TOLERANCES, "tight": tight, "truth": plan.truth_tolerance},
        "thresholds": list(THRESHOLDS),
    }


BENCHMARK = Benchmark(
    "speed",
    SpeedPlan,
    TimedProblem,
    measure,
    _settings,
    curves.show,
    units="methods",
    key="problems",
    derive=curves.summary,
    plot=curves.plot,
)

if __name__ == "__main__":
    BENCHMARK.main()
