"""What the masks do: squared responses of the filters, the masks, and what of the responses is penalised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torchdeal.benchmark.figures.filters import show_kernel
from torchdeal.benchmark.figures.study import DenoisedPicture, Study
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
from torchdeal.explain import Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECADES = 5  # of squared responses that are shown
ALIKE = 0.5  # correlation above which two responses show the same


Row = tuple[np.ndarray, ...]  # squared responses, masks, squared responses after attention


def adapted_responses(explanation: Explanation, channels: list[int]) -> list[Row]:
    """Of these channels."""
    response, mask = explanation.responses()[0, channels], explanation.masks()[0, channels]
    return list(zip(*(part.cpu().numpy() for part in (response**2, mask, (mask * response) ** 2)), strict=True))


def mean_responses(denoising: DenoisedPicture) -> dict[str, Row]:
    """The means over all channels: of the noisy picture, and of the solution."""
    found = {"Noisy": denoising.explanation.at(denoising.noisy).means, "Solution": denoising.explanation.means}
    return {name: tuple(part[0].cpu().numpy() for part in means) for name, means in found.items()}


def telling_channels(explanation: Explanation) -> list[int]:
    """Two channels: the one whose penalty the mask lowers most, and the next whose response shows something else."""
    response, mask = explanation.responses()[0], explanation.masks()[0]
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
    explanation = study.denoising.explanation
    channels, kernels = telling_channels(explanation), explanation.filters
    ordered = dict(zip(kernels.channels.tolist(), kernels.values[:, 0], strict=True))
    heads = (
        r"$(\mathbf{W}_c\,\mathbf{x})^2$",
        r"$\mathbf{m}_c(\mathbf{x})$",
        r"$(\mathbf{m}_c(\mathbf{x})\odot\mathbf{W}_c\,\mathbf{x})^2$",
    )
    rows = dict(zip([f"$c = {c}$" for c in channels], adapted_responses(explanation, channels), strict=True))
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


def _draw_rows(rows: dict[str, Row], heads: tuple[str, ...], kernels: list[np.ndarray]) -> Figure:
    """All responses, with and without the mask, share a logarithmic scale; masks go from 0 to 1."""
    side, top = 0.16, LINE + 0.04
    tile = (COLUMN - side - 2 * GAP) / 3
    bottom = top + len(rows) * (tile + GAP)
    most = float(max(np.quantile(response, 0.995) for response, _, _ in rows.values()))
    least = most / 10**DECADES
    decades = [10.0 ** np.ceil(np.log10(least)), 10.0 ** np.floor(np.log10(most))]
    figure = page(COLUMN, bottom + 0.2)
    for index, head in enumerate(heads):
        left, is_mask = side + index * (tile + GAP), index == 1
        caption(figure, head, left + tile / 2, LINE / 2 + 0.02, fontsize=7.5)
        scale: dict[str, Any] = {} if is_mask else {"norm": "log", "clim": (least, most)}
        for number, row in enumerate(rows.values()):
            values = row[index] if is_mask else row[index].clip(least)
            axes = place(figure, left, top + number * (tile + GAP), tile, tile)
            image = show(axes, values, cmap=MAGNITUDES, **scale)
            if number == 0:
                bar = place(figure, left + 0.1 * tile, bottom, 0.8 * tile, 0.05)
                scale_bar(bar, image, orientation="horizontal", ticks=[0, 1] if is_mask else decades)
    for number, name in enumerate(rows):
        caption(figure, name, side / 2, top + number * (tile + GAP) + tile / 2, rotation=90, fontsize=7.5)
    for number, kernel in enumerate(kernels):
        down = top + number * (tile + GAP) + 0.72 * tile
        show_kernel(place(figure, side, down, 0.28 * tile, 0.28 * tile), kernel)
    return figure
