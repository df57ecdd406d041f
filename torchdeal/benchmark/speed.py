"""Seconds to a given true distance from the fixed point: ours beside the method as the paper writes it, in one run.

Every method gets the same weights, noisy picture, start (zero) and precision (float32, no TF32), so that all look for
the same fixed point. That point is found beforehand, more accurately; afterwards each iterate is compared with it.

Imports only torch, numpy and what torchdeal itself needs for weights and PNG files, so that
`python -m torchdeal.benchmark.speed --image x.png --json out.json` runs on a bare machine with a GPU;
`deal benchmark speed --from out.json` shows the results anywhere.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.common import (
    Say,
    check_device,
    check_output,
    environment,
    known,
    weights_checksum,
    write_text,
)
from torchdeal.benchmark.results import (
    BASELINES,
    METHODS,
    THRESHOLDS,
    Curve,
    Measurement,
    Result,
    Truth,
    describe,
    to_json,
)
from torchdeal.demo import psnr
from torchdeal.io import files
from torchdeal.io.checkpoint import load
from torchdeal.io.images import to_tensor
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.reference import ReferenceResult, reference_reconstruct
from torchdeal.solvers import Progress

TIGHT = 1e-4  # the tolerance of "ours": its path passes all thresholds
TIGHT_INNER, TIGHT_OUTER = 1e-6, 1e-6  # relative to ||b||, and the relative change of the image
PAPER_INNER = 1e-4  # ||r|| in CG of the paper, whatever ||b||: the default of `reference_reconstruct`, not squared
TRUTH_TOLERANCE = 1e-5
TRUTH_ITERATIONS = 2000
DOUBLE_UP_TO = 256  # the size up to which the truth is computed in float64, on the CPU

ORDER = ("ours", "default", *BASELINES)  # what takes minutes comes last
TOLERANCES = {"ours": TIGHT, "default": DEFAULT_TOLERANCE}

KINDS = {"gray": 1, "color": 3}
PICTURES = {"gray": "camera", "color": "astronaut"}  # of scikit-image
SIZES = {"cpu": (128, 256), "cuda": (128, 512, 1024, 2048)}
WARM_UP = {"paper-literal": 2, "tight": 2, "ours": 6, "default": 6}  # six, so that loose and accurate steps both occur
MEMORY_RUN = {"paper-literal": 2, "tight": 2, "ours": 4, "default": 4}  # memory does not grow with the iterations


@dataclass(frozen=True)
class Plan:
    """What is to be measured. Raises ValueError for what cannot be."""

    sizes: tuple[int, ...] = ()  # empty: those of the device
    kinds: tuple[str, ...] = ("gray",)
    sigmas: tuple[float, ...] = (25.0,)
    device: str = "cpu"
    model: str | None = None  # None: the bundled one of the kind
    image: Path | None = None
    repeats: int = 3
    baseline_repeats: int = 1
    methods: tuple[str, ...] = tuple(METHODS)
    threads: int | None = None
    max_seconds: float | None = None  # for each run of a baseline
    memory: bool = True
    truth_tolerance: float = TRUTH_TOLERANCE  # of the fixed point that distances are measured to

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", self.sizes or SIZES.get(self.device, SIZES["cpu"]))
        check_device(self.device)
        for method in self.methods:
            if method not in METHODS:
                raise ValueError(f"there is no method {method!r}: choose from {','.join(METHODS)}")
        if not self.methods:
            raise ValueError(f"no method is left: choose from {','.join(METHODS)}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"there is no kind {kind!r}: choose from {', '.join(KINDS)}")
        for sigma in self.sigmas:
            if not 0 <= sigma < math.inf:
                raise ValueError(f"sigma must be finite and at least 0, got {sigma:g}")
        for name in ("repeats", "baseline_repeats", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name.replace('_', '-')} must be at least 1, got {value}")
        if not self.truth_tolerance > 0:
            raise ValueError(f"truth-tolerance must be above 0, got {self.truth_tolerance:g}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max-seconds must be above 0, got {self.max_seconds:g}")


def measure(plan: Plan, say: Say, save: Callable[[list[Result], dict[str, Any]], None]) -> tuple[list[Result], dict]:
    """Run the plan.

    Args:
        plan: what to measure.
        say: takes a line about what is being done.
        save: called with the results so far, and the settings, after each method.

    Returns:
        the results, one per problem, and the settings they were measured with.
    """
    started = time.perf_counter()
    if plan.threads:
        torch.set_num_threads(plan.threads)
    pictures = {kind: _picture(kind, plan.image) for kind in plan.kinds}
    models = {kind: _model(kind, plan) for kind in plan.kinds}
    settings = _settings(plan)
    results: list[Result] = []
    for kind in plan.kinds:
        for sigma in plan.sigmas:
            for size in plan.sizes:
                clean = fit(pictures[kind], size)
                problem = _Problem(plan, models[kind], clean, sigma)
                name = f"{size} x {size} {kind}, sigma {sigma:g}"

                def tell(step: str, name: str = name) -> None:
                    say(f"[{time.perf_counter() - started:7.1f} s] {name}: {step}")

                tell("the fixed point, for the distances")
                picture = plan.image.name if plan.image else PICTURES[kind]
                noise = psnr(problem.noisy.cpu().numpy(), problem.clean)
                norm = float(problem.noisy.norm())
                result = Result(size, kind, sigma, picture, noise, norm, problem.find_truth())
                results.append(result)
                for method in (m for m in ORDER if m in plan.methods):
                    result.measurements.append(problem.measure(method, tell))
                    tell(describe(result.measurements[-1]))
                    save(results, settings)
    return results, settings


def fit(picture: np.ndarray, size: int) -> np.ndarray:
    """The centre of the picture, `(size, size, ...)`; a smaller picture is continued by its mirror images."""
    for axis in (0, 1):
        excess = picture.shape[axis] - size
        if excess >= 0:
            picture = picture.take(range(excess // 2, excess // 2 + size), axis)
        else:
            margins = [(0, 0)] * picture.ndim
            margins[axis] = (-excess // 2, -excess - -excess // 2)
            picture = np.pad(picture, margins, mode="symmetric")
    return picture


class _OutOfTimeError(Exception):
    """The way out of a run that takes too long, with what it has so far."""

    def __init__(self, result: ReferenceResult):
        self.result = result


class _Recorder:
    """The iterates of a run and when each was there, not counting the time it takes to record them."""

    def __init__(self, device: torch.device, limit: float | None):
        self.device, self.limit = device, limit
        self.points: list[tuple[float, Tensor]] = []
        self.recording = 0.0
        self.started = self._clock()

    def record(self, x: Tensor) -> float:
        arrived = self._clock()
        self.points.append((arrived - self.started - self.recording, x.clone()))
        self.recording += self._clock() - arrived
        return self.points[-1][0]

    def record_ours(self, progress: Progress) -> None:
        self.record(progress.x)

    def record_reference(self, result: ReferenceResult) -> None:
        if self.record(result.x) > (math.inf if self.limit is None else self.limit):
            raise _OutOfTimeError(result)

    def curve(self, truth: Tensor) -> Curve:
        """The distances, in double precision."""
        norm = float(truth.norm())
        return [(seconds, float((x.to(truth.device).double() - truth).norm()) / norm) for seconds, x in self.points]

    def _clock(self) -> float:
        _synchronize(self.device)
        return time.perf_counter()


class _Problem:
    """A noisy picture, its weights, and the fixed point once it is found."""

    def __init__(self, plan: Plan, model: DEAL, clean: np.ndarray, sigma: float):
        self.plan, self.model, self.sigma = plan, model, sigma
        self.device = torch.device(plan.device)
        noisy = clean + np.random.default_rng(0).normal(0, sigma / 255, clean.shape)
        self.clean = _nchw(clean).numpy()
        self.noisy = _nchw(noisy).float().to(self.device)

    def find_truth(self) -> Truth:
        """By our solver from zero, more accurately than anything that is measured."""
        started = time.perf_counter()
        double = self.device.type == "cpu" and self.noisy.shape[-1] <= DOUBLE_UP_TO
        model = copy.deepcopy(self.model).double() if double else self.model
        solution = reconstruct(
            self.noisy.double() if double else self.noisy,
            model=model,
            sigma=self.sigma / 255,
            tolerance=self.plan.truth_tolerance,
            max_iterations=TRUTH_ITERATIONS,
        )
        self.truth = solution.x.to("cpu" if self.device.type == "mps" else self.device).double()  # MPS has no float64
        return Truth(
            dtype="float64" if double else "float32",
            status=solution.status.name,
            distance=known(float(solution.distance.max())),
            iterations=int(solution.iterations.max()),
            seconds=time.perf_counter() - started,
        )

    def measure(self, method: str, tell: Say) -> Measurement:
        """All repeats of a method, after a warm-up, in which CUDA compiles its kernels."""
        label = METHODS[method]
        tell(f"{label}, warm-up")
        solve(method, self.noisy, self.model, self.sigma, limit=WARM_UP[method])
        memory = None
        if self.plan.memory:
            tell(f"{label}, memory")
            memory = self._memory(method, tell)
        curves: list[Curve] = []
        repeats = self.plan.baseline_repeats if method in BASELINES else self.plan.repeats
        outcome, stopped = None, False
        for repeat in range(repeats):
            tell(f"{label}, run {repeat + 1} of {repeats}")
            recorder = _Recorder(self.device, self.plan.max_seconds)
            try:
                outcome = solve(method, self.noisy, self.model, self.sigma, recorder=recorder)
                recorder.record(outcome.x)
            except _OutOfTimeError as end:
                outcome, stopped = Outcome(end.result.x, end.result.iterations, end.result.cg_iterations), True
            curves.append(recorder.curve(self.truth))
        assert outcome is not None  # there is at least one repeat
        return Measurement(
            method,
            curves,
            outcome.iterations,
            outcome.cg_iterations,
            psnr(outcome.x.cpu().numpy(), self.clean),
            outcome.status,
            outcome.estimate,
            stopped,
            memory,
        )

    def _memory(self, method: str, tell: Say) -> int | None:
        if self.device.type == "cuda":
            return _cuda_memory(method, self.noisy, self.model, self.sigma)
        if self.device.type != "cpu":
            return None
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "noisy.npy"
            np.save(file, self.noisy.numpy())
            model = self.plan.model or {v: k for k, v in KINDS.items()}[self.model.channels]
            arguments = [method, str(file), model, str(self.sigma), str(torch.get_num_threads())]
            command = [sys.executable, "-c", _CHILD, *arguments]
            child = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            return int(child.stdout)
        except ValueError:  # "None", or it died
            if child.returncode != 0:
                reason = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
                tell(f"the memory could not be measured: {reason[0]}")
            return None


@dataclass(frozen=True)
class Outcome:
    """The last iterate of a run, and how it got there."""

    x: Tensor
    iterations: int
    cg_iterations: int
    status: str | None = None
    estimate: float | None = None


def solve(
    method: str,
    noisy: Tensor,
    model: DEAL,
    sigma: float,
    *,
    limit: int | None = None,
    recorder: _Recorder | None = None,
) -> Outcome:
    """One run of a method.

    Args:
        method: a key of `METHODS`.
        noisy: `(1, C, H, W)`, where the model is.
        model: the weights.
        sigma: noise level, on the 0..255 scale.
        limit: outer iterations at most; by default as many as the method wants.
        recorder: is shown each iterate.
    """
    if method not in BASELINES:
        solution = reconstruct(
            noisy,
            model=model,
            sigma=sigma / 255,
            tolerance=TOLERANCES[method],
            max_iterations=limit or DEFAULT_MAX_ITERATIONS,
            callback=recorder.record_ours if recorder else None,
        )
        distance = known(float(solution.distance.max()))
        counts = int(solution.iterations.max()), int(solution.cg_iterations.max())
        return Outcome(solution.x, *counts, solution.status.name, distance)
    options: dict[str, Any] = {} if limit is None else {"max_outer": limit}
    if method == "tight":
        options |= {"inner_tolerance": (TIGHT_INNER * float(noisy.norm())) ** 2, "outer_tolerance": TIGHT_OUTER}
    with full_precision(noisy.device):
        # Baselines need not repeat their bits: they may have the faster convolutions.
        torch.backends.cudnn.deterministic = False
        callback = recorder.record_reference if recorder else None
        result = reference_reconstruct(noisy, model, sigma=sigma, callback=callback, **options)
    return Outcome(result.x, result.iterations, result.cg_iterations)


_CHILD = "import sys; from torchdeal.benchmark.speed import print_memory; print_memory(*sys.argv[1:])"


def print_memory(method: str, file: str, model: str, sigma: str, threads: str) -> None:
    """In a process of its own: the bytes that a short run needs at its peak, above the import and the weights."""
    torch.set_num_threads(int(threads))
    weights = load(model)
    before = _resident_bytes("VmRSS")
    solve(method, torch.from_numpy(np.load(file)), weights, float(sigma), limit=MEMORY_RUN[method])
    after = _resident_bytes("VmHWM")
    print(None if before is None or after is None else max(after - before, 0))


def _resident_bytes(field: str) -> int | None:
    """Memory of this process: from /proc (VmRSS now, VmHWM at the peak), elsewhere the peak, if it can be known."""
    # Not ru_maxrss where there is /proc: on Linux a new process inherits the peak of the one that started it.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])
    except (OSError, StopIteration, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _cuda_memory(method: str, noisy: Tensor, model: DEAL, sigma: float) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(noisy.device)
    before = torch.cuda.memory_allocated(noisy.device)
    solve(method, noisy, model, sigma, limit=MEMORY_RUN[method])
    torch.cuda.synchronize(noisy.device)
    return torch.cuda.max_memory_allocated(noisy.device) - before


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _nchw(picture: np.ndarray) -> Tensor:
    return to_tensor(picture)[0]


def _picture(kind: str, image: Path | None) -> np.ndarray:
    """`(H, W)` or `(H, W, 3)` in 0..1."""
    if image is None:
        try:
            from skimage import data
        except ImportError:
            raise ValueError("the pictures need scikit-image: pip install 'torchdeal[demo]', or give --image") from None
        return getattr(data, PICTURES[kind])() / 255.0
    pixels = files.read(image).pixels
    if pixels.ndim == 4:
        raise ValueError(f"{image}: a stack of images; give one image")
    picture = _nchw(pixels)[0].double().numpy()
    if kind == "gray":
        return picture[0] if len(picture) == 1 else np.tensordot([0.299, 0.587, 0.114], picture, 1)
    if len(picture) != 3:
        raise ValueError(f"{image}: the image is gray; use --kind gray")
    return np.moveaxis(picture, 0, -1)


def _model(kind: str, plan: Plan) -> DEAL:
    model = load(plan.model or kind, device=plan.device)
    if model.channels != KINDS[kind]:
        raise ValueError(f"{plan.model}: the model has {model.channels} channels, --kind {kind} has {KINDS[kind]}")
    if min(plan.sizes) < model.min_size:
        raise ValueError(f"size must be at least {model.min_size} for this model, got {min(plan.sizes)}")
    return model


def _settings(plan: Plan) -> dict[str, Any]:
    sources = {kind: plan.model or kind for kind in plan.kinds}
    return {
        **environment(plan.device),
        "weights": {kind: {"source": s, "sha256": weights_checksum(s)} for kind, s in sources.items()},
        "picture": str(plan.image) if plan.image else "scikit-image",
        "noise": "numpy.random.default_rng(0)",
        "methods": list(plan.methods),
        "repeats": plan.repeats,
        "baseline_repeats": plan.baseline_repeats,
        "max_seconds": plan.max_seconds,
        "tolerances": {
            **TOLERANCES,
            "tight": {"inner": TIGHT_INNER, "outer": TIGHT_OUTER},
            "truth": plan.truth_tolerance,
        },
        "thresholds": list(THRESHOLDS),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The benchmark without the packages of the command line."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.speed", description=main.__doc__)
    parser.add_argument("--size", type=int, action="append", default=[])
    parser.add_argument("--kind", choices=list(KINDS), action="append", default=[])
    parser.add_argument("--sigma", type=float, action="append", default=[])
    parser.add_argument("--device", choices=("cpu", "cuda", "mps"), default="cpu")
    parser.add_argument("--model")
    parser.add_argument("--image", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--baseline-repeats", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--max-seconds", type=float)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--truth-tolerance", type=float, default=TRUTH_TOLERANCE)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        plan = Plan(
            sizes=tuple(given.size),
            kinds=tuple(given.kind or ["gray"]),
            sigmas=tuple(given.sigma or [25.0]),
            device=given.device,
            model=given.model,
            image=given.image,
            repeats=given.repeats,
            baseline_repeats=given.baseline_repeats,
            methods=parse_methods(given.methods),
            threads=given.threads,
            max_seconds=given.max_seconds,
            memory=not given.no_memory,
            truth_tolerance=given.truth_tolerance,
        )
        check_output(given.json)
        measure(
            plan,
            say=lambda line: print(line, flush=True),
            save=lambda results, settings: write_text(given.json, to_json(results, settings)),
        )
    except (files.ImageFileError, ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print(f"Interrupted: what was finished is in {given.json}", file=sys.stderr)
        sys.exit(130)


def parse_methods(text: str) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    main()
