"""`rec.plot()`: a reconstruction beside what was measured, and how the run went, as a figure of matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdeal.display.shown import Shown, answer, given_truth, measured, peak
from torchdeal.extras import optional
from torchdeal.metrics import psnr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from torchdeal.reconstruction import Reconstruction

PANEL, CURVE, HEIGHT = 2.8, 3.4, 3.0  # inches: widths of a picture and of the curve, and the height


def draw(rec: Reconstruction, sample: int, truth: Any) -> Figure:
    """The figure. It is one of pyplot, so that `plt.show()` shows it, but where a notebook shows what is returned."""
    pyplot = optional("matplotlib.pyplot", "rec.plot()", "plot")
    sample = _checked(sample, len(rec.statuses))
    pictures = _pictures(rec, sample, truth)  # before there is a figure: what is wrong leaves none behind
    widths = [PANEL] * len(pictures) + [CURVE]
    figure = pyplot.figure(figsize=(sum(widths), HEIGHT), layout="constrained")
    *panels, curve = figure.subplots(1, len(widths), width_ratios=widths)
    for axes, (title, picture) in zip(panels, pictures, strict=True):
        _draw_picture(axes, title, picture)
    _draw_curve(curve, rec, sample)
    if "inline" in pyplot.get_backend():  # it would be shown twice: at the end of the cell, and as its value
        pyplot.close(figure)
    return figure


def _checked(sample: int, count: int) -> int:
    if not 0 <= sample < count:
        raise ValueError(f"there is no sample {sample}: samples go from 0 to {count - 1}")
    return sample


def _pictures(rec: Reconstruction, sample: int, truth: Any) -> list[tuple[str, Shown]]:
    """In order, each with its title."""
    result, (data, is_image) = answer(rec, sample), measured(rec, sample)
    titles = {"measured" if is_image else "$H^T y$, of what was measured": data, "reconstructed": result}
    if truth is None:
        return list(titles.items())
    clean = given_truth(rec, truth, sample)
    white = peak(rec, clean, sample)
    pictures = []
    for title, picture in titles.items():
        comparable = picture is result or (is_image and picture.values.shape == clean.values.shape)
        quality = f", {psnr(picture.values / white, clean.values / white):.2f} dB" if comparable else ""
        pictures.append((f"{title}{quality}", picture))
    return [*pictures, ("truth", clean)]


def _draw_picture(axes: Axes, title: str, picture: Shown) -> None:
    axes.imshow(picture.pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(title if not picture.part else f"{title}\n({picture.part})", fontsize="medium")
    axes.set_axis_off()


def _draw_curve(axes: Axes, rec: Reconstruction, sample: int) -> None:
    """The residual of each outer iteration; the title says how the run ended, and how far from the fixed point."""
    residuals = rec.residuals[:, sample].double().numpy()
    visible = np.isfinite(residuals) & (residuals > 0)
    axes.semilogy(np.arange(1, len(residuals) + 1)[visible], residuals[visible], marker=".")
    distance = float(rec.distance[sample])
    words = f"about {distance:.1e}" if math.isfinite(distance) else "unknown"
    axes.set_title(f"{rec.statuses[sample].name}\ndistance to the fixed point {words}", fontsize="medium")
    axes.set_xlabel("outer iteration")
    axes.set_ylabel(r"residual, relative to $\|H^T y\|$")
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
