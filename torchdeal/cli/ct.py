"""`deal ct`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.jobs import one_job
from torchdeal.cli.options import Settings, with_settings
from torchdeal.cli.pictures import GraySimulation, write_gray
from torchdeal.cli.run import Problem, Simulation, Task, run
from torchdeal.estimation import estimate_sinogram_noise
from torchdeal.extras import optional
from torchdeal.io import files
from torchdeal.operators import Radon
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


@dataclass(frozen=True, eq=False)
class SinogramTask(Task[Tensor, None]):
    """From a sinogram to an image in its units."""

    degrees: np.ndarray
    size: int | None
    layout: Layout

    def read(self, path: Path) -> tuple[Sequence[Tensor], None]:
        return [_angles_first(_read_sinogram(path), len(self.degrees), self.layout)], None

    def pose(self, frame: Tensor) -> Problem:
        bins = frame.shape[-1]
        side = bins if self.size is None else self.size
        circle = side == bins
        if not circle:
            _check_covers(side, bins)
        H = Radon(self.degrees, (side, side), circle=circle)
        sigma = self.settings.sigma
        least = LEAST_NOISE * float(frame.double().abs().max())
        noise = max(estimate_sinogram_noise(frame), least) if sigma is None else sigma
        return Problem(frame, H, noise, estimated=sigma is None, keep=_inside_circle if circle else lambda x: x)

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        """In the units of the image, or, where the format has none, from its smallest value to its largest."""
        (image,) = images
        if path.suffix.lower() in files.PILLOW:
            low, high = float(image.min()), float(image.max())
            image = (image - low) / (high - low) if high > low else torch.zeros_like(image)
        write_gray(path, image)


@dataclass(frozen=True, eq=False)
class SimulatedSinogram(GraySimulation):
    degrees: np.ndarray

    def pose(self, frame: Tensor) -> Problem:
        H = Radon(self.degrees, (frame.shape[-2], frame.shape[-1]))
        sigma = self.settings.sigma
        noise = SIMULATED_SIGMA * float(H.forward(frame).max()) if sigma is None else sigma
        y = measure(frame, H, noise, self.settings.seed)
        simulation = Simulation(frame, filtered_back_projection(y, H), "filtered back-projection")
        return Problem(y, H, noise, white=1.0, simulation=simulation)


@with_settings(
    without=("channelwise", "data_range", "recursive"),
    sigma_help="Standard deviation of the noise, in the units of the sinogram. Default: estimated, as that of noise "
    "that differs from bin to bin; with --simulate 1 % of the largest value.",
)
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
    *,
    settings: Settings,
) -> None:
    """Reconstruct an image from a sinogram (parallel-beam CT)."""
    degrees = _angles(angles)
    if settings.simulate:
        optional("skimage.transform", "filtered back-projection", "demo")  # better before the work than after
        task = SimulatedSinogram(settings, degrees)
    else:
        task = SinogramTask(settings, degrees, size, layout)
    jobs = one_job(source, target)
    files.check_writable(target)
    run(task, jobs)


def _check_covers(side: int, bins: int) -> None:
    """A detector that saw the whole square has as many bins as its diagonal."""
    if math.ceil(math.sqrt(2) * side) != bins:
        fitting = [side for side in range(2, bins) if math.ceil(math.sqrt(2) * side) == bins]
        whole = f", or --size {fitting[-1]}, for one that is all object" if fitting else ""
        raise ValueError(
            f"--size {side} does not fit {bins} bins: use --size {bins}, for an object inside the circle{whole}"
        )


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


def _read_sinogram(path: Path) -> np.ndarray:
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
