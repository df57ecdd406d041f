"""An inverse problem as a command poses it: its solution by `reconstruct`, and the report."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import typer
from torch import Tensor

from torchdeal.benchmark.common import known
from torchdeal.cli.shared import complain, interruptible, is_foreseeable, output
from torchdeal.estimation import estimate_range
from torchdeal.io.checkpoint import load
from torchdeal.metrics import psnr, ssim
from torchdeal.model import DEAL
from torchdeal.operators import Identity, Operator
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.solvers import Progress, Solution, Status

Job = tuple[Path, Path]  # input, output


@dataclass(frozen=True)
class Settings:
    """What the options of a command say, for every file alike. Raises ValueError for what cannot be."""

    sigma: float | None = None  # of the noise in the measurements; None: to be estimated
    lam: float | None = None
    model_sigma: float | None = None  # on the 0..255 scale
    model: str | None = None
    device: str = "cpu"
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    channelwise: bool = False
    data_range: float | None = None
    simulate: bool = False
    seed: int = 0
    save_degraded: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        for option, value in (("--sigma", self.sigma), ("--model-sigma", self.model_sigma)):
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{option} must be finite and at least 0, got {value:g}")
        if self.lam is not None and not 0 < self.lam < math.inf:
            raise ValueError(f"--lam must be finite and above 0, got {self.lam:g}")
        if self.save_degraded and not self.simulate:
            raise ValueError("--save-degraded is what a simulation degrades: use it with --simulate")


@dataclass(frozen=True, eq=False)
class Truth:
    """What a simulation began with, and the degraded image that the result is compared with, of the same size."""

    clean: Tensor
    degraded: Tensor
    degraded_by: str
    white: float


@dataclass(frozen=True, eq=False)
class Problem:
    """`y = H x + noise`."""

    y: Tensor
    H: Operator
    noise: float  # its standard deviation, in the units of y
    estimated: bool = False  # whether the noise is
    white: float | None = None  # the value of white in x; None: the range of a rough reconstruction
    keep: Callable[[Tensor], Tensor] = lambda x: x  # the part of x that is wanted
    truth: Truth | None = None  # in a simulation


@dataclass(frozen=True)
class Quality:
    """Of a simulation: what was degraded, and the result. SSIM is None without scikit-image."""

    degraded_by: str
    degraded_psnr: float
    psnr: float
    degraded_ssim: float | None
    ssim: float | None


@dataclass(frozen=True)
class Outcome:
    """One processed file, as the closing lines and `--json` report it."""

    input: str
    output: str
    model: str
    device: str
    sigma: float  # of pictures on the 0..255 scale, else in the units of the measurements
    estimated: bool  # whether sigma is
    status: str
    converged: bool
    iterations: int
    cg_iterations: int
    distance: float | None  # None: not known
    seconds: float
    simulation: Quality | None = None


@dataclass(frozen=True, eq=False)
class Solved:
    """A problem with its solution."""

    problem: Problem
    solution: Solution
    model: str

    @property
    def x(self) -> Tensor:
        """What was asked for."""
        return self.problem.keep(self.solution.x)


class Solver:
    """Solves problems as the settings say. Models are loaded once."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.models: dict[str, DEAL] = {}

    def solve(self, problem: Problem, callback: Callable[[Progress], None] | None = None) -> Solved:
        settings = self.settings
        if problem.noise == 0 and not isinstance(problem.H, Identity) and None in (settings.lam, settings.model_sigma):
            raise ValueError("--sigma must be above 0: without noise give what the measurements were rounded to")
        name = self._model_for(problem)
        white = problem.white or image_range(problem.H, problem.y)
        solution = reconstruct(
            problem.y,
            problem.H,
            model=self.models[name],
            noise=problem.noise,
            sigma=None if settings.model_sigma is None else settings.model_sigma / 255 * white,
            lam=settings.lam,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            channelwise=settings.channelwise,
            data_range=white,
            callback=callback,
        )
        return Solved(problem, solution, name)

    def _model_for(self, problem: Problem) -> str:
        """The name of the model, which is loaded on first use."""
        is_colour = problem.H.measures_images and problem.y.shape[1] == 3 and not self.settings.channelwise
        name = self.settings.model or ("color" if is_colour else "gray")
        if name not in self.models:
            self.models[name] = load(name, device=self.settings.device)
        return name


