"""`deal ct`."""

from __future__ import annotations

import math
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.pictures import check_degraded, check_distinct, read_gray, write_gray
from torchdeal.cli.problem import (
    Job,
    Outcome,
    Problem,
    Settings,
    Solved,
    Solver,
    Truth,
    run,
    summarise,
)
from torchdeal.cli.shared import (
    AsJson,
    Device,
    DeviceChoice,
    Lam,
    MaxIterations,
    ModelName,
    ModelSigma,
    SaveDegraded,
    Seed,
    Simulate,
    Tolerance,
    device_name,
    progress_bar,
    reporter,
)
from torchdeal.estimation import estimate_sinogram_noise
from torchdeal.extras import optional
from torchdeal.io import files
from torchdeal.operators import Radon
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE
from torchdeal.simulate import filtered_back_projection, measure

SIMULATED_SIGMA = 0.01  # of the largest ray sum
LEAST_NOISE = 1e-3  # of the largest ray sum, where it is estimated

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal ct sinogram.npy slice.tif --angles 180[/bold]   (equally spaced over half a turn)\n\n"
    "[bold]deal ct sinogram.tif slice.png --angles angles.txt --layout bins-angles --sigma 0.5[/bold]\n\n"
    "[bold]deal ct clean.png slice.png --angles 60 --simulate --save-degraded fbp.png[/bold]"
)


class Layout(str, Enum):
    """What the rows and columns of a sinogram are."""

    auto = "auto"
    angles_bins = "angles-bins"
    bins_angles = "bins-angles"


def ct(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SINOGRAM",
            help="Line integrals of parallel rays (.npy, .tif, or a gray picture); with --simulate a picture.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The image: .npy or .tif in its units; .png from its minimum to its maximum."
        ),
    ],
    angles: Annotated[
        str,
        typer.Option(
            metavar="ANGLES",
            help="How many, equally spaced from 0 to 180 degrees (without 180); or all of them, in degrees: 0,45,90 or "
            "a file (.npy, .txt). At 0 the rays run along the columns, as in scikit-image.",
        ),
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise, in the units of the sinogram. Default: estimated, as that of noise "
            "that differs from bin to bin; with --simulate 1 % of the largest value."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Height and width of the image, in bins. Default: the number of bins, for an object inside the "
            "circle; if the detector saw the whole square, it is the number of bins / 1.414.",
        ),
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="Rows and columns of the sinogram. auto: by the number of angles.")
    ] = Layout.auto,
    lam: Lam = None,
    model_sigma: ModelSigma = None,
    model: ModelName = None,
    device: DeviceChoice = Device.auto,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
    max_iterations: MaxIterations = DEFAULT_MAX_ITERATIONS,
    simulate: Simulate = False,
    seed: Seed = 0,
    save_degraded: SaveDegraded = None,
    as_json: AsJson = False,
) -> None:
    """Reconstruct an image from a sinogram (parallel-beam CT)."""
    settings = Settings(
        sigma=sigma,
        lam=lam,
        model_sigma=model_sigma,
        model=model,
        device=device_name(device),
        tolerance=tolerance,
        max_iterations=max_iterations,
        simulate=simulate,
        seed=seed,
        save_degraded=save_degraded,
        quiet=as_json,
    )
    degrees = _angles(angles)
    check_distinct(source, target)
    files.check_writable(target)
    check_degraded(save_degraded, source, target)
    if simulate:
        optional("skimage.transform", "filtered back-projection", "demo")  # better before the work than after

    def pose() -> Problem:
        if simulate:
            return _simulated(read_gray(source), degrees, settings)
        sinogram = _angles_first(_read(source), len(degrees), layout)
        return _measured(sinogram, degrees, size, sigma)

    run([(source, target)], lambda job: _reconstruct(job, pose(), Solver(settings)), as_json)


def _reconstruct(job: Job, problem: Problem, solver: Solver) -> Outcome:
    started, settings = time.perf_counter(), solver.settings
    source, target = job
    with progress_bar(settings.quiet) as progress:
        solved = solver.solve(problem, reporter(progress, source.name, settings.tolerance))
    if problem.truth is not None:
        write_gray(target, solved.x)
        if settings.save_degraded:
            write_gray(settings.save_degraded, problem.truth.degraded)
    else:
        _write(target, solved)
    return summarise(job, [solved], settings, started)


