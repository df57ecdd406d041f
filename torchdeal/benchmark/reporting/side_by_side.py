"""The pictures that were kept of a problem, side by side with the same place enlarged, for the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from torchdeal.benchmark.pictures import CLEAN, MEASURED
from torchdeal.benchmark.reporting.labels import OURS_FIRST, label
from torchdeal.benchmark.results import Results, Row

SHORT = {  # of methods, where there is little space
    "deal-light": "DEAL, light",
    "deal-rule": "DEAL, rule",
    "deal-paper": "DEAL, paper's",
    "deal-mean": "DEAL, mean",
    "tv": "TV",
    "nlm": "NLM",
    "fbp": "FBP",
    CLEAN: "Ground truth",
    MEASURED: "Measured",
}


@dataclass(frozen=True)
class Picture:
    """A file, and what it shows."""

    path: Path
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Pictures that belong together."""

    title: str
    pictures: list[Picture]


def galleries(folder: Path, results: Results) -> Iterator[Gallery]:
    """Of each cell and image that pictures were kept of."""
    levels: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(results.rows, key=_place):
        problem = " ".join(filter(None, [row.image, row.variant]))
        level = row.values.get("psnr")
        levels.setdefault((row.cell, problem), {})[row.method] = "" if level is None else f"{level:.2f} dB"
    for cell in results.cells:
        folders = (folder / "pictures" / results.experiment / cell).glob("*")
        for kept in sorted(path for path in folders if path.is_dir()):
            values = {CLEAN: "", MEASURED: "", **levels.get((cell, kept.name), {})}
            paths = {name: path for name in values if (path := kept / f"{name}.png").is_file()}
            if paths:
                yield Gallery(f"{cell}: {kept.name}", _compared(kept, paths, values))


def _place(row: Row) -> tuple[int, float]:
    """Ours, then the others from the best on."""
    ours = OURS_FIRST.index(row.method) if row.method in OURS_FIRST else len(OURS_FIRST)
    return ours, -(row.values.get("psnr") or 0)


def _compared(kept: Path, paths: dict[str, Path], values: dict[str, str]) -> list[Picture]:
    """One picture with all of them, drawn where it is older than they are; they themselves without matplotlib."""
    captions = {name: ", ".join(filter(None, [_name(name), values[name]])) for name in paths}
    target = kept.parent / f"{kept.name}.png"
    if not target.exists() or target.stat().st_mtime_ns < max(path.stat().st_mtime_ns for path in paths.values()):
        try:
            _draw(target, paths, values)
        except ImportError:
            return [Picture(path, captions[name]) for name, path in paths.items()]
    return [Picture(target, "; ".join(captions.values()))]


def _draw(target: Path, paths: dict[str, Path], values: dict[str, str]) -> None:
    from torchdeal.benchmark.figures import compare_pictures, write

    pictures = {_name(name): np.asarray(Image.open(path)) / 255 for name, path in paths.items()}
    clean = pictures.pop(_name(CLEAN), None) if len(pictures) > 1 else None
    texts = {_name(name): values[name] for name in paths if _name(name) in pictures}
    write(compare_pictures(pictures, clean=clean, values=texts), target)


def _name(method: str) -> str:
    return SHORT.get(method, label(method))
