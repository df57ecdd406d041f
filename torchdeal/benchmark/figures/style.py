"""One style for all figures: sizes, fonts and colours of a paper, and files that are the same each time.

Nothing of matplotlib is changed outside: the style holds where a figure is drawn (`styled`) and written (`write`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from torchdeal.extras import optional
from torchdeal.io.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

P = ParamSpec("P")
R = TypeVar("R")

COLUMN, FULL = 3.25, 6.75  # inches: the width of a column, and of a page
GAP = 0.06  # inches between pictures
LINE = 0.14  # inches, of text
SMALL = 6  # points, of what is read second

# Okabe and Ito's colours, which colour-blind readers tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
MAGNITUDES = "cividis"  # from dark to light, for numbers from 0 upwards
SIGNED = "gray"  # the middle is 0

STYLE = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with matplotlib: the same on every machine
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.titlepad": 3,
    "axes.labelpad": 2,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.3,
    "ytick.minor.width": 0.3,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2,
    "ytick.major.pad": 2,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 3,
    "image.cmap": "gray",
    "pdf.fonttype": 42,  # TrueType: text that can be searched, and that publishers take
}
RESOLUTION = {"pdf": 300, "png": 200}  # dots per inch; in a PDF only of the pictures in it
UNDATED: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "png": {"Software": None}}


def in_style() -> AbstractContextManager[None]:
    return optional("matplotlib", "drawing figures", "benchmark").rc_context(STYLE)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """A function that draws in the style."""

    @functools.wraps(draw)
    def drawing(*args: P.args, **kwargs: P.kwargs) -> R:
        with in_style():
            return draw(*args, **kwargs)

    return drawing


def page(width: float, height: float, **layout: Any) -> Figure:
    """An empty figure; its size is in inches."""
    library = optional("matplotlib.figure", "drawing figures", "benchmark")
    return library.Figure(figsize=(width, height), dpi=RESOLUTION["png"], **layout)


def place(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in inches, from the upper left corner of the figure."""
    across, down = figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def caption(figure: Figure, text: str, x: float, y: float, *, widest: float = math.inf, **options: Any) -> None:
    """Text at a place in inches, from the upper left corner; smaller where it would be wider than `widest`."""
    across, down = figure.get_size_inches()
    written = figure.text(x / across, 1 - y / down, text, ha="center", va="center", **options)
    width = written.get_window_extent().width / figure.dpi
    if width > widest:
        written.set_fontsize(float(written.get_fontsize()) * widest / width)


def show(axes: Axes, picture: Any, **options: Any) -> AxesImage:
    """A picture without ticks and frame; in 0..1 if nothing else is said."""
    bare(axes)
    limits: dict[str, Any] = {"aspect": "auto"} if "norm" in options else {"aspect": "auto", "vmin": 0, "vmax": 1}
    return axes.imshow(picture, **(limits | options))


def bare(axes: Axes) -> None:
    axes.grid(False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def scale_bar(axes: Axes, image: AxesImage, **options: Any) -> None:
    """The colours of an image and their numbers, in axes of their own."""
    bar = axes.get_figure().colorbar(image, cax=axes, **options)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set(linewidth=0.4)  # pyright: ignore
    bar.ax.tick_params(labelsize=SMALL, length=1.5, pad=1.5)
    bar.ax.minorticks_off()


def write(figure: Figure, path: Path) -> None:
    """A PDF or PNG file, by its ending; all or nothing, and the same bytes for the same figure."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in RESOLUTION:
        raise ValueError(f"{path}: a figure is written as .{' or .'.join(RESOLUTION)}")
    with in_style(), replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=RESOLUTION[kind], metadata=UNDATED[kind])
