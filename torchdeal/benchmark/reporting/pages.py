"""The tables of README.md and docs/*.md, written from `results/`: `python -m torchdeal.benchmark.reporting.pages`.

What stands between `<!-- results: NAME -->` and `<!-- /results -->` is replaced. NAME is one of `BLOCKS`, or the name
of a file in `results/`, such as `deblur`, or of a part of one: `deblur: noise 2.55` are the sections whose titles
contain that.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from torchdeal.benchmark.reporting.blocks import BLOCKS, section_block
from torchdeal.benchmark.reporting.chapters import chapters, stored_results
from torchdeal.benchmark.reporting.report import markdown
from torchdeal.benchmark.reporting.standings import READING
from torchdeal.benchmark.results import Results
from torchdeal.io.atomic import replacing

FOLDER = "results"
OPENING = (
    "All of this was measured with the weights of the package, by deal benchmark. The files beside this page have the "
    "values of each image, and all settings and versions. This page is written from them by make results. Iterations "
    "and seconds of DEAL are of an earlier solver, but for fine-tuning on a CPU and times on a CPU other than MRI 4x. "
    "This version takes a tenth to a third fewer CG iterations and some 5 % fewer outer ones."
)
BEGIN, END = "<!-- results: ", "<!-- /results -->"
BLOCK = re.compile(rf"({BEGIN}(?P<name>[^\n]+?) -->\n)(?P<text>.*?){END}", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pages of the folder that it is called in, or only say which are not up to date."""
    parser = argparse.ArgumentParser(description="Write the tables of README.md and docs/*.md from results/*.json.")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a page is not up to date")
    check = parser.parse_args(arguments).check
    try:
        changed = pages_to_write(Path())
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    if check and changed:
        sys.exit(f"Not up to date: {', '.join(map(str, changed))}. Run make results.")
    for path, text in changed.items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        print(f"{path} is written.")


def pages_to_write(root: Path) -> dict[Path, str]:
    """Those pages that differ from what the results say, and what they should be."""
    folder = root / FOLDER
    stored = stored_results(folder)
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    texts = {path: filled(path.read_text(encoding="utf-8"), stored, path.name) for path in pages if path.exists()}
    if stored:
        found = list(chapters(folder, pictures=False))
        texts[folder / "README.md"] = markdown("Results", [OPENING, *READING], found, folder, details=False)
    return {path: text for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def filled(page: str, stored: dict[str, Results], name: str) -> str:
    """The page, its blocks as the results have them. Raises ValueError for a block that cannot be written."""

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}\n{_content(found['name'], stored, name)}\n\n{END}"

    blocks = list(BLOCK.finditer(page))
    if any(BEGIN in found["text"] for found in blocks) or not len(blocks) == page.count(BEGIN) == page.count(END):
        raise ValueError(f"{name}: a block of results has no beginning or no end")
    return BLOCK.sub(block, page)


def _content(block: str, stored: dict[str, Results], page: str) -> str:
    file, _, part = (text.strip() for text in block.partition(":"))
    needed = BLOCKS[block].file if block in BLOCKS else file
    if needed not in stored:
        known = ", ".join([*BLOCKS, *stored])
        raise ValueError(f"{page}: there is no {FOLDER}/{needed}.json for the block {block}; blocks are {known}")
    try:
        return BLOCKS[block].write(stored[needed]) if block in BLOCKS else section_block(stored[needed], part)
    except (ValueError, LookupError) as error:
        raise ValueError(f"{page}: the block {block} cannot be written: {error}") from None


if __name__ == "__main__":
    main()
