"""The dock widget: choices, a button, how far it is, and the result as a new layer. `work` does the rest."""

# pyright: reportMissingImports=false
# napari has an environment of its own: make test-napari

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from magicgui.widgets import CheckBox, ComboBox, Container, FloatSpinBox, Label, LineEdit, ProgressBar, PushButton
from napari.layers import Image, Labels
from napari.qt.threading import create_worker
from napari.utils.notifications import show_error, show_info, show_warning
from napari.utils.transforms import Affine
from qtpy.compat import isalive
from superqt.utils import ensure_main_thread

from torchdeal.app.wishes import Goal, WeightsSize, Wish
from torchdeal.cancelling import CancelledError
from torchdeal.cli.shared import in_words, is_foreseeable
from torchdeal.integrations.napari.work import LayerOrder, Pixels, Result, in_words_of_the_widget, work
from torchdeal.operators import BlurBoundary

if TYPE_CHECKING:
    from napari.components import ViewerModel

GOALS = [("Denoise", Goal.DENOISE), ("Deblur", Goal.DEBLUR), ("Upscale", Goal.UPSCALE), ("Inpaint", Goal.INPAINT)]
BOUNDARIES = [
    ("the scene goes on", BlurBoundary.VALID),
    ("its mirror image", BlurBoundary.REFLECT),
    ("the opposite side", BlurBoundary.CIRCULAR),
    ("black", BlurBoundary.ZERO),
]
WEIGHTS = [("light: fast, a little less sharp", WeightsSize.LIGHT), ("standard", WeightsSize.FULL)]
CLOSE = [("1 % (quick)", 1e-2), ("0.1 %", 1e-3), ("0.01 %", 1e-4)]
ALL, THIS = "all planes", "the plane that is shown"
KEPT = ("rotate", "shear", "affine", "units", "axis_labels", "colormap", "contrast_limits", "gamma")  # of the layer
GRAY = ("colormap", "contrast_limits", "gamma")  # that colours do not have


