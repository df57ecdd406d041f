"""Small clean pictures to try each problem with: those that scikit-image brings along."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from torchdeal.app.uploads import Upload
from torchdeal.extras import optional
from torchdeal.io import files

SIDE = 128
PICTURES = ("denoise", "deblur", "upscale", "inpaint")


@dataclass(frozen=True)
class Sample:
    """A picture, how it is called, and the problems that it is offered for."""

    title: str
    goals: tuple[str, ...]
    pixels: Callable[[Any], np.ndarray]


def _phantom(data: Any) -> np.ndarray:
    large = data.shepp_logan_phantom()[8:392, 8:392].reshape(SIDE, 3, SIDE, 3).mean((1, 3))
    return (255 * large).clip(0, 255).round().astype(np.uint8)


SAMPLES = {
    "camera": Sample("camera man", (*PICTURES, "mri"), lambda data: data.camera()[64 : 64 + SIDE, 160 : 160 + SIDE]),
    "astronaut": Sample("astronaut", PICTURES, lambda data: data.astronaut()[16 : 16 + SIDE, 152 : 152 + SIDE]),
    "phantom": Sample("phantom of a head", ("mri", "ct"), _phantom),
    "coins": Sample("coins", ("ct",), lambda data: data.coins()[16 : 16 + SIDE, 16 : 16 + SIDE]),
}


@cache
def pixels_of(name: str) -> np.ndarray:
    """Raises ImportError, with what to install, where scikit-image is not there."""
    data = optional("skimage.data", "a sample picture", "demo")
    return np.ascontiguousarray(SAMPLES[name].pixels(data))


def brought(name: str, folder: Path) -> Upload:
    """A sample, as if a person had brought it. Raises KeyError if there is none of this name."""
    image = files.ImageFile(pixels_of(name))
    path = folder / f"sample-{list(SAMPLES).index(name)}.png"
    files.write(path, image)
    return Upload(f"{name}.png", path, image, sample=True)


def offered() -> list[dict[str, Any]]:
    """For the page."""
    return [{"name": name, "title": each.title, "goals": list(each.goals)} for name, each in SAMPLES.items()]
