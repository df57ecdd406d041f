"""What the rule for sigma and lam loses: `reconstruct(y, H, noise=...)` beside the best of a grid around it.

Each image and scenario is reconstructed once for all of the grid, as a batch: sigma of the rule times `SIGMA_FACTORS`,
and for each sigma the lam that the rule's formula `kappa(sigma) (noise / sigma)^2` has for it, times `LAM_FACTORS`. The
images are those for tuning: what `deal benchmark deblur` reports is not among them.

`python tools/rule.py DATA --device cuda --save out.json` reads `DATA/test/Set12` and
`DATA/kernels/{Levin09, kernels_12}.npz`. It needs torch, numpy, Pillow and safetensors.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from frame import Given, Say, Tool, arguments_of, at_least
from torch import Tensor

from torchdeal.benchmark.core import PosedProblem
from torchdeal.benchmark.images import clean_image, named_image
from torchdeal.benchmark.reporting.tables import Table
from torchdeal.benchmark.simulated import blurred, downsampled, kspace, read_kernel
from torchdeal.estimation import default_parameters
from torchdeal.io.checkpoint import load
from torchdeal.metrics import psnr
from torchdeal.model import DEAL, SIGMA_MAX
from torchdeal.operators import Blur, Downsample, Fourier, Mask
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.simulate import random_columns
from torchdeal.solvers import Status

IMAGES = ("03", "04", "06", "07", "08", "09", "10", "11", "12")
SIGMA_FACTORS = (1.0, 0.5**0.5, 2**0.5, 0.5, 2.0)  # nearest first: of those that are clipped to one value it is kept
LAM_FACTORS = (0.25, 0.5, 0.5**0.5, 1.0, 2**0.5, 2.0, 4.0)
SIGMA_LEAST = 2.5
BLUR_STD = 1.6
ACCELERATION, CENTRE = 4, 0.08
LEAST_CROP = 32


@dataclass(frozen=True)
class Scenario:
    """An operator and a noise level."""

    name: str
    simulate: Callable[
        [str, Tensor, Path], PosedProblem
    ]  # of the name of an image, the image, and the folder of kernels
    multiple: int = 1  # the sides of the image must be

    def problem(self, path: Path, given: Given) -> PosedProblem:
        """The measurements of an image."""
        clean = clean_image(path, 1, given.crop // self.multiple * self.multiple)
        return self.simulate(path.name, clean, given.data / "kernels")


def masked(image: str, clean: Tensor, share: float, noise: float) -> PosedProblem:
    """This share of the pixels, at random, with noise on the 0..255 scale; the others are 0."""
    generator = np.random.RandomState(0)  # one for both: with the same seed the noise would depend on the mask
    shape = tuple(clean.shape[-2:])
    operator = Mask(generator.uniform(size=shape) < share)
    draws = generator.normal(0, noise / 255, shape).astype(np.float32)
    return PosedProblem(image, clean, operator.forward(clean + torch.from_numpy(draws)), operator, noise / 255)


def column_sampled(image: str, clean: Tensor, noise: float) -> PosedProblem:
    """A fourth of the columns of the k-space, in the mean."""
    columns = random_columns((clean.shape[2], clean.shape[3]), ACCELERATION, CENTRE, seed=0, exact=False)
    return kspace(image, clean, Fourier(columns, centered=True), noise)


def _scenarios() -> Iterator[Scenario]:
    """Noise is on the 0..255 scale, that of the k-space on the scale of 0..1."""

    def motion(image: str, clean: Tensor, kernels: Path, number: int, noise: float) -> PosedProblem:
        return blurred(image, clean, Blur(read_kernel(kernels / "Levin09.npz", number)), noise)

    def gaussian(image: str, clean: Tensor, kernels: Path, noise: float) -> PosedProblem:
        return blurred(image, clean, Blur(gaussian_kernel(BLUR_STD)), noise)

    def smaller(image: str, clean: Tensor, kernels: Path, scale: int, number: int, noise: float) -> PosedProblem:
        kernel = read_kernel(kernels / "kernels_12.npz", number)
        return downsampled(image, clean, Downsample(scale, kernel), noise)

    noises = (1.0, 2.55, 7.65)
    for number in (1, 3):
        for noise in noises:
            yield Scenario(f"blur-k{number}-{noise:g}", partial(motion, number=number, noise=noise))
    for noise in noises:
        yield Scenario(f"blur-gauss{BLUR_STD}-{noise:g}", partial(gaussian, noise=noise))
    for scale, number, noise in ((2, 2, 2.55), (2, 2, 7.65), (2, 2, 12.75), (3, 3, 2.55)):
        simulate = partial(smaller, scale=scale, number=number, noise=noise)
        yield Scenario(f"downsample-x{scale}-k{number}-{noise:g}", simulate, multiple=scale)
    for share in (0.5, 0.2):
        for noise in (5.0, 15.0):
            name = f"mask-{100 * share:.0f}-{noise:g}"
            yield Scenario(name, lambda image, clean, _, share=share, noise=noise: masked(image, clean, share, noise))
    for noise in (0.002, 0.02):
        name = f"fourier-4x-{noise:g}"
        yield Scenario(name, lambda image, clean, _, noise=noise: column_sampled(image, clean, noise))


SCENARIOS = tuple(_scenarios())


@dataclass(frozen=True)
class Point:
    """The answer for one sigma and one lam."""

    sigma_factor: float  # of the sigma of the rule, before clipping
    lam_factor: float  # of the lam that the formula of the rule has for this sigma
    sigma: float  # on the 0..255 scale
    lam: float
    psnr: float  # -inf: not a number
    status: str
    iterations: int
    distance: float  # estimated, to the fixed point

    @property
    def converged(self) -> bool:
        """Whether it is known to be the fixed point."""
        return self.status == Status.CONVERGED.name

    def __str__(self) -> str:
        return f"lam x {self.lam_factor:.3g}{'' if self.converged else f' {self.status}'}"


@dataclass(frozen=True)
class Grid:
    """One image and scenario: all of the grid."""

    image: str
    problem: str
    seconds: float
    points: list[Point]

    @property
    def rule(self) -> Point:
        """What `reconstruct` gives by itself."""
        return next(point for point in self.at_rule_sigma if point.lam_factor == 1)

    @property
    def at_rule_sigma(self) -> list[Point]:
        """Its points for all lam."""
        return [point for point in self.points if point.sigma_factor == 1]

    @property
    def best_lam(self) -> Point:
        """The best at the sigma of the rule."""
        return max(self.at_rule_sigma, key=lambda point: point.psnr)

    @property
    def best(self) -> Point:
        """The best of all."""
        return max(self.points, key=lambda point: point.psnr)

    @property
    def losses(self) -> dict[str, float]:
        """Of the rule against the best lam, and against the best sigma and lam, in dB."""
        return {"lam_loss": self.best_lam.psnr - self.rule.psnr, "loss": self.best.psnr - self.rule.psnr}

    @property
    def lam_at_edge(self) -> bool:
        """The best lam is the first or last of the grid: beyond it there may be a better one."""
        return self.best_lam.lam_factor in (min(LAM_FACTORS), max(LAM_FACTORS))

    @property
    def unconverged(self) -> int:
        """How many points are not known to be fixed points."""
        return sum(not point.converged for point in self.points)

    def __str__(self) -> str:
        rule, best = self.rule, self.best
        status = "" if rule.converged else f" {rule.status}"
        text = f"rule {rule.psnr:.2f} dB (sigma {rule.sigma:.3g}, lam {rule.lam:.3g}{status})"
        text += f"; best {self.best_lam}, loss {self.losses['lam_loss']:.3f}"
        if len(self.points) > len(self.at_rule_sigma):
            text += f"; best sigma x {best.sigma_factor:.3g}, {best}, loss {self.losses['loss']:.3f}"
        counts = f"{self.unconverged} of {len(self.points)} not converged"
        return f"{self.image}, {self.problem}: {text}; {counts}, {self.seconds:.1f} s"


def measure(given: Given, say: Say) -> Iterator[list[Grid]]:
    """One image after the other."""
    scenarios, model = chosen_scenarios(given.problem), load(given.kind, device=given.device)
    paths = [named_image(given.data / "test" / "Set12", name) for name in dict.fromkeys(given.image)]
    for path in paths:
        for scenario in scenarios:
            scenario.problem(path, given)  # what cannot be read ends the run now, not after an hour
    grids: list[Grid] = []
    for path in paths:
        for scenario in scenarios:
            grids.append(try_grid(scenario.name, scenario.problem(path, given), model, given))
            say(str(grids[-1]))
        yield grids


def chosen_scenarios(prefixes: Sequence[str]) -> list[Scenario]:
    """Those whose names start with one of these, or all."""
    for prefix in prefixes:
        if not any(scenario.name.startswith(prefix) for scenario in SCENARIOS):
            names = ", ".join(scenario.name for scenario in SCENARIOS)
            raise ValueError(f"no problem starts with {prefix!r}; there are {names}")
    return [scenario for scenario in SCENARIOS if not prefixes or scenario.name.startswith(tuple(prefixes))]


def try_grid(name: str, problem: PosedProblem, model: DEAL, given: Given) -> Grid:
    """All of the grid in one batch."""
    started = time.perf_counter()
    places = grid_places(model, problem, given.lam_only)
    solution = reconstruct(
        problem.y.repeat_interleave(len(places), 0),
        problem.operator,
        model=model,
        sigma=[sigma / 255 for _, _, sigma, _ in places],
        lam=[lam for *_, lam in places],
        data_range=1.0,  # of the images; small ones could seem to have another
        tolerance=given.tolerance,
        max_iterations=given.max_iterations,
    )
    points = [
        Point(
            *place,
            psnr=comparable(psnr(solution.x[index : index + 1], problem.clean)),
            status=solution.statuses[index].name,
            iterations=int(solution.iterations[index]),
            distance=float(solution.distance[index]),
        )
        for index, place in enumerate(places)
    ]
    return Grid(problem.image, name, time.perf_counter() - started, points)


def comparable(level: float) -> float:
    """The least there is for a run that diverged."""
    return -math.inf if math.isnan(level) else level


def grid_places(model: DEAL, problem: PosedProblem, lam_only: bool) -> list[tuple[float, float, float, float]]:
    """Sigma factor, lam factor, sigma and lam of each point."""
    rule_sigma, _ = rule_parameters(model, problem)
    factors = {}
    for factor in SIGMA_FACTORS[:1] if lam_only else SIGMA_FACTORS:
        factors.setdefault(float((rule_sigma * factor).clamp(SIGMA_LEAST, SIGMA_MAX)), factor)
    sigmas, lams = rule_parameters(model, problem, rule_sigma.new_tensor(list(factors)))
    return [
        (sigma_factor, lam_factor, sigma, lam_factor * lam)
        for sigma_factor, sigma, lam in zip(factors.values(), sigmas.tolist(), lams.tolist(), strict=True)
        for lam_factor in LAM_FACTORS
    ]


@torch.no_grad()
def rule_parameters(model: DEAL, problem: PosedProblem, sigma: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sigma on the 0..255 scale and lam, `(B,)` each, as `reconstruct` takes them from the noise.

    Where `sigma` is given, `(B,)`, lam is that of the rule for it.
    """
    device = model.kappa.device
    noise = torch.tensor([255 * problem.noise], device=device)
    operator, like = problem.operator.to(device), problem.clean.to(device)
    sigma, lam = default_parameters(model.weights(), operator, like, noise, sigma)
    return sigma, lam.flatten()


