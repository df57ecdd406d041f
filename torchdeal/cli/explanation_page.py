"""One HTML page that explains a result: its style and its pictures are in it. It needs no scripts and no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from torchdeal.cli.explanation_pictures import LEAST_SIDE, LESS, MORE, STOPS, png
from torchdeal.io.printable import printable

GENERATOR = '<meta name="generator" content="deal explain">'  # by which an earlier page is known
LONGEST = 1000  # pixels of a picture in the page; the files beside it have all
CURVES = ("#1f9ce8", "#e8590c", "#2b9a5b", "#a05fc4")
STYLE = f"""
:root {{ color-scheme: light dark; --text: #1d2430; --soft: #5a6472; --line: #d9dee5; --page: #ffffff; --band: #f4f6f9;
  --link: #0b5cad }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e4e8ee; --soft: #a3adba; --line: #363d48; --page: #14181e;
  --band: #1c2129; --link: #7cb8f7 }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; color: var(--text); background: var(--page);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere }}
h1 {{ font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem }}
h2 {{ font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--line) }}
h3 {{ font-size: 1.05rem; margin: 1.75rem 0 .25rem }}
p, ul {{ max-width: 44rem; margin: .5rem 0 }} ul {{ padding-left: 1.2rem }}
.pictures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(16rem, 100%), 1fr)); gap: 1rem;
  margin: 1rem 0 }}
.pictures.one {{ max-width: 34rem }}
.pictures.small {{ grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr)); max-width: 60rem }}
figure {{ margin: 0 }} figcaption {{ color: var(--soft); font-size: .88rem; margin-top: .35rem }}
img {{ display: block; width: 100%; height: auto; border-radius: .3rem }}
.squares {{ image-rendering: pixelated }}
svg {{ display: block; width: 100%; max-width: 34rem; height: auto }}
svg text {{ fill: var(--soft); font-size: 11px }} svg .axis {{ stroke: var(--line) }}
.legend {{ display: flex; align-items: center; gap: .5rem; font-size: .82rem; color: var(--soft); margin-top: .35rem }}
.legend span {{ flex: 1; height: .6rem; border-radius: .3rem }}
.numbers {{ background: linear-gradient(to right, {", ".join(STOPS)}) }}
.weights {{ background: linear-gradient(to right, {LESS}, #808080, {MORE}) }}
summary {{ cursor: pointer; color: var(--link); margin-top: 2.5rem }}
"""


@dataclass(frozen=True)
class Legend:
    """The scale of the colours in a picture: its kind, `numbers` or `weights`, and what its two ends mean."""

    kind: str
    low: str
    high: str


@dataclass(frozen=True, eq=False)
class Illustration:
    """A picture, RGB in 0..1, and what it shows; its file has this name."""

    name: str
    picture: np.ndarray
    caption: str
    legend: Legend | None = None


@dataclass(frozen=True, eq=False)
class Curves:
    """Functions of one number, drawn as lines: `(points,)` against `(lines, points)`."""

    x: np.ndarray
    lines: np.ndarray
    names: Sequence[str]
    below: str  # what x is


@dataclass(frozen=True, eq=False)
class Passage:
    """A title, sentences, then pictures; a small one belongs to the one before it."""

    title: str
    sentences: Sequence[str] = ()
    illustrations: Sequence[Illustration] = ()
    curves: Curves | None = None
    small: bool = False
    folded: bool = False  # to be opened by those who want to know more


def page(title: str, opening: Sequence[str], passages: Sequence[Passage]) -> str:
    """The whole page as text."""
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{GENERATOR}',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{text(title)}</h1>",
        "<ul>\n" + "\n".join(f"<li>{text(sentence)}</li>" for sentence in opening) + "\n</ul>",
        *(part for passage in passages for part in _passage(passage)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def text(words: str) -> str:
    """Names of files hold what they want: it is shown, not obeyed."""
    return escape(printable(words))


def _passage(passage: Passage) -> Iterator[str]:
    heading = "h3" if passage.small else "h2"
    if passage.folded:
        yield f"<details>\n<summary>{text(passage.title)}</summary>"
    else:
        yield f"<{heading}>{text(passage.title)}</{heading}>"
    if passage.sentences:
        yield f"<p>{text(' '.join(passage.sentences))}</p>"
    if passage.illustrations:
        size = " small" if passage.small else " one" if len(passage.illustrations) == 1 else ""
        yield f'<div class="pictures{size}">'
        yield from map(_figure, passage.illustrations)
        yield "</div>"
    if passage.curves:
        yield _drawing(passage.curves)
    if passage.folded:
        yield "</details>"


def _figure(shown: Illustration) -> str:
    address = f"data:image/png;base64,{b64encode(png(shown.picture, LONGEST)).decode()}"
    height, width = shown.picture.shape[:2]
    # A small picture is enlarged with its pixels as squares. Made smaller that way, a picture would lose thin lines.
    kind = ' class="squares"' if max(height, width) < LEAST_SIDE else ""
    image = f'<img src="{address}" width="{width}" height="{height}"{kind} alt="{text(shown.caption)}">'
    legend = ""
    if shown.legend:
        ends = text(shown.legend.low), text(shown.legend.high)
        legend = f'<div class="legend">{ends[0]}<span class="{shown.legend.kind}"></span>{ends[1]}</div>'
    return f"<figure>{image}{legend}<figcaption>{text(shown.caption)}</figcaption></figure>"


def _drawing(curves: Curves, width: int = 420, height: int = 220, edge: int = 34) -> str:
    """Lines from 0 to 1, upwards."""
    x = edge + curves.x / curves.x[-1] * (width - 2 * edge)
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(curves.below)}">']
    for level in (0.0, 0.5, 1.0):
        y = height - edge - level * (height - 2 * edge)
        parts.append(f'<line class="axis" x1="{edge}" x2="{width - edge}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{edge - 6}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
    for index, (line, name) in enumerate(zip(curves.lines, curves.names, strict=True)):
        colour = CURVES[index % len(CURVES)]
        y = height - edge - line * (height - 2 * edge)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[::6], y[::6], strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{width - edge - 4}" y="{edge + 14 * index + 12}" text-anchor="end" style="fill: {colour}">'
            f"{text(name)}</text>"
        )
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{text(curves.below)}</text>')
    parts.append(f'<text x="{width - edge}" y="{height - edge + 14}" text-anchor="end">{curves.x[-1]:.2g}</text></svg>')
    return "\n".join(parts)
