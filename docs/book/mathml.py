"""Formulas as MathML, which browsers draw by themselves: nothing is fetched, and no script runs."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write `$...$`."""
    writer.body.append(_converted(node, as_block=False))
    raise nodes.SkipNode


def display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write `$$...$$`."""
    writer.body.append(f'<div class="math">{_converted(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _converted(node: nodes.Element, *, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:  # a warning says where; it fails the book
        getLogger(__name__).warning("%s in the formula %s", error, node.astext(), location=node)
        return ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Make it a renderer that `html_math_renderer` can name."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
