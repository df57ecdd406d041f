"""Deblurring, super-resolution, MRI and CT: DEAL beside a plain inversion and total variation, on simulated data.

The problems are in `problems.py`. Each setting, a kernel and a noise level, say, has the same rows, with the PSNR of
every image:

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
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.common import (
    Say,
    check_output,
    environment,
    finite,
    known,
    one_line_errors,
    weights_checksum,
    write_text,
)
from torchdeal.benchmark.problems import (
    PROBLEMS,
    SCALES,
    Case,
    Plan,
    Setting,
    bundled_model,
    psnr,
    rule_parameters,
)
from torchdeal.benchmark.total_variation import minimise_total_variation
from torchdeal.model import DEAL
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.solvers import Status

FORMAT = "torchdeal-benchmark-inverse-1"
PLAIN, TV, RULE, PAPER, BEST = "plain", "total variation", "DEAL", "DEAL, paper", "DEAL, best lam"
ROUGH_GAP, GAP = 1e-2, 1e-3  # of total variation: while its strength is looked for, and at last
NORM_MARGIN = 1.01  # power iterations give the norm of an operator from below
LONGEST_WALK = 20


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


def compare(setting: Setting, plan: Plan, say: Say) -> Result:
    """All methods on one setting."""
    model = bundled_model("color" if setting.cases[0].clean.shape[1] == 3 else "gray", plan.device)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        say(_describe(setting, row))

    add(Row(PLAIN, None, [_answer(setting, case, case.plain, 0.0) for case in setting.cases]))
    if plan.tuned:
        add(_tuned_total_variation(setting, plan))
    rule = [_as_numbers(*rule_parameters(model, case)) for case in setting.cases]
    solve = partial(_deal, setting, model, plan)
    by_rule = [solve(case, *parameters) for case, parameters in zip(setting.cases, rule, strict=True)]
    add(Row(RULE, None, [answer for answer, _ in by_rule]))
    if setting.paper:
        add(Row(PAPER, None, [solve(case, *setting.paper)[0] for case in setting.cases]))
    if plan.tuned:
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


def _as_numbers(sigma: Tensor, lam: Tensor) -> tuple[float, float]:
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
        next(PROBLEMS[problem](plan))  # what cannot be read ends the run now, not after an hour
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE)
    parser.add_argument("--max-iterations", type=int, default=DEFAULT_MAX_ITERATIONS)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--untuned", action="store_true", help="without total variation and the best lam: much quicker")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    with one_line_errors(given.json, "settings"):
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
            tuned=not given.untuned,
        )
        check_output(given.json)
        results, _ = measure(
            plan,
            say=lambda line: print(line, flush=True),
            save=lambda results, conditions: write_text(given.json, to_json(results, conditions)),
        )
        print(table(results))


if __name__ == "__main__":
    main()
