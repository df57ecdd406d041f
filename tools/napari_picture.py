"""A picture of the plugin in napari, with a sample before and after.

    xvfb-run python tools/napari_picture.py docs/images/napari.png

It needs `pip install 'torchdeal[napari]'` and a screen with OpenGL, such as that of xvfb with Mesa.
"""

# pyright: reportMissingImports=false
# napari has an environment of its own: make test-napari

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from torchdeal.extras import optional

SIZE = 1200, 620
COLOURS = 200


def take(path: Path, sample: str) -> None:
    """Open napari and a sample, press the button, wait, and keep what is to be seen."""
    napari = optional("napari", "the picture", "napari")
    from napari.qt import get_qapp

    def wait(until: Callable[[], bool]) -> None:
        while not until():
            get_qapp().processEvents()
            time.sleep(0.01)

    viewer = napari.Viewer(show=False)
    viewer.open_sample("torchdeal", sample)
    _, plugin = viewer.window.add_plugin_dock_widget("torchdeal")
    plugin.begin()
    wait(lambda: not plugin.working)
    viewer.grid.enabled = True
    window = viewer.window._qt_window
    window.resize(*SIZE)
    window.show()
    viewer.reset_view()
    shown = time.monotonic()
    wait(lambda: time.monotonic() > shown + 1)
    window.grab().save(str(path))
    viewer.close()
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("path", type=Path, help="of the picture, .png")
    parser.add_argument("--sample", default="camera")
    given = parser.parse_args()
    take(given.path, given.sample)


if __name__ == "__main__":
    main()
