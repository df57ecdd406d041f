"""The book: how Sphinx makes it of the pages of `docs/`, of `docs/gallery/*.py`, and of docstrings. See `make docs`."""

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

import torchdeal

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "book"))  # modules that only the book needs

project = "torchdeal"
author = "The torchdeal developers"
release = torchdeal.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
exclude_patterns = ["gallery"]  # the scripts; examples/ has the pages that they become

# Markdown. Indented blocks are commands and what they print; Python is marked as such.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
highlight_language = "text"
smartquotes = False  # --options stay what they are

# Docstrings: Google's style, code between single backticks, types beside the arguments that are described.
default_role = "code"
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True

# Examples, which are run while the book is made. A failing one fails the book.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery.Order",
    "image_scrapers": ("gallery.scrape", "matplotlib"),
    "reset_modules": ("matplotlib", "gallery.style"),
    "thumbnail_size": (560, 210),
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "show_signature": False,
    "run_stale_examples": True,  # the package may have changed, even where the script did not
    "min_reported_time": 3600,  # seconds of a busy machine say nothing
}

# Everything that a page needs lies beside it: fonts are those of the system, math is MathML.
html_theme = "furo"
html_title = f"torchdeal {release}"
html_static_path = ["book/static"]
html_css_files = ["book.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
pygments_dark_style = "github-dark"

# Links of pages to what lies outside of docs/, and which page of the book shows it.
OUTSIDE = {
    "(../results/README.md)": "(book/results.md)",
    "(../CONTRIBUTING.md)": "(book/contributing.md)",
    "(../CHANGELOG.md)": "(book/changelog.md)",
}


def fit_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Links of a page that is also read by itself: keep them inside the book, and call pages by titles, not files."""
    for outside, inside in OUTSIDE.items():
        source[0] = source[0].replace(outside, inside)
    source[0] = re.sub(r"\[[\w-]+\.md\]\(", "[](", source[0])


def set_dashes(app: Sphinx, doctree: nodes.document) -> None:
    """What stands between an argument and its description. Elsewhere two hyphens begin an option."""
    for text in [text for text in doctree.findall(nodes.Text) if text.startswith(" -- ")]:
        text.parent.replace(text, nodes.Text(": " + text.removeprefix(" -- ")))


def setup(app: Sphinx) -> None:
    app.connect("source-read", fit_links)
    app.connect("doctree-read", set_dashes)
