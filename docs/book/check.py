"""Check a book that was built: links inside it lead somewhere, and nothing that a page needs is fetched from elsewhere.

Run as `python docs/book/check.py build/docs`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

REMOTE = re.compile(r"(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)


class Page(HTMLParser):
    """The places of a page, its links, and the files that it needs to be shown."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.places: set[str] = set()
        self.links: list[str] = []
        self.needs: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.places |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and "href" in values:
            self.needs.append(values["href"])
        if "src" in values:
            self.needs.append(values["src"])
        self.needs += IN_STYLES.findall(values.get("style", ""))


def problems(book: Path) -> Iterator[str]:
    """What is wrong, a line each."""
    pages = {path.resolve(): Page(path) for path in sorted(book.rglob("*.html"))}
    if not pages:
        yield f"{book}: there are no pages"
    for page in pages.values():
        name = page.path.relative_to(book)
        for target in page.needs:
            if REMOTE.match(target):
                yield f"{name}: {target} is fetched from elsewhere"
        for target in (*page.links, *page.needs):
            if not REMOTE.match(target) and not target.startswith(("mailto:", "data:")):
                yield from _dangling(page, target, pages, name)
    for style in sorted(book.rglob("*.css")):
        yield from (
            f"{style.relative_to(book)}: {target} is fetched from elsewhere"
            for target in IN_STYLES.findall(style.read_text(encoding="utf-8"))
        )


def _dangling(page: Page, target: str, pages: dict[Path, Page], name: Path) -> Iterator[str]:
    path, _, place = unquote(target).partition("#")
    path = path.partition("?")[0]
    file = (page.path.parent / path).resolve() if path else page.path.resolve()
    if not file.exists():
        yield f"{name}: {target} does not exist"
    elif place and file in pages and place not in pages[file].places:
        yield f"{name}: there is no place {target}"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or f"{sys.argv[1]}: all links lead somewhere, and nothing is fetched")
    sys.exit(bool(found))
