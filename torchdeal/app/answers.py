"""From a wish to an answer: read, pose, solve, and what the page shows of it; then the questions about it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.app.errands import Errand
from torchdeal.app.looks import Looks
from torchdeal.app.recipes import Recipe
from torchdeal.app.uploads import Upload, UploadError
from torchdeal.app.wishes import Goal, Wish, task_for
from torchdeal.cli.explanation import ExplainedPixel, place_in_solution
from torchdeal.cli.memory import memory_for
from torchdeal.cli.report import FileReport, array_of, certificates, in_a_sentence, summarise
from torchdeal.cli.run import Models, Problem, Solved, Task, check_finite, solve
from torchdeal.explain import explain
from torchdeal.io import files
from torchdeal.io.checkpoint import load
from torchdeal.reconstruction import Reconstruction
from torchdeal.simulate import bicubic, filtered_back_projection
from torchdeal.solvers import Progress
from torchdeal.uncertainty import uncertainty

PREVIEW_SECONDS = 0.4  # between pictures of a run
MEASURED_PIXELS = (Goal.DENOISE, Goal.DEBLUR, Goal.UPSCALE, Goal.INPAINT)


@dataclass(eq=False)
class Answer:
    """A result and what is shown of it.

    Attributes:
        pictures: PNG files by their name.
    """

    wish: Wish
    solved: Solved
    report: FileReport
    looks: Looks
    recipe: Recipe
    file: Path
    pictures: dict[str, bytes] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """For the page."""
        report, solution = self.report, self.solved.solution
        height, width = self.solved.x.shape[-2:]
        reconstructed = isinstance(solution, Reconstruction)
        white = self.solved.problem.white or 1.0
        return {
            "status": report.status,
            "converged": report.converged,
            "sentence": in_a_sentence(report),
            "iterations": report.iterations,
            "distance": report.distance,
            "sigma": report.sigma,
            "estimated": report.estimated,
            "sigma_low": report.sigma_low,
            "sigma_high": report.sigma_high,
            "model_sigma": float(solution.sigma.mean()) / white * 255 if reconstructed else None,
            "lam": float(solution.lam.mean()) if reconstructed else None,
            "quality": None if report.simulation is None else str(report.simulation).replace("->", "to"),
            "notes": [note.replace("--sigma", "sigma") for note in report.notes],
            "height": height,
            "width": width,
            "explained": reconstructed,
            "file": self.recipe.result,
            "python": self.recipe.python(),
            "command": self.recipe.command(),
            "part": self.recipe.is_part,
        }


@dataclass(frozen=True)
class Maker:
    """Makes answers.

    Attributes:
        models: by name, each loaded once.
        device: where to compute.
        most_pixels: of a result.
    """

    models: Models
    device: str
    most_pixels: int

    @classmethod
    def on(cls, device: str, most_pixels: int) -> Maker:
        return cls(cache(lambda name: load(name, device=device)), device, most_pixels)

    def make(self, wish: Wish, uploads: Mapping[str, Upload], folder: Path, errand: Errand) -> Answer:
        """The way of every command, with an eye on how it goes."""
        started = time.perf_counter()
        is_sinogram = wish.goal is Goal.CT and not wish.simulate
        original = uploads["picture"]
        picture = original if is_sinogram else original.part(wish.part)
        uploads = {**uploads, "picture": picture}
        settings = wish.settings(picture, self.device)
        self._check_size(wish, picture)
        task = task_for(wish, settings, uploads)
        with memory_for("to read the picture"):
            frames, kind = task.read(picture.path)
        if len(frames) > 1:
            raise UploadError("This file holds several pictures; the page takes one, and the commands take all.")
        target = folder / f"result{_suffix(original, wish, task, frames, kind)}"
        with memory_for("for this picture"):
            problem = task.pose(frames[0])
            looks = Looks.of(problem, _before(wish, task, problem))
            told = Telling(errand, looks)
            solved = solve(problem, settings, self.models, told)
        check_finite(solved, picture.name)
        notes = task.write(target, [solved.x], kind) or ()
        seconds = time.perf_counter() - started
        report = summarise((Path(picture.name), Path(target.name)), [solved], self.device, seconds, notes)
        looks = looks.with_result(solved)
        recipe = Recipe(wish, picture, problem, solved.model, target.suffix)
        answer = Answer(wish, solved, report, looks, recipe, target)
        answer.pictures |= {"before": looks.before(), "after": looks.after()}
        if problem.simulation is not None:
            answer.pictures["clean"] = looks.picture(problem.simulation.clean)
        return answer

    def _check_size(self, wish: Wish, picture: Upload) -> None:
        if picture.image is None:
            return
        height, width = picture.image.size
        if wish.goal is Goal.CT and not wish.simulate:
            height = width = max(height, width)
        enlarged = wish.scale**2 if wish.goal is Goal.UPSCALE and not wish.simulate else 1
        if height * width * enlarged > self.most_pixels:
            raise UploadError(
                f"The result would have {height * width * enlarged / 1e6:.1f} million pixels, more than the "
                f"{self.most_pixels / 1e6:.1f} million of this page: take a part of the picture, or start deal app "
                "with a larger --max-pixels."
            )


class Telling:
    """A callback of the solver: numbers for the curves, and now and then a picture."""

    def __init__(self, errand: Errand, looks: Looks):
        self._errand, self._looks = errand, looks
        self._shown = 0.0
        errand.progress |= {"residuals": [], "distances": [], "preview": 0}

    def __call__(self, state: Progress) -> None:
        progress = self._errand.progress
        for name, value in (("residuals", state.residual), ("distances", state.distance)):
            number = float(value.max())
            progress[name].append(number if math.isfinite(number) else None)
        if time.monotonic() - self._shown > PREVIEW_SECONDS:
            progress["picture"] = self._looks.preview(state.x)
            progress["preview"] += 1
            self._shown = time.monotonic()


def mask_of(answer: Answer) -> Callable[[Errand], dict[str, Any]]:
    """Where structure is protected."""

    def work(errand: Errand) -> dict[str, Any]:
        means = explain(_reconstruction(answer)).mean_mask
        mask = array_of(answer.solved.problem.keep(means.mean(0)[None, None]))
        answer.pictures["mask"], low, high = answer.looks.numbers(mask)
        return {"low": low, "high": high}

    return work


def error_bars_of(answer: Answer) -> Callable[[Errand], dict[str, Any]]:
    """The standard deviation of each pixel, on the 0..255 scale."""

    def work(errand: Errand) -> dict[str, Any]:
        def told(done: int, of: int) -> None:
            errand.progress |= {"done": done, "of": of}

        found = uncertainty(_reconstruction(answer), callback=told)
        deviation = array_of(answer.solved.problem.keep(found)) * (255 / answer.looks.white)
        deviation = deviation if deviation.ndim == 2 else deviation.mean(-1)
        answer.pictures["error_bars"], low, high = answer.looks.numbers(deviation)
        return {"low": low, "high": high, "mean": float(deviation.mean())}

    return work


def certificate_of(answer: Answer) -> Callable[[Errand], dict[str, Any]]:
    """What is known about the answer, in sentences."""

    def work(errand: Errand) -> dict[str, Any]:
        def told(stage: str) -> None:
            errand.progress["stage"] = stage

        (found,) = certificates([answer.solved], told)
        return {"sentences": found["sentences"]}

    return work


def pixel_of(answer: Answer, row: int, column: int) -> Callable[[Errand], dict[str, Any]]:
    """What a pixel was averaged from: a row of `A^-1 H^T`.

    Where measurements are no pictures, it is the row of `A^-1`: the weights of the back-projection `H^T y`.
    """
    height, width = answer.solved.x.shape[-2:]
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(
            f"The pixel {row}, {column} is outside of the picture: rows go from 0 to {height - 1}, columns from 0 to "
            f"{width - 1}."
        )

    def work(errand: Errand) -> dict[str, Any]:
        solved, solution = answer.solved, _reconstruction(answer)
        mean = explain(solution).row(*place_in_solution(solved, (row, column)))
        result = array_of(solved.x)
        value = float(np.mean(result[row, column])) * 255 / answer.looks.white
        if answer.wish.goal not in MEASURED_PIXELS:  # the image that these are weights of is H^T y
            mean = replace(mean, weights=_kept(solved.problem, mean.inverse))
        explained = ExplainedPixel("", (row, column), value, mean)
        weights = _as_large(explained.weights, (height, width))
        answer.pictures["weights"] = answer.looks.weights(weights)
        largest = None
        sentences = [f"Its value is {value:.1f}, where white is 255."]
        if answer.wish.goal in MEASURED_PIXELS:
            sentences.append(explained.noise())
            largest = float(np.abs(weights).max())
        else:
            sentences.append("The weights are those of the plain back-projection of the measurements.")
        return {"row": row, "column": column, "sentences": sentences, "largest": largest}

    return work


def _kept(problem: Problem, x: Tensor) -> Tensor:
    """Of an image what is wanted, with its signs: `keep` may take magnitudes."""
    height, width = x.shape[-2:]
    numbers = torch.arange(height * width, dtype=torch.float64, device=x.device).view(1, 1, height, width)
    places = problem.keep(numbers).long()
    return x.real.flatten()[places] if x.is_complex() else x.flatten()[places]


def _as_large(weights: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Those of a small picture, each over the pixels of the large one that it stands for."""
    rows, columns = (np.arange(new) * old // new for new, old in zip(size, weights.shape, strict=True))
    return weights[rows][:, columns]


def _reconstruction(answer: Answer) -> Reconstruction:
    solution = answer.solved.solution
    if not isinstance(solution, Reconstruction):
        raise ValueError("The picture was left as it is, so there is nothing to explain: set sigma.")
    return solution


def _before(wish: Wish, task: Task, problem: Problem) -> Tensor:
    """What the measurements look like without the method, of the size of the result."""
    if problem.simulation is not None:
        return problem.simulation.degraded
    if wish.goal is Goal.UPSCALE:
        return bicubic(problem.y, task.scale, task.blur)  # type: ignore[attr-defined]
    if wish.goal is Goal.INPAINT:
        return problem.H.forward(problem.y)
    if wish.goal is Goal.CT:
        return problem.keep(filtered_back_projection(problem.y, problem.H))  # type: ignore[arg-type]
    if wish.goal is Goal.MRI:
        return problem.keep(problem.H.adjoint(problem.y))
    return problem.y


def _suffix(original: Upload, wish: Wish, task: Task, frames: Any, kind: Any) -> str:
    """The format of the input, where that holds the result; else TIFF, which holds all."""
    suffix = original.suffix
    if wish.goal is Goal.MRI and not wish.simulate:
        return ".npy" if suffix in (".npy", ".npz") else ".tif"
    try:
        task.check_target(Path(f"result{suffix}"), frames, kind)
    except (files.ImageFileError, ValueError):
        return ".tif"
    return suffix