def _simulated(picture: Tensor, degrees: np.ndarray, settings: Settings) -> Problem:
    H = Radon(degrees, (picture.shape[-2], picture.shape[-1]))
    noise = SIMULATED_SIGMA * float(H.forward(picture).max()) if settings.sigma is None else settings.sigma
    y = measure(picture, H, noise, settings.seed)
    truth = Truth(picture, filtered_back_projection(y, H), "filtered back-projection", 1.0)
    return Problem(y, H, noise, white=1.0, truth=truth)


def _measured(sinogram: Tensor, degrees: np.ndarray, size: int | None, sigma: float | None) -> Problem:
    bins = sinogram.shape[-1]
    side = bins if size is None else size
    circle = side == bins
    if not circle and math.ceil(math.sqrt(2) * side) != bins:
        fitting = [side for side in range(2, bins) if math.ceil(math.sqrt(2) * side) == bins]
        whole = f", or --size {fitting[-1]}, for one that is all object" if fitting else ""
        raise ValueError(
            f"--size {side} does not fit {bins} bins: use --size {bins}, for an object inside the circle{whole}"
        )
    least = LEAST_NOISE * float(sinogram.double().abs().max())
    noise = max(estimate_sinogram_noise(sinogram), least) if sigma is None else sigma
    H = Radon(degrees, (side, side), circle=circle)
    return Problem(sinogram, H, noise, estimated=sigma is None, keep=_inside_circle if circle else lambda x: x)


def _inside_circle(x: Tensor) -> Tensor:
    """Zero outside the circle, of which few rays have seen anything, as in scikit-image."""
    places = torch.arange(x.shape[-1], device=x.device) - x.shape[-1] // 2
    return torch.where(places[:, None] ** 2 + places**2 <= (x.shape[-1] // 2) ** 2, x, 0)


def _angles(text: str) -> np.ndarray:
    """In degrees."""
    if text.isdigit():
        number = int(text)
        if not 1 <= number <= 100_000:
            raise ValueError(f"--angles {text}: the number of angles must be from 1 to 100000")
        return np.arange(number) * (180 / number)
    try:
        degrees = _listed(text)
    except (OSError, ValueError, AttributeError, EOFError) as error:
        raise ValueError(f"--angles {text}: not a number of angles, nor a list or file of them ({error})") from None
    if not degrees.size or not np.isfinite(degrees).all():
        raise ValueError(f"--angles {text}: the angles must be finite numbers, at least one")
    return degrees


def _listed(text: str) -> np.ndarray:
    path = Path(text)
    if path.suffix.lower() == ".npy":
        return np.load(path, allow_pickle=False).astype(np.float64).ravel()
    numbers = path.read_text().replace(",", " ").split() if path.is_file() else text.split(",")
    return np.array([float(number) for number in numbers])


def _read(path: Path) -> np.ndarray:
    pixels = files.read(path).pixels
    if pixels.ndim != 2 or pixels.dtype.kind not in "uif":
        raise ValueError(f"{path}: a sinogram is one gray image of real numbers, got {pixels.shape}, {pixels.dtype}")
    if not np.isfinite(pixels).all():
        raise ValueError(f"{path}: the sinogram holds NaN or infinite values")
    if not pixels.any():
        raise ValueError(f"{path}: the sinogram is zero everywhere")
    return pixels


def _angles_first(sinogram: np.ndarray, number: int, layout: Layout) -> Tensor:
    """As `Radon` has it, `(1, 1, angles, bins)`."""
    rows, columns = sinogram.shape
    if layout is Layout.auto:
        if rows == columns == number:
            raise ValueError(
                f"the sinogram is {rows} x {columns} for {number} angles: say with --layout which way the angles run"
            )
        if number not in (rows, columns):
            raise ValueError(f"the sinogram is {rows} x {columns}: correct --angles, which says {number}")
        layout = Layout.angles_bins if rows == number else Layout.bins_angles
    found = rows if layout is Layout.angles_bins else columns
    if found != number:
        raise ValueError(
            f"the sinogram is {rows} x {columns}: with --layout {layout.value} it has {found} angles, "
            f"but --angles says {number}"
        )
    array = sinogram if layout is Layout.angles_bins else sinogram.T
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))[None, None]


def _write(path: Path, solved: Solved) -> None:
    """In the units of the image, or, where the format has none, from its smallest value to its largest."""
    image = solved.x
    if path.suffix.lower() in files.PILLOW:
        low, high = float(image.min()), float(image.max())
        image = (image - low) / (high - low) if high > low else torch.zeros_like(image)
    write_gray(path, image)