class Reconstruct(Container):
    """Reconstruct an image layer: denoise, deblur, upscale, inpaint."""

    def __init__(self, napari_viewer: ViewerModel):
        self._viewer = napari_viewer
        self._stop: threading.Event | None = None
        self.image = ComboBox(label="Image", choices=lambda _: self._layers(Image))
        self.goal = ComboBox(label="Task", choices=GOALS)
        self.kernel = LineEdit(
            label="Blur",
            value="gaussian:1.6",
            tooltip="gaussian:STD, disk:RADIUS or motion:LENGTH,ANGLE in pixels and degrees, or a file (npy, tif, png)",
        )
        self.boundary = ComboBox(label="Beyond the border", choices=BOUNDARIES)
        self.scale = ComboBox(label="Times larger", choices=[2, 3, 4])
        self.missing = ComboBox(
            label="Missing",
            choices=lambda _: self._layers(Labels),
            nullable=True,
            tooltip="A layer of labels: what is painted there is filled in",
        )
        self.planes = ComboBox(label="Planes", choices=[THIS, ALL])
        self.estimate = CheckBox(text="Estimate the noise", value=True)
        self.noise = FloatSpinBox(
            label="Noise", value=10, min=0, max=1e9, tooltip="Its standard deviation, in the values of the layer"
        )
        self.automatic = CheckBox(text="Find the strength", value=True)
        self.lam = FloatSpinBox(label="Strength (lam)", value=1, min=1e-6, max=1e9, tooltip="A larger one smooths more")
        self.weights = ComboBox(label="Weights", choices=WEIGHTS)
        self.tolerance = ComboBox(label="Stop this close", choices=CLOSE, tooltip="To the fixed point of the method")
        self.run = PushButton(text="Reconstruct")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.progress = ProgressBar(min=0, max=1000, value=0, visible=False)
        self.words = Label(value="")
        buttons = Container(widgets=[self.run, self.cancel], layout="horizontal", labels=False)
        told = Container(widgets=[self.progress, self.words], labels=False)
        choices = [self.image, self.goal, self.kernel, self.boundary, self.scale, self.missing, self.planes]
        knobs = [self.estimate, self.noise, self.automatic, self.lam, self.weights, self.tolerance]
        super().__init__(widgets=[*choices, *knobs, buttons, told])
        self.words.native.setWordWrap(True)
        self.words.native.setTextInteractionFlags(self.words.native.textInteractionFlags().TextSelectableByMouse)
        for number in (self.noise, self.lam):
            number.native.setDecimals(6)  # noise of floats is small
        self._connect()
        self._show_what_matters()

    def _connect(self) -> None:
        for event in (self._viewer.layers.events.inserted, self._viewer.layers.events.removed):
            event.connect(self._choose_among_layers)  # a method, which napari does not keep alive
        for choice in (self.image, self.goal, self.estimate, self.automatic):
            choice.changed.connect(lambda _: self._show_what_matters())
        self.run.changed.connect(lambda _: self.begin())
        self.cancel.changed.connect(lambda _: self.end())

    def _choose_among_layers(self, event: Any = None) -> None:
        if isalive(self.native):  # not so where its dock was closed
            self.reset_choices()

    def _layers(self, kind: type) -> list[Any]:
        return [layer for layer in self._viewer.layers if isinstance(layer, kind)]

    def _show_what_matters(self) -> None:
        """To this layer and this task."""
        goal, layer = self.goal.value, self.image.value
        for widget, wanted in (
            (self.kernel, goal is Goal.DEBLUR),
            (self.boundary, goal is Goal.DEBLUR),
            (self.scale, goal is Goal.UPSCALE),
            (self.missing, goal is Goal.INPAINT),
            (self.planes, layer is not None and layer.ndim > 2),
            (self.noise, not self.estimate.value),
            (self.lam, not self.automatic.value),
        ):
            widget.visible = wanted
        self.estimate.text = "Noise of 1/255 of white" if goal is Goal.UPSCALE else "Estimate the noise"
        self.run.enabled = layer is not None and not self.working

    @property
    def working(self) -> bool:
        """Whether a run is under way, or being cancelled."""
        return self._stop is not None

    def order(self) -> LayerOrder:
        """What was chosen."""
        wish = Wish(
            goal=self.goal.value,
            weights=self.weights.value,
            lam=None if self.automatic.value else self.lam.value,
            tolerance=self.tolerance.value,
            boundary=self.boundary.value,
            scale=self.scale.value,
        )
        layer, missing = self.image.value, self.missing.value
        only = self.planes.value == THIS and layer.ndim > 2
        return LayerOrder(
            wish,
            noise=None if self.estimate.value else self.noise.value,
            kernel=self.kernel.value,
            missing=None if missing is None else missing.data,
            plane=_shown(self._viewer, layer) if only else None,
        )

    def begin(self) -> Any:
        """Start in a thread of its own; the worker is returned."""
        layer = self.image.value
        try:
            pixels, order = Pixels(_largest(layer), bool(layer.rgb), layer.name), self.order()
        except ValueError as error:
            show_error(str(error))
            return None
        self._stop = stop = threading.Event()
        self.words.value, self.progress.value, self.progress.visible = "Working ...", 0, True
        self.cancel.enabled, self.run.enabled = True, False

        def told(title: str, done: float) -> None:
            if not stop.is_set():
                self._advance(title, done)

        worker = create_worker(_made, pixels, order, told, stop)
        worker.returned.connect(lambda made: self._finish(layer, made))
        worker.errored.connect(lambda _: self._rest("Something went wrong that should not."))  # napari says what
        worker.warned.connect(lambda warning: show_warning(in_words_of_the_widget(str(warning[0]))))
        worker.start()
        return worker

    def end(self) -> None:
        """Cancel what runs."""
        if self._stop is not None:
            self._stop.set()

    @ensure_main_thread
    def _advance(self, title: str, done: float) -> None:
        if not isalive(self.native):  # its dock was closed: nobody waits for the result any more
            self.end()
        elif self._stop is not None and not self._stop.is_set():
            self.progress.value = round(1000 * done)
            self.words.value = f"Working on {title} ..." if title else "Working ..."

    def _rest(self, words: str) -> bool:
        """Ready for the next run; False where the widget is gone."""
        self._stop = None
        if not isalive(self.native):
            return False
        self.words.value = words
        self.cancel.enabled = self.progress.visible = False
        self._show_what_matters()
        return True

    def _finish(self, layer: Image, made: Result | str | None) -> None:
        """With a result, with words on what was wrong, or with nothing: cancelled."""
        if made is None:
            self._rest("Cancelled.")
        elif isinstance(made, str):
            self._rest(made)
            show_error(made)
        elif self._rest("\n".join(made.words())):
            self._viewer.add_image(made.data, **properties(layer, made))
            tell = show_info if made.report.converged else show_warning
            tell(f"{made.name}: {made.words()[0]}")


def _made(pixels: Pixels, order: LayerOrder, told: Any, stop: threading.Event) -> Result | str | None:
    """In the thread. What is foreseeable is told in words, the rest is an error of napari's."""
    try:
        return work(pixels, order, told, stop)
    except CancelledError:  # no Exception, which is all that the worker would catch
        return None
    except Exception as error:
        if not is_foreseeable(error):
            raise
        return in_words_of_the_widget(in_words(error))


def properties(layer: Image, made: Result) -> dict[str, Any]:
    """Of the new layer: it lies where the old one does, and looks like it."""
    place = Affine(scale=layer.scale, translate=layer.translate, rotate=layer.rotate, shear=layer.shear)
    magnified = np.ones(layer.ndim)
    magnified[-2:] = made.magnification
    kept = {name: getattr(layer, name) for name in KEPT if not (layer.rgb and name in GRAY)}
    return kept | {
        "name": made.name,
        "rgb": layer.rgb,
        "scale": layer.scale / magnified,
        "translate": place(np.array(made.start)),
        "metadata": {**layer.metadata, "torchdeal": made.facts()},
    }


def _largest(layer: Image) -> Any:
    return layer.data[0] if layer.multiscale else layer.data


def _shown(viewer: ViewerModel, layer: Image) -> tuple[int, ...]:
    """The plane of the layer that the sliders of the viewer are at."""
    lengths = _largest(layer).shape[: layer.ndim - 2]
    place = np.round(layer.world_to_data(viewer.dims.point)).astype(int)[: layer.ndim - 2]
    return tuple(int(index) for index in np.clip(place, 0, np.array(lengths) - 1))
