"""`deal tune`: sigma and lam on clean pictures, for a file that the other commands take by --parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.choice import Choice
from torchdeal.cli.ct import SimulatedSinogram
from torchdeal.cli.deblur import Deblurring
from torchdeal.cli.jobs import pictures_in
from torchdeal.cli.memory import memory_for
from torchdeal.cli.mri import ACCELERATION, CENTRE, SimulatedScan
from torchdeal.cli.options import PICTURE_NOISE, TILES, Settings, with_settings
from torchdeal.cli.parameters import read_parameters, write_parameters
from torchdeal.cli.pictures import WHITE, PictureTask
from torchdeal.cli.run import Problem, Simulation, Solved, Task, solve
from torchdeal.cli.shared import messages, print_json, progress_bar
from torchdeal.cli.upscale import DEFAULT_STD, Upscaling
from torchdeal.extras import optional
from torchdeal.io import files
from torchdeal.io.atomic import replacing
from torchdeal.io.checkpoint import load
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.metrics import psnr
from torchdeal.operators import Blur, BlurBoundary, Mask
from torchdeal.operators.blur_kernels import gaussian_kernel, parse_kernel
from torchdeal.reconstruction import Reconstruction
from torchdeal.tuning import TunedPair, search_pair

PLOTS = (".png", ".pdf", ".svg")
ROUGH = {"tolerance": 2e-3, "max_iterations": 60}  # of trials

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal tune deblur clean/ deblur.json --kernel gaussian:1.6 --sigma 2.55[/bold]\n\n"
    "[bold]deal deblur blurred.png sharp.png --kernel gaussian:1.6 --parameters deblur.json[/bold]\n\n"
    "[bold]deal tune deblur sharp/ deblur.json --kernel kernel.npy --measured blurred/[/bold]\n\n"
    "[bold]deal tune mri knees/ mri.json --acceleration 8 --centre 0.04 --plot surface.png[/bold]"
)


class TunedProblem(Choice):
    """What is simulated with the clean pictures."""

    DEBLUR = "deblur"
    UPSCALE = "upscale"
    INPAINT = "inpaint"
    MRI = "mri"
    CT = "ct"


@dataclass(frozen=True, eq=False)
class RandomHoles(PictureTask):
    """Pixels that are missing at random."""

    missing: float

    def pose(self, frame: Tensor) -> Problem:
        draws = np.random.RandomState(self.settings.seed % 2**32).random_sample(tuple(frame.shape[-2:]))
        return self.problem(frame, Mask(torch.from_numpy(draws >= self.missing)), degraded_by="masked")


@with_settings(
    without=(
        *("lam", "model_sigma", "parameters", "certificate", "quality", "error_bars", "simulate", "save_degraded"),
        *("skip_existing", "batch", "symmetries", *PICTURE_NOISE),
        *TILES,
    ),
    sigma_help="Standard deviation of the noise that is added, on the 0..255 scale; for mri and ct in the units of the "
    "measurements. Default: as the commands have it with --simulate.",
)
def tune(
    problem: Annotated[TunedProblem, typer.Argument(help="The command that the parameters are for.")],
    paths: Annotated[
        list[Path], typer.Argument(metavar="CLEAN... FILE", help="Clean pictures or folders, then the file to write.")
    ],
    kernel: Annotated[
        str | None, typer.Option(metavar="KERNEL", help="With deblur and upscale: the blur, as these commands have it.")
    ] = None,
    boundary: Annotated[
        BlurBoundary, typer.Option(help="With deblur: what the blur sees beyond the border.")
    ] = BlurBoundary.VALID,
    scale: Annotated[int, typer.Option(min=2, max=16, help="With upscale: how many times larger, each way.")] = 2,
    missing: Annotated[float, typer.Option(help="With inpaint: the share of the pixels that is missing.")] = 0.5,
    acceleration: Annotated[float, typer.Option(help="With mri: one of so many columns is measured.")] = ACCELERATION,
    centre: Annotated[float, typer.Option(help="With mri: the share of columns in the middle.")] = CENTRE,
    angles: Annotated[int, typer.Option(min=1, max=4096, help="With ct: how many, equally spaced over 180.")] = 60,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With deblur and upscale: what was measured of the clean pictures, as files of the same names. "
            "Default: it is simulated.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to draw PSNR against sigma and lam (.png, .pdf, .svg).")
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Choose sigma and lam on clean pictures: simulate, try pairs from coarse to fine, keep the best for all."""
    if len(paths) < 2:
        raise ValueError("give clean pictures and then the file to write: CLEAN... FILE")
    *inputs, out = paths
    sources = pictures_in(inputs, settings.recursive)
    pairs = [(source, measured / source.name) for source in sources] if measured else []
    reads = [*sources, *(other for _, other in pairs), *([Path(kernel)] if kernel else [])]
    refuse_overwriting([path for path in (out, plot) if path], reads)
    _check_places(out, plot, problem)
    if plot:
        optional("matplotlib", "the plot", "benchmark")  # better before the work than after
    task = _task(problem, settings, kernel, boundary, scale, missing, acceleration, centre, angles)
    problems = _paired(task, pairs) if measured else _posed(task, sources)
    found, automatic = ParameterSearch(task, problems).run()
    about = {"problem": problem.value, "images": len(sources), "automatic_psnr": automatic, **found.as_json()}
    write_parameters(out, about)
    if plot:
        _draw(plot, found)
    _tell(about, out, settings.as_json)


