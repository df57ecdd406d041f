"""How a reconstruction went, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from torch import Tensor

from torchdeal.cli.jobs import Job
from torchdeal.cli.shared import complain, print_json, say
from torchdeal.metrics import psnr, ssim
from torchdeal.reconstruction import Reconstruction
from torchdeal.solvers import Status

if TYPE_CHECKING:
    from torchdeal.cli.run import Simulation, Solved

FRAMES_TOLD = 10  # numbers of frames in a message, at most


@dataclass(frozen=True)
class Quality:
    """Of a simulation: what was degraded, and the result. SSIM is None without scikit-image, and for tiny pictures."""

    degraded_by: str
    degraded_psnr: float
    psnr: float
    degraded_ssim: float | None
    ssim: float | None

    def __str__(self) -> str:
        text = f"PSNR {self.degraded_psnr:.2f} dB ({self.degraded_by}) -> {self.psnr:.2f} dB"
        return text if self.ssim is None else f"{text}, SSIM {self.degraded_ssim:.3f} -> {self.ssim:.3f}"


@dataclass(frozen=True)
class FileReport:
    """One processed file, as the closing lines and `--json` report it."""

    input: str
    output: str
    model: str
    device: str
    sigma: float  # of pictures on the 0..255 scale, else in the units of the measurements
    estimated: bool  # whether sigma is
    sigma_low: float | None  # between these it lies, where it is estimated and they are known
    sigma_high: float | None
    status: str
    converged: bool
    iterations: int
    cg_iterations: int
    distance: float | None  # None: not known
    seconds: float
    frames: int = 1
    unchanged: bool = False  # whether it was left as it was
    not_converged: Sequence[int] = ()  # the numbers of those frames, from 1
    movement: str = ""  # what still moved at the end of the run that moved most, as a sentence
    simulation: Quality | None = None
    notes: Sequence[str] = ()  # what of the input could not be kept, what was left unchanged
    tiles: dict[str, int] | None = None  # of a picture that was solved in tiles: their number, side and overlap, ...
    certificates: Sequence[dict[str, Any]] = ()  # of each frame: its number, sentences and numbers

    def __str__(self) -> str:
        distance = "unknown" if self.distance is None else f"{self.distance:.1e}"
        interval = "" if self.sigma_low is None else f", between {self.sigma_low:.3g} and {self.sigma_high:.3g}"
        about = f"{self.output}: sigma {self.sigma:g}{f' (estimated{interval})' if self.estimated else ''}"
        if self.unchanged:
            return f"{about}, unchanged, {self.seconds:.1f} s"
        if self.tiles:
            words = "{number} tiles of {side} pixels with an overlap of {overlap}".format(**self.tiles)
            about += f", {words}" + (f" ({self.tiles['resumed']} were there)" if self.tiles["resumed"] else "")
        return (
            f"{about}, {self.iterations} iterations ({self.cg_iterations} CG), "
            f"{self.status}, distance to the fixed point {distance}, {self.seconds:.1f} s"
        )


def summarise(job: Job, frames: Sequence[Solved], device: str, seconds: float, notes: Sequence[str] = ()) -> FileReport:
    """Of a file: means over its frames, and the worst of how they ended."""
    solutions = [frame.solution for frame in frames]
    worst = max(solutions, key=lambda s: (not s.converged, float(s.distance.max())))
    distance = float(worst.distance.max())
    simulations = [(frame.problem.simulation, frame.x) for frame in frames]
    levels = [frame.problem.level for frame in frames if frame.problem.level]
    return FileReport(
        input=str(job[0]),
        output=str(job[1]),
        model=frames[0].model,
        device=device,
        sigma=_rounded(fmean(frame.problem.noise for frame in frames)),
        estimated=frames[0].problem.estimated,
        sigma_low=_rounded(min(level.low for level in levels)) if levels else None,
        sigma_high=_rounded(max(level.high for level in levels)) if levels else None,
        status=worst.status.name,
        converged=worst.converged,
        iterations=sum(int(s.iterations.max()) for s in solutions),
        cg_iterations=sum(int(s.cg_iterations.max()) for s in solutions),
        distance=distance if math.isfinite(distance) else None,
        seconds=round(seconds, 3),
        frames=len(frames),
        unchanged=all(frame.problem.leave for frame in frames),
        not_converged=[number for number, solution in enumerate(solutions, 1) if not solution.converged],
        movement=str(worst.movement or "") if worst.status is Status.UNSETTLED else "",
        simulation=_mean([_compare(simulation, x) for simulation, x in simulations if simulation]),
        notes=[*notes, *_what_was_left(frames)],
    )


def certificates(frames: Sequence[Solved], told: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Of what was reconstructed; a frame that was left as it was has none. `told` hears what is computed."""
    found = []
    for number, frame in enumerate(frames, 1):
        if isinstance(frame.solution, Reconstruction):
            certificate = frame.solution.certificate(callback=told)
            found.append({"frame": number, "sentences": certificate.sentences(), "numbers": certificate.numbers()})
    return found


