"""Commands from picture files to picture files: which file goes where, and from pixels to a problem and back.

Inside, pictures are tensors `(1, C, H, W)` on the 0..255 scale, whatever their bit depth, as is --sigma.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from torchdeal import files
from torchdeal.cli.problem import Job, Outcome, Problem, Settings, Solved, Solver, run, summarise
from torchdeal.cli.shared import progress_bar, reporter
from torchdeal.images import ImageFormat, to_tensor
from torchdeal.tuning import estimate_sigma

WHITE = 255.0


def restore_pictures(paths: list[Path], pose: Callable[[Tensor], Problem], settings: Settings) -> None:
    """Pose each picture (each frame of a stack) as a problem, solve it, and write the result.

    Args:
        paths: inputs, then the output.
        pose: from a picture `(1, C, H, W)` on the 0..255 scale to a problem on the same scale.
        settings: the options.
    """
    jobs = plan(paths)
    if settings.save_degraded:
        if len(jobs) > 1:
            raise ValueError("--save-degraded is one file: use it with one input")
        files.check_writable(settings.save_degraded)
    solver = Solver(settings)
    run(jobs, lambda job: _restore(job, pose, solver), as_json=settings.quiet)


def estimated_sigma(picture: Tensor) -> float:
    """The noise level of a picture, on its 0..255 scale."""
    return estimate_sigma(picture, data_range=WHITE)[0]


def plan(paths: list[Path]) -> list[Job]:
    """Which file goes where; raises before any work is done if something cannot be."""
    if len(paths) < 2:
        raise ValueError("give at least one input and then the output: IN... OUT")
    *inputs, out = paths
    sources = [file for path in inputs for file in _expand(path)]
    to_folder = len(sources) > 1 or inputs[0].is_dir() or out.is_dir()
    if to_folder and out.exists() and not out.is_dir():
        raise ValueError(f"{out}: there are several inputs, so the output must be a folder")
    targets = [out / source.name if to_folder else out for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if targets.count(target) > 1:
            raise ValueError(f"{target}: two inputs have this name; write them to different folders")
        if target.exists() and any(other.exists() and target.samefile(other) for other in sources):
            raise ValueError(f"{target}: would overwrite the input; choose another output")
        if not source.is_file():
            raise FileNotFoundError(f"{source}: no such file")
        files.check_format(target)
    if to_folder and not out.exists():
        if not out.parent.is_dir():
            raise FileNotFoundError(f"{out}: the folder {out.parent} does not exist; create it first")
        out.mkdir()
    for target in targets:
        files.check_writable(target)
    return list(zip(sources, targets, strict=True))


def _expand(path: Path) -> list[Path]:
    """The images in a folder, or the path itself."""
    if not path.is_dir():
        return [path]
    images = sorted(p for p in path.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not images:
        raise ValueError(f"{path}: no images in this folder ({', '.join(files.SUFFIXES)})")
    return images


def _restore(job: Job, pose: Callable[[Tensor], Problem], solver: Solver) -> Outcome:
    started, settings = time.perf_counter(), solver.settings
    source, target = job
    image = files.read(source)
    solved: list[Solved] = []
    formats: list[ImageFormat] = []
    frames = _frames(image)
    with progress_bar(settings.quiet) as progress:
        for index, frame in enumerate(frames):
            label = source.name if len(frames) == 1 else f"{source.name} {index + 1}/{len(frames)}"
            picture, image_format = _to_picture(frame, settings.data_range)
            solved.append(solver.solve(pose(picture), reporter(progress, label, settings.tolerance)))
            formats.append(replace(image_format, alpha=None) if settings.simulate else image_format)
    _write(target, image, [_restored(f, s.x) for f, s in zip(formats, solved, strict=True)], settings)
    if settings.save_degraded:
        degraded = [
            f.restore(s.problem.truth.degraded) for f, s in zip(formats, solved, strict=True) if s.problem.truth
        ]
        _write(settings.save_degraded, image, degraded, settings)
    return summarise(job, solved, settings, started)


def _frames(image: files.ImageFile) -> list[np.ndarray]:
    """The images of a stack one by one: their masks would not fit into memory together."""
    return list(image.pixels) if image.pixels.ndim == 4 else [image.pixels]


def _restored(image_format: ImageFormat, x: Tensor) -> np.ndarray:
    """The result in the kind of its file; transparency grows with the picture."""
    if image_format.alpha is not None and image_format.alpha.shape[:2] != x.shape[-2:]:
        rows, columns = (
            np.arange(size) * old // size for size, old in zip(x.shape[-2:], image_format.alpha.shape, strict=False)
        )
        image_format = replace(image_format, alpha=image_format.alpha[rows][:, columns])
    return image_format.restore(x)


def _write(path: Path, like: files.ImageFile, frames: list[np.ndarray], settings: Settings) -> None:
    pixels = np.stack(frames) if like.pixels.ndim == 4 else frames[0]
    files.write(path, replace(like, pixels=pixels, white=settings.data_range or 1.0))


def _to_picture(frame: np.ndarray, data_range: float | None) -> tuple[Tensor, ImageFormat]:
    """The frame on the 0..255 scale, and the way back."""
    white = to_tensor(frame, data_range=data_range)[1].data_range  # checked before it is scaled
    return to_tensor(frame, data_range=white / WHITE)