def _check_places(out: Path, plot: Path | None, problem: TunedProblem) -> None:
    """Raise for what could not be written, or would take the place of something else."""
    if out.suffix.lower() != ".json":
        raise ValueError(f"{out}: name the file to write at the end, such as {problem.value}.json")
    if plot and plot.suffix.lower() not in PLOTS:
        raise ValueError(f"{plot}: a plot is one of {', '.join(PLOTS)}")
    for path in filter(None, (out, plot)):
        files.check_place(path)
    if out.exists():
        read_parameters(out)  # nothing else is replaced


def _task(
    problem: TunedProblem,
    settings: Settings,
    kernel: str | None,
    boundary: BlurBoundary,
    scale: int,
    missing: float,
    acceleration: float,
    centre: float,
    angles: int,
) -> Task:
    settings = replace(settings, simulate=True)
    if kernel and problem not in (TunedProblem.DEBLUR, TunedProblem.UPSCALE):
        raise ValueError(f"--kernel is for deblur and upscale: leave it out with {problem.value}")
    if problem is TunedProblem.DEBLUR:
        if kernel is None:
            raise ValueError("deblur needs --kernel")
        return Deblurring(settings, Blur(parse_kernel(kernel), boundary))
    if problem is TunedProblem.UPSCALE:
        shift = -(scale - 1) / 2
        blur = gaussian_kernel(DEFAULT_STD * scale, shift) if kernel is None else parse_kernel(kernel, shift)
        return Upscaling(settings, scale, blur)
    if problem is TunedProblem.INPAINT:
        if not 0 < missing < 1:
            raise ValueError(f"--missing must be between 0 and 1, got {missing:g}")
        return RandomHoles(settings, missing)
    if problem is TunedProblem.MRI:
        return SimulatedScan(settings, acceleration, centre, real=True)
    return SimulatedSinogram(settings, np.arange(angles) * (180 / angles))


def _posed(task: Task, sources: Sequence[Path]) -> list[Problem]:
    """A problem for each frame of each picture, each with a seed of its own."""
    problems: list[Problem] = []
    for source in sources:
        with memory_for(f"to read {source}"):
            frames, _ = task.read(source)
        for frame in frames:
            seeded = replace(task, settings=replace(task.settings, seed=(task.settings.seed + len(problems)) % 2**63))
            problems.append(seeded.pose(frame))
    return problems