def image_range(H: Operator, y: Tensor) -> float:
    """That of a rough reconstruction: what is white to the model, whatever the units of the measurements."""
    return float(estimate_range(H, H.adjoint(y)).max())


def summarise(job: Job, frames: Sequence[Solved], settings: Settings, started: float) -> Outcome:
    """Of a file: means over its frames, and the worst of how they ended."""
    solutions = [frame.solution for frame in frames]
    worst = max(solutions, key=lambda s: (not s.converged, float(s.distance.max())))
    return Outcome(
        input=str(job[0]),
        output=str(job[1]),
        model=frames[0].model,
        device=settings.device,
        sigma=float(f"{fmean(frame.problem.noise for frame in frames):.4g}"),
        estimated=frames[0].problem.estimated,
        status=worst.status.name,
        converged=worst.converged,
        iterations=sum(int(s.iterations.max()) for s in solutions),
        cg_iterations=sum(int(s.cg_iterations.max()) for s in solutions),
        distance=known(float(worst.distance.max())),
        seconds=round(time.perf_counter() - started, 3),
        simulation=_mean([_compare(frame.problem.truth, frame.x) for frame in frames if frame.problem.truth]),
    )


def run(jobs: Sequence[Job], process: Callable[[Job], Outcome], as_json: bool) -> None:
    """Process each job and report it; one that fails does not stop the others."""
    outcomes: list[Outcome] = []
    failures: dict[str, str] = {}
    with interruptible():
        for job in jobs:
            source = str(job[0])
            try:
                outcome = process(job)
            except Exception as error:
                if not is_foreseeable(error) or (len(jobs) == 1 and not as_json):
                    raise
                failures[source] = str(error)
                complain("Error", str(error) if source in str(error) else f"{source}: {error}")
                continue
            outcomes.append(outcome)
            show(outcome, quiet=as_json)
    if as_json:
        print(json.dumps({"results": [asdict(o) for o in outcomes], "failures": failures}, indent=2))
    if failures:
        complain("Error", f"{len(failures)} of {len(jobs)} images failed")
        raise typer.Exit(1)


def show(outcome: Outcome, quiet: bool) -> None:
    if not quiet:
        for line in _lines(outcome):
            output.print(line, soft_wrap=True, markup=False)
    if not outcome.converged:
        remedy = str(Status[outcome.status]).replace("max_iterations", "--max-iterations")
        complain("Warning", f"{outcome.output} did not converge. {remedy}")


def _lines(outcome: Outcome) -> list[str]:
    distance = "unknown" if outcome.distance is None else f"{outcome.distance:.1e}"
    estimated = " (estimated)" if outcome.estimated else ""
    lines = [
        f"{outcome.output}: sigma {outcome.sigma:g}{estimated}, "
        f"{outcome.iterations} iterations ({outcome.cg_iterations} CG), "
        f"{outcome.status}, distance to the fixed point {distance}, {outcome.seconds:.1f} s"
    ]
    if outcome.simulation:
        lines.append(f"{outcome.output}: {_describe(outcome.simulation)}")
    return lines


def _describe(quality: Quality) -> str:
    text = f"PSNR {quality.degraded_psnr:.2f} dB ({quality.degraded_by}) -> {quality.psnr:.2f} dB"
    if quality.ssim is not None:
        text += f", SSIM {quality.degraded_ssim:.3f} -> {quality.ssim:.3f}"
    return text


def _compare(truth: Truth, x: Tensor) -> Quality:
    clean, degraded, result = (_array(image / truth.white) for image in (truth.clean, truth.degraded, x))
    try:
        similarities = ssim(degraded, clean), ssim(result, clean)
    except ImportError as error:
        complain("Warning", f"{error}. PSNR alone is reported")
        similarities = None, None
    return Quality(truth.degraded_by, psnr(degraded, clean), psnr(result, clean), *similarities)


def _mean(qualities: Sequence[Quality]) -> Quality | None:
    if not qualities:
        return None
    similarities = [(quality.degraded_ssim, quality.ssim) for quality in qualities]
    return Quality(
        qualities[0].degraded_by,
        fmean(quality.degraded_psnr for quality in qualities),
        fmean(quality.psnr for quality in qualities),
        *(None if None in column else fmean(column) for column in zip(*similarities, strict=True)),
    )


def _array(image: Tensor) -> np.ndarray:
    """An image `(1, C, H, W)` as `(H, W)` or `(H, W, C)`."""
    array = image[0].double().cpu().numpy()
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)
