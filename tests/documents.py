"""The pages of the project, and how their Python is run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
BOOK = sorted((ROOT / "docs" / "book").glob("*.md"))  # pages that the book alone has: the API, and what lies elsewhere
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))  # run where the book is made


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def examples(page: Path, *, deepinv: bool = False) -> list[str]:
    """The Python of a page; that with DeepInverse runs where DeepInverse is (tests/integrations/deepinv)."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return [block for block in blocks if ("deepinv" in block) == deepinv]


def run_examples(page: Path, *, deepinv: bool = False) -> dict:
    """Run the examples of a page one after the other; returns the names that they leave behind.

    Each reconstruction that is called `rec` must have converged.
    """
    names: dict = {}
    for number, example in enumerate(examples(page, deepinv=deepinv), 1):
        exec(compile(example, f"{name(page)}, example {number}", "exec"), names)
        assert "rec" not in names or names["rec"].converged
    return names


def shell_lines(page: Path) -> list[str]:
    """Commands in indented blocks and between backticks, without their comments."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = re.findall(r"^    (?:\$ )?(.+)$", text, re.MULTILINE) + re.findall(r"`([^`\n]+)`", text)
    return [line.split("#")[0].strip() for line in lines]
