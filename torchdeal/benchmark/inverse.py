"""Deblurring, super-resolution, MRI and CT: DEAL beside a plain inversion and total variation, on simulated data.

The problems are in `problems.py`. Each setting, a kernel and a noise level, say, has the same rows, with the PSNR of
every image:

- the plain answer: the blurred image, bicubic interpolation, zero-filling, filtered back-projection;
- total variation, its strength tuned on these very images: more than a user could do;
- DEAL by the rule, that is `reconstruct(y, H, noise=...)`, without any tuning;
- DEAL with sigma and lam of the paper, where it states them;
- DEAL with its lam tuned as that of total variation is, at the sigma of the rule: what the rule loses.

`python -m torchdeal.benchmark.inverse DATA --problem deblur --save out.json` reads `DATA/test/{Set12, CBSD68, MRI-knee,
CT}` and `DATA/kernels/{Levin09, kernels_12}.npz`. It needs torch, numpy and Pillow, and for CT scikit-image.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from statistics import fmean
from typing import Any

from torch import Tensor

from torchdeal.benchmark.frame import Benchmark, Say, Table, known, run_details
from torchdeal.benchmark.plan import Settings
from torchdeal.benchmark.problems import PROBLEMS, Case, InversePlan, Setting, bundled_model, rule_parameters
from torchdeal.benchmark.total_variation import minimise_total_variation
from torchdeal.io.checkpoint import checksum, default_weights
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Status

PLAIN, TV, RULE, PAPER, BEST = METHODS = "plain", "total variation", "DEAL", "DEAL, paper", "DEAL, best lam"
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

    def __str__(self) -> str:
        if self.status is None:
            return f"{self.psnr:.2f}"
        sigma = "" if self.sigma is None else f" sigma {self.sigma:.3g}"
        status = "" if self.status == Status.CONVERGED.name else f" {self.status}"
        run = f"{self.iterations} iterations{status}, {self.seconds:.1f} s{sigma} lam {self.lam:.3g}"
        return f"{self.psnr:.2f} [{run}]"


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

    def __str__(self) -> str:
        tuned = "".join(f", {name} {value:g}" for name, value in (self.tuned or {}).items())
        return f"{self.method}{tuned}: {self.psnr:.2f} dB ({', '.join(map(str, self.answers))})"


@dataclass(frozen=True)
class Comparison:
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


def measure(plan: InversePlan, say: Say) -> Iterator[list[Comparison]]:
    """One setting after the other."""
    for problem in plan.problems:
        next(PROBLEMS[problem](plan))  # what cannot be read ends the run now, not after an hour
    results: list[Comparison] = []
    for problem in plan.problems:
        for setting in PROBLEMS[problem](plan):
            results.append(Comparison(problem, setting.name, []))
            for row in compare(setting, plan):
                results[-1].rows.append(row)
                say(f"{problem}, {setting.name}, {row}")
            yield results


def compare(setting: Setting, plan: InversePlan) -> Iterator[Row]:
    """All methods on one setting."""
    cases = setting.cases
    model = bundled_model(default_weights(cases[0].clean.shape[1], False), plan.device)
    yield Row(PLAIN, None, [_answer(setting, case, case.plain, 0.0) for case in cases])
    if plan.tuned:
        yield _tuned_total_variation(setting, plan)
    rule = [(float(sigma), float(lam)) for sigma, lam in (rule_parameters(model, case) for case in cases)]
    solve = partial(_deal, setting, model, plan)
    by_rule = [solve(case, *parameters) for case, parameters in zip(cases, rule, strict=True)]
    yield Row(RULE, None, [answer for answer, _ in by_rule])
    if setting.paper:
        yield Row(PAPER, None, [solve(case, *setting.paper)[0] for case in cases])
    if plan.tuned:
        yield _tuned_deal(setting, solve, rule, by_rule)


def walk_uphill(score: Callable[[int], float], start: int, stride: int) -> int:
    """The place of the best score on a grid of whole numbers, for scores with one peak."""
    here = start
    for _ in range(LONGEST_WALK):
        best = max((here, here - stride, here + stride), key=score)
        if best == here:
            break
        here = best
    return here


def _tuned_total_variation(setting: Setting, plan: InversePlan) -> Row:
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
            details = {
                "status": status,
                "iterations": int(minimiser.iterations),
                "distance": known(float(minimiser.gap)),
            }
            seconds = time.perf_counter() - started
            found.append(_answer(setting, case, latest[index], seconds, **details, lam=strength))
        return found

    @cache
    def score(k: int) -> float:
        return fmean(answer.psnr for answer in answers(k, ROUGH_GAP))

    k = walk_uphill(score, walk_uphill(score, setting.walk_from, 2), 1)
    tuned = {"strength / noise^2": 2 ** (k / 2), "trials": score.cache_info().currsize}
    return Row(TV, tuned, answers(k, GAP))


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
    setting: Setting, model: DEAL, plan: InversePlan, case: Case, sigma: float, lam: float, start: Tensor | None = None
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
    seconds = time.perf_counter() - started
    return _answer(setting, case, x, seconds, sigma=sigma, lam=lam, **run_details(solution)), x


def _answer(setting: Setting, case: Case, x: Tensor, seconds: float, **details: Any) -> Answer:
    return Answer(case.image, psnr(x, case.clean, eight_bit=setting.eight_bit), seconds, **details)


def show(results: list[Comparison], settings: Settings) -> Iterator[Table]:
    """Mean PSNR of each method, and how DEAL by the rule ran."""
    head = ["problem", "setting", "images", *METHODS, "- plain", "- TV", "converged", "iterations"]
    yield Table(head, [_cells(result) for result in results])


def _cells(result: Comparison) -> list[str]:
    answers = next(row.answers for row in result.rows if row.method == RULE)
    converged = sum(answer.status == Status.CONVERGED.name for answer in answers)
    counts = sorted({answer.iterations or 0 for answer in answers})
    levels = [result.psnr(method) for method in METHODS]
    gains = [result.gain(RULE, PLAIN), result.gain(RULE, TV)]
    return [
        *(result.problem, result.setting, str(len(answers))),
        *("" if level is None else f"{level:.2f}" for level in levels),
        *("" if gain is None else f"{gain:+.2f}" for gain in gains),
        f"{converged} of {len(answers)}",
        " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
    ]


def _derive(result: Comparison) -> dict[str, Any]:
    """The means and the differences in dB."""
    return {
        "rows": [asdict(row) | {"psnr": row.psnr} for row in result.rows],
        "gain_over_plain": result.gain(RULE, PLAIN),
        "gain_over_total_variation": result.gain(RULE, TV),
        "loss_of_the_rule": result.gain(BEST, RULE),
    }


def _settings(plan: InversePlan) -> Settings:
    names = {"color" if problem == "superresolution" else "gray" for problem in plan.problems}
    return {
        "weights": {name: checksum(name) for name in sorted(names)},
        "problems": plan.problems,
        "kernels": plan.kernels or "of the protocol",
        "noises": plan.noises or "of the protocol",
        "total_variation": {"gap": GAP, "gap_while_tuning": ROUGH_GAP, "grid": "2^(k/2) noise^2", "box": [0, 1]},
        "best_lam": "2^k times that of the rule, from the answer of the rule, at its sigma",
    }


BENCHMARK = Benchmark("inverse", InversePlan, Comparison, measure, _settings, show, units="settings", derive=_derive)

if __name__ == "__main__":
    BENCHMARK.main()
