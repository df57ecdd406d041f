"""The widget in napari, without a screen. It runs where napari is: make test-napari."""

import os
import sys
import time

import numpy as np
import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
pytest.importorskip("napari")

from cli.helpers import noise, pixels
from napari.components import ViewerModel
from napari.qt import get_qapp
from napari.utils import notifications
from PyQt6.sip import delete

from torchdeal.app.wishes import Goal, WeightsSize
from torchdeal.integrations.napari import samples, widget
from torchdeal.integrations.napari.widget import ALL, THIS, Reconstruct


def noisy(*shape, sigma=20, seed=0):
    """A picture, or a stack of the same one with noise of its own."""
    values = pixels(size=shape[-1]) + noise(shape, sigma, seed)
    return values.clip(0, 255).round().astype(np.uint8)


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        get_qapp().processEvents()
        time.sleep(0.01)


@pytest.fixture
def viewer():
    get_qapp()
    return ViewerModel()


@pytest.fixture
def told(monkeypatch):
    """What napari notifies of."""
    found = []
    monkeypatch.setattr(notifications.notification_manager, "dispatch", lambda note: found.append(note))
    return found


@pytest.fixture
def plugin(viewer, told):
    found = Reconstruct(viewer)
    found.tolerance.value = 1e-2
    return found


def run(plugin):
    plugin.run.changed.emit(True)
    wait_for(lambda: not plugin.working)
    return plugin._viewer.layers[-1]


def test_a_layer_becomes_a_denoised_one(plugin, viewer, told):
    layer = viewer.add_image(noisy(24, 24), name="mine", colormap="magma", metadata={"sample": 7})
    result = run(plugin)
    assert viewer.layers[-2:] == [layer, result]
    assert (result.name, result.data.shape, result.data.dtype) == ("mine denoised", (24, 24), np.uint8)
    assert result.colormap.name == "magma"
    assert result.metadata["sample"] == 7
    facts = result.metadata["torchdeal"]
    assert facts["status"] == "CONVERGED"
    assert facts["distance"] < 1e-2
    assert facts["noise"] == pytest.approx(20, rel=0.3)
    assert "Converged" in plugin.words.value
    assert "estimated, between" in plugin.words.value
    assert [note.severity.value for note in told] == ["info"]
    clean = pixels(size=24)
    assert np.abs(result.data - clean).mean() < 0.7 * np.abs(layer.data - clean).mean()


def test_colours_and_the_larger_weights(plugin, viewer):
    viewer.add_image(np.dstack([noisy(16, 16, seed=seed) for seed in range(3)]), rgb=True)
    plugin.weights.value = WeightsSize.FULL
    plugin.tolerance.value = 1e-2
    result = run(plugin)
    assert result.rgb
    assert result.metadata["torchdeal"]["model"] == "color"


TURNED = {"scale": (3, 2, 0.5), "translate": (7, -4, 5), "rotate": 30, "shear": (0.1, 0.2, 0.3)}


@pytest.mark.parametrize("scale", [1, 3])
def test_a_result_lies_where_its_layer_does(plugin, viewer, scale):
    """A pixel of the layer, and the middle of those that it became, are at one place in the world."""
    units = {"units": ("um", "um", "um"), "axis_labels": ("z", "y", "x")}
    affine = np.array([[1, 0.2, 0, 3], [0, 1.5, 0, -2], [0, 0.1, 0.7, 1], [0, 0, 0, 1]])
    layer = viewer.add_image(noisy(4, 12, 12), affine=affine, **TURNED, **units)
    viewer.dims.set_point(0, layer.data_to_world((2, 0, 0))[0])
    plugin.goal.value = Goal.UPSCALE if scale > 1 else Goal.DENOISE
    plugin.scale.value = 3
    plugin.planes.value = THIS
    plugin.image.value = layer
    expected = widget._shown(viewer, layer)
    result = run(plugin)
    assert result.data.shape == (1, 12 * scale, 12 * scale)
    assert (result.units, result.axis_labels) == (layer.units, layer.axis_labels)
    middle = (scale - 1) / 2
    for row, column in ((0, 0), (11, 4)):
        there = layer.data_to_world((*expected, row, column))
        assert np.allclose(result.data_to_world((0, row * scale + middle, column * scale + middle)), there)


def test_the_plane_that_is_shown_or_all(plugin, viewer):
    layer = viewer.add_image(noisy(4, 16, 16), scale=(5, 1, 1))
    viewer.dims.set_current_step(0, 2)
    one = run(plugin)
    assert one.data.shape == (1, 16, 16)
    assert tuple(one.translate) == (10, 0, 0)
    plugin.image.value = layer
    plugin.planes.value = ALL
    stack = run(plugin)
    assert stack.data.shape == (4, 16, 16)
    assert (stack.data[2] == one.data[0]).all()
    assert plugin.words.value.startswith("4 planes. ")


