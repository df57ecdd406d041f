"""What the masks do: squared responses of the filters, the masks, and what of the responses is penalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdeal.benchmark.figures.filters import effective_kernels, show_kernel
from torchdeal.benchmark.figures.study import Denoising, Study
from torchdeal.benchmark.figures.style import (
    COLUMN,
    GAP,
    LINE,
    MAGNITUDES,
    caption,
    page,
    place,
    scale_bar,
    show,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECADES = 5  # of squared responses that are shown
ALIKE = 0.5  # correlation above which two responses show the same


@dataclass(frozen=True)
class Adapted:
    """One row of the figure: of a channel, or of the mean over all."""

    response: np.ndarray  # (W x)^2
    mask: np.ndarray  # M(x)
    adapted: np.ndarray  # (M(x) W x)^2


def adapted_responses(denoising: Denoising, channels: list[int]) -> list[Adapted]:
    """Of these channels, at the solution."""
    response, mask = denoising.responses(denoising.x)[0, channels], denoising.masks(denoising.x)[0, channels]
    triples = zip(*(part.cpu().numpy() for part in (response**2, mask, (mask * response) ** 2)), strict=True)
    return [Adapted(*triple) for triple in triples]


def mean_responses(denoising: Denoising) -> dict[str, Adapted]:
    """The means over all channels: of the noisy picture, and of the solution."""
    found = {}
    for name, x in (("Noisy", denoising.noisy), ("Solution", denoising.x)):
        response, mask = denoising.responses(x)[0], denoising.masks(x)[0]
        parts = (response**2, mask, (mask * response) ** 2)
        found[name] = Adapted(*(part.mean(0).cpu().numpy() for part in parts))
    return found


def telling_channels(denoising: Denoising) -> list[int]:
    """Two channels: the one whose penalty the mask lowers most, and the next whose response shows something else."""
    response, mask = denoising.responses(denoising.x)[0], denoising.masks(denoising.x)[0]
    spared = (response**2 * (1 - mask**2)).sum((1, 2))
    order = spared.argsort(descending=True, stable=True).tolist()
    first = response[order[0]].square().flatten().cpu().numpy()
    for channel in order[1:]:
        if np.corrcoef(first, response[channel].square().flatten().cpu().numpy())[0, 1] < ALIKE:
            return [order[0], channel]
    return order[:2]


@styled
def draw_responses(study: Study) -> Figure:
    """Two filters at the solution; each filter stands in the corner of its response."""
    channels = telling_channels(study.denoising)
    kernels = effective_kernels(study.weights.filters)
    ordered = dict(zip(kernels.channels.tolist(), kernels.values, strict=True))
    heads = (
        r"$(\mathbf{W}_c\,\mathbf{x})^2$",
        r"$\mathbf{m}_c(\mathbf{x})$",
        r"$(\mathbf{m}_c(\mathbf{x})\odot\mathbf{W}_c\,\mathbf{x})^2$",
    )
    rows = dict(zip([f"$c = {c}$" for c in channels], adapted_responses(study.denoising, channels), strict=True))
    return _draw_rows(rows, heads, [ordered[channel] for channel in channels])


@styled
def draw_averages(study: Study) -> Figure:
    """The means over all channels."""
    heads = (
        r"Mean of $(\mathbf{W}\mathbf{x})^2$",
        r"Mean of $\mathbf{M}(\mathbf{x})$",
        r"Mean of $(\mathbf{M}(\mathbf{x})\mathbf{W}\mathbf{x})^2$",
    )
    return _draw_rows(mean_responses(study.denoising), heads, [])


def _draw_rows(rows: dict[str, Adapted], heads: tuple[str, ...], kernels: list[np.ndarray]) -> Figure:
    """Responses, with and without the mask, share a logarithmic scale in each row; masks go from 0 to 1."""
    side = 0.16
    tile = (COLUMN - side - 2 * GAP) / 3
    step = tile + GAP + 0.24
    figure = page(COLUMN, LINE + 0.04 + len(rows) * step)
    for index, head in enumerate(heads):
        caption(figure, head, side + index * (tile + GAP) + tile / 2, LINE / 2 + 0.02, fontsize=7.5)
    for number, (name, row) in enumerate(rows.items()):
        top = LINE + 0.04 + number * step
        caption(figure, name, side / 2, top + tile / 2, rotation=90, fontsize=7.5)
        most = 10.0 ** np.ceil(np.log10(np.quantile(row.response, 0.995)))
        decades: dict[str, Any] = {"norm": "log", "clim": (most / 10**DECADES, most)}
        for index, values in enumerate((row.response, row.mask, row.adapted)):
            left = side + index * (tile + GAP)
            options = {"vmin": 0, "vmax": 1} if index == 1 else decades
            shown = values if index == 1 else values.clip(most / 10**DECADES)
            image = show(place(figure, left, top, tile, tile), shown, cmap=MAGNITUDES, **options)
            bar = place(figure, left + 0.1 * tile, top + tile + 0.03, 0.8 * tile, 0.05)
            ticks = [0, 1] if index == 1 else [most / 10**DECADES, most]
            scale_bar(bar, image, orientation="horizontal", ticks=ticks, **({"format": "{x:g}"} if index == 1 else {}))
        if kernels:
            show_kernel(place(figure, side, top + 0.72 * tile, 0.28 * tile, 0.28 * tile), kernels[number])
    return figure