def _rounded(sigma: float) -> float:
    return float(f"{sigma:.4g}")


def _what_was_left(frames: Sequence[Solved]) -> list[str]:
    """Which frames are as they were, as a sentence."""
    left = [number for number, frame in enumerate(frames, 1) if frame.problem.leave]
    if not left:
        return []
    what = "the picture is" if len(frames) == 1 else f"{_numbered(left, len(frames))} are"
    return [f"no noise is certain (it may be detail), so {what} left unchanged; to denoise it, give --sigma"]


@dataclass
class Outcome:
    """Of all files, so far."""

    results: list[FileReport] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by input: why
    skipped: list[str] = field(default_factory=list)  # outputs that were there


def show(report: FileReport, quiet: bool, when: str = "") -> None:
    """In words, unless quiet; what was lost and what did not converge is always told of."""
    if not quiet:
        say(f"{when}{report}")
        if report.simulation:
            say(f"{report.output}: {report.simulation}")
        for certificate in report.certificates:
            of_several = f"Frame {certificate['frame']}. " if report.frames > 1 else ""
            say("\n".join(f"  {of_several}{sentence}" for sentence in certificate["sentences"]))
    for note in report.notes:
        complain("Note", f"{report.output}: {note}")
    if not report.converged:
        words = " ".join(filter(None, (report.movement, in_options(report.status))))
        complain("Warning", f"{report.output} did not converge{_which(report)}. {words}")


def in_options(status: str) -> str:
    """What a status means, and what to do in the words of the command line."""
    words = Status[status].value.replace("max_iterations", "--max-iterations")
    return words.replace(
        "sigma or lam often settles it; to go on all the same, take this result as the start.",
        "--lam, or --model-sigma where there is one, often settles it.",
    )


def in_a_sentence(report: FileReport) -> str:
    """How the run ended, for somebody who does not know the method."""
    if report.unchanged:
        return "The picture was left as it is."
    away = "" if report.distance is None else f", about {100 * report.distance:.2g} % away from it"
    if report.converged:
        return f"Converged: the result is at the fixed point of the method, as far as can be told{away}."
    return f"Not converged{away}. {report.movement} {Status[report.status].value}".replace("  ", " ")


def close(outcome: Outcome, as_json: bool, stopped: bool = False) -> None:
    """There will be no more files: the JSON report, and exit code 1 if some failed."""
    failed = len(outcome.failures)
    if as_json:
        print_json(asdict(outcome) | ({"error": "interrupted"} if stopped else {}))
    if failed and not stopped:
        complain("Error", f"{failed} of {len(outcome.results) + failed} images failed")
        raise typer.Exit(1)


def _which(report: FileReport) -> str:
    if report.tiles:
        return f" in {report.tiles['not_converged']} of {report.tiles['number']} tiles"
    return "" if report.frames == 1 else f" in {_numbered(report.not_converged, report.frames)}"


def _numbered(some: Sequence[int], frames: int) -> str:
    """How many of the frames, and which."""
    numbers = [str(number) for number in some[:FRAMES_TOLD]] + ["..."] * (len(some) > FRAMES_TOLD)
    return f"{len(some)} of {frames} frames ({', '.join(numbers)})"


def _compare(simulation: Simulation, x: Tensor) -> Quality:
    images = (simulation.clean, simulation.degraded, x)
    clean, degraded, result = (array_of(image / simulation.white) for image in images)
    try:
        similarities = ssim(degraded, clean), ssim(result, clean)
    except (ImportError, ValueError) as error:
        complain("Warning", f"{error}. PSNR alone is reported")
        similarities = None, None
    return Quality(simulation.degraded_by, psnr(degraded, clean), psnr(result, clean), *similarities)


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


def array_of(image: Tensor) -> np.ndarray:
    """An image `(1, C, H, W)` as `(H, W)` or `(H, W, C)`."""
    array = image[0].double().cpu().numpy()
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)
