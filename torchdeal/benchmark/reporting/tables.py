"""Parts of a report: sections of text, tables and pictures, and how a table and numbers look in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torchdeal.io.printable import printable

FOLDED = "Values of each image"  # over a table that is unfolded, where it has no title


class Best(str):
    """An entry of a table that is to be seen first: it is bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """In Markdown, aligned, so that people and documents can take it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    quoted: bool = False  # not measured here

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [markdown_text(self.title), self.grid()]))

    def grid(self) -> str:
        """Without its title."""
        lines = [[_entry(text) for text in line] for line in (self.head, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = [f"{'-' * (width - 1)}{':' if index else '-'}" for index, width in enumerate(widths)]
        lines.insert(1, rule)
        return "\n".join(
            "| {} |".format(
                " | ".join(
                    text.rjust(width) if index else text.ljust(width)
                    for index, (text, width) in enumerate(zip(line, widths, strict=True))
                )
            )
            for line in lines
        )


def without_empty_columns(table: Table) -> Table:
    """Only those in which something stands."""
    kept = [place for place in range(len(table.head)) if any(row[place] for row in table.rows)]
    rows = [[row[place] for place in kept] for row in table.rows]
    return replace(table, head=[table.head[place] for place in kept], rows=rows)


@dataclass(frozen=True)
class Section:
    """One part of the report of an experiment."""

    title: str
    text: str = ""  # paragraphs, before the tables
    tables: list[Table] = field(default_factory=list)
    details: list[Table] = field(default_factory=list)  # for those who look closer: values of each image, say
    further: list[Table] = field(default_factory=list)  # after the tables, in the report only
    notes: list[str] = field(default_factory=list)  # sentences, after the tables


def number(value: float) -> str:
    """Three digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def signed(value: float) -> str:
    """Two digits, never a minus zero."""
    return f"{round(value, 2) + 0.0:+.2f}"


def power(value: float) -> str:
    """A power of ten, such as 1e-3."""
    return f"{value:.0e}".replace("e-0", "e-")


def markdown_text(text: str) -> str:
    """The text as Markdown shows it: names of files hold what they want, and it is not obeyed."""
    text = printable(" ".join(text.split("\n")))
    return re.sub(r"([\\`*\[\]|]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _entry(text: str) -> str:
    shown = markdown_text(text)
    return f"**{shown}**" if isinstance(text, Best) and text else shown
