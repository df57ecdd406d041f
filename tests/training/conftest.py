"""Small runs: pictures of a few shapes, a model of a few filters, a few steps."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from torchdeal.training import Trainer, parse_config, read_images
from torchdeal.training.validation import Validation

SETTINGS = {
    "model": {"features": 4},
    "data": {"train": ["train"], "validation": ["validation"], "patch": 16, "batch": 2},
    "task": {"validation_sigma": [25]},
    "iterations": {"outer": [[0.0, 2, 4]], "again": [1, 2], "visits": 2, "pool": 3},
    "optimiser": {"steps": 16, "lr": 5e-3, "warmup": 2, "ema": 0.8},
    "run": {"report_every": 4, "save_every": 100, "validate_every": 100},
}


def shapes(seed, size=48, channels=1):
    """Discs and rectangles of any gray or colour on a gray ground, uint8."""
    random = np.random.default_rng(seed)
    pixels = np.full((size, size, channels), 128.0)
    down, right = np.mgrid[:size, :size]
    for _ in range(8):
        (y, x), radius = random.uniform(0, size, 2), random.uniform(size / 10, size / 3)
        square, disc = np.maximum(abs(down - y), abs(right - x)), np.hypot(down - y, right - x)
        pixels[(disc if random.random() < 0.5 else square) < radius] = random.uniform(0, 255, channels)
    return pixels.round().astype(np.uint8)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder with the folders `train` and `validation`, gray, and `colour`."""
    base = tmp_path_factory.mktemp("pictures")
    for name, seeds, channels in (("train", range(6), 1), ("validation", range(6, 8), 1), ("colour", range(3), 3)):
        (base / name).mkdir()
        for seed in seeds:
            Image.fromarray(shapes(seed, channels=channels).squeeze()).save(base / name / f"{seed}.png")
    return base


@pytest.fixture
def make_config():
    """`make_config(section={...})`: the small settings, with others in their place."""

    def make(**changes):
        sections = SETTINGS.keys() | changes.keys()
        return parse_config({name: SETTINGS.get(name, {}) | changes.get(name, {}) for name in sections})

    return make


@pytest.fixture
def make_trainer(make_config, pictures, tmp_path):
    """`make_trainer(name, section={...})`: a run of the small settings in a folder of that name."""

    def make(name="run", validated=False, **options):
        known = ("model", "engine", "listener", "started_from")
        given = {key: value for key, value in options.items() if key in known and not isinstance(value, dict)}
        config = make_config(**{key: value for key, value in options.items() if isinstance(value, dict)})
        channels = config.model.channels
        images = read_images([pictures / s for s in config.data.train], channels=channels, patch=config.data.patch)
        validation = Validation([pictures / "validation"], channels, 15, config.task) if validated else None
        return Trainer(config, tmp_path / name, images, validation, **given)

    return make
