"""What a notebook shows of a reconstruction: pictures, and how the run went. It needs Pillow alone."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from torchdeal.display.shown import Shown, answer
from torchdeal.solvers import Status

if TYPE_CHECKING:
    from torchdeal.reconstruction import Reconstruction

SAMPLES = 4  # of a batch that are shown
LONGEST, LONGEST_OF_SEVERAL = 256, 160  # pixels of a picture
SMALLEST = 128  # to which a tiny picture is enlarged
# Text has the colour of the page, so that light and dark ones work; these are seen on both.
COLOURS = {Status.CONVERGED: "#2e9e5b", Status.DIVERGED: "#d9483b"}
ATTENTION = "#d98a00"
TABLE = "border:none;border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit"
CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:none;background:none"
BOX = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;font-size:13px;max-width:60em"


def page_of(rec: Reconstruction) -> str:
    """A piece of HTML that needs nothing else."""
    shown = min(len(rec.statuses), SAMPLES)
    longest = LONGEST if len(rec.statuses) == 1 else LONGEST_OF_SEVERAL
    pictures = [] if rec.image is None else [_figure(answer(rec, sample), longest) for sample in range(shown)]
    table = _of_one(rec) if len(rec.statuses) == 1 else _of_several(rec, shown)
    return f'<div style="{BOX}">{"".join(pictures)}<div style="flex:1 1 22em">{_title(rec)}{table}</div></div>'


def _title(rec: Reconstruction) -> str:
    kind = "numpy" if isinstance(rec.x, np.ndarray) else "torch"
    shape = " x ".join(map(str, rec.x.shape))
    dtype = str(rec.x.dtype).removeprefix("torch.")
    return f"<div><b>Reconstruction</b> {escape(f'{shape}, {kind} {dtype}')}</div>"


def _of_one(rec: Reconstruction) -> str:
    moving = f" {rec.movement}" if rec.status is Status.UNSETTLED and rec.movement else ""
    rows = [
        ("status", f"{_badge(rec.status)}<br/>{escape(rec.status.value + moving)}"),
        ("distance", escape(f"{_distance(rec.distance[0])} (relative, to the fixed point; an estimate)")),
        ("iterations", escape(f"{int(rec.iterations[0])} outer, {int(rec.cg_iterations[0])} CG{_of_runs(rec)}")),
        ("sigma", escape(_level(rec.sigma, 0))),
        ("lam", escape(_level(rec.lam, 0))),
    ]
    return _table([f"{_cell(f'<b>{name}</b>')}{_cell(words)}" for name, words in rows])


def _of_runs(rec: Reconstruction) -> str:
    return f" (a mean over {rec.symmetries} symmetries)" if rec.symmetries > 1 else ""


def _of_several(rec: Reconstruction, shown: int) -> str:
    rows = ["".join(_cell(f"<b>{name}</b>") for name in ("", "status", "distance", "iterations", "sigma", "lam"))]
    for sample in range(shown):
        numbers = _distance(rec.distance[sample]), f"{int(rec.iterations[sample])}"
        levels = _level(rec.sigma, sample), _level(rec.lam, sample)
        words = [escape(word) for word in (*numbers, *levels)]
        rows.append("".join(map(_cell, (str(sample), _badge(rec.statuses[sample]), *words))))
    ended = Counter(rec.statuses)
    meanings = "".join(
        f"<div>{_badge(status)} {count}: {escape(status.value)}</div>" for status, count in ended.items()
    )
    more = len(rec.statuses) - shown
    return f"{_table(rows)}{f'<div>and {more} more</div>' if more else ''}<div>In all:</div>{meanings}"


def _table(rows: list[str]) -> str:
    body = "".join(f'<tr style="background:none">{row}</tr>' for row in rows)
    return f'<table style="{TABLE}">{body}</table>'


def _cell(words: str) -> str:
    return f'<td style="{CELL}">{words}</td>'


def _badge(status: Status) -> str:
    return f'<b><span style="color:{COLOURS.get(status, ATTENTION)}">●</span> {escape(status.name)}</b>'


def _distance(distance: Tensor) -> str:
    return f"{float(distance):.1e}" if math.isfinite(float(distance)) else "unknown"


def _level(levels: Tensor, sample: int) -> str:
    """Of a sample; of a map its range."""
    if levels.ndim <= 1:
        return f"{float(levels[sample]):.4g}"
    low, high = (float(bound) for bound in levels[min(sample, len(levels) - 1)].aminmax())
    return f"{low:.3g} to {high:.3g} (a map)"


def _figure(picture: Shown, longest: int) -> str:
    height, width = picture.pixels.shape[:2]
    times = max(SMALLEST // max(height, width), 1)
    alike = 'style="image-rendering:pixelated;max-width:none;margin:0"'
    data = base64.b64encode(_png(picture.pixels.repeat(times, 0).repeat(times, 1), longest)).decode()
    words = f"{picture.part + ': ' if picture.part else ''}black {picture.low:.3g}, white {picture.high:.3g}"
    return (
        f'<figure style="margin:0"><img {alike} src="data:image/png;base64,{data}" alt="the reconstruction"/>'
        f'<figcaption style="opacity:0.75;font-size:12px">{escape(words)}</figcaption></figure>'
    )


def _png(pixels: np.ndarray, longest: int) -> bytes:
    from PIL import Image

    image, buffer = Image.fromarray((pixels * 255).round().astype(np.uint8)), io.BytesIO()
    image.thumbnail((longest, longest))
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
