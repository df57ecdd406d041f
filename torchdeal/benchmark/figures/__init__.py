"""The figures of the paper, drawn with the shipped weights: `deal benchmark figures`.

Each is a function of a `Study` that returns a matplotlib figure; the numbers in it come from a function of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchdeal.benchmark.figures.filters import draw_filters, draw_mask_filters, draw_spectrum
from torchdeal.benchmark.figures.panels import Zoom, compare_pictures, draw_comparison
from torchdeal.benchmark.figures.path import draw_path
from torchdeal.benchmark.figures.responses import draw_averages, draw_responses
from torchdeal.benchmark.figures.rows import draw_rows
from torchdeal.benchmark.figures.splines import draw_splines
from torchdeal.benchmark.figures.starts import draw_starts
from torchdeal.benchmark.figures.study import Study
from torchdeal.benchmark.figures.style import write
from torchdeal.extras import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Study", "Zoom", "compare_pictures", "draw_all", "write"]


class Entry(NamedTuple):
    """What a figure shows, and the function that draws it."""

    about: str
    draw: Callable[[Study], Figure]


FIGURES = {
    "path": Entry("Iterates of denoising, the mean of their masks, and how they converge.", draw_path),
    "comparison": Entry("The clean, the noisy and the denoised picture, a part of each enlarged.", draw_comparison),
    "filters": Entry("The filters of W, 25 x 25, those of the largest energy first.", draw_filters),
    "mask-filters": Entry("The filters of W_mask.", draw_mask_filters),
    "spectrum": Entry("W^T W: its response to an impulse, and its eigenvalues.", draw_spectrum),
    "splines": Entry("The learned functions: phi1, phi2, kappa, and phi of four channels.", draw_splines),
    "responses": Entry("Two filters: response, mask, and the response under the mask.", draw_responses),
    "averages": Entry("The same as means over all filters, for the noisy picture and the result.", draw_averages),
    "rows": Entry("Rows of the inverse of A: what a pixel of the result is the mean of.", draw_rows),
    "starts": Entry("Super-resolution from five starts: PSNR, and distance to the fixed point.", draw_starts),
}


def draw_all(
    out: Path,
    *,
    device: str = "cpu",
    quick: bool = False,
    only: Sequence[str] = (),
    image: Path | None = None,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Draw the figures into a folder, each as PDF and as PNG. The same input gives the same files.

    Args:
        out: the folder; it is made if it is missing.
        device: where to compute.
        quick: small pictures and few iterations, to see whether all works.
        only: names of figures; all if empty.
        image: the picture for the figures of denoising; by default scikit-image's camera.
        say: told about each figure.

    Returns:
        the files.
    """
    unknown = [name for name in only if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {', '.join(unknown)}: choose of {', '.join(FIGURES)}")
    optional("matplotlib", "drawing figures", "benchmark")  # better before the work than after
    study = Study.quick(device, image) if quick else Study(device=device, image=image)
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name in only or FIGURES:
        started = time.perf_counter()
        figure = FIGURES[name].draw(study)
        paths = [out / f"{name}.{ending}" for ending in ("pdf", "png")]
        for path in paths:
            write(figure, path)
        files += paths
        say(f"{name}: {FIGURES[name].about} ({time.perf_counter() - started:.0f} s)")
    return files
