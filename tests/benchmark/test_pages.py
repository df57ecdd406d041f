"""The tables of the documents are those of the stored results."""

import re

import pytest
from documents import ROOT
from results_by_hand import PLACE, denoising, rows

from torchdeal.benchmark.reporting.blocks import BLOCKS
from torchdeal.benchmark.reporting.pages import filled, main, pages_to_write
from torchdeal.benchmark.results import Results


def page(name, content="anything\n"):
    return f"Before.\n\n<!-- results: {name} -->\n{content}<!-- /results -->\n\nAfter 12.34.\n"


def speed(stopped=False):
    results = Results("speed", {"protocol": "A picture."})
    cell = "512 x 512 gray, sigma 25"
    results.cells = {cell: {"table": "Speed", "column": cell}}
    results.environments = [{**PLACE, "device_name": "A100"}, PLACE]
    ours = {"seconds_to_1e-3": 0.2, "total_seconds": 0.4, "end_distance": 1e-5, "stopped": False}
    slow = {"seconds_to_1e-3": 7.0, "total_seconds": 10.0, "end_distance": 1e-4, "stopped": stopped}
    slow = {**slow, "seconds_to_1e-3": None} if stopped else slow
    results.rows = [*rows(cell, "ours", ours), *rows(cell, "paper-literal", slow)]
    return results


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a page and stored results."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "README.md").write_text("Nothing is measured here.\n")
    (tmp_path / "docs" / "a.md").write_text(page("denoising-summary"))
    denoising().save(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_agree_with_the_stored_results():
    assert list(pages_to_write(ROOT)) == [], "run make results"


def test_stored_results_hold_no_path_of_a_machine():
    for path in (ROOT / "results").glob("*.json"):
        assert not re.findall(r"(?<![\w.])/(?:home|root|tmp|work|mnt|data|usr)/[^\s\"]*", path.read_text()), path.name


def test_make_results_calls_it():
    assert (
        "results: $(READY)\n\t$(BIN)/python -m torchdeal.benchmark.reporting.pages\n" in (ROOT / "Makefile").read_text()
    )


def test_only_blocks_are_written(project):
    main([])
    text = (project / "docs" / "a.md").read_text()
    start, _, rest = text.partition("<!-- results: denoising-summary -->")
    block, _, end = rest.partition("<!-- /results -->")
    assert (start, end) == ("Before.\n\n", "\n\nAfter 12.34.\n")
    assert "anything" not in block
    assert (project / "README.md").read_text() == "Nothing is measured here.\n"
    assert "31.60" in (project / "results" / "README.md").read_text()
    assert pages_to_write(project) == {}


def test_check_changes_nothing_and_names_what_is_old(project):
    before = (project / "docs" / "a.md").read_text()
    with pytest.raises(SystemExit) as stop:
        main(["--check"])
    assert str(stop.value) == "Not up to date: docs/a.md, results/README.md. Run make results."
    assert (project / "docs" / "a.md").read_text() == before
    main([])
    main(["--check"])


def test_a_number_that_is_changed_by_hand_is_found(project):
    main([])
    path = project / "docs" / "a.md"
    path.write_text(path.read_text().replace("31.60", "31.61", 1))
    assert list(pages_to_write(project)) == [path]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (page("denoising-nonsense"), "no results/denoising-nonsense.json for the block"),
        (page("deblur"), "no results/deblur.json"),
        (page("denoising: violet"), "no part 'violet'"),
        (page("denoising-summary").replace("<!-- /results -->", ""), "no beginning or no end"),
        (page("denoising-summary").replace("<!-- results: denoising-summary -->", ""), "no beginning or no end"),
        (page("denoising", page("denoising")), "no beginning or no end"),
        (page("speed-sentence"), "no results/speed-cuda.json"),
    ],
)
def test_a_block_that_cannot_be_written_is_named(project, text, words):
    (project / "docs" / "b.md").write_text(text)
    before = {path: path.read_bytes() for path in project.rglob("*.md")}
    with pytest.raises(SystemExit, match=r"b\.md") as stop:
        main([])
    assert words in str(stop.value)
    assert {path: path.read_bytes() for path in project.rglob("*.md")} == before


def block(name, results, file):
    """The lines of a block, tables as lists of their entries."""
    lines = filled(page(name), {file: results}, "page").split("-->")[1].split("<!--")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] if "|" in line else line for line in lines]


def test_summary():
    """A row for each set and noise level, the paper's beside it."""
    found = block("denoising-summary", denoising(), "denoising")
    assert found[0] == ["images", "noise", "DEAL", "DEAL in the paper", "DEAL, light weights", "BM3D", "DnCNN"]
    assert found[2:4] == [
        ["BSD68", "sigma 15", "31.60", "31.61", "31.40", "31.00", ""],
        ["BSD68", "sigma 25", "29.20", "29.16", "", "28.50", ""],
    ]
    assert found[4] == ["CBSD68", "sigma 15", "", "33.95", "", "", ""]


def test_convergence():
    assert block("denoising-convergence", denoising(), "denoising") == [
        "DEAL: 3 of 4 runs converge, with at most 30 outer iterations.",
        "DEAL, light weights: all 2 runs converge, with at most 10 outer iterations.",
    ]


def test_weights_and_iterations():
    found = block("denoising-weights", denoising(), "denoising")
    assert found[2:] == [
        ["gray, BSD68", "31.60", "29.20"],
        ["gray-light, BSD68", "31.40", ""],
        ["color, CBSD68", "", ""],
        ["color-light, CBSD68", "", ""],
    ]
    steps = block("denoising-iterations", denoising(), "denoising")
    assert steps[2:4] == [["gray", "12.0, 14; 40", "25.0, 30; 40"], ["gray-light", "10.0, 10; 40", ""]]


def test_sections_of_a_file():
    """Of one part, without its title. Not all differences."""
    found = filled(page("denoising: gray"), {"denoising": denoising()}, "page")
    assert "Noise is added." in found
    for words in ("**31.60**", "Prox-DRUNet", "3 of 4", "minus the published value", "DnCNN: not measured"):
        assert words in found
    assert "CBSD68" not in found
    assert "DEAL minus" not in found
    assert "DEAL here minus" not in found


@pytest.mark.parametrize(("stopped", "wait"), [(False, "7 s, 35 times"), (True, "more than 10 s, more than 50 times")])
def test_speed_sentence(stopped, wait):
    """7 s against 0.2 s; where the reference was stopped, at least 10 s. The device is that of the rows."""
    sentence = " ".join(block("speed-sentence", speed(stopped), "speed-cuda"))
    assert sentence == (
        "On one A100, 512 x 512 gray pixels with noise of sigma 25 are within 1e-3 of the fixed point after 0.2 s. "
        f"The method as the paper writes it takes {wait} as long."
    )


def test_every_block_is_tested():
    assert set(BLOCKS) == {f"denoising-{name}" for name in ("summary", "convergence", "weights", "iterations")} | {
        "speed-sentence"
    }
