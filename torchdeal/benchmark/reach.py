"""Reach: how much the answer in a part of an image changes with how far one looks around that part.

An image is solved as a whole, and a square from its middle alone, both to a tolerance of 1e-5. What lies `h` pixels or
more from the border of that square is the core of a tile with a halo of `h`. The rule for the overlap of tiles
(`torchdeal.scale.reach`) comes from these numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.core import Save, Say
from torchdeal.benchmark.images import clean_image, list_images
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.benchmark.reporting.labels import label
from torchdeal.benchmark.reporting.tables import Section, Table
from torchdeal.benchmark.results import Results, Row, Values
from torchdeal.io.checkpoint import checksum, load
from torchdeal.model import DEAL
from torchdeal.operators import Blur, BlurBoundary, Downsample, Identity, Mask, Operator
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.reconstruct import reconstruct
from torchdeal.scale.grid import Box
from torchdeal.scale.local import local
from torchdeal.scale.reach import CERTAIN_LEVEL, DEFAULT_HALO_TOLERANCE, reach
from torchdeal.simulate import measure

METHODS = {"deal": "gray", "deal-light": "gray-light"}
PICTURES = ("camera", "brick", "coins", "page")
SIDE, FRAME = 160, 32  # pixels of the result; so many of them are cut off on each side
QUICK_SIDE, QUICK_FRAME = 72, 16
HALOS = (0, 4, 8, 12, 16, 20, 24, 28, 32, 40)
STRICT, MOST_ITERATIONS = 1e-5, 300
ENDED = 1e-4  # from the fixed point: what rounding leaves of the strict tolerance, at most
SIGMAS = (5, 15, 25, 50)
QUICK_METHODS, QUICK_SIGMAS = ("deal-light",), (25,)
PROTOCOL = (
    f"Crops of {SIDE} x {SIDE} pixels from the middle of pictures of scikit-image, with white noise (seed 0). The crop "
    f"is solved, and the {SIDE - 2 * FRAME} x {SIDE - 2 * FRAME} pixels in its middle alone, with the sigma and lam of "
    f"the crop, both to {STRICT:g}. The first number of an entry is the difference of the two in the pixels that are "
    "at least so far from the border of the square: its root mean square, relative to that of the image. The second is "
    "the largest difference of a pixel, on the 0..255 scale. Both are the largest over the pictures."
)
OPERATORS: dict[str, Callable[[int], Operator]] = {
    "denoising": lambda side: Identity(),
    "blur": lambda side: Blur(gaussian_kernel(1.6), BlurBoundary.VALID),
    "inpainting": lambda side: Mask(torch.rand(side, side, generator=torch.Generator().manual_seed(0)) < 0.5),
    "upscaling": lambda side: Downsample(2, gaussian_kernel(0.6, -0.5), BlurBoundary.REFLECT),
}


class Reach:
    """The experiment: one operator and noise level after the other."""

    about = "How much does an answer depend on what is far away?"

    def settings(self, options: BenchmarkOptions) -> dict[str, Any]:
        """Of the protocol."""
        images = options.images.resolve().name if options.images else "scikit-image"
        return {"protocol": PROTOCOL, "images": images, "side": QUICK_SIDE if options.quick else SIDE}

    def run(self, options: BenchmarkOptions, results: Results, save: Save, say: Say) -> None:
        """Add what is missing."""
        sigmas = options.sigmas or (QUICK_SIGMAS if options.quick else SIGMAS)
        cells = {f"{name}, sigma {sigma:g}": (name, sigma) for name in OPERATORS for sigma in sigmas}
        pictures = list_images(options.images) if options.images else PICTURES
        chosen = options.chosen(list(cells))
        for method in options.methods or (QUICK_METHODS if options.quick else METHODS):
            if method not in METHODS:
                raise Unavailable(f"there is no method {method} here; choose from {', '.join(METHODS)}")
            weights = METHODS[method]
            model = load(weights, device=options.device)
            results.weights[method] = {weights: checksum(weights)}
            for cell in chosen:
                results.cells.setdefault(cell, {"table": "Reach", "column": cell})
                for picture in options.images_at_most(pictures):
                    self._add(results, options, (cell, *cells[cell]), picture, method, model)
                    save()
                    say(f"{method}, {cell}, {picture}")

    def _add(
        self,
        results: Results,
        options: BenchmarkOptions,
        cell: tuple[str, str, float],
        picture: Any,
        method: str,
        model: DEAL,
    ) -> None:
        name = getattr(picture, "stem", picture)
        if any(row.image == name for row in results.select(cell[0], method)):
            return
        side, frame = (QUICK_SIDE, QUICK_FRAME) if options.quick else (SIDE, FRAME)
        values = differences(bundled_picture(picture), cell[1], cell[2], model, side, frame)
        results.add(Row(cell[0], str(name), method, values, environment=len(results.environments) - 1))

    def sections(self, results: Results) -> Iterator[Section]:
        """One table for each method."""
        for method in results.weights:
            lines = [_line(cell, [row.values for row in results.select(cell, method)]) for cell in results.cells]
            halos = [halo for halo in HALOS if any(f"difference {halo}" in row.values for row in results.rows)]
            table = Table(
                ["", "sigma of the model", *(f"{halo} pixels" for halo in halos)], [line for line in lines if line]
            )
            yield Section(f"Reach: {label(method)}", "", [table] if table.rows else [], notes=_notes(results, method))


def differences(clean: Tensor, name: str, sigma: float, model: DEAL, side: int, frame: int) -> Values:
    """Between a part of the answer for the whole, and the answer for the part."""
    operator = OPERATORS[name](side)
    piece = local(operator)
    margins = piece.margins
    clean = middle(clean, side + margins[2] + margins[3], side + margins[0] + margins[1])
    y = measure(clean, operator, sigma / 255, seed=0)
    if isinstance(operator, Mask):
        y = operator.forward(y)
    box = Box(*(edge // piece.scale for edge in (frame, side - frame, frame, side - frame)))
    noise = {"sigma": sigma / 255} if operator.is_identity else {"noise": sigma / 255}
    whole = _solved(y, operator, model, noise)
    found = {"sigma": whole.sigma, "lam": whole.lam}
    part = _solved(y[..., box.slices[0], box.slices[1]], piece.on(box), model, found)
    inside = piece.measured(whole.x)[(..., *box.scaled(piece.scale).slices)].cpu()
    values = _profile(inside, piece.measured(part.x).cpu())
    return {
        **values,
        "model sigma": 255 * float(whole.sigma.max()),
        "lam": float(whole.lam.max()),
        "support": piece.support,
        "whole distance": float(whole.distance.max()),
        "part distance": float(part.distance.max()),
    }


def _solved(y: Tensor, operator: Operator, model: DEAL, known: dict[str, Any]) -> Any:
    device = model.kappa.device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sigma at the end of the training's
        return reconstruct(
            y.to(device),
            operator,
            model=model,
            tolerance=STRICT,
            max_iterations=MOST_ITERATIONS,
            data_range=1.0,
            **known,
        )


def _profile(whole: Tensor, part: Tensor) -> Values:
    """By the distance to the border."""
    away = (whole - part).abs()[0, 0].double().numpy()
    image = whole[0, 0].double().numpy()
    rows, columns = (np.minimum(np.arange(n), n - 1 - np.arange(n)) for n in away.shape)
    depth = np.minimum(rows[:, None], columns)
    values: Values = {}
    for halo in (halo for halo in HALOS if halo <= depth.max()):
        core = depth >= halo
        values[f"difference {halo}"] = math.sqrt((away[core] ** 2).mean() / (image**2).mean())
        values[f"pixel {halo}"] = 255 * float(away[core].max())
    return values


def bundled_picture(picture: Any) -> Tensor:
    """Of scikit-image, by its name, or a file; gray, `(1, 1, H, W)`."""
    if not isinstance(picture, str):
        return clean_image(picture, 1)
    try:
        from skimage import data
    except ImportError:
        remedy = "pip install 'torchdeal[demo]', or give a folder by --images"
        raise Unavailable(f"the pictures need scikit-image: {remedy}") from None
    return torch.from_numpy(getattr(data, picture)()).float()[None, None] / 255


def middle(image: Tensor, height: int, width: int) -> Tensor:
    """A part of this size."""
    top, left = ((have - want) // 2 for have, want in zip(image.shape[-2:], (height, width), strict=True))
    if min(top, left) < 0:
        raise ValueError(f"a picture is {image.shape[-2]} x {image.shape[-1]}, at least {height} x {width} is needed")
    return image[..., top : top + height, left : left + width].contiguous()


def _line(cell: str, rows: list[Values]) -> list[str]:
    if not rows:
        return []
    entries = [f"{max(row['model sigma'] for row in rows):.3g}"]
    for halo in HALOS:
        found = [(row[f"difference {halo}"], row[f"pixel {halo}"]) for row in rows if f"difference {halo}" in row]
        if found:
            entries.append(f"{max(a for a, _ in found):.0e}, {max(b for _, b in found):.2g}")
    return [cell, *entries]


def _notes(results: Results, method: str) -> list[str]:
    rows = [row for row in results.rows if row.method == method]
    if not rows:
        return []
    far = [row for row in rows if not max(row.values["whole distance"], row.values["part distance"]) <= ENDED]
    told = f"{len(rows)} pairs of runs; all ended within {ENDED:g} of their fixed points, by estimate"
    if far:
        names = ", ".join(f"{row.cell} ({row.image})" for row in far)
        told += f", but for {names}: within {MOST_ITERATIONS} iterations these did not"
    known = [row for row in rows if row.cell.startswith("denoising") or row.values["model sigma"] <= CERTAIN_LEVEL]
    through = [_at_the_rule(row.values) for row in known if "difference 8" in row.values]
    if not through:
        return [told]
    return [
        told,
        f"with the overlap of the rule for {DEFAULT_HALO_TOLERANCE:g}, the difference is at most {max(through):.1e} in "
        f"the {len(known)} pairs of denoising, and of other problems whose sigma of the model is at most "
        f"{CERTAIN_LEVEL:g}",
    ]


def _at_the_rule(values: Values) -> float:
    """The difference at the overlap of the rule, or at the widest halo below it that was measured."""
    overlap = reach(values["model sigma"]) + values["support"]
    return values[f"difference {max(halo for halo in HALOS if halo <= overlap and f'difference {halo}' in values)}"]


EXPERIMENT = Reach()