def test_what_is_painted_over_is_filled_in(plugin, viewer):
    viewer.add_image(noisy(24, 24, sigma=2))
    labels = viewer.add_labels(np.zeros((24, 24), int))
    labels.paint((12, 12), 1)
    labels.data[5:7, 3:20] = 2
    plugin.goal.value = Goal.INPAINT
    plugin.missing.value = labels
    result = run(plugin)
    assert result.name.endswith("filled in")


def test_small_numbers_are_heard(plugin, viewer):
    """The noise of pixels in 0..1."""
    viewer.add_image(noisy(16, 16) / 255)
    plugin.estimate.value = plugin.automatic.value = False
    plugin.noise.value, plugin.lam.value = 0.0039, 0.00125
    order = plugin.order()
    assert (order.noise, order.wish.lam) == (0.0039, 0.00125)


def test_errors_are_notifications(plugin, viewer, told):
    viewer.add_image(noisy(16, 16))
    plugin.goal.value = Goal.DEBLUR
    plugin.kernel.value = "nonsense"
    run(plugin)
    (note,) = told
    assert note.severity.value == "error"
    assert "nonsense: no such kernel" in note.message
    assert len(viewer.layers) == 1
    assert plugin.run.enabled
    plugin.kernel.value, plugin.estimate.value, plugin.noise.value = "disk:1.5", False, 0
    run(plugin)
    assert told[1].message.startswith("the noise must be above 0")


def test_what_nobody_foresaw_is_an_error_of_napari(plugin, viewer, monkeypatch):
    viewer.add_image(noisy(16, 16))
    monkeypatch.setattr(widget, "work", lambda *_: 1 / 0)
    raised = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, *_: raised.append(kind))  # where napari hears of errors
    run(plugin)
    wait_for(lambda: raised == [ZeroDivisionError])
    assert plugin.run.enabled


def test_a_dock_that_is_closed_ends_the_run(plugin, viewer):
    viewer.add_image(noisy(64, 64))
    plugin.tolerance.value = 1e-4
    worker = plugin.begin()
    wait_for(lambda: plugin.progress.value > 50)
    delete(plugin.native)
    wait_for(lambda: not worker.is_running, seconds=10)
    viewer.add_image(noisy(16, 16))
    assert len(viewer.layers) == 2


def test_progress_and_cancel(plugin, viewer):
    viewer.add_image(noisy(3, 64, 64))
    plugin.planes.value = ALL
    plugin.tolerance.value = 1e-4
    worker = plugin.begin()
    assert not plugin.run.enabled
    wait_for(lambda: plugin.progress.value > 50)
    assert plugin.words.value == "Working on plane 1 of 3 ..."
    plugin.cancel.changed.emit(True)
    wait_for(lambda: not plugin.working, seconds=10)
    wait_for(lambda: not worker.is_running)
    assert plugin.words.value == "Cancelled."
    assert len(viewer.layers) == 1
    assert plugin.run.enabled


def test_only_what_matters_is_shown(plugin, viewer):
    assert not plugin.run.enabled
    viewer.add_image(noisy(16, 16))
    plugin.show()
    assert plugin.run.enabled
    for goal, own in (
        (Goal.DENOISE, set()),
        (Goal.DEBLUR, {"kernel", "boundary"}),
        (Goal.UPSCALE, {"scale"}),
        (Goal.INPAINT, {"missing"}),
    ):
        plugin.goal.value = goal
        names = ("kernel", "boundary", "scale", "missing", "planes", "noise", "lam")
        assert {name for name in names if getattr(plugin, name).visible} == own
    plugin.estimate.value = plugin.automatic.value = False
    viewer.add_image(noisy(2, 16, 16))
    plugin.image.value = viewer.layers[-1]
    assert all(getattr(plugin, name).visible for name in ("planes", "noise", "lam"))
    plugin.hide()


def test_samples_open(viewer):
    for sample in (samples.camera, samples.astronaut, samples.stack):
        for data, properties, kind in sample():
            viewer._add_layer_from_data(data, properties, kind)
    assert [layer.rgb for layer in viewer.layers] == [False, True, False]


def test_napari_finds_the_plugin(viewer):
    from npe2 import PluginManager

    manager = PluginManager.instance()
    manager.discover()
    contributed = manager.get_manifest("torchdeal").contributions
    assert contributed.widgets[0].get_callable() is Reconstruct
    assert (contributed.sample_data[0].open()[0][0] == samples.camera()[0][0]).all()
