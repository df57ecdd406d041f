"""Commands from picture files to picture files: which file goes where, and from pixels to a problem and back.

Inside, pictures are tensors `(1, C, H, W)` on the 0..255 scale, whatever their bit depth, as is --sigma.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from torchdeal.cli.problem import (
    Job,
    Outcome,
    Problem,
    Settings,
    Solved,
    Solver,
    Truth,
    image_range,
    run,
    summarise,
)
from torchdeal.cli.shared import progress_bar, reporter
from torchdeal.estimation import estimate_sigma
from torchdeal.io import files
from torchdeal.io.images import ImageFormat, to_tensor
from torchdeal.operators import Operator
from torchdeal.simulate import measure

WHITE = 255.0
SIMULATED_SIGMA = 2.55  # 1 % of white
LUMA = (0.299, 0.587, 0.114)
LITTLE = 0.3  # share of the scale: what uses less of it is spread to all of it, for the model
LEAST_NOISE = 1e-3  # of the range, where it is estimated: about what rounding to 8 bits adds


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
        check_degraded(settings.save_degraded, *jobs[0])
    solver = Solver(settings)
    run(jobs, lambda job: _restore(job, pose, solver), as_json=settings.quiet)


def estimated_sigma(picture: Tensor) -> float:
    """The noise level of a picture, on its 0..255 scale."""
    return estimate_sigma(picture, data_range=WHITE)[0]


def picture_problem(
    picture: Tensor,
    H: Operator,
    settings: Settings,
    *,
    estimate: Callable[[Tensor], float],
    degraded_by: str,
    look: Callable[[Tensor], Tensor] = lambda y: y,
    keep: Callable[[Tensor], Tensor] = lambda x: x,
) -> Problem:
    """The picture as measurements of `H`; in a simulation as the image that is measured.

    Args:
        picture: `(1, C, H, W)`, on the 0..255 scale.
        H: of pictures.
        settings: the options.
        estimate: the noise level of measurements, for where it is not given.
        degraded_by: what happened to a picture that was simulated.
        look: measurements as a picture of the size of the result.
        keep: the part of the result that is wanted.
    """
    if settings.simulate:
        noise = SIMULATED_SIGMA if settings.sigma is None else settings.sigma
        y = measure(picture, H, noise, settings.seed)
        truth = Truth(keep(picture), look(y), degraded_by, WHITE)
        return Problem(y, H, noise, white=_white(y, H, settings), keep=keep, truth=truth)
    white = _white(picture, H, settings)
    noise = max(estimate(picture), LEAST_NOISE * white) if settings.sigma is None else settings.sigma
    return Problem(picture, H, noise, estimated=settings.sigma is None, white=white, keep=keep)


def _white(y: Tensor, H: Operator, settings: Settings) -> float:
    """255, unless the picture uses little of that: then the range of a rough reconstruction."""
    if settings.data_range is not None or float(y.max() - y.min()) > LITTLE * WHITE:
        return WHITE
    return image_range(H, y - y.mean())  # what is rough would take a large offset, falling at the border, for a range


def check_kernel_fits(kernel: Tensor, size: Sequence[int]) -> None:
    if any(have < needed for have, needed in zip(size, kernel.shape, strict=True)):
        raise ValueError(
            f"the kernel ({kernel.shape[0]} x {kernel.shape[1]}) is larger than the picture "
            f"({size[0]} x {size[1]}): give a smaller --kernel"
        )


def read_gray(path: Path) -> Tensor:
    """A picture for a simulation that knows no colour, `(1, 1, H, W)` in 0..1: the luma of a colour picture."""
    image = files.read(path)
    if image.pixels.ndim == 4:
        raise ValueError(f"{path}: a stack; simulate with one picture")
    picture = to_tensor(image.pixels)[0].float()
    if picture.shape[1] == 1:
        return picture
    return (picture * picture.new_tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)


def write_gray(path: Path, image: Tensor) -> None:
    """An image `(1, 1, H, W)` in 0..1; .npy and .tif are floating point."""
    files.write(path, files.ImageFile(image[0, 0].float().cpu().numpy()))


def check_distinct(source: Path, target: Path) -> None:
    if not source.is_file():
        raise FileNotFoundError(f"{source}: no such file")
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target}: would overwrite the input; choose another output")


def check_degraded(path: Path | None, source: Path, target: Path) -> None:
    if path is not None:
        files.check_writable(path)
        check_distinct(source, path)
        if path.resolve() == target.resolve():
            raise ValueError(f"{path}: --save-degraded is the output; choose another file")


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
