"""The learned functions of one number: phi1, phi2, phi^sigma_c for a few channels, and kappa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchdeal.benchmark.figures.filters import effective_kernels, show_kernel
from torchdeal.benchmark.figures.study import Study
from torchdeal.benchmark.figures.style import BLACK, BLUE, FULL, GREEN, ORANGE, VERMILION, page, styled
from torchdeal.model import SIGMA_MAX, Weights
from torchdeal.model.attention import MASK_FLOOR
from torchdeal.model.spline import PHI_END, even_spline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGMAS = {5.0: BLUE, 15.0: ORANGE, 25.0: VERMILION}
CHANNELS = 4
STRONG = 64  # the channels are chosen among so many filters of the largest energy


@dataclass(frozen=True)
class Splines:
    """Values of the functions on a grid; phi1, phi2 and phi^sigma_c are even."""

    x: np.ndarray  # of phi1 and phi2
    phi1: np.ndarray
    phi2: np.ndarray
    sigma: np.ndarray  # of kappa
    kappa: np.ndarray
    channels: list[int]  # of phi^sigma_c
    input: np.ndarray  # its x
    phi_sigma: dict[float, np.ndarray]  # by sigma, (channels, points)


def learned_splines(weights: Weights, points: int = 601) -> Splines:
    """The functions of a model, over the whole range in which they change."""
    channels = spread_channels(weights)
    like = weights.kappa
    x = torch.linspace(0, 1.2 * PHI_END, points).to(like)
    sigma = torch.linspace(0, SIGMA_MAX, points).to(like)
    with torch.no_grad():
        alpha = {level: weights.alpha(like.new_tensor([level]))[0, channels, 0, 0] for level in SIGMAS}
        widest = float(min(scaling.min() for scaling in alpha.values()))
        inputs = torch.linspace(0, 1.3, points).to(like) * half_width(weights) / widest
        phi_sigma = {
            level: even_spline(scaling[:, None] * inputs, weights.phi[2]).clamp(MASK_FLOOR, 1).cpu().numpy()
            for level, scaling in alpha.items()
        }
        phi1, phi2 = (even_spline(x, values).cpu().numpy() for values in weights.phi[:2])
        kappa = weights.lam(sigma).flatten().cpu().numpy()
    return Splines(x.cpu().numpy(), phi1, phi2, sigma.cpu().numpy(), kappa, channels, inputs.cpu().numpy(), phi_sigma)


def half_width(weights: Weights) -> float:
    """Where phi3 has come down to the floor of the masks; its last knot if it never does."""
    low = (weights.phi[2] <= MASK_FLOOR).nonzero().flatten()
    knots = len(weights.phi[2])
    return PHI_END * (int(low[0]) if len(low) else knots - 1) / (knots - 1)


def spread_channels(weights: Weights) -> list[int]:
    """Channels of strong filters, from a small one to a large one: those with few pixels of weight come first."""
    kernels = effective_kernels(weights.filters)
    energy = np.square(kernels.values[:STRONG])
    offsets = np.arange(energy.shape[1]) - energy.shape[1] // 2
    radius = (energy * (offsets[:, None] ** 2 + offsets**2)).sum((1, 2)) / energy.sum((1, 2))
    by_size = kernels.channels[:STRONG][np.argsort(radius, kind="stable")]
    return [int(by_size[place]) for place in np.linspace(0, len(by_size) - 1, CHANNELS).round().astype(int)]


@styled
def draw_splines(study: Study) -> Figure:
    """The functions without a channel above, those of four channels below, each with its filter."""
    splines = learned_splines(study.weights)
    figure = page(FULL, 3.1, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1, 1.05], hspace=0.02)  # pyright: ignore
    phi1, phi2, kappa = above.subplots(1, 3)
    for axes, values, name in ((phi1, splines.phi1, r"\varphi_1"), (phi2, splines.phi2, r"\varphi_2")):
        axes.plot(splines.x, values, color=BLACK)
        axes.set(title=f"${name}$", xlabel="$|x|$", xlim=(0, splines.x[-1]), xticks=range(4))
    kappa.plot(splines.sigma, splines.kappa, color=GREEN)
    kappa.set(title=r"$\kappa(\sigma)$", xlabel=r"$\sigma$ (of 255)", xlim=(0, SIGMA_MAX), ylim=(0, None))
    _draw_channels(below.subplots(1, CHANNELS, sharey=True), splines, study.weights)
    return figure


def _draw_channels(panels: np.ndarray, splines: Splines, weights: Weights) -> None:
    kernels = effective_kernels(weights.filters)
    ordered = dict(zip(kernels.channels.tolist(), kernels.values, strict=True))
    for index, (axes, channel) in enumerate(zip(panels, splines.channels, strict=True)):
        for (level, values), color in zip(splines.phi_sigma.items(), SIGMAS.values(), strict=True):
            axes.plot(splines.input, values[index], color=color, label=rf"$\sigma = {level:g}$")
        axes.set(title=rf"$\phi_c^\sigma$, $c = {channel}$", xlabel="$|x|$", ylim=(0, 1.05))
        axes.set_xlim(0, splines.input[-1])
        _inset(axes, ordered[channel])
    panels[0].legend(loc="center right", bbox_to_anchor=(1, 0.45), borderaxespad=0, handlelength=1)


def _inset(axes: Axes, kernel: np.ndarray) -> None:
    show_kernel(axes.inset_axes((0.74, 0.66, 0.26, 0.34)), kernel)
