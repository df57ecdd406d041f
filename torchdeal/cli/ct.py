"""`deal ct`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.jobs import one_job
from torchdeal.cli.options import PICTURE_NOISE, TILES, Settings, with_settings
from torchdeal.cli.pictures import GraySimulation, write_gray
from torchdeal.cli.run import Problem, Simulation, Task, image_range, run
from torchdeal.extras import optional
from torchdeal.io import files
from torchdeal.io.volumes import NIFTI, check_slices, check_volume_path, is_volume, suffix_of, write_volume
from torchdeal.noise import estimate_sinogram_noise
from torchdeal.operators import FanBeam, Operator, Radon
from torchdeal.simulate import filtered_back_projection, measure
from torchdeal.sinograms import (
    MOST_ANGLES,
    Layout,
    angles_first,
    as_numbers,
    estimate_center,
    read_angles,
    read_sinograms,
)

SIMULATED_SIGMA = 0.01  # of the largest ray sum
LEAST_NOISE = 1e-3  # of the largest ray sum, where it is estimated
FEWEST_BINS = 4  # from which noise can be estimated
LARGEST_SIZE = 2**14
AUTO = "auto"
LISTS = (".npy", ".txt", ".csv")  # files of angles, whose names can be told from numbers

Fan = tuple[float, float]  # distances of the source and of the detector from the axis, in bins
Notes = Sequence[str]

CenterOption = Annotated[
    str,
    typer.Option(
        metavar="BINS",
        help="How many bins the rotation axis lies beyond the bin number bins // 2, counted from 0; -0.5 if it is "
        "in the middle of an even number of bins. auto finds it, for parallel rays.",
    ),
]
FanOption = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE,DETECTOR",
        help="Rays from a point to a flat detector: the distances of both from the rotation axis, in widths of a "
        "bin. A pixel is as wide as the part of the axis that a bin sees. Default: parallel rays.",
    ),
]

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal ct sinogram.npy slice.tif --angles 180[/bold]   (equally spaced over half a turn)\n\n"
    "[bold]deal ct sinogram.tif slice.png --angles angles.txt --layout bins-angles --sigma 0.5[/bold]\n\n"
    "[bold]deal ct sinograms.tif volume.nii.gz --angles 360 --fan 1200,800 --center -0.5[/bold]   (fan beam)\n\n"
    "[bold]deal ct clean.png slice.png --angles 60 --simulate --save-degraded fbp.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Slice:
    """A sinogram `(1, 1, angles, bins)`, and what it has in common with the others of its stack."""

    sinogram: Tensor
    H: Operator
    noise: float
    white: float
    circle: bool  # only what is inside is seen by all rays


@dataclass(frozen=True, eq=False)
class SinogramTask(Task[Slice, Notes]):
    """From sinograms to images in their units. The slices are of one object: they share noise and range."""

    degrees: np.ndarray
    size: int | None
    layout: Layout
    center: float | None  # None: it is looked for
    fan: Fan | None

    def read(self, path: Path) -> tuple[Sequence[Slice], Notes]:
        stack = angles_first(read_sinograms(path), len(self.degrees), self.layout)
        notes = []
        if self.center is None:
            center = round(estimate_center(stack, self.degrees), 3)
            notes.append(f"the rotation axis was found at --center {center:g}")
        else:
            center = self.center
        if abs(center) > stack.shape[-1] / 2:
            raise ValueError(f"--center {center:g} is outside the detector, which has {stack.shape[-1]} bins")
        H, circle = _operator(self.degrees, stack.shape[-1], self.size, center, self.fan)
        sinograms = torch.from_numpy(np.array(stack, dtype=np.float32, order="C"))[:, None]  # a copy: npy is read-only
        seen = sinograms[sinograms.flatten(1).any(1)]  # empty slices say nothing about noise and range
        sigma = self.settings.sigma
        if sigma is None and stack.shape[-1] < FEWEST_BINS:
            raise ValueError(f"{path}: the noise cannot be estimated from {stack.shape[-1]} bins; give --sigma")
        least = LEAST_NOISE * float(sinograms.double().abs().max())
        noise = max(estimate_sinogram_noise(seen), least) if sigma is None else sigma
        white = max(image_range(H, sinogram) for sinogram in seen.split(1))
        return [Slice(sinogram, H, noise, white, circle) for sinogram in sinograms.split(1)], notes

    def pose(self, frame: Slice) -> Problem:
        keep = _inside_circle if frame.circle else lambda x: x
        estimated = self.settings.sigma is None
        return Problem(frame.sinogram, frame.H, frame.noise, estimated=estimated, white=frame.white, keep=keep)

    def check_target(self, path: Path, frames: Sequence[Slice], kind: Notes) -> None:
        check_slices(path, len(frames))

    def write(self, path: Path, images: Sequence[Tensor], kind: Notes) -> Notes:
        """In the units of the image, or, where the format has none, from its smallest value to its largest."""
        if is_volume(path):
            volume = torch.cat(list(images))[:, 0].float().cpu().numpy()
            write_volume(path, volume if len(volume) > 1 else volume[0])
        else:
            (image,) = images
            low, high = float(image.min()), float(image.max())
            write_gray(path, (image - low) / (high - low) if high > low else torch.zeros_like(image))
        return kind


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

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        if suffix_of(path) in NIFTI:
            write_volume(path, images[0][0, 0].float().cpu().numpy())
        else:
            super().write(path, images, kind)


@with_settings(
    without=("batch", "channelwise", "data_range", "quality", "recursive", *PICTURE_NOISE, *TILES),
    sigma_help="Standard deviation of the noise, in the units of the sinogram. Default: estimated from "
    "differences between neighbouring bins; with --simulate 1 % of the largest value.",
)
def ct(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SINOGRAM",
            help="Line integrals: a gray image, or a stack (slices, angles, bins), in .npy, .tif, or a gray picture; "
            "with --simulate a picture.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The image, or the stack: .npy, .tif, .nii, .nii.gz in its units; .png (one image) from its minimum "
            "to its maximum.",
        ),
    ],
    angles: Annotated[
        str,
        typer.Option(
            metavar="ANGLES",
            help="How many, equally spaced from 0 to 180 degrees (without 180), with --fan to 360; or all of them, in "
            "degrees: 0,45,90 or a file (.npy, .txt). At 0 the rays run along the columns, as in scikit-image.",
        ),
    ],
    size: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=LARGEST_SIZE,
            help="Height and width of the image, in bins. Default: the number of bins, for an object inside the "
            "circle; if the detector saw the whole square, it is the number of bins / 1.414.",
        ),
    ] = None,
    layout: Annotated[
        Layout, typer.Option(help="Rows and columns of the sinogram. auto: by the number of angles.")
    ] = Layout.auto,
    center: CenterOption = "0",
    fan: FanOption = None,
    *,
    settings: Settings,
) -> None:
    """Reconstruct images from sinograms (CT with parallel rays or a fan)."""
    distances = _fan(fan)
    axis = _center(center, distances)
    degrees = _angles(angles, 180 if distances is None else 360)
    if settings.simulate:
        if (size, layout, axis, distances) != (None, Layout.auto, 0.0, None):
            raise ValueError("--size, --layout, --center and --fan are for sinograms: leave them out with --simulate")
        optional("skimage.transform", "filtered back-projection", "demo")  # better before the work than after
        task = SimulatedSinogram(settings, degrees)
    else:
        task = SinogramTask(settings, degrees, size, layout, axis, distances)
    check_volume_path(target, tuple(files.PILLOW))
    run(task, one_job(source, target), reads=[Path(angles)] if _is_file(angles) else [])


def _operator(
    degrees: np.ndarray, bins: int, size: int | None, center: float, fan: Fan | None
) -> tuple[Operator, bool]:
    """And whether the image is what lies inside the circle."""
    side = bins if size is None else size
    circle = side == bins
    if fan is not None:
        # In bins the pixels are smaller by the magnification.
        magnification = (fan[0] + fan[1]) / fan[0]
        source, detector = (distance * magnification for distance in fan)
        return FanBeam(degrees, side, source, detector, bins=bins, pitch=magnification, center=center), circle
    if not circle and not center:
        _check_covers(side, bins)
    return Radon(degrees, side, circle=circle, bins=bins, center=center), circle


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


def _angles(text: str, turn: float) -> np.ndarray:
    """In degrees."""
    if text.isdecimal():
        number = int(text) if len(text) < 10 else 0
        if not 1 <= number <= MOST_ANGLES:
            raise ValueError(f"--angles {text[:20]}: the number of angles must be from 1 to {MOST_ANGLES}")
        return np.arange(number) * (turn / number)
    try:
        degrees = read_angles(Path(text)) if _is_file(text) else as_numbers(text.split(","))
    except (OSError, ValueError, EOFError) as error:
        shown = text if len(text) < 80 else f"{text[:80]}..."
        raise ValueError(f"--angles {shown}: not a number of angles, nor a list or file of them ({error})") from None
    if not 1 <= degrees.size <= MOST_ANGLES or not np.isfinite(degrees).all():
        raise ValueError(f"--angles: the angles must be finite numbers, from 1 to {MOST_ANGLES} of them")
    return degrees


def _is_file(text: str) -> bool:
    """Whether the option names one, that is there or not, and is no list of numbers."""
    try:
        return text.lower().endswith(LISTS) or Path(text).is_file()
    except OSError:  # longer than any name
        return False


def _center(text: str, fan: Fan | None) -> float | None:
    if text == AUTO:
        if fan is not None:
            raise ValueError("--center auto is for parallel rays: give a number with --fan")
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"--center must be a number of bins, such as -0.5, or {AUTO}, not {text}")
    return value


def _fan(text: str | None) -> Fan | None:
    if text is None:
        return None
    try:
        source, detector = as_numbers(text.split(","))
    except ValueError:
        source = detector = math.nan
    if not (0 < source < math.inf and 0 <= detector < math.inf):
        raise ValueError(
            f"--fan must be the distances of source and detector from the axis, in bins, such as 1200,800, not {text}"
        )
    return float(source), float(detector)
