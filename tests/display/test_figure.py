"""`rec.plot()`."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from conftest import noisy, picture, small_model
from skimage.metrics import peak_signal_noise_ratio

import torchdeal as td


@pytest.fixture(autouse=True)
def without_a_screen():
    plt.switch_backend("agg")
    yield
    plt.close("all")


def panels(figure):
    """The pictures by title, and the axes of the curve."""
    *pictures, curve = figure.axes
    return {axes.get_title(): np.asarray(axes.images[0].get_array()) for axes in pictures}, curve


def test_measured_beside_reconstructed(gray_rec, degraded):
    pictures, curve = panels(gray_rec.plot())
    assert list(pictures) == ["measured", "reconstructed"]
    np.testing.assert_allclose(pictures["measured"], degraded / 255, atol=1e-6)
    np.testing.assert_allclose(pictures["reconstructed"], gray_rec.x / 255, atol=0.5 / 255 + 1e-6)
    np.testing.assert_allclose(curve.lines[0].get_ydata(), gray_rec.residuals[:, 0])
    assert curve.get_title().splitlines()[0] == "CONVERGED"
    assert f"{float(gray_rec.distance):.1e}" in curve.get_title()


def test_truth_and_psnr(gray_rec, degraded, truth):
    pictures, _ = panels(gray_rec.plot(truth=truth))
    before, after = (float(title.split(", ")[1].removesuffix(" dB")) for title in list(pictures)[:2])
    assert before == pytest.approx(peak_signal_noise_ratio(truth, degraded), abs=0.006)
    assert after == pytest.approx(peak_signal_noise_ratio(truth, gray_rec.x), abs=0.02)  # x is rounded
    np.testing.assert_allclose(pictures["truth"], truth / 255)


def test_colour(color_rec):
    pictures, _ = panels(color_rec.plot(truth=picture("astronaut", 24)))
    np.testing.assert_allclose(pictures["truth"], picture("astronaut", 24)[0].permute(1, 2, 0), atol=1e-6)


def test_channels_of_numpy_come_last():
    clean = picture("astronaut", 24)[0].permute(1, 2, 0).numpy()
    rec = td.reconstruct(clean, model=small_model(3), sigma=0.05)
    np.testing.assert_allclose(panels(rec.plot(truth=clean))[0]["truth"], clean, atol=1e-6)


def test_what_is_no_image_is_shown_by_its_back_projection(kspace_rec):
    pictures, _ = panels(kspace_rec.plot(truth=picture(size=32)))
    first, second, _ = pictures
    assert first == "$H^T y$, of what was measured\n(magnitude)"
    assert "dB" in second
    back = kspace_rec.equation.operator.adjoint(kspace_rec.equation.y)[0, 0].abs()
    np.testing.assert_allclose(pictures[first], (back - back.min()) / (back.max() - back.min()), atol=1e-6)


@pytest.mark.parametrize(
    "problem",
    [
        {"sigma": np.linspace(5, 50, 1600).reshape(40, 40)},  # the equation is weighted
        {"noise": np.linspace(5, 50, 1600).reshape(40, 40), "H": td.operators.Blur(torch.ones(1, 1))},
        {"sigma": 15 / 255, "lam": 1e6, "H": 1e6 * td.operators.Identity()},
    ],
    ids=["levels", "weights", "gain"],
)
def test_measured_is_what_was_given(degraded, problem):
    y = 1e6 * degraded.astype(float) / 255 if "lam" in problem else degraded
    pictures, _ = panels(td.reconstruct(y, model=small_model(), tolerance=0.1, **problem).plot())
    np.testing.assert_allclose(pictures["measured"], degraded / 255, atol=1e-5)


def test_holes_are_black(degraded):
    known = np.arange(1600).reshape(40, 40) % 3 > 0
    rec = td.reconstruct(degraded, td.operators.Mask(known), model=small_model(), sigma=15, lam=1)
    np.testing.assert_allclose(panels(rec.plot())[0]["measured"], known * degraded / 255, atol=1e-6)


def test_measurements_of_another_size():
    H = td.operators.Downsample(2, torch.ones(2, 2) / 4)
    rec = td.reconstruct(H.forward(picture(size=32)), H, model=small_model(), sigma=0.05, lam=0.1)
    pictures, _ = panels(rec.plot(truth=picture(size=32)))
    assert pictures["measured"].shape == (16, 16)  # so there is no PSNR in its title


def test_a_sample_of_a_batch(batch_rec):
    pictures, curve = panels(batch_rec.plot(sample=5))
    np.testing.assert_allclose(pictures["reconstructed"], batch_rec.x[5, 0].clamp(0, 1), atol=1e-6)
    assert len(curve.lines[0].get_ydata()) == int(batch_rec.iterations[5])
    with pytest.raises(ValueError, match="no sample 6: samples go from 0 to 5"):
        batch_rec.plot(sample=6)


def test_a_truth_of_another_shape_is_refused(gray_rec):
    with pytest.raises(ValueError, match=r"truth has shape \(40, 39\), but the image \(40, 40\)"):
        gray_rec.plot(truth=np.zeros((40, 39)))
    assert plt.get_fignums() == []


def test_a_script_can_show_it(gray_rec):
    figure = gray_rec.plot()
    assert plt.get_fignums() == [figure.number]


def test_without_matplotlib_the_extra_is_named(gray_rec, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"rec.plot\(\) needs matplotlib: pip install 'torchdeal\[plot\]'"):
        gray_rec.plot()


def test_a_picture_in_which_nothing_changes():
    figure = td.reconstruct(np.zeros((8, 8)), model=small_model(), sigma=0.1).plot()
    figure.canvas.draw()


def test_noise_of_another_kind():
    counts = noisy(picture(size=40), 5)[0, 0].clamp(0, 1).numpy()
    rec = td.reconstruct(counts, noise=td.Poisson(0.01), model=small_model(), tolerance=0.1)
    np.testing.assert_allclose(panels(rec.plot())[0]["measured"], counts, atol=1e-5)


def test_a_truth_in_other_units_is_refused(gray_rec, truth):
    with pytest.raises(ValueError, match=r"the truth is 0\.00\d+ times the image: give it in the units of rec\.x"):
        gray_rec.plot(truth=truth / 255)
