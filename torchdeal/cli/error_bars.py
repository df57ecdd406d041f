"""`--error-bars FILE`: the standard deviation of each pixel, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdeal.io import files
from torchdeal.reconstruction import Reconstruction
from torchdeal.uncertainty import Told, uncertainty

if TYPE_CHECKING:  # run.py imports this module
    from torchdeal.cli.run import Solved


def write_error_bars(path: Path, solved: Sequence[Solved], told: Told | None = None) -> None:
    """Of all frames, on the scale of their images: `(H, W)`, `(H, W, C)`, or a stack, in floating point."""
    found = torch.cat([frame.problem.keep(_deviation(frame, told)).float().cpu() for frame in solved])
    pixels = found.permute(0, 2, 3, 1).numpy()
    if len(pixels) == 1:
        pixels = pixels[0, ..., 0] if pixels.shape[-1] == 1 else pixels[0]
    files.write(path, files.ImageFile(pixels))


def _deviation(frame: Solved, told: Told | None) -> Tensor:
    if isinstance(frame.solution, Reconstruction):
        return uncertainty(frame.solution, callback=told)
    return torch.full_like(frame.solution.x, frame.problem.noise)  # left as it was, with the noise that it may have
