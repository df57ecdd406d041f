"""The answers of some problems, kept as pictures for the report: `OUT/pictures/EXPERIMENT/CELL/IMAGE/METHOD.png`."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from torchdeal.benchmark.core import PosedProblem
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.results import Row
from torchdeal.io.files import write
from torchdeal.io.formats import ImageFile

PICTURES = "pictures"
CLEAN, MEASURED = "clean", "measured"


def keep_pictures(options: BenchmarkOptions, experiment: str, row: Row, x: Tensor, problem: PosedProblem) -> None:
    """The answer `(1, C, H, W)`, and, where they are not there yet, the clean image and what was measured."""
    folder = options.out / PICTURES / experiment / row.cell / " ".join(filter(None, [row.image, row.variant]))
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {CLEAN: problem.clean, row.method: x}
    if problem.y.ndim == 4 and not problem.y.is_complex() and problem.y.shape[1] == x.shape[1]:
        pictures[MEASURED] = problem.y
    for name, image in pictures.items():
        path = folder / f"{name}.png"
        if name == row.method or not path.exists():
            _write(path, image)


def _write(path: Path, image: Tensor) -> None:
    pixels = (image[0].clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    write(path, ImageFile(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))
