"""What the rule for sigma and lam loses: `reconstruct(y, H, noise=...)` beside the best of a grid around it.

Each image and problem is reconstructed once for all of the grid, as a batch: sigma of the rule times `SIGMA_FACTORS`,
and for each sigma the lam that the rule's formula `kappa(sigma) (noise / sigma)^2` has for it, times `LAM_FACTORS`. The
images are those for tuning: what the inverse benchmark reports is not among them.

`python -m torchdeal.benchmark.rule DATA --device cuda --json out.json` reads `DATA/test/Set12` and
`DATA/kernels/{Levin09, kernels_12}.npz`. It needs torch, numpy, Pillow and safetensors.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.common import (
    Say,
    check_device,
    check_least,
    check_output,
    check_positive,
    environment,
    finite,
    known,
    one_line_errors,
    weights_checksum,
    write_text,
)
from torchdeal.benchmark.problems import (
    GAUSSIAN_KERNELS,
    LEAST_CROP,
    MOTION_KERNELS,
    Case,
    blurred,
    bundled_model,
    check_data,
    clean_image,
    column_sampled,
    downsampled,
    masked,
    named_image,
    psnr,
    read_kernels,
    rule_parameters,
)
from torchdeal.model import DEAL, SIGMA_MAX
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Status

FORMAT = "torchdeal-benchmark-rule-1"
IMAGES = ("03", "04", "06", "07", "08", "09", "10", "11", "12")
WEIGHTS = "gray"
SIGMA_FACTORS = (1.0, 0.5**0.5, 2**0.5, 0.5, 2.0)  # nearest first: of those that are clipped to one value it is kept
LAM_FACTORS = (0.25, 0.5, 0.5**0.5, 1.0, 2**0.5, 2.0, 4.0)
SIGMA_LEAST = 2.5
BLUR_STD = 1.6
CROP, TOLERANCE, MAX_ITERATIONS = 128, 2e-3, 100  # corners of the grid can be ill-posed: they must not take forever


@dataclass(frozen=True)
class Problem:
    """An operator and a noise level."""

    name: str
    simulate: Callable[[Path, str, Tensor], Case]  # from the folder of the data, the name of the image, the image
    multiple: int = 1  # the sides of the image must be


def _motion_blur(data: Path, image: str, clean: Tensor, *, number: int, noise: float) -> Case:
    return blurred(image, clean, read_kernels(data / MOTION_KERNELS, [number])[number], noise)


def _gaussian_blur(data: Path, image: str, clean: Tensor, *, noise: float) -> Case:
    return blurred(image, clean, gaussian_kernel(BLUR_STD), noise)


def _downsampling(data: Path, image: str, clean: Tensor, *, scale: int, number: int, noise: float) -> Case:
    return downsampled(image, clean, scale, read_kernels(data / GAUSSIAN_KERNELS, [number])[number], noise)


def _inpainting(data: Path, image: str, clean: Tensor, *, share: float, noise: float) -> Case:
    return masked(image, clean, share, noise)


def _column_sampling(data: Path, image: str, clean: Tensor, *, noise: float) -> Case:
    return column_sampled(image, clean, noise, seed=0)


def _problems() -> Iterator[Problem]:
    """Noise is on the 0..255 scale, that of the k-space on the scale of 0..1."""
    noises = (1.0, 2.55, 7.65)
    for number in (1, 3):
        for noise in noises:
            yield Problem(f"blur-k{number}-{noise:g}", partial(_motion_blur, number=number, noise=noise))
    for noise in noises:
        yield Problem(f"blur-gauss{BLUR_STD}-{noise:g}", partial(_gaussian_blur, noise=noise))
    for scale, number, noise in ((2, 2, 2.55), (2, 2, 7.65), (2, 2, 12.75), (3, 3, 2.55)):
        simulate = partial(_downsampling, scale=scale, number=number, noise=noise)
        yield Problem(f"downsample-x{scale}-k{number}-{noise:g}", simulate, multiple=scale)
    for share in (0.5, 0.2):
        for noise in (5.0, 15.0):
            yield Problem(f"mask-{100 * share:.0f}-{noise:g}", partial(_inpainting, share=share, noise=noise))
    for noise in (0.002, 0.02):
        yield Problem(f"fourier-4x-{noise:g}", partial(_column_sampling, noise=noise))


PROBLEMS = tuple(_problems())


@dataclass(frozen=True)
class Plan:
    """What is to be measured. Raises ValueError for what cannot be."""

    data: Path
    images: tuple[str, ...] = IMAGES  # names of files of Set12, without ending
    problems: tuple[Problem, ...] = PROBLEMS
    crop: int = CROP  # side of the square at the centre of the images
    lam_only: bool = False  # the sigma of the rule only
    device: str = "cpu"
    tolerance: float = TOLERANCE
    max_iterations: int = MAX_ITERATIONS
    threads: int | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        check_data(self.data)
        check_least(self, crop=LEAST_CROP, max_iterations=1, threads=1)
        check_positive("tolerance", self.tolerance)


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


@dataclass(frozen=True)
class Grid:
    """One image and problem: all of the grid."""

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
    def lam_loss(self) -> float:
        """Of the rule against the best lam, in dB."""
        return self.best_lam.psnr - self.rule.psnr

    @property
    def loss(self) -> float:
        """Of the rule against the best sigma and lam, in dB."""
        return self.best.psnr - self.rule.psnr

    @property
    def lam_at_edge(self) -> bool:
        """The best lam is the first or last of the grid: beyond it there may be a better one."""
        return self.best_lam.lam_factor in (min(LAM_FACTORS), max(LAM_FACTORS))

    @property
    def unconverged(self) -> int:
        """How many points are not known to be fixed points."""
        return sum(not point.converged for point in self.points)


@dataclass(frozen=True)
class Summary:
    """The images of a problem together, losses in dB."""

    problem: str
    images: int
    psnr: float  # of the rule, the mean
    lam_loss: float  # against the best lam of each image, the mean
    largest_lam_loss: float
    common_lam_factor: float  # best for the mean of the images
    common_lam_loss: float
    loss: float  # against the best sigma and lam of each image, the mean
    largest_loss: float
    lam_at_edge: int  # images
    points: int
    unconverged: int  # of the points
    rule_unconverged: int  # images


def summarise(grids: Sequence[Grid]) -> list[Summary]:
    """One for each problem, in the order in which they came."""
    problems = dict.fromkeys(grid.problem for grid in grids)
    return [_summary(problem, [grid for grid in grids if grid.problem == problem]) for problem in problems]


def _summary(problem: str, grids: list[Grid]) -> Summary:
    means = {factor: fmean(_psnr_at(grid, factor) for grid in grids) for factor in LAM_FACTORS}
    factor = max(means, key=lambda factor: means[factor])
    return Summary(
        problem=problem,
        images=len(grids),
        psnr=means[1.0],
        lam_loss=fmean(grid.lam_loss for grid in grids),
        largest_lam_loss=max(grid.lam_loss for grid in grids),
        common_lam_factor=factor,
        common_lam_loss=means[factor] - means[1.0],
        loss=fmean(grid.loss for grid in grids),
        largest_loss=max(grid.loss for grid in grids),
        lam_at_edge=sum(grid.lam_at_edge for grid in grids),
        points=sum(len(grid.points) for grid in grids),
        unconverged=sum(grid.unconverged for grid in grids),
        rule_unconverged=sum(not grid.rule.converged for grid in grids),
    )


def _psnr_at(grid: Grid, lam_factor: float) -> float:
    return next(point.psnr for point in grid.at_rule_sigma if point.lam_factor == lam_factor)


def overall(summaries: Sequence[Summary]) -> dict[str, float]:
    """Means over the problems of what are means over their images, and the largest losses."""
    means = ("psnr", "lam_loss", "common_lam_loss", "loss")
    largest = ("largest_lam_loss", "largest_loss")
    return {name: fmean(getattr(summary, name) for summary in summaries) for name in means} | {
        name: max(getattr(summary, name) for summary in summaries) for name in largest
    }


def try_grid(problem: str, case: Case, model: DEAL, plan: Plan) -> Grid:
    """All of the grid in one batch."""
    started = time.perf_counter()
    places = _places(model, case, plan.lam_only)
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
    images = solution.x.cpu()
    points = [
        Point(
            *place,
            psnr=_psnr(images[index : index + 1], case.clean),
            status=solution.statuses[index].name,
            iterations=int(solution.iterations[index]),
            distance=known(float(solution.distance[index])),
        )
        for index, place in enumerate(places)
    ]
    return Grid(case.image, problem, time.perf_counter() - started, points)


def _places(model: DEAL, case: Case, lam_only: bool) -> list[tuple[float, float, float, float]]:
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


def _psnr(x: Tensor, clean: Tensor) -> float:
    """The least there is for a run that diverged, so that it can be compared."""
    value = psnr(x, clean)
    return -math.inf if math.isnan(value) else value


def measure(plan: Plan, say: Say, save: Callable[[list[Grid], dict[str, Any]], None]) -> list[Grid]:
    """Run the plan.

    Args:
        plan: what to measure.
        say: takes a line about each image and problem.
        save: called with the grids so far, and what they were measured with, after each image.
    """
    started = time.perf_counter()
    if plan.threads:
        torch.set_num_threads(plan.threads)
    model = bundled_model(WEIGHTS, plan.device)
    paths = [named_image(plan.data / "test" / "Set12", name) for name in plan.images]
    for path in paths:
        for _ in _cases(plan, path, model):  # what cannot be read ends the run now, not after an hour
            pass
    grids, conditions = [], _conditions(plan)
    for path in paths:
        for problem, case in _cases(plan, path, model):
            grids.append(try_grid(problem, case, model, plan))
            say(f"[{time.perf_counter() - started:7.1f} s] {_describe(grids[-1])}")
        save(grids, conditions)
    return grids


def _cases(plan: Plan, path: Path, model: DEAL) -> Iterator[tuple[str, Case]]:
    for problem in plan.problems:
        clean = clean_image(path, model, plan.crop // problem.multiple * problem.multiple)
        yield problem.name, problem.simulate(plan.data, path.name, clean)


def choose_problems(prefixes: Sequence[str]) -> tuple[Problem, ...]:
    """Those whose name starts with one of these; all for none. Raises ValueError for one that chooses nothing."""
    for prefix in prefixes:
        if not any(problem.name.startswith(prefix) for problem in PROBLEMS):
            names = ", ".join(problem.name for problem in PROBLEMS)
            raise ValueError(f"no problem starts with {prefix!r}; there are {names}")
    return tuple(problem for problem in PROBLEMS if not prefixes or problem.name.startswith(tuple(prefixes)))


def table(summaries: Sequence[Summary], lam_only: bool) -> str:
    """Markdown: what the rule loses in each problem, and in all; the columns of sigma are empty for `lam_only`."""
    head = ["problem", "images", "rule", "- best lam", "at most", "- lam for all", "lam for all"]
    head += ["- best sigma, lam", "at most", "lam at edge", "not converged"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in summaries:
        cells = [row.problem, str(row.images), f"{row.psnr:.2f}", f"{row.lam_loss:.3f}", f"{row.largest_lam_loss:.3f}"]
        cells += [f"{row.common_lam_loss:.3f}", f"x {row.common_lam_factor:.3g}"]
        cells += ["", ""] if lam_only else [f"{row.loss:.3f}", f"{row.largest_loss:.3f}"]
        cells += [str(row.lam_at_edge), f"{row.unconverged} of {row.points}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, _last_line(summaries, lam_only)])


def _last_line(summaries: Sequence[Summary], lam_only: bool) -> str:
    all_of_them = overall(summaries)
    cells = ["all", "", f"{all_of_them['psnr']:.2f}"]
    cells += [f"{all_of_them[name]:.3f}" for name in ("lam_loss", "largest_lam_loss", "common_lam_loss")] + [""]
    cells += ["", ""] if lam_only else [f"{all_of_them[name]:.3f}" for name in ("loss", "largest_loss")]
    cells += [str(sum(row.lam_at_edge for row in summaries))]
    cells += [f"{sum(row.unconverged for row in summaries)} of {sum(row.points for row in summaries)}"]
    return "| " + " | ".join(cells) + " |"


def to_json(grids: Sequence[Grid], conditions: dict[str, Any]) -> str:
    """Everything that was measured, with the losses in dB."""
    summaries = summarise(grids)
    results = [asdict(grid) | {"lam_loss": grid.lam_loss, "loss": grid.loss} for grid in grids]
    content = {
        "format": FORMAT,
        "settings": conditions,
        "overall": overall(summaries),
        "problems": [asdict(summary) for summary in summaries],
        "results": results,
    }
    return json.dumps(finite(content), indent=1)


def _conditions(plan: Plan) -> dict[str, Any]:
    return {
        **environment(plan.device),
        "weights": {WEIGHTS: weights_checksum(WEIGHTS)},
        "images": list(plan.images),
        "problems": [problem.name for problem in plan.problems],
        "crop": plan.crop,
        "sigma_factors": [1.0] if plan.lam_only else sorted(SIGMA_FACTORS),
        "sigma_limits": [SIGMA_LEAST, SIGMA_MAX],
        "lam_factors": list(LAM_FACTORS),
        "tolerance": plan.tolerance,
        "max_iterations": plan.max_iterations,
    }


def _describe(grid: Grid) -> str:
    rule, best_lam, best = grid.rule, grid.best_lam, grid.best
    text = (
        f"{grid.image}, {grid.problem}: rule {rule.psnr:.2f} dB "
        f"(sigma {rule.sigma:.3g}, lam {rule.lam:.3g}{_mark(rule)})"
        f"; best lam x {best_lam.lam_factor:.3g}{_mark(best_lam)}, loss {grid.lam_loss:.3f}"
    )
    if len(grid.points) > len(grid.at_rule_sigma):
        text += (
            f"; best sigma x {best.sigma_factor:.3g}, lam x {best.lam_factor:.3g}{_mark(best)}, loss {grid.loss:.3f}"
        )
    return f"{text}; {grid.unconverged} of {len(grid.points)} not converged, {grid.seconds:.1f} s"


def _mark(point: Point) -> str:
    return "" if point.converged else f" {point.status}"


def main(arguments: Sequence[str] | None = None) -> None:
    """What the rule for sigma and lam loses against the best of a grid around it, on images for tuning."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.rule", description=main.__doc__)
    parser.add_argument("data", type=Path, help="the folder that holds test/ and kernels/")
    parser.add_argument("--image", action="append", default=[], help=f"of Set12; by default {' '.join(IMAGES)}")
    parser.add_argument("--problem", action="append", default=[], help="how its name starts, such as blur or mask-20")
    parser.add_argument("--lam-only", action="store_true", help="the sigma of the rule only, which is much cheaper")
    parser.add_argument("--crop", type=int, default=CROP, help="side of the square at the centre of the images")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--max-iterations", type=int, default=MAX_ITERATIONS)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    with one_line_errors(given.json, "images"):
        plan = Plan(
            data=given.data,
            images=tuple(dict.fromkeys(given.image or IMAGES)),
            problems=choose_problems(given.problem),
            crop=given.crop,
            lam_only=given.lam_only,
            device=given.device,
            tolerance=given.tolerance,
            max_iterations=given.max_iterations,
            threads=given.threads,
        )
        check_output(given.json)
        grids = measure(
            plan,
            say=lambda line: print(line, flush=True),
            save=lambda grids, conditions: write_text(given.json, to_json(grids, conditions)),
        )
        print(table(summarise(grids), plan.lam_only))


if __name__ == "__main__":
    main()
