"""In a real notebook: what is shown, and that it is shown once."""

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import numpy as np, torchdeal as td
noisy = np.random.default_rng(0).random((16, 16))
"""


@pytest.fixture(scope="module")
def outputs():
    """Of cells that show a bar, a result, and a figure."""
    cells = [SETUP, "rec = td.reconstruct(noisy, sigma=0.1, model='gray-light', progress=True)", "rec", "rec.plot()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells[1:]]


def test_the_bar_is_one_output_and_full_at_the_end(outputs):
    (bar,) = outputs[0]  # no warning beside it: nothing else has to be installed
    assert '<progress value="1.000"' in bar.data["text/html"]
    assert "iteration" in bar.data["text/html"]


def test_the_result_is_html(outputs):
    (shown,) = outputs[1]
    assert "CONVERGED" in shown.data["text/html"]
    assert shown.data["text/plain"].startswith("<Solution CONVERGED")


def test_the_figure_is_shown_once(outputs):
    assert [sorted(output.data) for output in outputs[2]] == [["image/png", "text/plain"]]
