"""What sphinx-gallery is told about the examples: their order, and what becomes of animations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.animation import Animation
from sphinx_gallery.scrapers import figure_rst

ORDER = ("pictures", "denoise", "deblur", "superresolution", "inpainting", "mri", "ct", "own_operator", "error_bars")


class Order:
    """The place of an example in the book. One that has none here comes last."""

    def __init__(self, folder: str):
        self.folder = folder

    def __call__(self, filename: str) -> tuple[int, str]:
        name = Path(filename).stem
        return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def style(gallery_conf: dict[str, Any], filename: str) -> None:
    """Set what figures look like before an example is run: text that can be read on a phone, too."""
    plt.rcParams.update({"font.size": 13, "axes.titlesize": 13, "figure.dpi": 150, "savefig.dpi": 150})


def scrape(block: tuple, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Write the animations that a block of an example leaves in its names as GIF, and close their figures.

    The player of matplotlib, which sphinx-gallery would take, fetches its icons from the network. A reconstruction that
    is called `rec` must have converged, as in the pages.
    """
    names = block_vars["example_globals"]
    if "rec" in names and not names["rec"].converged:
        raise ValueError(f"{block_vars['src_file']}: {names['rec']}")
    paths = []
    for name in [name for name, value in names.items() if isinstance(value, Animation)]:
        animation = names.pop(name)  # it is shown once
        path = Path(next(block_vars["image_path_iterator"])).with_suffix(".gif")
        animation.save(path, writer="pillow", dpi=100)
        plt.close(animation._fig)
        paths.append(str(path))
    return figure_rst(paths, gallery_conf["src_dir"])
