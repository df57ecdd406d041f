"""PSNR of denoising over a folder of images, by the protocol of the paper.

The noise starts anew for every image: `numpy.random.RandomState(0)` draws `normal(0, sigma / 255)`, `(1, H, W)` for
gray and `(H, W, 3)` for colour, which is added as float32 to the image in 0..1 and not clipped. `lam` is the learned
`kappa(sigma)`, the answer is clipped to 0..1, and PSNR has a data range of 1. One image at a time; means over images.

Imports only torch, numpy and what torchdeal itself needs for weights and PNG files, so that
`python -m torchdeal.benchmark.denoising FOLDER --json out.json` runs on a bare machine with a GPU;
`deal benchmark denoising --from out.json` shows the results anywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
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
from torchdeal.io import files
from torchdeal.io.checkpoint import load
from torchdeal.io.images import to_tensor
from torchdeal.metrics import psnr
from torchdeal.model import DEAL
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE, reconstruct
from torchdeal.solvers import Solution, Status

FORMAT = "torchdeal-benchmark-denoising-1"
CONVERGED = Status.CONVERGED.name
SIGMAS = (5.0, 15.0, 25.0)
MANY_ITERATIONS = 60  # images that need more outer iterations than this are counted
APART = 1e-3  # relative difference from which the answers from two starts count as different
REMOVE = "take it out of the folder"


@dataclass(frozen=True)
class Plan:
    """What is to be measured. Raises ValueError for what cannot be."""

    folder: Path
    sigmas: tuple[float, ...] = SIGMAS
    model: str | None = None  # None: the bundled one for the channels of the first image
    device: str = "cpu"
    crop: int | None = None  # side of the square at the centre; None: the whole image
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    limit: int | None = None  # the first images of the folder only
    starts: int = 0  # so many images are also reconstructed from the noisy image
    threads: int | None = None

    def __post_init__(self) -> None:
        check_device(self.device)
        for sigma in self.sigmas:
            check_positive("sigma", sigma)
        check_positive("tolerance", self.tolerance)
        check_least(self, max_iterations=1, limit=1, starts=0, threads=1)


@dataclass(frozen=True)
class Restart:
    """The answer from the noisy image as start, beside the one from zero."""

    difference: float  # relative
    status: str
    iterations: int


@dataclass(frozen=True)
class Denoised:
    """One image at one noise level."""

    image: str
    height: int
    width: int
    noisy_psnr: float  # of the noisy image, clipped like the answer
    psnr: float
    status: str
    distance: float | None  # the certificate; None: not known
    iterations: int  # outer iterations (masks)
    cg_iterations: int
    seconds: float
    restart: Restart | None = None


@dataclass(frozen=True)
class Summary:
    """What the images of one noise level say together."""

    images: int
    noisy_psnr: float  # means
    psnr: float
    converged: int
    distance: float | None  # the largest certificate; None: not known for every image
    median_iterations: float
    max_iterations: int
    many_iterations: int  # images with more than MANY_ITERATIONS
    cg_iterations: float  # mean
    seconds: float  # median
    restarts: int
    restarts_converged: int
    restarts_apart: int  # those that differ by more than APART
    largest_difference: float | None  # None: there was no restart


@dataclass(frozen=True)
class Level:
    """All images at one noise level."""

    sigma: float
    images: list[Denoised]

    def summary(self) -> Summary:
        """Means, medians, counts and extremes."""
        rows = self.images
        distances = [row.distance for row in rows if row.distance is not None]
        iterations = [row.iterations for row in rows]
        restarts = [row.restart for row in rows if row.restart]
        return Summary(
            images=len(rows),
            noisy_psnr=fmean(row.noisy_psnr for row in rows),
            psnr=fmean(row.psnr for row in rows),
            converged=len(rows) - len(self.unconverged()),
            distance=max(distances) if len(distances) == len(rows) else None,
            median_iterations=median(iterations),
            max_iterations=max(iterations),
            many_iterations=sum(n > MANY_ITERATIONS for n in iterations),
            cg_iterations=fmean(row.cg_iterations for row in rows),
            seconds=median(row.seconds for row in rows),
            restarts=len(restarts),
            restarts_converged=sum(r.status == CONVERGED for r in restarts),
            restarts_apart=sum(not r.difference <= APART for r in restarts),
            largest_difference=max((r.difference for r in restarts), default=None),
        )

    def unconverged(self) -> list[Denoised]:
        """The images whose answer is not known to be within the tolerance."""
        return [row for row in self.images if row.status != CONVERGED]


def measure(plan: Plan, say: Say, save: Callable[[list[Level], dict[str, Any]], None]) -> tuple[list[Level], dict]:
    """Run the plan.

    Args:
        plan: what to measure.
        say: takes a line about each image, and about each noise level.
        save: called with the levels so far, and the settings, after each noise level.

    Returns:
        the levels, one per sigma, and the settings they were measured with.
    """
    started = time.perf_counter()
    if plan.threads:
        torch.set_num_threads(plan.threads)
    paths = list_images(plan.folder)[: plan.limit]
    source = plan.model or ("color" if len(_read(paths[0])) == 3 else "gray")
    model = load(source, device=plan.device)
    if plan.crop is not None and plan.crop < model.min_size:
        raise ValueError(f"crop must be at least {model.min_size} for this model, got {plan.crop}")
    for path in paths:
        read_clean(path, model, plan.crop)  # a bad image ends the run now, not after an hour
    settings = _settings(plan, source, len(paths))
    levels: list[Level] = []
    for sigma in plan.sigmas:

        def tell(text: str, sigma: float = sigma) -> None:
            say(f"[{time.perf_counter() - started:7.1f} s] sigma {sigma:g}, {text}")

        rows: list[Denoised] = []
        for index, path in enumerate(paths):
            rows.append(_denoise(path, model, sigma, plan, restart=index < plan.starts))
            tell(f"{index + 1} of {len(paths)}, {_describe(rows[-1])}")
        levels.append(Level(sigma, rows))
        tell(_describe_summary(levels[-1].summary()))
        save(levels, settings)
    return levels, settings


def draw_noise(shape: tuple[int, ...], sigma: float) -> np.ndarray:
    """The noise of the protocol for an image `(H, W)` or `(H, W, 3)`, `sigma` on the 0..255 scale."""
    # As numpy.random.seed(0) and numpy.random.normal would; (H, W) takes the same numbers as (1, H, W).
    return np.random.RandomState(0).normal(0, sigma / 255, shape).astype(np.float32)


def read_clean(path: Path, model: DEAL, crop: int | None = None) -> np.ndarray:
    """The image as the model takes it, `(H, W)` or `(H, W, 3)`, float32 in 0..1; only its centre if `crop` is given."""
    image = _read(path)
    if model.channels == 1 and len(image) == 3:
        image = _luma(image)
    if len(image) != model.channels:
        suitable = "color" if len(image) == 3 else "gray"
        counts = f"the image has {len(image)} channels and the model {model.channels}"
        raise ValueError(f"{path}: {counts}; use --model {suitable}, or {REMOVE}")
    if crop is not None:
        image = _centre(image, crop, path)
    height, width = image.shape[1:]
    if min(height, width) < model.min_size:
        least = f"at least {model.min_size} x {model.min_size} is needed"
        raise ValueError(f"{path}: the image is {height} x {width}, {least}; {REMOVE}")
    return (image[0] if model.channels == 1 else image.permute(1, 2, 0)).numpy()


def _centre(image: Tensor, size: int, path: Path) -> Tensor:
    height, width = image.shape[1:]
    if min(height, width) < size:
        raise ValueError(f"{path}: the image is {height} x {width}, smaller than --crop {size}; lower it, or {REMOVE}")
    top, left = (height - size) // 2, (width - size) // 2
    return image[:, top : top + size, left : left + size]


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder, by name. Raises ValueError where there is none."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give a folder of clean images")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not paths:
        raise ValueError(f"{folder}: no images in this folder ({', '.join(files.SUFFIXES)})")
    return paths


def _read(path: Path) -> Tensor:
    """The image in the file, float32 `(C, H, W)` in 0..1, without alpha."""
    try:
        images = to_tensor(files.read(path).pixels)[0].float()
    except files.ImageFileError as error:
        raise files.ImageFileError(f"{error}. Mend it, or {REMOVE}.") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if len(images) > 1:
        raise ValueError(f"{path}: a stack of {len(images)} images; save them one by one, or {REMOVE}")
    return images[0]


def _luma(image: Tensor) -> Tensor:
    """Colour as gray in 8 bits, by the luma of Pillow."""
    from PIL import Image

    pixels = (image * 255).round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return torch.from_numpy(np.array(Image.fromarray(pixels).convert("L")))[None] / 255


def _denoise(path: Path, model: DEAL, sigma: float, plan: Plan, restart: bool) -> Denoised:
    clean = read_clean(path, model, plan.crop)
    noisy = clean + draw_noise(clean.shape, sigma)
    solve = partial(
        reconstruct,
        noisy,
        model=model,
        sigma=sigma / 255,
        tolerance=plan.tolerance,
        max_iterations=plan.max_iterations,
        data_range=1.0,  # strong noise takes the values far out of 0..1
    )
    started = time.perf_counter()
    solution = solve()
    seconds = time.perf_counter() - started  # the answer is a numpy array: a GPU has finished
    return Denoised(
        image=path.name,
        height=clean.shape[0],
        width=clean.shape[1],
        noisy_psnr=psnr(noisy, clean),
        psnr=psnr(solution.x, clean),
        status=solution.status.name,
        distance=known(float(solution.distance.max())),
        iterations=int(solution.iterations.max()),
        cg_iterations=int(solution.cg_iterations.max()),
        seconds=seconds,
        restart=_compare(solve(start=noisy), solution) if restart else None,
    )


def _compare(other: Solution, solution: Solution) -> Restart:
    difference = np.linalg.norm((other.x - solution.x).ravel()) / np.linalg.norm(solution.x.ravel())
    return Restart(float(difference), other.status.name, int(other.iterations.max()))


def _settings(plan: Plan, source: str, images: int) -> dict[str, Any]:
    """Folder and weights by name: their paths mean nothing on another machine."""
    return {
        **environment(plan.device),
        "weights": {"source": Path(source).name, "sha256": weights_checksum(source)},
        "folder": plan.folder.resolve().name,
        "images": images,
        "crop": plan.crop,
        "sigmas": list(plan.sigmas),
        "noise": "numpy.random.RandomState(0) for each image, (1, H, W) or (H, W, 3)",
        "tolerance": plan.tolerance,
        "max_iterations": plan.max_iterations,
        "starts": plan.starts,
    }


def _describe(row: Denoised) -> str:
    distance = "unknown" if row.distance is None else f"{row.distance:.1e}"
    apart = f", from the noisy image {row.restart.difference:.1e} apart" if row.restart else ""
    return (
        f"{row.image}: {row.noisy_psnr:.2f} -> {row.psnr:.2f} dB, {row.status}, {row.iterations} iterations "
        f"({row.cg_iterations} CG), distance {distance}, {row.seconds:.3g} s{apart}"
    )


def _describe_summary(summary: Summary) -> str:
    return (
        f"all: {summary.noisy_psnr:.2f} -> {summary.psnr:.2f} dB, {summary.converged} of {summary.images} converged, "
        f"at most {summary.max_iterations} iterations, {summary.many_iterations} images above {MANY_ITERATIONS}"
    )


def to_json(levels: Sequence[Level], settings: dict[str, Any]) -> str:
    """All that was measured, image by image, and its summary."""
    content = {
        "format": FORMAT,
        "settings": settings,
        "levels": [{"sigma": n.sigma, "summary": asdict(n.summary()), "images": asdict(n)["images"]} for n in levels],
    }
    return json.dumps(finite(content), indent=1, allow_nan=False)


def from_json(path: Path) -> tuple[list[Level], dict[str, Any]]:
    """What `to_json` wrote."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError
        levels = [Level(n["sigma"], [_row(row) for row in n["images"]]) for n in content["levels"]]
        return levels, content["settings"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: does not hold results of deal benchmark denoising --json") from None


def _row(content: dict[str, Any]) -> Denoised:
    row = _with_nan(content, "noisy_psnr", "psnr")
    restart = row["restart"] and Restart(**_with_nan(row["restart"], "difference"))
    return Denoised(**{**row, "restart": restart})


def _with_nan(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """JSON has None for these where a run diverged."""
    return content | {name: math.nan for name in names if content[name] is None}


def main(arguments: Sequence[str] | None = None) -> None:
    """The benchmark without the packages of the command line."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.denoising", description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sigma", type=float, action="append", default=[])
    parser.add_argument("--model")
    parser.add_argument("--device", choices=("cpu", "cuda", "mps"), default="cpu")
    parser.add_argument("--crop", type=int)
    parser.add_argument("--tolerance", type=float, default=DEFAULT_TOLERANCE)
    parser.add_argument("--max-iterations", type=int, default=DEFAULT_MAX_ITERATIONS)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--starts", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    with one_line_errors(given.json, "noise levels"):
        plan = Plan(
            folder=given.folder,
            sigmas=tuple(given.sigma or SIGMAS),
            model=given.model,
            device=given.device,
            crop=given.crop,
            tolerance=given.tolerance,
            max_iterations=given.max_iterations,
            limit=given.limit,
            starts=given.starts,
            threads=given.threads,
        )
        check_output(given.json)
        measure(
            plan,
            say=lambda line: print(line, flush=True),
            save=lambda levels, settings: write_text(given.json, to_json(levels, settings)),
        )


if __name__ == "__main__":
    main()
