"""How well the noise level of a picture is found: white noise of known levels, and what clean pictures are taken for.

A picture brings noise and fine detail of its own, so small levels cannot be met.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from torchdeal.benchmark.core import Save, Say, middle
from torchdeal.benchmark.images import draw_noise, list_images, read_image
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.io.images import to_tensor
from torchdeal.noise import noise_levels

METHOD = "deal"
WHITE = 255.0
SIGMAS = (0.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0)
QUICK_SIGMAS = (0.0, 25.0)
SIDE, SMALL_SIDE = 256, 64
QUALITY = 90  # of JPEG
TABLE = "Noise levels"
PROTOCOL = (
    f"The central {SIDE} x {SIDE} pixels of each picture, or what there is, with white noise by "
    "numpy.random.RandomState(0), not clipped but where 8 bits or JPEG are said. Levels are on the 0..255 scale. "
    "Errors are relative to the level that was added. The interval is the one that noise_levels states; it is for all "
    "noise in a picture, its own as well. Some constants of the estimate were chosen with pictures of BSD68 and CBSD68 "
    "in view."
)


def rounded(noisy: Tensor) -> Tensor:
    """In 8 bits, as files of cameras have it."""
    return (noisy * WHITE).round().clamp(0, WHITE) / WHITE


def compressed(noisy: Tensor) -> Tensor:
    """Saved as JPEG."""
    pixels = (rounded(noisy) * WHITE).round()[0].permute(1, 2, 0).numpy().astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(file, "JPEG", quality=QUALITY)
    return to_tensor(np.asarray(Image.open(file)))[0]


def small(noisy: Tensor) -> Tensor:
    """Only the middle."""
    return middle(noisy, SMALL_SIDE)


Treatment = Callable[[Tensor], Tensor]
AS_IT_IS: Treatment = torch.clone
TREATMENTS: dict[str, Treatment] = {
    "8 bits": rounded,
    f"JPEG of quality {QUALITY}": compressed,
    f"{SMALL_SIDE} x {SMALL_SIDE}": small,
}
SETS = {
    "gray (BSD68)": "BSD68",
    "gray (Set12)": "Set12",
    "colour (CBSD68)": "CBSD68",
    "knee (MRI-knee)": "MRI-knee",
    "chest (CT)": "CT",
}


def kinds(options: BenchmarkOptions) -> dict[str, tuple[Path, Treatment]]:
    """Of pictures: where they are, and what is done to them. With `--images` those of that folder alone."""
    if options.images:
        plain, folders = "pictures", {"pictures": options.images}
    else:
        plain, folders = "gray", {name: options.folder("test", folder) for name, folder in SETS.items()}
    first = next(iter(folders.values()))
    found = {name: (folder, AS_IT_IS) for name, folder in folders.items()}
    return found | {f"{plain}, {name}": (first, treated) for name, treated in TREATMENTS.items()}


class Noise:
    """The experiment: one kind of pictures and one noise level after the other."""

    about = "Is the noise level found that a picture has?"

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        if options.methods and options.methods != (METHOD,):
            raise Unavailable(f"there are no methods to choose from here, got {' '.join(options.methods)}")
        for kind, _ in _chosen(options).values():
            list_images(kinds(options)[kind][0])  # raises for one that is not there
        images = options.images and options.images.resolve().name
        return {"protocol": PROTOCOL, "quick": options.quick, "limit": options.limit, "images": images}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        known = kinds(options)
        for cell, (kind, sigma) in _chosen(options).items():
            folder, treated = known[kind]
            results.cells[cell] = {"table": TABLE, "column": f"{sigma:g}", "kind": kind, "sigma": sigma}
            measured = {row.image for row in results.select(cell, METHOD)}
            for path in options.images_at_most(list_images(folder)):
                if path.stem not in measured:
                    values = found(treated(_noisy(middle(read_image(path), SIDE), sigma)))
                    results.add(Row(cell, path.stem, METHOD, values, environment=len(results.environments) - 1))
            save()
            say(f"{cell}: {_error(results, cell)}")

    def sections(self, results: Results) -> Iterator[Section]:
        """Errors, then intervals; a row for each kind of pictures, a column for each level."""
        sigmas = sorted({place["sigma"] for place in results.cells.values()})
        head = ["", "pictures", *(f"sigma {sigma:g}" for sigma in sigmas)]
        kinds = dict.fromkeys(place["kind"] for place in results.cells.values())
        tables = [
            Table(head, [_line(results, kind, sigmas, entry) for kind in kinds], title)
            for title, entry in (
                ("Median error in %; for sigma 0 the median of what clean pictures are taken for", _error),
                ("Pictures whose level lies in the interval", _share),
            )
        ]
        yield Section(TABLE, tables=[table for table in tables if table.rows])


def _chosen(options: BenchmarkOptions) -> dict[str, tuple[str, float]]:
    """The kind of pictures and the level of each cell that is to be measured."""
    sigmas = options.sigmas or (QUICK_SIGMAS if options.quick else SIGMAS)
    names = {_cell(kind, sigma): (kind, sigma) for kind in kinds(options) for sigma in sigmas}
    return {cell: names[cell] for cell in options.chosen(list(names))}


def found(noisy: Tensor) -> Values:
    """What is estimated, on the 0..255 scale."""
    (level,) = noise_levels(noisy * WHITE, data_range=WHITE)
    return {"estimate": level.sigma, "low": level.low, "high": level.high}


def _noisy(clean: Tensor, sigma: float) -> Tensor:
    return clean + draw_noise(clean, sigma) if sigma else clean


def _cell(kind: str, sigma: float) -> str:
    return f"{kind}, sigma {sigma:g}"


def _line(results: Results, kind: str, sigmas: list[float], entry: Callable[[Results, str], str]) -> list[str]:
    cells = [_cell(kind, sigma) for sigma in sigmas]
    count = max(len(results.select(cell, METHOD)) for cell in cells)
    return [kind, str(count), *(entry(results, cell) for cell in cells)]


def _error(results: Results, cell: str) -> str:
    rows = results.select(cell, METHOD)
    if not rows:
        return ""
    sigma, estimates = results.cells[cell]["sigma"], [row.values["estimate"] for row in rows]
    if not sigma:
        return f"{median(estimates):.1f}"
    return f"{median(abs(estimate - sigma) / sigma for estimate in estimates):.1%}"


def _share(results: Results, cell: str) -> str:
    rows = results.select(cell, METHOD)
    if not rows:
        return ""
    sigma = results.cells[cell]["sigma"]
    return f"{sum(row.values['low'] <= sigma <= row.values['high'] for row in rows) / len(rows):.0%}"


EXPERIMENT = Noise()