def _paired(task: Task, pairs: Sequence[tuple[Path, Path]]) -> list[Problem]:
    """A problem for each measured frame, with the clean one to compare its answers with."""
    if not isinstance(task, Deblurring | Upscaling):
        raise ValueError("--measured is for deblur and upscale: leave it out, and the measurements are simulated")
    measuring = replace(task, settings=replace(task.settings, simulate=False))
    problems: list[Problem] = []
    for clean_path, measured_path in pairs:
        if not measured_path.is_file():
            raise FileNotFoundError(f"{measured_path}: no such file; --measured has a file for each clean picture")
        with memory_for(f"to read {clean_path}"):
            (clean, _), (measured, _) = measuring.read(clean_path), measuring.read(measured_path)
        shapes = [[*frame.shape[:2], *(task.magnification * side for side in frame.shape[2:])] for frame in measured]
        if shapes != [list(frame.shape) for frame in clean]:
            raise ValueError(
                f"{measured_path}: it does not have the size, frames and channels that {clean_path} asks for"
            )
        for frame, truth in zip(measured, clean, strict=True):
            simulation = Simulation(truth, frame, "measured", WHITE)
            problems.append(replace(measuring.pose(frame), simulation=simulation))
    return problems


@dataclass(frozen=True, eq=False)
class ParameterSearch:
    """The problems of all pictures, solved with one pair after the other."""

    task: Task
    problems: Sequence[Problem]

    def run(self) -> tuple[TunedPair, float]:
        """The best pair for all, and the mean PSNR of the parameters that are found automatically."""
        settings = self.task.settings
        models = cache(partial(load, device=settings.torch_device))
        rough = replace(
            settings,
            tolerance=max(settings.tolerance, ROUGH["tolerance"]),
            max_iterations=min(settings.max_iterations, ROUGH["max_iterations"]),
        )
        with progress_bar(settings.as_json) as progress:
            bar = progress.add_task("sigma and lam found automatically", total=None)

            def solved(problem: Problem, settings: Settings) -> Solved:
                with memory_for("to reconstruct"):
                    return solve(problem, settings, models, lambda _: None)

            first = [solved(problem, rough) for problem in self.problems]
            scale = [problem.white or 1.0 for problem in self.problems]
            found = [one.solution for one in first if isinstance(one.solution, Reconstruction)]
            sigmas = [float(one.sigma) * 255 / white for one, white in zip(found, scale, strict=True)]
            lams = [float(one.lam) for one in found]

            def score(sigma: float, lam: float) -> float:
                trial = replace(rough, model_sigma=sigma, lam=lam)
                level = fmean(_level(solved(problem, trial)) for problem in self.problems)
                progress.update(bar, description=f"sigma {sigma:.3g}, lam {lam:.3g}: {level:.2f} dB")
                return level

            return search_pair(score, median(sigmas), median(lams)), fmean(map(_level, first))


def _level(solved: Solved) -> float:
    simulation = solved.problem.simulation
    assert simulation is not None
    return psnr(solved.x.cpu() / simulation.white, simulation.clean / simulation.white)


def _tell(about: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"output": str(out), **about})
        return
    gain = about["psnr"] - about["automatic_psnr"]
    messages.print(
        f"{out}: sigma {about['sigma']:.3g}, lam {about['lam']:.3g}, {about['psnr']:.2f} dB, the mean of "
        f"{about['images']} pictures; {gain:+.2f} dB against what is found automatically. "
        f"Use it with --parameters {out}.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _draw(path: Path, found: TunedPair) -> None:
    """All trials as points, the best one marked."""
    figures, ticker = (optional(f"matplotlib.{part}", "the plot", "benchmark") for part in ("figure", "ticker"))
    figure = figures.Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    trials = [trial for trial in found.trials if trial.psnr > found.best.psnr - 6]
    points = axes.scatter(
        [trial.sigma for trial in trials],
        [trial.lam for trial in trials],
        c=[trial.psnr for trial in trials],
        cmap="viridis",
        s=60,
    )
    axes.scatter([found.best.sigma], [found.best.lam], s=180, facecolors="none", edgecolors="#D55E00", linewidths=2)
    axes.set(xscale="log", yscale="log", xlabel="sigma (0..255)", ylabel="lam", title=f"Best: {found.best.psnr:.2f} dB")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(ticker.NullFormatter())
    figure.colorbar(points, label="mean PSNR in dB")
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower())
