"""Parts of a report: sections of text, tables and pictures, and how a table and numbers look in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """In Markdown, aligned, so that people and documents can take it."""

    head: Sequence[str]
    rows: list[list[str]]
    title: str = ""

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        rule = [f"{'-' * (width - 1)}{':' if index else '-'}" for index, width in enumerate(widths)]
        lines = [
            " | ".join(cell.rjust(width) if index else cell.ljust(width) for index, (cell, width) in cells)
            for cells in (enumerate(zip(row, widths, strict=True)) for row in (self.head, rule, *self.rows))
        ]
        return "\n".join([*filter(None, [self.title]), *(f"| {line} |" for line in lines)])


@dataclass(frozen=True)
class Section:
    """One part of the report of an experiment."""

    title: str
    text: str = ""  # paragraphs, before the tables
    tables: list[Table] = field(default_factory=list)
    details: list[Table] = field(default_factory=list)  # for those who look closer: values of each image, say


def number(value: float) -> str:
    """Three digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def power(value: float) -> str:
    """A power of ten, such as 1e-3."""
    return f"{value:.0e}".replace("e-0", "e-")
