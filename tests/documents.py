"""The pages of the project, and how their Python is run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTES = sorted((ROOT / "docs" / "notes").glob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = ROOT / "docs" / "deepinverse.md"  # run by tests/integrations/deepinv/test_page.py, where DeepInverse is


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run_examples(page: Path) -> dict:
    """Run the examples of a page one after the other; returns the names that they leave behind.

    Each reconstruction that is called `rec` must have converged.
    """
    names: dict = {}
    for number, example in enumerate(examples(page), 1):
        exec(compile(example, f"{name(page)}, example {number}", "exec"), names)
        assert "rec" not in names or names["rec"].converged
    return names


def shell_lines(page: Path) -> list[str]:
    """Commands in indented blocks and between backticks, without their comments."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = re.findall(r"^    (?:\$ )?(.+)$", text, re.MULTILINE) + re.findall(r"`([^`\n]+)`", text)
    return [line.split("#")[0].strip() for line in lines]
