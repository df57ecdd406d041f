"""PSNR of denoising over a folder of images, by the protocol of the paper.

The noise starts anew for every image: `numpy.random.RandomState(0)` draws `normal(0, sigma / 255)`, `(1, H, W)` for
gray and `(H, W, 3)` for colour, which is added as float32 to the image in 0..1 and not clipped. `lam` is the learned
`kappa(sigma)`, the answer is clipped to 0..1, and PSNR has a data range of 1. One image at a time; means over images.

    python -m torchdeal.benchmark.denoising FOLDER --save out.json      # on a bare machine with a GPU
    deal benchmark denoising --from out.json                            # anywhere
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from torchdeal.benchmark.frame import Benchmark, Say, Table, circumstances, estimate, number, power, run_details
from torchdeal.benchmark.images import draw_noise, list_images, read_clean, read_image
from torchdeal.benchmark.plan import Settings, SolvingPlan, argument, option
from torchdeal.io.checkpoint import BUNDLED, checksum, default_weights, load
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Solution, Status

CONVERGED = Status.CONVERGED.name
SIGMAS = (5.0, 15.0, 25.0)
MANY_ITERATIONS = 60  # images that need more outer iterations than this are counted
APART = 1e-3  # relative difference from which the answers from two starts count as different
NAMED = 5  # images that did not converge, at most; --save has all


@dataclass(frozen=True, kw_only=True)
class DenoisingPlan(SolvingPlan):
    """Which images and noise levels."""

    DEVICES = (*SolvingPlan.DEVICES, "mps")

    folder: Path = argument("a folder of clean images", "; they are taken in the order of their names")
    sigmas: tuple[float, ...] = option(SIGMAS, "noise level on the 0..255 scale", positive=True)
    model: str | None = option(
        None, f"{', '.join(BUNDLED)}, or a weights file; by default by the channels of the first image"
    )
    crop: int | None = option(None, "side of the square to take from the centre of each image")
    limit: int | None = option(None, "take only the first so many images", least=1)
    starts: int = option(0, "reconstruct the first so many images also from the noisy image, and compare", least=0)

    def paths(self) -> list[Path]:
        """The images."""
        return list_images(self.folder)[: self.limit]

    def weights(self) -> str:
        """The name or file of the model."""
        return self.model or default_weights(read_image(self.paths()[0]).shape[1], False)


@dataclass(frozen=True)
class Restart:
    """The answer from the noisy image as start, beside the one from zero."""

    difference: float  # relative
    status: str
    iterations: int


@dataclass(frozen=True)
class Denoised:
    """One image at one noise level."""

    image: str
    height: int
    width: int
    noisy_psnr: float  # of the noisy image, clipped like the answer
    psnr: float
    status: str
    distance: float | None  # the estimate; None: not known
    iterations: int  # outer iterations (masks)
    cg_iterations: int
    seconds: float
    restart: Restart | None = None


@dataclass(frozen=True)
class Level:
    """All images at one noise level."""

    sigma: float
    images: list[Denoised]

    def summary(self) -> dict[str, Any]:
        """What the images say together."""
        rows = self.images
        distances = [row.distance for row in rows if row.distance is not None]
        iterations = [row.iterations for row in rows]
        restarts = [row.restart for row in rows if row.restart]
        return {
            "images": len(rows),
            "noisy_psnr": fmean(row.noisy_psnr for row in rows),
            "psnr": fmean(row.psnr for row in rows),
            "converged": len(rows) - len(self.unconverged()),
            "distance": max(distances) if len(distances) == len(rows) else None,  # None: not known for every image
            "median_iterations": median(iterations),
            "max_iterations": max(iterations),
            "many_iterations": sum(n > MANY_ITERATIONS for n in iterations),
            "cg_iterations": fmean(row.cg_iterations for row in rows),
            "seconds": median(row.seconds for row in rows),
            "restarts": len(restarts),
            "restarts_converged": sum(r.status == CONVERGED for r in restarts),
            "restarts_apart": sum(not r.difference <= APART for r in restarts),
            "largest_difference": max((r.difference for r in restarts), default=None),
        }

    def unconverged(self) -> list[Denoised]:
        """The images whose answer is not known to be within the tolerance."""
        return [row for row in self.images if row.status != CONVERGED]


def measure(plan: DenoisingPlan, say: Say) -> Iterator[list[Level]]:
    """One noise level after the other."""
    paths, model = plan.paths(), load(plan.weights(), device=plan.device)
    if plan.crop is not None and plan.crop < model.min_size:
        raise ValueError(f"crop must be at least {model.min_size} for this model, got {plan.crop}")
    for path in paths:
        read_clean(path, model, plan.crop)  # a bad image ends the run now, not after an hour
    levels: list[Level] = []
    for sigma in plan.sigmas:
        level = Level(sigma, [])
        for index, path in enumerate(paths):
            level.images.append(_denoise(path, model, sigma, plan, restart=index < plan.starts))
            say(f"sigma {sigma:g}, {index + 1} of {len(paths)}, {_describe(level.images[-1])}")
        levels.append(level)
        say("sigma {:g}, all: {noisy_psnr:.2f} -> {psnr:.2f} dB".format(sigma, **level.summary()))
        yield levels


def _denoise(path: Path, model: DEAL, sigma: float, plan: DenoisingPlan, restart: bool) -> Denoised:
    clean = read_clean(path, model, plan.crop)
    noisy = clean + draw_noise(clean, sigma)
    solve = partial(
        reconstruct,
        noisy,
        model=model,
        sigma=sigma / 255,
        tolerance=plan.tolerance,
        max_iterations=plan.max_iterations,
        data_range=1.0,  # strong noise takes the values far out of 0..1
    )
    started = time.perf_counter()
    solution = solve()
    seconds = time.perf_counter() - started  # the answer is where the noisy image is: a GPU has finished
    return Denoised(
        image=path.name,
        height=clean.shape[2],
        width=clean.shape[3],
        noisy_psnr=psnr(noisy, clean),
        psnr=psnr(solution.x, clean),
        cg_iterations=int(solution.cg_iterations.max()),
        seconds=seconds,
        restart=_compare(solve(start=noisy), solution) if restart else None,
        **run_details(solution),
    )


def _compare(other: Solution, solution: Solution) -> Restart:
    difference = float((other.x - solution.x).norm() / solution.x.norm())
    return Restart(difference, other.status.name, int(other.iterations.max()))


def _settings(plan: DenoisingPlan) -> Settings:
    source = plan.weights()
    return {
        "weights": {"source": Path(source).name, "sha256": checksum(source)},
        "images": len(plan.paths()),
        "noise": "numpy.random.RandomState(0) for each image, (1, H, W) or (H, W, 3)",
    }


def _describe(row: Denoised) -> str:
    apart = f", from the noisy image {row.restart.difference:.1e} apart" if row.restart else ""
    return (
        f"{row.image}: {row.noisy_psnr:.2f} -> {row.psnr:.2f} dB, {row.status}, {row.iterations} iterations "
        f"({row.cg_iterations} CG), distance {estimate(row.distance)}, {row.seconds:.3g} s{apart}"
    )


def show(levels: list[Level], settings: Settings) -> Iterator[str | Table]:
    """A table with a row per noise level, and what did not converge or depends on the start."""
    weights, crop = settings["weights"], settings["crop"]
    part = f", centres of {crop} x {crop}" if crop else ""
    yield (
        f"{circumstances(settings)} Weights {weights['source']} (sha256 {weights['sha256'][:12]}), images of "
        f"{settings['folder']}{part}, tolerance {settings['tolerance']:g}. PSNR (dB) and CG are means over the images, "
        "iterations and seconds medians, distance the largest estimate.\n"
    )
    head = ["sigma", "images", "noisy", "PSNR", "converged", "distance", "iterations", "most"]
    yield Table([*head, f"above {MANY_ITERATIONS}", "CG", "s"], [_row(level) for level in levels])
    for level in levels:
        for line in _remarks(level):
            yield f"  sigma {level.sigma:g}: {line}"


def _row(level: Level) -> list[str]:
    row = level.summary()
    return [
        *(f"{level.sigma:g}", f"{row['images']}", f"{row['noisy_psnr']:.2f}", f"{row['psnr']:.2f}"),
        *(f"{row['converged']} of {row['images']}", estimate(row["distance"])),
        *(f"{row['median_iterations']:g}", f"{row['max_iterations']}", f"{row['many_iterations']}"),
        *(f"{row['cg_iterations']:.0f}", number(row["seconds"])),
    ]


def _remarks(level: Level) -> Iterator[str]:
    summary = level.summary()
    failed = [f"{row.image} ({row.status})" for row in level.unconverged()]
    if failed:
        more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        yield f"not converged: {', '.join(failed[:NAMED])}{more}."
    if summary["restarts"]:
        yield (
            "started from the noisy image, {restarts_converged} of {restarts} converged; {restarts_apart} of "
            f"{{restarts}} answers differ by more than {power(APART)} from those from zero, by "
            "{largest_difference:.1e} at most."
        ).format(**summary)


BENCHMARK = Benchmark(
    "denoising",
    DenoisingPlan,
    Level,
    measure,
    _settings,
    show,
    units="noise levels",
    key="levels",
    derive=lambda level: {"summary": level.summary()},
)

if __name__ == "__main__":
    BENCHMARK.main()
