"""Deblurring, super-resolution, MRI and CT: DEAL beside a plain inversion and total variation, on simulated data.

The problems are those of the paper, where its images are to be had (see `PROBLEMS` and the functions it names). Each
setting, a kernel and a noise level, say, has the same rows, with the PSNR of every image:

- the plain answer: the blurred image, bicubic interpolation, zero-filling, filtered back-projection;
- total variation, its strength tuned on these very images: more than a user could do;
- DEAL by the rule, that is `reconstruct(y, H, noise=...)`, without any tuning;
- DEAL with sigma and lam of the paper, where it states them;
- DEAL with its lam tuned as that of total variation is, at the sigma of the rule: what the rule loses.

`python -m torchdeal.benchmark.inverse DATA --problem deblur --json out.json` reads `DATA/test/{Set12, CBSD68, MRI-knee,
CT}` and `DATA/kernels/{Levin09, kernels_12}.npz`. It needs torch, numpy and Pillow, and for CT scikit-image.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal import files
from torchdeal.benchmark.common import (
    Say,
    check_device,
    check_output,
    environment,
    finite,
    known,
    weights_checksum,
    write_text,
)
from torchdeal.benchmark.denoising import draw_noise, list_images, read_clean
from torchdeal.benchmark.radon_matrix import RadonMatrix
from torchdeal.benchmark.total_variation import minimise_total_variation
from torchdeal.checkpoint import load
from torchdeal.extras import optional
from torchdeal.model import DEAL
from torchdeal.operators import Blur, Downsample, Fourier, Operator, Radon
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.solvers import Status
from torchdeal.tuning import default_parameters

FORMAT = "torchdeal-benchmark-inverse-1"
DEBLUR_IMAGES, DEBLUR_KERNELS = ("01", "02", "05"), (1, 3)
DEBLUR_PAPER = {2.55: 0.5, 7.65: 2.5}  # noise on the 0..255 scale: lam, at PAPER_SIGMA
PATCH, SCALES, SUPERRESOLUTION_KERNELS = 256, (2, 3), (0, 1, 2, 3)
SUPERRESOLUTION_PAPER = {2.55: 0.28, 7.65: 2.5, 12.75: 5.5}
PAPER_SIGMA = 15.0
ACCELERATION, CENTRE_FRACTION, KSPACE_NOISE = 4, 0.08, 0.002
ANGLES, CT_SIZE, SINOGRAM_NOISE = 60, 256, 0.01  # the noise relative to the largest value of the sinogram

PLAIN, TV, RULE, PAPER, BEST = "plain", "total variation", "DEAL", "DEAL, paper", "DEAL, best lam"
ROUGH_GAP, GAP = 1e-2, 1e-3  # of total variation: while its strength is looked for, and at last
NORM_MARGIN = 1.01  # power iterations give the norm of an operator from below
LONGEST_WALK = 20


@dataclass(frozen=True)
class Plan:
    """What is to be measured. Raises ValueError for what cannot be."""

    data: Path
    problems: tuple[str, ...]
    limit: int | None = None  # the first images of each problem only
    crop: int | None = None  # side of the square at the centre of the images
    kernels: tuple[int, ...] = ()  # empty: those of the protocol
    scales: tuple[int, ...] = SCALES
    noises: tuple[float, ...] = ()  # of deblurring and super-resolution; empty: those of the protocol
    device: str = "cpu"
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    threads: int | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        if not self.data.is_dir():
            raise ValueError(f"{self.data}: no such folder; give the one that holds test/ and kernels/")
        for name, least in (("limit", 1), ("crop", 32), ("max_iterations", 1), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name.replace('_', '-')} must be at least {least}, got {value}")
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"tolerance must be finite and above 0, got {self.tolerance:g}")
        for noise in self.noises:
            if not 0 < noise < math.inf:
                raise ValueError(f"noise must be finite and above 0, got {noise:g}")
        if min(self.scales) < 2:
            raise ValueError(f"scale must be at least 2, got {min(self.scales)}")


@dataclass(frozen=True)
class Case:
    """One image and what was measured of it, `(1, ...)` each."""

    image: str
    clean: Tensor
    operator: Operator
    y: Tensor
    noise: float  # standard deviation in the units of y, of the real and of the imaginary part
    plain: Tensor


@dataclass(frozen=True)
class Setting:
    """Images of one problem with one operator and one noise level."""

    problem: str
    name: str
    cases: list[Case]
    paper: tuple[float, float] | None = None  # sigma on the 0..255 scale and lam
    eight_bit: bool = False  # PSNR is taken of 8-bit images
    walk_from: int = 4  # where the search for the strength of total variation starts


@dataclass(frozen=True)
class Answer:
    """What a method made of one image."""

    image: str
    psnr: float
    seconds: float
    status: str | None = None  # None: there is no iteration
    iterations: int | None = None
    distance: float | None = None  # estimated, to the fixed point; for total variation the relative duality gap
    sigma: float | None = None  # on the 0..255 scale
    lam: float | None = None  # for total variation its strength


@dataclass(frozen=True)
class Row:
    """A method and its answers for all images of a setting."""

    method: str
    tuned: dict[str, float] | None  # what was chosen, and by how many trials
    answers: list[Answer]

    @property
    def psnr(self) -> float:
        """The mean."""
        return fmean(answer.psnr for answer in self.answers)


@dataclass(frozen=True)
class Result:
    """All methods for one setting."""

    problem: str
    setting: str
    rows: list[Row]

    def psnr(self, method: str) -> float | None:
        """The mean of a method; None where it was not run."""
        return next((row.psnr for row in self.rows if row.method == method), None)

    def gain(self, method: str, other: str) -> float | None:
        """How much better the one is, in dB."""
        first, second = self.psnr(method), self.psnr(other)
        return None if first is None or second is None else first - second


# ---------------------------------------------------------------- problems


def deblurring(plan: Plan) -> Iterator[Setting]:
    """Circular motion blur; the blurred image is rounded to 8 bits before noise is added."""
    model = _model("gray", plan.device)
    paths = [_named(plan.data / "test" / "Set12", name) for name in DEBLUR_IMAGES[: plan.limit]]
    kernels = _kernels(plan.data / "kernels" / "Levin09.npz", plan.kernels or DEBLUR_KERNELS)
    for number, kernel in kernels.items():
        for noise in plan.noises or DEBLUR_PAPER:
            cases = []
            for path in paths:
                clean = _tensor(read_clean(path, model, plan.crop))
                operator = Blur(kernel)
                blurred = (operator.forward(clean).clamp(0, 1) * 255).round() / 255
                y = blurred + _white_noise(blurred, noise)
                cases.append(Case(path.name, clean, operator, y, noise / 255, y))
            paper = (PAPER_SIGMA, DEBLUR_PAPER[noise]) if noise in DEBLUR_PAPER else None
            yield Setting("deblur", f"kernel {number}, noise {noise:g}", cases, paper, eight_bit=True)


def superresolution(plan: Plan) -> Iterator[Setting]:
    """Every s-th pixel of a colour image after a circular Gaussian blur."""
    model = _model("color", plan.device)
    paths = list_images(plan.data / "test" / "CBSD68")[: plan.limit]
    kernels = _kernels(plan.data / "kernels" / "kernels_12.npz", plan.kernels or SUPERRESOLUTION_KERNELS)
    for scale in plan.scales:
        size = (plan.crop or PATCH) // scale * scale
        for number, kernel in kernels.items():
            for noise in plan.noises or SUPERRESOLUTION_PAPER:
                cases = []
                for path in paths:
                    clean = _tensor(read_clean(path, model, size))
                    operator = Downsample(scale, kernel)
                    y = operator.forward(clean)
                    y = y + _white_noise(y, noise)
                    cases.append(Case(path.name, clean, operator, y, noise / 255, bicubic(y, scale)))
                paper = (PAPER_SIGMA, SUPERRESOLUTION_PAPER[noise]) if noise in SUPERRESOLUTION_PAPER else None
                yield Setting("superresolution", f"x {scale}, kernel {number}, noise {noise:g}", cases, paper)


def mri(plan: Plan) -> Iterator[Setting]:
    """Single-coil k-space of a real image, a fourth of its columns."""
    model = _model("gray", plan.device)
    cases = []
    for index, path in enumerate(list_images(plan.data / "test" / "MRI-knee")[: plan.limit]):
        clean = _tensor(read_clean(path, model, plan.crop))
        clean = clean / clean.max().clamp_min(1 / 255)
        columns = random_columns(clean.shape[-1], np.random.RandomState(index))
        operator = Fourier(torch.from_numpy(columns).expand(clean.shape[-2:]))
        draws = np.random.RandomState(0).normal(0, KSPACE_NOISE, (2, *clean.shape)).astype(np.float32)
        y = operator.forward(clean + 0j) + operator._sampled(torch.complex(*torch.from_numpy(draws)))
        cases.append(Case(path.name, clean, operator, y, KSPACE_NOISE, operator.adjoint(y)))
    name = f"{ACCELERATION} x, centre {CENTRE_FRACTION:g}, noise {KSPACE_NOISE:g}"
    yield Setting("mri", name, cases, walk_from=14)


def ct(plan: Plan) -> Iterator[Setting]:
    """Parallel-beam projections of chest slices, reduced to about `CT_SIZE` by averaging pixels."""
    model = _model("gray", plan.device)
    angles = np.arange(ANGLES) * (180 / ANGLES)
    matrix = cache(lambda size: RadonMatrix(Radon(angles, size)))  # images of one size share it
    cases = []
    for path in list_images(plan.data / "test" / "CT")[: plan.limit]:
        clean = _tensor(_reduced(read_clean(path, model), plan.crop, path))
        operator = matrix(tuple(clean.shape[-2:]))
        y = operator.forward(clean)
        noise = SINOGRAM_NOISE * float(y.max())
        y = y + torch.from_numpy(np.random.RandomState(0).normal(0, noise, tuple(y.shape)).astype(np.float32))
        cases.append(Case(path.name, clean, operator, y, noise, filtered_backprojection(y, angles, clean)))
    yield Setting("ct", f"{ANGLES} angles, noise {SINOGRAM_NOISE:.0%} of the maximum", cases, walk_from=6)


PROBLEMS: dict[str, Callable[[Plan], Iterator[Setting]]] = {
    "deblur": deblurring,
    "superresolution": superresolution,
    "mri": mri,
    "ct": ct,
}


def bicubic(y: Tensor, scale: int) -> Tensor:
    """Bicubic interpolation (Keys) with pixel (i, j) of y at (scale * i, scale * j), where it was taken."""
    rows, columns = (_cubic_weights(length, scale).to(y) for length in y.shape[-2:])
    return rows @ y @ columns.T


def _cubic_weights(length: int, scale: int) -> Tensor:
    """`(scale * length, length)`; beyond the border the last pixel is repeated."""
    nearby = torch.arange(-2, length + 2)
    distance = (torch.arange(scale * length)[:, None] / scale - nearby).abs()
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    return torch.zeros(scale * length, length).index_add(1, nearby.clamp(0, length - 1), weights)


def random_columns(width: int, generator: np.random.RandomState) -> np.ndarray:
    """Which columns are sampled: those at the centre, the others at random, a fourth of all in the mean (fastMRI)."""
    centre = round(CENTRE_FRACTION * width)
    share = (width / ACCELERATION - centre) / (width - centre)
    columns = generator.uniform(size=width) < share
    first = (width - centre + 1) // 2
    columns[first : first + centre] = True
    return columns


def filtered_backprojection(y: Tensor, angles: np.ndarray, clean: Tensor) -> Tensor:
    """By scikit-image, with its ramp filter."""
    transform = optional("skimage.transform", "filtered back-projection", "demo")
    sinogram = y[0, 0].double().numpy().T
    image = transform.iradon(sinogram, angles, output_size=clean.shape[-1], filter_name="ramp", circle=False)
    return torch.from_numpy(image).float()[None, None]


def _kernels(path: Path, numbers: Sequence[int]) -> dict[int, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; it should hold the blur kernels k0, k1, ...")
    try:
        with np.load(path) as archive:
            missing = [number for number in numbers if f"k{number}" not in archive]
            if missing:
                raise ValueError(f"{path}: there is no kernel {missing[0]}")
            return {number: archive[f"k{number}"].astype(np.float32) for number in numbers}
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


def _named(folder: Path, name: str) -> Path:
    for path in list_images(folder):
        if path.stem == name:
            return path
    raise ValueError(f"{folder}: there is no image {name}")


def _reduced(clean: np.ndarray, crop: int | None, path: Path) -> np.ndarray:
    """The square at the centre, pixels averaged in blocks so that about `CT_SIZE` are left on a side."""
    block = max(1, min(clean.shape) // CT_SIZE)
    side = crop or min(clean.shape) // block
    if side * block > min(clean.shape):
        raise ValueError(f"{path}: the image is {clean.shape[0]} x {clean.shape[1]}, too small for --crop {crop}")
    top, left = ((length - side * block) // 2 for length in clean.shape)
    square = clean[top : top + side * block, left : left + side * block]
    return square.reshape(side, block, side, block).mean((1, 3))


def _tensor(image: np.ndarray) -> Tensor:
    pixels = torch.from_numpy(np.ascontiguousarray(image)).float()
    return pixels[None, None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)[None].contiguous()


def _white_noise(like: Tensor, sigma: float) -> Tensor:
    """That of the protocol: drawn anew for every image, in the order rows, columns, colours."""
    channels, height, width = like.shape[1:]
    return _tensor(draw_noise((height, width) if channels == 1 else (height, width, channels), sigma))


# ---------------------------------------------------------------- methods


def compare(setting: Setting, plan: Plan, say: Say) -> Result:
    """All methods on one setting."""
    model = _model("color" if setting.cases[0].clean.shape[1] == 3 else "gray", plan.device)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        say(_describe(setting, row))

    add(Row(PLAIN, None, [_answer(setting, case, case.plain, 0.0) for case in setting.cases]))
    add(_tuned_total_variation(setting, plan))
    rule = [_rule_parameters(model, case, plan.device) for case in setting.cases]
    solve = partial(_deal, setting, model, plan)
    by_rule = [solve(case, *parameters) for case, parameters in zip(setting.cases, rule, strict=True)]
    add(Row(RULE, None, [answer for answer, _ in by_rule]))
    if setting.paper:
        add(Row(PAPER, None, [solve(case, *setting.paper)[0] for case in setting.cases]))
    add(_tuned_deal(setting, solve, rule, by_rule))
    return Result(setting.problem, setting.name, rows)


def walk_uphill(score: Callable[[int], float], start: int, stride: int) -> int:
    """The place of the best score on a grid of whole numbers, for scores with one peak."""
    here = start
    for _ in range(LONGEST_WALK):
        best = max((here, here - stride, here + stride), key=score)
        if best == here:
            break
        here = best
    return here


def _tuned_total_variation(setting: Setting, plan: Plan) -> Row:
    """Strengths are `2^(k/2) noise^2`, with the k that is best for the mean over the images."""
    norms = [NORM_MARGIN * case.operator.norm(tuple(case.clean.shape[1:]), iterations=30) for case in setting.cases]
    latest = [case.plain for case in setting.cases]  # where the next strength starts

    def answers(k: int, gap: float) -> list[Answer]:
        found = []
        for index, case in enumerate(setting.cases):
            strength = 2 ** (k / 2) * case.noise**2
            started = time.perf_counter()
            minimiser = minimise_total_variation(
                case.y.to(plan.device),
                case.operator.to(plan.device),
                strength,
                norm=norms[index],
                start=latest[index].to(plan.device),
                tolerance=gap,
            )
            latest[index] = minimiser.x.cpu()
            status = (Status.CONVERGED if minimiser.converged else Status.MAX_ITERATIONS).name
            details = {"status": status, "iterations": minimiser.iterations, "distance": known(minimiser.gap)}
            seconds = time.perf_counter() - started
            found.append(_answer(setting, case, latest[index], seconds, **details, lam=strength))
        return found

    @cache
    def score(k: int) -> float:
        return fmean(answer.psnr for answer in answers(k, ROUGH_GAP))

    k = walk_uphill(score, walk_uphill(score, setting.walk_from, 2), 1)
    tuned = {"strength / noise^2": 2 ** (k / 2), "trials": score.cache_info().currsize}
    return Row(TV, tuned, answers(k, GAP))


def _rule_parameters(model: DEAL, case: Case, device: str) -> tuple[float, float]:
    """Sigma on the 0..255 scale and lam, as `reconstruct` takes them from the noise."""
    like = case.clean.to(device)
    noise = torch.tensor([case.noise * 255], device=device)
    with torch.no_grad():
        sigma, lam = default_parameters(model.weights(), case.operator.to(device), like, noise)
    return float(sigma), float(lam)


def _tuned_deal(setting: Setting, solve: Callable, rule: list, by_rule: list[tuple[Answer, Tensor]]) -> Row:
    """`2^k` times the lam of the rule, with the k that is best for the mean over the images."""
    starts = [x for _, x in by_rule]
    tried = {0: [answer for answer, _ in by_rule]}

    def score(k: int) -> float:
        if k not in tried:
            each = zip(setting.cases, rule, starts, strict=True)
            tried[k] = [solve(case, sigma, 2.0**k * lam, start=start)[0] for case, (sigma, lam), start in each]
        return fmean(answer.psnr for answer in tried[k])

    k = walk_uphill(score, 0, 1)
    return Row(BEST, {"lam / lam of the rule": 2.0**k, "trials": len(tried)}, tried[k])


def _deal(
    setting: Setting, model: DEAL, plan: Plan, case: Case, sigma: float, lam: float, start: Tensor | None = None
) -> tuple[Answer, Tensor]:
    started = time.perf_counter()
    solution = reconstruct(
        case.y,
        case.operator,
        model=model,
        sigma=sigma / 255,
        lam=lam,
        start=start,
        data_range=1.0,  # of the images; small ones could seem to have another
        tolerance=plan.tolerance,
        max_iterations=plan.max_iterations,
    )
    x = solution.x.cpu()
    answer = _answer(
        setting,
        case,
        x,
        time.perf_counter() - started,
        status=solution.status.name,
        iterations=int(solution.iterations.max()),
        distance=known(float(solution.distance.max())),
        sigma=sigma,
        lam=lam,
    )
    return answer, x


def _answer(setting: Setting, case: Case, x: Tensor, seconds: float, **details: Any) -> Answer:
    return Answer(case.image, psnr(x, case.clean, setting.eight_bit), seconds, **details)


def psnr(x: Tensor, clean: Tensor, eight_bit: bool = False) -> float:
    """Of images in 0..1, clipped; after rounding to 8 bits if asked for."""
    x = x.double().clamp(0, 1)
    x = (x * 255).round() / 255 if eight_bit else x
    return -10 * math.log10(float((x - clean.double()).square().mean()))


@cache
def _model(name: str, device: str) -> DEAL:
    return load(name, device=device)


# ---------------------------------------------------------------- the command


def measure(plan: Plan, say: Say, save: Callable[[list[Result], dict[str, Any]], None]) -> tuple[list[Result], dict]:
    """Run the plan.

    Args:
        plan: what to measure.
        say: takes a line about each method of each setting.
        save: called with the results so far, and what they were measured with, after each setting.
    """
    started = time.perf_counter()
    if plan.threads:
        torch.set_num_threads(plan.threads)
    results, conditions = [], _conditions(plan)
    for problem in plan.problems:
        for setting in PROBLEMS[problem](plan):
            results.append(compare(setting, plan, lambda line: say(f"[{time.perf_counter() - started:7.1f} s] {line}")))
            save(results, conditions)
    return results, conditions


def table(results: list[Result]) -> str:
    """Markdown: mean PSNR of each method, and how DEAL by the rule ran."""
    head = [
        "problem",
        "setting",
        "images",
        *(PLAIN, TV, RULE, PAPER, BEST),
        "- plain",
        "- TV",
        "converged",
        "iterations",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        answers = next(row.answers for row in result.rows if row.method == RULE)
        converged = sum(answer.status == Status.CONVERGED.name for answer in answers)
        iterations = [answer.iterations or 0 for answer in answers]
        cells = [result.problem, result.setting, str(len(answers))]
        cells += [_decibels(result.psnr(method)) for method in (PLAIN, TV, RULE, PAPER, BEST)]
        cells += [_decibels(result.gain(RULE, PLAIN), "+"), _decibels(result.gain(RULE, TV), "+")]
        cells += [f"{converged} of {len(answers)}", _span(iterations)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def to_json(results: list[Result], conditions: dict[str, Any]) -> str:
    """Everything that was measured, with the means and the differences in dB."""
    content = [
        {
            "problem": result.problem,
            "setting": result.setting,
            "rows": [{**asdict(row), "psnr": row.psnr} for row in result.rows],
            "gain_over_plain": result.gain(RULE, PLAIN),
            "gain_over_total_variation": result.gain(RULE, TV),
            "loss_of_the_rule": result.gain(BEST, RULE),
        }
        for result in results
    ]
    return json.dumps(finite({"format": FORMAT, "settings": conditions, "results": content}), indent=1)


def _conditions(plan: Plan) -> dict[str, Any]:
    names = ["color" if problem == "superresolution" else "gray" for problem in plan.problems]
    return {
        **environment(plan.device),
        "threads": plan.threads or torch.get_num_threads(),
        "weights": {name: weights_checksum(name) for name in sorted(set(names))},
        "problems": list(plan.problems),
        "limit": plan.limit,
        "crop": plan.crop,
        "kernels": list(plan.kernels) or "of the protocol",
        "scales": list(plan.scales),
        "noises": list(plan.noises) or "of the protocol",
        "tolerance": plan.tolerance,
        "max_iterations": plan.max_iterations,
        "total_variation": {"gap": GAP, "gap_while_tuning": ROUGH_GAP, "grid": "2^(k/2) noise^2", "box": [0, 1]},
        "best_lam": "2^k times that of the rule, from the answer of the rule, at its sigma",
    }


def _describe(setting: Setting, row: Row) -> str:
    tuned = "".join(f", {name} {value:g}" for name, value in (row.tuned or {}).items())
    each = ", ".join(f"{answer.psnr:.2f}{_ending(answer)}" for answer in row.answers)
    return f"{setting.problem}, {setting.name}, {row.method}{tuned}: {row.psnr:.2f} dB ({each})"


def _ending(answer: Answer) -> str:
    if answer.status is None:
        return ""
    known_sigma = "" if answer.sigma is None else f" sigma {answer.sigma:.3g}"
    status = "" if answer.status == Status.CONVERGED.name else f" {answer.status}"
    return f" [{answer.iterations} iterations{status}, {answer.seconds:.1f} s{known_sigma} lam {answer.lam:.3g}]"


def _decibels(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.2f}"


def _span(counts: list[int]) -> str:
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """DEAL beside a plain inversion and total variation: deblurring, super-resolution, MRI, CT."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.inverse", description=main.__doc__)
    parser.add_argument("data", type=Path, help="the folder that holds test/ and kernels/")
    parser.add_argument("--problem", choices=(*PROBLEMS, "all"), default="all")
    parser.add_argument("--limit", type=int, help="the first images of each problem only")
    parser.add_argument("--crop", type=int, help="side of the square at the centre of the images")
    parser.add_argument("--kernel", type=int, action="append", default=[], help="those of the protocol by default")
    parser.add_argument(
        "--scale", type=int, action="append", default=[], help="of super-resolution: 2 and 3 by default"
    )
    parser.add_argument("--noise", type=float, action="append", default=[], help="0..255; deblurring, super-resolution")
    parser.add_argument("--device", choices=("cpu", "cuda", "mps"), default="cpu")
    parser.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE)
    parser.add_argument("--max-iterations", type=int, default=DEFAULT_MAX_ITERATIONS)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        plan = Plan(
            data=given.data,
            problems=tuple(PROBLEMS) if given.problem == "all" else (given.problem,),
            limit=given.limit,
            crop=given.crop,
            kernels=tuple(given.kernel),
            scales=tuple(given.scale or SCALES),
            noises=tuple(given.noise),
            device=given.device,
            tolerance=given.tolerance,
            max_iterations=given.max_iterations,
            threads=given.threads,
        )
        check_output(given.json)
        results, _ = measure(
            plan,
            say=lambda line: print(line, flush=True),
            save=lambda results, conditions: write_text(given.json, to_json(results, conditions)),
        )
        print(table(results))
    except (files.ImageFileError, ImportError, ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        print(f"Interrupted: the settings that were finished are in {given.json}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