def summarise(grids: Sequence[Grid]) -> list[dict[str, Any]]:
    """One for each scenario, in the order in which they came: its images together, losses in dB."""
    names = dict.fromkeys(grid.problem for grid in grids)
    return [_summary(name, [grid for grid in grids if grid.problem == name]) for name in names]


def _summary(name: str, grids: list[Grid]) -> dict[str, Any]:
    levels = [{point.lam_factor: point.psnr for point in grid.at_rule_sigma} for grid in grids]
    means = {factor: fmean(level[factor] for level in levels) for factor in LAM_FACTORS}
    common = max(means, key=lambda factor: means[factor])  # best for the mean of the images
    losses = {kind: [grid.losses[kind] for grid in grids] for kind in ("lam_loss", "loss")}
    return {
        "problem": name,
        "images": len(grids),
        "psnr": means[1.0],
        "lam_loss": fmean(losses["lam_loss"]),
        "largest_lam_loss": max(losses["lam_loss"]),
        "common_lam_factor": common,
        "common_lam_loss": means[common] - means[1.0],
        "loss": fmean(losses["loss"]),
        "largest_loss": max(losses["loss"]),
        "lam_at_edge": sum(grid.lam_at_edge for grid in grids),
        "points": sum(len(grid.points) for grid in grids),
        "unconverged": sum(grid.unconverged for grid in grids),
        "rule_unconverged": sum(not grid.rule.converged for grid in grids),
    }


