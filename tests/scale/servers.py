"""Pictures as they are sent, and a service without sockets."""

import io
from contextlib import contextmanager

import numpy as np
from app.visitors import as_file, noisy_pixels
from starlette.testclient import TestClient

from torchdeal.cli.shared import WeightsSize
from torchdeal.scale.serve.api import create
from torchdeal.scale.serve.service import ServeSettings

QUICK = {"sigma": 20, "tolerance": 0.05}
NOISY = noisy_pixels(size=16)
PHOTO = as_file(NOISY)


@contextmanager
def serving(**settings):
    """A client whose requests reach a service of its own."""
    settings = {"weights": WeightsSize.LIGHT, **settings}
    app = create(ServeSettings(**settings))
    with TestClient(app, base_url="http://localhost:8750") as client:
        client.service = app.state.service
        yield client


def ask(client, goal="denoise", content=PHOTO, name="photo.png", others=(), **parameters):
    files = {"image": (name, content), **dict(others)}
    asked = {name: value for name, value in {**QUICK, **parameters}.items() if value is not None}
    return client.post(f"/v1/{goal}", params=asked, files=files)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()
