"""What the book is made with: the check of its links, and formulas that need no network. `make docs` builds it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BOOK = Path(__file__).parents[1] / "docs" / "book"


@pytest.fixture(scope="module")
def problems():
    spec = importlib.util.spec_from_file_location("check", BOOK / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda book: list(module.problems(book))


def write(folder, **pages):
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)


def test_a_book_whose_links_lead_somewhere(problems, tmp_path):
    links = '<a href="two.html#there">x</a> <a href="https://example.org">y</a>'
    write(tmp_path, one=links, two='<h1 id="there">z</h1>')
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("html", "what"),
    [
        ('<a href="three.html">x</a>', "three.html does not exist"),
        ('<a href="two.html#here">x</a>', "no place two.html#here"),
        ('<a href="#here">x</a>', "no place #here"),
        ('<img src="picture.png">', "picture.png does not exist"),
        ('<script src="https://cdn.example.org/a.js"></script>', "a.js is fetched"),
        ('<link rel="stylesheet" href="//fonts.example.org/a.css">', "a.css is fetched"),
        ("<p style=\"background: url('https://example.org/a.png')\">", "a.png is fetched"),
    ],
)
def test_what_is_wrong_is_found(html, what, problems, tmp_path):
    write(tmp_path, one=html, two='<h1 id="there">z</h1>')
    (found,) = problems(tmp_path)
    assert found.startswith("one.html: ")
    assert what in found


def test_styles_are_looked_at(problems, tmp_path):
    write(tmp_path, one="<p>x</p>")
    (tmp_path / "a.css").write_text("@import 'https://fonts.example.org/b.css'; p { background: url(c.png) }")
    assert problems(tmp_path) == ["a.css: https://fonts.example.org/b.css is fetched from elsewhere"]


def test_an_empty_book_is_not_right(problems, tmp_path):
    assert problems(tmp_path) == [f"{tmp_path}: there are no pages"]


def built(folder, text):
    """A book of one page, with nothing but formulas: what Sphinx says, and its HTML."""
    pytest.importorskip("sphinx")
    source, out = folder / "source", folder / "out"
    source.mkdir()
    settings = f"import sys; sys.path.insert(0, {str(BOOK)!r}); extensions = ['mathml']; html_math_renderer = 'mathml'"
    (source / "conf.py").write_text(settings)
    (source / "index.rst").write_text(f"Title\n=====\n\n{text}\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, (out / "index.html").read_text() if done.returncode == 0 else ""


def test_formulas_are_mathml(tmp_path):
    done, html = built(tmp_path, ":math:`H^T y` and\n\n.. math:: \\frac{1}{2}")
    assert done.returncode == 0, done.stderr
    assert "<msup>" in html
    assert "<mfrac>" in html
    assert "mathjax" not in html.lower()


def test_a_formula_that_cannot_be_shown_fails_the_book(tmp_path):
    done, _ = built(tmp_path, ":math:`\\nonsense{x}`")
    assert done.returncode != 0
    assert "nonsense" in done.stderr
    assert "index.rst" in done.stderr
