"""A report as one HTML file: its style is in it, its pictures lie beside it. It needs no scripts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

from torchdeal.benchmark.reporting.chapters import TRIAL, Chapter
from torchdeal.benchmark.reporting.side_by_side import Gallery, Picture
from torchdeal.benchmark.reporting.tables import FOLDED, Best, Section, Table
from torchdeal.io.printable import printable

STYLE = """
:root { color-scheme: light dark; --text: #1d2430; --soft: #5a6472; --line: #d9dee5; --page: #ffffff; --band: #f4f6f9;
  --link: #0b5cad; --quoted: #fbf7ec; --mark: #b7791f }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #a3adba; --line: #363d48; --page: #14181e;
  --band: #1c2129; --link: #7cb8f7; --quoted: #231f16; --mark: #d9a441 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; color: var(--text); background: var(--page);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.7rem; margin: 0 0 .5rem } h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: .75rem;
  border-top: 2px solid var(--line) } h3 { font-size: 1.1rem; margin: 2rem 0 .25rem }
p, ul { max-width: 46rem; margin: .5rem 0 } ul { padding-left: 1.2rem } a { color: var(--link) }
nav { display: flex; flex-wrap: wrap; gap: .35rem 1.1rem; margin: 1rem 0 }
.soft { color: var(--soft) } .trial { border-left: 3px solid var(--mark); padding-left: .75rem; font-weight: 600 }
.box { margin: 1rem 0 1.25rem; overflow-x: auto; width: fit-content; max-width: 100% }
table { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; font-size: .9rem;
  overflow-wrap: normal }
caption { text-align: left; font-weight: 600; padding: .25rem 0; white-space: nowrap }
th, td { padding: .28rem .75rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
thead th { color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line) }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page);
  font-weight: 400; padding-left: 0 }
tbody tr:hover > * { background: var(--band) }
.quoted { border-left: 3px solid var(--mark); padding: 0 0 .25rem .75rem; background: var(--quoted) }
.quoted th:first-child, .quoted td:first-child { background: var(--quoted) }
.quoted caption { font-style: italic }
details { margin: .35rem 0 } summary { cursor: pointer; color: var(--link) }
figure { margin: 1rem 0; overflow-x: auto } figcaption { color: var(--soft); font-size: .85rem; margin-top: .35rem }
figure img { display: block; max-width: 100%; height: auto; background: #fff; padding: .35rem; border-radius: .35rem }
.many { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .75rem }
.many figure { margin: 0 }
@media (max-width: 40rem) { body { padding: 1rem .75rem 3rem; font-size: 15px }
  th, td { padding: .25rem .5rem }
  th:first-child, td:first-child { white-space: normal; min-width: 7rem; max-width: 9rem }
  .wide img { max-width: none; width: 56rem } }
"""


def webpage(title: str, opening: Iterable[str], chapters: list[Chapter], folder: Path) -> str:
    """The page; pictures are linked from the folder that it will lie in."""
    links = "".join(f'<a href="#{escape(_anchor(c.name))}">{text(c.title)}</a>\n' for c in chapters)
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{text(title)}</h1>",
        f"<nav>\n{links}</nav>",
        _list(opening),
        *(part for chapter in chapters for part in _chapter(chapter, folder)),
        "</body>\n</html>\n",
    ]
    return "\n".join(filter(None, parts))


def text(words: str) -> str:
    """Names of files hold what they want: it is shown, not obeyed."""
    return escape(printable(words))


def link(path: Path, folder: Path) -> str:
    """The address of a file, from a page in the folder."""
    return quote(os.fsencode(path.relative_to(folder).as_posix()))


def _chapter(chapter: Chapter, folder: Path) -> Iterator[str]:
    yield f'<h2 id="{escape(_anchor(chapter.name))}">{text(chapter.title)}</h2>'
    for index, words in enumerate(chapter.paragraphs):
        kind = "trial" if words == TRIAL else "soft" if index else ""
        yield f'<p class="{kind}">{text(words)}</p>' if kind else f"<p>{text(words)}</p>"
    for section in chapter.sections:
        yield from _section(section)
    if chapter.galleries and chapter.sections:
        yield "<h3>Pictures</h3>"
    for gallery in chapter.galleries:
        yield _gallery(gallery, folder)
    yield from (_folded(table) for table in chapter.details)


def _section(section: Section) -> Iterator[str]:
    yield f"<h3>{text(section.title)}</h3>"
    yield from (f"<p>{text(words)}</p>" for words in section.text.split("\n\n") if words)
    yield from (_table(table) for table in [*section.tables, *section.further])
    yield _list(section.notes)
    yield from (_folded(table) for table in section.details)


def _table(table: Table, caption: bool = True) -> str:
    title = f"<caption>{text(table.title)}</caption>" if caption and table.title else ""
    head = "".join(f'<th scope="col">{text(entry)}</th>' for entry in table.head)
    body = "\n".join(f"<tr>{''.join(map(_entry, row))}</tr>" for row in table.rows)
    kind = "box quoted" if table.quoted else "box"
    lines = f"{title}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    return f'<div class="{kind}"><table>{lines}\n</table></div>'


def _entry(entry: str) -> str:
    return f"<td><strong>{text(entry)}</strong></td>" if isinstance(entry, Best) else f"<td>{text(entry)}</td>"


def _folded(table: Table) -> str:
    return f"<details><summary>{text(table.title or FOLDED)}</summary>\n{_table(table, caption=False)}\n</details>"


def _gallery(gallery: Gallery, folder: Path) -> str:
    """A picture of its own is wide and says itself what it shows; several stand in a grid."""
    several = len(gallery.pictures) > 1
    title = f"<h4>{text(gallery.title)}</h4>\n" if gallery.title else ""
    shown = "\n".join(_picture(picture, folder, several) for picture in gallery.pictures)
    return f'{title}<div class="{"many" if several else "wide"}">\n{shown}\n</div>'


def _picture(picture: Picture, folder: Path, caption: bool) -> str:
    address, words = link(picture.path, folder), text(picture.caption)
    below = f"<figcaption>{words}</figcaption>" if caption else ""
    return f'<figure><a href="{address}"><img src="{address}" loading="lazy" alt="{words}"></a>{below}</figure>'


def _list(lines: Iterable[str]) -> str:
    entries = "\n".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>\n{entries}\n</ul>" if entries else ""


def _anchor(name: str) -> str:
    return quote(os.fsencode(name))
