"""What the rule for sigma and lam loses: `reconstruct(y, H, noise=...)` beside the best of a grid around it.

Each image and scenario is reconstructed once for all of the grid, as a batch: sigma of the rule times `SIGMA_FACTORS`,
and for each sigma the lam that the rule's formula `kappa(sigma) (noise / sigma)^2` has for it, times `LAM_FACTORS`. The
images are those for tuning: what the inverse benchmark reports is not among them.

`python tools/rule.py DATA --device cuda --save out.json` reads `DATA/test/Set12` and
`DATA/kernels/{Levin09, kernels_12}.npz`. It needs torch, numpy, Pillow and safetensors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.frame import Benchmark, Say, Settings, Table, known
from torchdeal.benchmark.images import named_image, read_clean
from torchdeal.benchmark.plan import option
from torchdeal.benchmark.problems import (
    GAUSSIAN_KERNELS,
    LEAST_CROP,
    MOTION_KERNELS,
    Case,
    DataPlan,
    blurred,
    bundled_model,
    column_sampled,
    downsampled,
    read_kernel,
    rule_parameters,
)
from torchdeal.io.checkpoint import checksum
from torchdeal.metrics import psnr
from torchdeal.model import DEAL, SIGMA_MAX
from torchdeal.operators import Mask
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Status

IMAGES = ("03", "04", "06", "07", "08", "09", "10", "11", "12")
WEIGHTS = "gray"
SIGMA_FACTORS = (1.0, 0.5**0.5, 2**0.5, 0.5, 2.0)  # nearest first: of those that are clipped to one value it is kept
LAM_FACTORS = (0.25, 0.5, 0.5**0.5, 1.0, 2**0.5, 2.0, 4.0)
SIGMA_LEAST = 2.5
BLUR_STD = 1.6


@dataclass(frozen=True)
class Scenario:
    """An operator and a noise level."""

    name: str
    simulate: Callable[..., Case]  # `masked`, or one of `problems`
    parameters: tuple[Any, ...]
    kernel: tuple[str, int] | None = None  # its file and number
    multiple: int = 1  # the sides of the image must be

    def case(self, path: Path, model: DEAL, plan: RulePlan) -> Case:
        """The measurements of an image."""
        clean = read_clean(path, model, plan.crop // self.multiple * self.multiple)
        kernel = [read_kernel(plan.data, *self.kernel)] if self.kernel else []
        return self.simulate(path.name, clean, *kernel, *self.parameters)


def masked(image: str, clean: Tensor, share: float, noise: float) -> Case:
    """This share of the pixels, at random, with noise on the 0..255 scale; the others are 0."""
    generator = np.random.RandomState(0)  # one for both: with the same seed the noise would depend on the mask
    shape = tuple(clean.shape[-2:])
    operator = Mask(generator.uniform(size=shape) < share)
    draws = generator.normal(0, noise / 255, shape).astype(np.float32)
    y = operator.forward(clean + torch.from_numpy(draws))
    return Case(image, clean, operator, y, noise / 255, y)


def _scenarios() -> Iterator[Scenario]:
    """Noise is on the 0..255 scale, that of the k-space on the scale of 0..1."""
    noises = (1.0, 2.55, 7.65)
    for number in (1, 3):
        for noise in noises:
            yield Scenario(f"blur-k{number}-{noise:g}", blurred, (noise,), kernel=(MOTION_KERNELS, number))
    for noise in noises:
        yield Scenario(f"blur-gauss{BLUR_STD}-{noise:g}", blurred, (gaussian_kernel(BLUR_STD), noise))
    for scale, number, noise in ((2, 2, 2.55), (2, 2, 7.65), (2, 2, 12.75), (3, 3, 2.55)):
        name, kernel = f"downsample-x{scale}-k{number}-{noise:g}", (GAUSSIAN_KERNELS, number)
        yield Scenario(name, downsampled, (scale, noise), kernel, multiple=scale)
    for share in (0.5, 0.2):
        for noise in (5.0, 15.0):
            yield Scenario(f"mask-{100 * share:.0f}-{noise:g}", masked, (share, noise))
    for noise in (0.002, 0.02):
        yield Scenario(f"fourier-4x-{noise:g}", column_sampled, (noise, 0))


SCENARIOS = tuple(_scenarios())


@dataclass(frozen=True, kw_only=True)
class RulePlan(DataPlan):
    """Which images and scenarios."""

    images: tuple[str, ...] = option(IMAGES, "of Set12, the name without ending")
    problems: tuple[str, ...] = option((), "how its name starts, such as blur or mask-20; by default all")
    lam_only: bool = option(False, "the sigma of the rule only, which is much cheaper")
    crop: int = option(128, "side of the square at the centre of the images", least=LEAST_CROP)
    # corners of the grid can be ill-posed: they must not take forever
    tolerance: float = option(2e-3, "on the estimated relative distance to the fixed point", positive=True)
    max_iterations: int = option(100, "outer iterations at most", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for prefix in self.problems:
            if not any(scenario.name.startswith(prefix) for scenario in SCENARIOS):
                names = ", ".join(scenario.name for scenario in SCENARIOS)
                raise ValueError(f"no problem starts with {prefix!r}; there are {names}")

    @property
    def scenarios(self) -> list[Scenario]:
        """Those that were chosen."""
        return [s for s in SCENARIOS if not self.problems or s.name.startswith(self.problems)]


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
    distance: float | None  # estimated, to the fixed point; None: not known

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


def measure(plan: RulePlan, say: Say) -> Iterator[list[Grid]]:
    """One image after the other."""
    model = bundled_model(WEIGHTS, plan.device)
    paths = [named_image(plan.data / "test" / "Set12", name) for name in dict.fromkeys(plan.images)]
    for path in paths:
        for scenario in plan.scenarios:
            scenario.case(path, model, plan)  # what cannot be read ends the run now, not after an hour
    grids: list[Grid] = []
    for path in paths:
        for scenario in plan.scenarios:
            grids.append(try_grid(scenario.name, scenario.case(path, model, plan), model, plan))
            say(str(grids[-1]))
        yield grids


def try_grid(problem: str, case: Case, model: DEAL, plan: RulePlan) -> Grid:
    """All of the grid in one batch."""
    started = time.perf_counter()
    places = grid_places(model, case, plan.lam_only)
    solution = reconstruct(
        case.y.repeat_interleave(len(places), 0),
        case.operator,
        model=model,
        sigma=[sigma / 255 for _, _, sigma, _ in places],
        lam=[lam for *_, lam in places],
        data_range=1.0,  # of the images; small ones could seem to have another
        tolerance=plan.tolerance,
        max_iterations=plan.max_iterations,
    )
    points = [
        Point(
            *place,
            psnr=comparable(psnr(solution.x[index : index + 1], case.clean)),
            status=solution.statuses[index].name,
            iterations=int(solution.iterations[index]),
            distance=known(float(solution.distance[index])),
        )
        for index, place in enumerate(places)
    ]
    return Grid(case.image, problem, time.perf_counter() - started, points)


def comparable(level: float) -> float:
    """The least there is for a run that diverged."""
    return -math.inf if math.isnan(level) else level


def grid_places(model: DEAL, case: Case, lam_only: bool) -> list[tuple[float, float, float, float]]:
    """Sigma factor, lam factor, sigma and lam of each point."""
    rule_sigma, _ = rule_parameters(model, case)
    factors = {}
    for factor in SIGMA_FACTORS[:1] if lam_only else SIGMA_FACTORS:
        factors.setdefault(float((rule_sigma * factor).clamp(SIGMA_LEAST, SIGMA_MAX)), factor)
    sigmas, lams = rule_parameters(model, case, rule_sigma.new_tensor(list(factors)))
    return [
        (sigma_factor, lam_factor, sigma, lam_factor * lam)
        for sigma_factor, sigma, lam in zip(factors.values(), sigmas.tolist(), lams.tolist(), strict=True)
        for lam_factor in LAM_FACTORS
    ]


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


def show(grids: list[Grid], settings: Settings) -> Iterator[Table]:
    """What the rule loses in each scenario, and in all; the columns of sigma are empty with `--lam-only`."""
    summaries = summarise(grids)
    counts = {name: sum(s[name] for s in summaries) for name in ("lam_at_edge", "points", "unconverged")}
    last = {"problem": "all", "images": "", "common_lam_factor": None, **overall(summaries), **counts}
    lam_only = len(settings["sigma_factors"]) == 1
    head = ["problem", "images", "rule", "- best lam", "at most", "- lam for all", "lam for all"]
    head += ["- best sigma, lam", "at most", "lam at edge", "not converged"]
    yield Table(head, [_cells(row, lam_only) for row in [*summaries, last]])


def _cells(row: dict[str, Any], lam_only: bool) -> list[str]:
    losses = [f"{row[name]:.3f}" for name in ("lam_loss", "largest_lam_loss", "common_lam_loss")]
    factor = "" if row["common_lam_factor"] is None else f"x {row['common_lam_factor']:.3g}"
    with_sigma = ["", ""] if lam_only else [f"{row['loss']:.3f}", f"{row['largest_loss']:.3f}"]
    counts = [str(row["lam_at_edge"]), f"{row['unconverged']} of {row['points']}"]
    return [row["problem"], str(row["images"]), f"{row['psnr']:.2f}", *losses, factor, *with_sigma, *counts]


def _settings(plan: RulePlan) -> Settings:
    return {
        "weights": {WEIGHTS: checksum(WEIGHTS)},
        "problems": [scenario.name for scenario in plan.scenarios],
        "sigma_factors": [1.0] if plan.lam_only else sorted(SIGMA_FACTORS),
        "sigma_limits": [SIGMA_LEAST, SIGMA_MAX],
        "lam_factors": LAM_FACTORS,
    }


def _derive_from_all(grids: list[Grid]) -> dict[str, Any]:
    summaries = summarise(grids)
    return {"overall": overall(summaries), "problems": summaries}


BENCHMARK = Benchmark(
    "rule",
    RulePlan,
    Grid,
    measure,
    _settings,
    show,
    units="images",
    derive=lambda grid: grid.losses,
    derive_from_all=_derive_from_all,
    missing=-math.inf,
    tool="What the rule for sigma and lam loses against the best of a grid around it, on images for tuning.",
)

if __name__ == "__main__":
    BENCHMARK.main()
