"""Robustness: what happens where something is not as assumed.

Other starts, perturbed measurements, a wrong noise level, more iterations, operators that are slightly wrong. The
problems are those of the other experiments, a few images each. A wrong noise level and a wrong operator are tried with
some competitors, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from torchdeal.benchmark.core import (
    DENOISING,
    Cell,
    Method,
    PosedProblem,
    Save,
    Say,
    answers,
    batches,
    joined,
    run_values,
)
from torchdeal.benchmark.methods import find_method, with_parameters
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.tables import Section
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.benchmark.robustness.mistakes import Mistake
from torchdeal.benchmark.robustness.questions import (
    NOISES,
    PERTURBED,
    RIGHT,
    START,
    STARTS,
    STRICT,
    WORST,
    robustness_sections,
)
from torchdeal.benchmark.robustness.scenarios import (
    PERTURBATION,
    SETTINGS,
    Setting,
    Trial,
    perturbation,
    starting_point,
)
from torchdeal.benchmark.tuning import known_parameters
from torchdeal.derivative import Derivative, Gains, largest_gains
from torchdeal.precision import full_precision
from torchdeal.reconstruct import reconstruct
from torchdeal.solvers import Progress

OURS, COMPETITORS, QUICK_COMPETITORS = "deal", ("tv", "wcrr", "pnp-dncnn"), ("tv",)
START_TOLERANCE, STRICT_TOLERANCE = 1e-4, 1e-5
QUICK_START_TOLERANCE, QUICK_STRICT_TOLERANCE = 1e-3, 1e-4
DRAWS, QUICK_DRAWS = (1, 2), (1,)  # seeds: with 0 a perturbation would be the noise itself
LANCZOS_STEPS, BOUNDED = 8, 1  # the bound is computed for so many images of a problem
MOST_PIXELS = {"cpu": 40 * 40, "cuda": 2**22}  # of images whose bound is computed: it takes a thousand linear solves
PROTOCOL = (
    "The first images of the other experiments. Starts: solved to 1e-4 (with --quick 1e-3). Perturbations and more "
    "iterations: to 1e-5 (with --quick 1e-4). All other runs: to --tolerance. Starts are drawn by "
    "numpy.random.RandomState(0), as the noise is, perturbations by the seeds 1 and 2. Parameters of each method are "
    "those of the other experiments."
)


@dataclass(frozen=True)
class Found:
    """What a run of ours ended with, and how it got there."""

    x: Tensor
    values: Values
    levels: list[float]  # PSNR after each iteration


class Robustness:
    """The experiment: every setting, every question, one after the other."""

    about = "What happens where something is not as assumed."

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        names = ("quick", "limit", "tolerance", "max_iterations")
        return {"protocol": PROTOCOL, **{name: getattr(options, name) for name in names}}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        names = options.chosen([setting.name for setting in SETTINGS])
        chosen = [setting for setting in SETTINGS if setting.name in names]
        if not chosen:
            raise ValueError(f"there is no such cell; choose from {'; '.join(one.name for one in SETTINGS)}")
        for setting in chosen:
            results.cells[setting.name] = {"table": "Robustness", "column": setting.name}
            with warnings.catch_warnings():
                # 30 % more than sigma 50 is beyond the training, on purpose
                warnings.simplefilter("ignore", UserWarning)
                Asking(setting, setting.cell(options), options, results, save, say).run()

    def sections(self, results: Results) -> Iterator[Section]:
        """A table for each question."""
        return robustness_sections(results)


@dataclass
class Asking:
    """One setting: its questions to ours and to the competitors."""

    setting: Setting
    cell: Cell
    options: BenchmarkOptions
    results: Results
    save: Save
    say: Say
    bounded: Sequence[str] = ()  # images for which the bound is computed

    def run(self) -> None:
        """Whatever is missing."""
        problems = self.cell.problems()
        self.bounded = [problem.image for problem in problems[:BOUNDED]]
        competitors = QUICK_COMPETITORS if self.options.quick else COMPETITORS
        for name in self.options.methods or (OURS, *competitors):
            try:
                method = self._method(name)
                self._compare(name, method, problems)
                if name == OURS and self.setting.all_questions:
                    self._ask_ours(method, problems)
            except Unavailable as error:
                self.results.reasons.setdefault(self.cell.name, {})[name] = str(error)
                self.say(f"{self.cell.name}, {name}: {error}")
                self.save()

    def _method(self, name: str) -> Method:
        method = find_method(name, self.cell, self.options)
        self.results.weights.setdefault(name, {}).update(getattr(method, "weights", {}))
        known = known_parameters(self.setting.experiment, self.cell.tuned_as, name, method)
        self.results.parameters.setdefault(self.cell.name, {}).update(known)
        return with_parameters(method, known.get(name, {}))

    def _missing(self, name: str, image: str, variants: Sequence[str]) -> list[str]:
        measured = {row.variant for row in self.results.select(self.cell.name, name) if row.image == image}
        return [variant for variant in variants if variant not in measured]

    def _add(self, name: str, image: str, variant: str, values: Values) -> None:
        if self._missing(name, image, [variant]):
            place = len(self.results.environments) - 1
            self.results.add(Row(self.cell.name, image, name, values, variant, place))
            shown = ", ".join(
                f"{key} {value:.4g}" for key, value in values.items() if key in ("psnr", "ratio", "apart")
            )
            self.say(f"{self.cell.name}, {name}, {image}, {variant}: {shown}")

    # The wrong noise level and the wrong operator: any method.

    def _compare(self, name: str, method: Method, problems: Sequence[PosedProblem]) -> None:
        refused: Unavailable | None = None
        wrong = _remembered(self.setting.mistakes)
        trials = [trial for problem in problems for trial in self._trials(name, problem, wrong)]
        for batch in batches(trials, self.options.device):
            try:
                found = answers(method, batch, self.cell, self.options.device)
            except Unavailable as error:  # for this noise level, say
                refused = refused or error
                continue
            for trial, (x, values) in zip(batch, found, strict=True):
                self._add(name, trial.image, trial.variant, {"psnr": self.cell.score(x, trial.clean), **values})
            self.save()
        if refused:
            raise refused

    def _trials(self, name: str, problem: PosedProblem, wrong: Callable[[str, PosedProblem], Any]) -> Iterator[Trial]:
        noises = NOISES if self.setting.all_questions else {}
        for variant in self._missing(name, problem.image, [RIGHT, *noises, *self.setting.mistakes]):
            if variant in noises:
                yield Trial.of(problem, variant, noise=noises[variant] * problem.noise)
            elif variant in self.setting.mistakes:
                yield Trial.of(problem, variant, operator=wrong(variant, problem))
            else:
                yield Trial.of(problem, variant)

    # Starts, perturbations, more iterations: ours alone.

    def _ask_ours(self, method: Method, problems: Sequence[PosedProblem]) -> None:
        starts = [f"{START}{start}" for start in STARTS]
        strict = [STRICT, *(f"{PERTURBED}{draw}" for draw in self._draws)]
        for variants, ask in ((starts, self._starts), (strict, self._perturb)):
            left = [problem for problem in problems if self._missing(OURS, problem.image, variants)]
            for batch in batches(left, self.options.device):
                ask(method, batch)
                self.save()

    @property
    def _draws(self) -> tuple[int, ...]:
        return QUICK_DRAWS if self.options.quick else DRAWS

    def _starts(self, method: Method, batch: Sequence[PosedProblem]) -> None:
        trials = [Trial.of(p, f"{START}{start}", start=starting_point(start, p)) for p in batch for start in STARTS]
        tolerance = QUICK_START_TOLERANCE if self.options.quick else START_TOLERANCE
        found = self._solved(method, trials, tolerance)
        for trial in trials:
            one, zero = found[trial.image, trial.variant], found[trial.image, f"{START}{STARTS[0]}"]
            apart = float((one.x - zero.x).norm() / zero.x.norm())
            self._add(OURS, trial.image, trial.variant, {**one.values, "apart": apart})

    def _perturb(self, method: Method, batch: Sequence[PosedProblem]) -> None:
        trials = [Trial.of(problem, STRICT) for problem in batch]
        trials += [
            Trial.of(problem, f"{PERTURBED}{draw}", y=problem.y + perturbation(problem.y, draw))
            for problem in batch
            for draw in self._draws
        ]
        tolerance = QUICK_STRICT_TOLERANCE if self.options.quick else STRICT_TOLERANCE
        found = self._solved(method, trials, tolerance)
        bounded = [problem for problem in batch if problem.image in self.bounded]
        if bounded and bounded[0].clean[0, 0].numel() <= MOST_PIXELS[self.options.device]:
            gains = self._gains(method, bounded, [found[problem.image, STRICT].x for problem in bounded])
            worst = [
                Trial.of(problem, WORST, y=problem.y + PERTURBATION * problem.y.norm() * direction[None].cpu())
                for problem, direction in zip(bounded, gains.direction, strict=True)
            ]
            found |= self._solved(method, worst, tolerance)
            trials += worst
            for problem, frozen, total in zip(bounded, gains.frozen.tolist(), gains.total.tolist(), strict=True):
                found[problem.image, STRICT].values.update(frozen_gain=frozen, gain=total)
        originals = {problem.image: problem for problem in batch}
        for trial in trials:
            one, original = found[trial.image, trial.variant], found[trial.image, STRICT]
            values = {**one.values, **_along_the_path(one.levels)}
            if trial.variant != STRICT:
                moved = (trial.y - originals[trial.image].y).norm()
                values = {**one.values, "ratio": float((one.x - original.x).norm() / moved)}
            self._add(OURS, trial.image, trial.variant, values)

    def _gains(self, method: Method, batch: Sequence[PosedProblem], answers: list[Tensor]) -> Gains:
        device = self.options.device
        y, operator = joined(batch)
        y, operator, weights = y.to(device), operator.to(device), method.model.weights()
        knobs = self._knobs(method, y, operator, batch[0].noise)
        sigma = torch.full((len(batch),), 255 * knobs["sigma"], device=device)
        lam = knobs["lam"].view(-1, 1, 1, 1) if "lam" in knobs else weights.lam(sigma)
        with torch.no_grad(), full_precision(y.device):
            x = torch.cat(answers).to(device)
            return largest_gains(Derivative.at(x, weights, operator, sigma, lam), LANCZOS_STEPS)

    def _knobs(self, method: Method, y: Tensor, operator: Any, noise: float) -> dict[str, Any]:
        if self.cell.kind == DENOISING:
            return {"sigma": noise}
        return {"sigma": method.sigma / 255, "lam": method.strength * method.rule_lam(y, operator, noise)}

    def _solved(self, method: Method, trials: Sequence[Trial], tolerance: float) -> dict[tuple[str, str], Found]:
        """By image and variant."""
        found: dict[tuple[str, str], Found] = {}
        for batch in batches(trials, self.options.device):
            y, operator = joined(batch)
            y, operator = y.to(self.options.device), operator.to(self.options.device)
            levels: list[list[float]] = [[] for _ in batch]

            def listen(progress: Progress, batch: Sequence[PosedProblem] = batch, levels: list = levels) -> None:
                for trial, x, path in zip(batch, progress.x.cpu().split(1), levels, strict=True):
                    if trial.variant == STRICT:
                        path.append(self.cell.score(x, trial.clean))

            solution = reconstruct(
                y,
                operator,
                model=method.model,
                data_range=1.0,
                tolerance=tolerance,
                max_iterations=self.options.max_iterations,
                start=torch.cat([_start(trial) for trial in batch]).to(y.device),
                callback=listen,
                **self._knobs(method, y, operator, batch[0].noise),
            )
            each = zip(
                batch, solution.x.cpu().split(1), run_values(solution), solution.contraction, levels, strict=True
            )
            for trial, x, values, contraction, path in each:
                values = {"psnr": self.cell.score(x, trial.clean), **values, "contraction": float(contraction)}
                found[trial.image, trial.variant] = Found(x, values, path)
        return found


def _start(trial: Trial | PosedProblem) -> Tensor:
    start = getattr(trial, "start", None)
    return torch.zeros_like(trial.clean) if start is None else start


def _along_the_path(levels: list[float]) -> Values:
    """The best PSNR on the way, and the most that is lost after a better one."""
    if not levels:
        return {}
    peaks = accumulate(levels, max)
    return {"best": max(levels), "drop": max(peak - level for peak, level in zip(peaks, levels, strict=True))}


def _remembered(mistakes: dict[str, Mistake]) -> Callable[[str, PosedProblem], Any]:
    """The wrong operator, one for all problems that share the right one: they can be solved together."""
    made: dict[tuple[str, int], Any] = {}

    def wrong(name: str, problem: PosedProblem) -> Any:
        key = name, id(problem.operator)
        if key not in made:
            made[key] = mistakes[name](problem.operator)
        return made[key]

    return wrong


EXPERIMENT = Robustness()
