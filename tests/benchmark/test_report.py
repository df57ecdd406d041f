"""The report: what it holds, that names are not obeyed, that it is the same each time."""

import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image
from results_by_hand import denoising, other, rows, run

from torchdeal.benchmark.reporting.report import print_tables, write_report
from torchdeal.benchmark.results import Results

NASTY = '"><script>alert(1)</script>|`*\x1b[31m\udcff'
VOID = {"meta", "img"}


class Page(HTMLParser):
    """The tags of a page, its words, and whether all that is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words, self.tables = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("td", "th"):
            self.tables[-1][-1] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def attributes(self, tag, name):
        return [attrs[name] for found, attrs in self.tags if found == tag and name in attrs]


def page(folder):
    write_report(folder)
    return Page((folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    denoising().save(tmp_path)
    return tmp_path


def add_pictures(folder, *names, cell="BSD68, sigma 15", image="a", size=(24, 32)):
    kept = folder / "pictures" / "denoising" / cell / image
    kept.mkdir(parents=True)
    for seed, name in enumerate(names):
        pixels = np.random.default_rng(seed).integers(0, 255, size, dtype=np.uint8)
        Image.fromarray(pixels).save(kept / f"{name}.png")
    return kept


def test_both_reports_hold_the_values(folder):
    assert write_report(folder) == folder / "report.md"
    texts = [(folder / name).read_text() for name in ("report.md", "report.html")]
    for text in texts:
        for words in ("31.60", "Noise is added.", "H200", "abc123", "DnCNN: not measured: there are no weights."):
            assert words in text
        assert text.index("measured here") < text.index("As the paper reports it")
    assert "**31.60**" in texts[0]
    assert "<strong>31.60</strong>" in texts[1]


def test_the_page_is_whole(folder):
    found = page(folder)
    assert all(len(set(widths)) == 1 for widths in found.tables)
    assert {link.removeprefix("#") for link in found.attributes("a", "href")} <= set(found.attributes("h2", "id"))
    assert found.attributes("link", "href") == found.attributes("script", "src") == []  # all of it is in one file


def test_quoted_tables_are_marked(folder):
    found = page(folder)
    assert found.attributes("div", "class").count("box quoted") == 2  # of the paper, and of its public code


def test_the_same_results_give_the_same_bytes(folder):
    add_pictures(folder, "clean", "deal", "bm3d")
    write_report(folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    before = [path.read_bytes() for path in files]
    for drawn in folder.glob("pictures/denoising/*/*.png"):
        drawn.unlink()
    write_report(folder)
    assert [path.read_bytes() for path in files] == before


def test_names_are_shown_and_not_obeyed(tmp_path):
    results = Results("denoising", {"protocol": NASTY, "limit": 1})
    results.cells = {NASTY: {"table": NASTY, "column": NASTY}}
    results.rows = [*rows(NASTY, "deal", run(30), run(31)), *rows(NASTY, "deepinv:<b>", other(29), other(28))]
    results.rows = [type(row)(row.cell, f"{NASTY}{row.image}", row.method, row.values) for row in results.rows]
    results.reasons = {NASTY: {NASTY: NASTY}}
    results.save(tmp_path)
    found = page(tmp_path)
    assert not {"script", "b"} & {tag for tag, _ in found.tags}
    assert any("<script>alert(1)</script>" in words for words in found.words)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert "<script>" not in text.replace(r"\<script>", "")
    table_lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(line.replace(r"\|", "").split("|")) > 2 for line in table_lines)


def test_pictures_stand_side_by_side(folder):
    pytest.importorskip("matplotlib")
    kept = add_pictures(folder, "clean", "measured", "wcrr", "bm3d", "deal")
    found = page(folder)
    (address,) = found.attributes("img", "src")
    drawn = folder / unquote(address)
    assert drawn == kept.parent / "a.png"
    assert Image.open(drawn).width > 5 * 32
    (words,) = found.attributes("img", "alt")
    assert words == "Ground truth; Measured; DEAL, 31.70 dB; BM3D, 31.10 dB; WCRR, 31.00 dB"  # ours, then by PSNR
    assert f"({address})" in (folder / "report.md").read_text()


def test_pictures_are_drawn_again_where_one_is_newer(folder):
    pytest.importorskip("matplotlib")
    kept = add_pictures(folder, "clean", "deal", "bm3d")
    write_report(folder)
    drawn = kept.parent / "a.png"
    drawn.write_bytes(b"kept")
    write_report(folder)
    assert drawn.read_bytes() == b"kept"
    later = drawn.stat().st_mtime_ns + 10**9
    os.utime(kept / "deal.png", ns=(later, later))
    write_report(folder)
    assert drawn.read_bytes() != b"kept"


def test_without_matplotlib_pictures_are_shown_as_they_are(folder, monkeypatch):
    for module in ("matplotlib", "matplotlib.figure", "skimage", "scipy", "typer", "rich"):
        monkeypatch.setitem(sys.modules, module, None)
    add_pictures(folder, "clean", "deal")
    found = page(folder)
    files = [folder / unquote(address) for address in found.attributes("img", "src")]
    assert [path.name for path in files] == ["clean.png", "deal.png"]
    assert all(path.is_file() for path in files)


def test_figures_are_shown_with_what_they_are(folder):
    (folder / "figures").mkdir()
    for name in ("path", "mine"):
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "figures" / f"{name}.png")
    found = page(folder)
    assert found.attributes("img", "src") == ["figures/mine.png", "figures/path.png"]
    assert found.attributes("img", "alt")[1].startswith("path: Iterates of denoising")


def test_a_folder_of_several_results(folder):
    """In the order of the experiments; one with another name says so; other JSON files are left alone."""
    (folder / "aaa.json").write_text((folder / "denoising.json").read_text())
    (folder / "package.json").write_text('{"name": "mine"}')
    found = page(folder)
    assert found.attributes("h2", "id") == ["aaa", "denoising"]
    assert "Denoising (aaa)" in found.words


@pytest.mark.parametrize("content", ["", '{"format": "torchdeal-results-1", "experiment": "denoising"}'])
def test_damaged_results_are_named(folder, content):
    write_report(folder)
    before = (folder / "report.html").read_bytes()
    (folder / "deblur.json").write_text(content)
    with pytest.raises(ValueError, match=r"deblur\.json"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before


def test_an_unknown_experiment_is_named(folder):
    text = (folder / "denoising.json").read_text().replace('"experiment": "denoising"', '"experiment": "os"')
    (folder / "denoising.json").write_text(text)
    with pytest.raises(ValueError, match=r"denoising\.json: there is no experiment os"):
        write_report(folder)


def test_a_trial_is_told_as_such(tmp_path):
    denoising(quick=True).save(tmp_path)
    write_report(tmp_path)
    assert "This was a trial" in (tmp_path / "report.md").read_text()


def test_the_terminal_has_the_main_tables():
    lines = []
    print_tables(denoising(), lines.append)
    text = "\n".join(lines)
    assert "| DEAL                | **31.60** |" in text
    assert "DnCNN: not measured" in text
    assert "How it ran" not in text
    assert "As the paper reports it" not in text
