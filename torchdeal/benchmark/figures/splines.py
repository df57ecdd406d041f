"""The learned functions of one number: phi1, phi2, phi^sigma_c for a few channels, and kappa."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchdeal.benchmark.figures.filters import show_kernel
from torchdeal.benchmark.figures.study import Study
from torchdeal.benchmark.figures.style import BLACK, BLUE, FULL, GREEN, ORANGE, VERMILION, page, styled
from torchdeal.explain import SHOWN_CHANNELS, Splines, effective_kernels, learned_splines
from torchdeal.model import SIGMA_MAX, Weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGMAS = {5.0: BLUE, 15.0: ORANGE, 25.0: VERMILION}


@styled
def draw_splines(study: Study) -> Figure:
    """The functions without a channel above, those of four channels below, each with its filter."""
    splines = learned_splines(study.weights, list(SIGMAS))
    figure = page(FULL, 3.1, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.05], hspace=0.02)  # pyright: ignore
    phi1, phi2, kappa = above.subplots(1, 3)
    for axes, values, name in ((phi1, splines.phi1, r"\varphi_1"), (phi2, splines.phi2, r"\varphi_2")):
        axes.plot(splines.x, values, color=BLACK)
        axes.set(title=f"${name}$", xlabel="$|x|$", xlim=(0, splines.x[-1]), xticks=range(4))
    kappa.plot(splines.sigma, splines.kappa, color=GREEN)
    kappa.set(title=r"$\kappa(\sigma)$", xlabel=r"$\sigma$ (of 255)", xlim=(0, SIGMA_MAX), ylim=(0, None))
    _draw_channels(below.subplots(1, SHOWN_CHANNELS, sharey=True), splines, study.weights)
    return figure


def _draw_channels(panels: np.ndarray, splines: Splines, weights: Weights) -> None:
    kernels = effective_kernels(weights.filters)
    ordered = dict(zip(kernels.channels.tolist(), kernels.values[:, 0], strict=True))
    for index, (axes, channel) in enumerate(zip(panels, splines.channels, strict=True)):
        for (level, values), color in zip(splines.phi_sigma.items(), SIGMAS.values(), strict=True):
            axes.plot(splines.input, values[index], color=color, label=rf"$\sigma = {level:g}$")
        axes.set(title=rf"$\phi_c^\sigma$, $c = {channel}$", xlabel="$|x|$", ylim=(0, 1.05))
        axes.set_xlim(0, splines.input[-1])
        _inset(axes, ordered[channel])
    panels[0].legend(loc="center right", bbox_to_anchor=(1, 0.45), borderaxespad=0, handlelength=1)


def _inset(axes: Axes, kernel: np.ndarray) -> None:
    show_kernel(axes.inset_axes((0.74, 0.66, 0.26, 0.34)), kernel)