def overall(summaries: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the scenarios of what are means over their images, and the largest losses."""
    means = {name: fmean(s[name] for s in summaries) for name in ("psnr", "lam_loss", "common_lam_loss", "loss")}
    return means | {name: max(s[name] for s in summaries) for name in ("largest_lam_loss", "largest_loss")}


def show(grids: list[Grid]) -> Iterator[Table]:
    """What the rule loses in each scenario, and in all; the columns of sigma are empty with `--lam-only`."""
    summaries = summarise(grids)
    counts = {name: sum(s[name] for s in summaries) for name in ("lam_at_edge", "points", "unconverged")}
    last = {"problem": "all", "images": "", "common_lam_factor": None, **overall(summaries), **counts}
    lam_only = all(grid.points == grid.at_rule_sigma for grid in grids)
    head = ["problem", "images", "rule", "- best lam", "at most", "- lam for all", "lam for all"]
    head += ["- best sigma, lam", "at most", "lam at edge", "not converged"]
    yield Table(head, [_cells(row, lam_only) for row in [*summaries, last]])


def _cells(row: dict[str, Any], lam_only: bool) -> list[str]:
    losses = [f"{row[name]:.3f}" for name in ("lam_loss", "largest_lam_loss", "common_lam_loss")]
    factor = "" if row["common_lam_factor"] is None else f"x {row['common_lam_factor']:.3g}"
    with_sigma = ["", ""] if lam_only else [f"{row['loss']:.3f}", f"{row['largest_loss']:.3f}"]
    counts = [str(row["lam_at_edge"]), f"{row['unconverged']} of {row['points']}"]
    return [row["problem"], str(row["images"]), f"{row['psnr']:.2f}", *losses, factor, *with_sigma, *counts]


def _summaries(grids: list[Grid]) -> dict[str, Any]:
    summaries = summarise(grids)
    return {"overall": overall(summaries), "problems": summaries}


def _arguments() -> argparse.ArgumentParser:
    parser = arguments_of("rule", __doc__)
    parser.set_defaults(kind="gray")
    parser.add_argument("data", type=Path, help="the folder that holds test/ and kernels/")
    parser.add_argument("--image", nargs="+", default=IMAGES, help="of Set12, names without ending")
    parser.add_argument("--problem", nargs="+", default=(), help="how names start, such as blur or mask-20")
    parser.add_argument("--lam-only", action="store_true", help="the sigma of the rule only, which is much cheaper")
    parser.add_argument("--crop", type=at_least(LEAST_CROP), default=128, help="side of the centre (default: 128)")
    # corners of the grid can be ill-posed: they must not take forever
    parser.add_argument("--tolerance", type=at_least(1e-9), default=2e-3, help="of the runs (default: 0.002)")
    parser.add_argument("--max-iterations", type=at_least(1), default=100, help="of the runs (default: 100)")
    return parser


TOOL = Tool(_arguments(), measure, show, _summaries)

if __name__ == "__main__":
    TOOL.main()
