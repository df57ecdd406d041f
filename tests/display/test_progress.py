"""`progress=True`: a bar in a terminal. Notebooks are in `test_notebook.py`."""

import re

import numpy as np
import pytest
import torch
from conftest import noisy, picture, small_model

import torchdeal as td
from torchdeal.display.progress import Advance


def state(residual):
    residuals = torch.tensor(residual, dtype=torch.double)
    return td.Progress(1, torch.zeros(1), residuals, residuals, residuals > 0)


def test_a_bar_says_how_far_the_run_is(capsys):
    rec = td.reconstruct(noisy(picture(size=24), 15), model=small_model(), sigma=15 / 255, progress=True)
    out, err = capsys.readouterr()
    assert out == ""  # a program that prints its results can be piped
    assert re.search(rf"reconstruct .* iteration {int(rec.iterations)}  residual {float(rec.residuals[-1]):.1e}", err)


def test_silence_by_default(capsys):
    td.denoise(noisy(picture(size=24), 15), 15 / 255, model=small_model())
    assert capsys.readouterr() == ("", "")


def test_denoise_has_it_too(capsys):
    td.denoise(noisy(picture(size=24), 15), 15 / 255, model=small_model(), progress=True)
    assert "reconstruct" in capsys.readouterr().err


def test_the_answer_and_the_callback_stay_the_same():
    given = {"model": small_model(), "sigma": 15 / 255}
    image, seen = noisy(picture(size=24), 15), []
    plain = td.reconstruct(image, **given)
    shown = td.reconstruct(image, **given, progress=True, callback=lambda progress: seen.append(progress.iteration))
    assert torch.equal(plain.x, shown.x)
    assert seen == list(range(1, int(plain.iterations) + 1))


def test_an_error_ends_the_bar(capsys):
    def stop(progress):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        td.reconstruct(np.full((16, 16), 0.5), model=small_model(), sigma=0.1, progress=True, callback=stop)
    td.reconstruct(np.full((16, 16), 0.5), model=small_model(), sigma=0.1, progress=True)  # rich allows one at a time


def test_the_bar_moves_with_the_logarithm_of_the_largest_residual():
    advance = Advance(1e-3)  # full at 1e-4
    assert advance(state([1.0])) == (0.0, 1.0)
    assert advance(state([1e-2, 1e-3])) == (pytest.approx(0.5), pytest.approx(1e-2))
    assert advance(state([1e-9]))[0] == 0.99  # the end is when the run ends
    assert advance(state([torch.nan, 0.1]))[0] == pytest.approx(0.25)
    assert advance(state([7.0]))[0] == 0.0
