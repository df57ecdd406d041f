"""The report of all results in a folder, as Markdown and as a page; and the tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path

from torchdeal.benchmark.reporting.chapters import Chapter, chapters, sections
from torchdeal.benchmark.reporting.side_by_side import Gallery
from torchdeal.benchmark.reporting.standings import READING
from torchdeal.benchmark.reporting.tables import FOLDED, Table, markdown_text
from torchdeal.benchmark.reporting.webpage import link, webpage
from torchdeal.benchmark.results import Results
from torchdeal.io.atomic import replacing
from torchdeal.io.printable import printable

TITLE = "What was measured"


def print_tables(results: Results, say: Callable[[str], None]) -> None:
    """The main tables of an experiment, for the terminal."""
    for section in sections(results):
        say(f"\n{section.title}\n")
        for words in filter(None, [section.text, *map(str, section.tables), "\n".join(section.notes)]):
            say(f"{words}\n")


def write_report(folder: Path) -> Path:
    """Write `report.md` and `report.html`, and say where the first is. The same results give the same bytes."""
    found = list(chapters(folder))
    compared = any(section.further for chapter in found for section in chapter.sections)
    opening = READING if compared else []
    texts = {
        "report.md": markdown(TITLE, opening, found, folder),
        "report.html": webpage(TITLE, opening, found, folder),
    }
    for name, content in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")
    return folder / "report.md"


def markdown(title: str, opening: Iterable[str], found: list[Chapter], folder: Path, details: bool = True) -> str:
    """The report; `details` are the tables that a reader unfolds."""
    parts = [f"# {title}", _list(opening)]
    for chapter in found:
        parts += [f"## {markdown_text(chapter.title)}", *map(markdown_text, chapter.paragraphs)]
        for section in chapter.sections:
            parts += [f"### {markdown_text(section.title)}", *map(markdown_text, section.text.split("\n\n"))]
            parts += [text for table in [*section.tables, *section.further] for text in _table(table)]
            parts += [_list(section.notes), *(map(_folded, section.details) if details else [])]
        parts += [text for gallery in chapter.galleries for text in _pictures(gallery, folder)]
        parts += map(_folded, chapter.details) if details else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"**{markdown_text(table.title)}**"
    yield table.grid()


def _folded(table: Table) -> str:
    title = escape(printable(table.title or FOLDED))
    return f"<details>\n<summary>{title}</summary>\n\n{table.grid()}\n\n</details>"


def _pictures(gallery: Gallery, folder: Path) -> Iterator[str]:
    if gallery.title:
        yield f"**{markdown_text(gallery.title)}**"
    for picture in gallery.pictures:
        yield f"![{markdown_text(picture.caption)}]({link(picture.path, folder)})"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)
