"""The notebooks in `examples/` run from top to bottom, and show what they are there to show."""

import nbformat
import pytest
from documents import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SHOWS = {  # how many results, figures and bars, at least; and words
    "first_steps": (3, 3, 1, ["CONVERGED", "MAX_ITERATIONS", "are within their interval"]),
    "own_operator": (1, 2, 1, ["CONVERGED", "<u, H^T v>", "automatic: sigma"]),
    "mri": (1, 2, 1, ["CONVERGED", "zero-filled", "From 2 other starts"]),
}


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_those_that_are_expected():
    assert {path.stem for path in NOTEBOOKS} == set(SHOWS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path):
    """So that a change of them can be read, and no picture is out of date: who opens one runs it."""
    for cell in code_cells(read(path)):
        assert cell.outputs == []
        assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    """An error in a cell is raised here. What is written to stderr, as a warning is, is an error too."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of the kernel: threads that wait for a busy core take minutes
    notebook = read(path)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    html = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    bars = sum("<progress" in page for page in html)
    figures = sum("image/png" in output.get("data", {}) for output in outputs)
    results, least_figures, least_bars, words = SHOWS[path.stem]
    assert len(html) - bars >= results
    assert figures >= least_figures
    assert bars >= least_bars
    for word in words:
        assert word in printed + "".join(html)
