"""`FanBeam`, beside closed forms, `Radon` and ASTRA; what all operators share is in test_operators.py."""

import copy

import numpy as np
import pytest
import torch
from conftest import IN_SEGMENTS, ON_THE_FLY, random, relative
from skimage.filters import gaussian

from torchdeal.operators import FanBeam, Radon, adjoint_gap

ANGLES = np.array([0.0, 17.0, 45.0, 90.0, 133.0, 200.0, 301.0])
SIZE, CENTRE, RADIUS = 65, np.array([5.0, -8.0]), 20.0  # a disc: to the right of the axis, and below it


def disc(finer=8):
    """What each pixel shares with the disc."""
    places = (np.arange(SIZE * finer) + 0.5) / finer - 0.5 - SIZE // 2
    inside = (places[None] - CENTRE[0]) ** 2 + (places[:, None] - CENTRE[1]) ** 2 < RADIUS**2
    return inside.reshape(SIZE, finer, SIZE, finer).mean((1, 3))


def chords(source, detector, places):
    """Of the disc, for a source below the image at angle 0 that turns counter-clockwise; (angles, places)."""
    lengths = []
    for radians in np.deg2rad(ANGLES):
        across, away = np.array([np.cos(radians), -np.sin(radians)]), np.array([np.sin(radians), np.cos(radians)])
        ray = places[:, None] * across - (source + detector) * away
        to_centre = CENTRE - source * away
        distance = (to_centre[0] * ray[:, 1] - to_centre[1] * ray[:, 0]) / np.linalg.norm(ray, axis=1)
        lengths.append(2 * np.sqrt(np.maximum(RADIUS**2 - distance**2, 0)))
    return np.array(lengths)


@pytest.mark.parametrize(("detector", "pitch", "center"), [(100.0, 1.3, 0.0), (100.0, 2.0, 2.25), (0.0, 1.0, -0.5)])
def test_shadow_of_a_disc(detector, pitch, center):
    H = FanBeam(ANGLES, SIZE, 150, detector, pitch=pitch, center=center)
    seen = H.forward(torch.from_numpy(disc())[None, None])[0, 0].numpy()
    places = (np.arange(H.bins) - H.bins // 2 - center) * pitch
    expected = chords(150, detector, places)
    assert np.linalg.norm(seen - expected) < 0.02 * np.linalg.norm(expected)  # pixels at the edge are gray
    assert np.abs(seen - expected)[expected > 20].max() < 1


def test_parallel_where_the_source_is_far():
    image = torch.from_numpy(gaussian(disc(), 1.5))[None, None]
    parallel = Radon(ANGLES, SIZE, bins=95, center=1.5).forward(image)
    assert relative(FanBeam(ANGLES, SIZE, 1e8, 1.0, bins=95, center=1.5).forward(image), parallel) < 1e-3
    assert relative(FanBeam(ANGLES, SIZE, 100.0, 1.0, bins=95, center=1.5).forward(image), parallel) > 0.02


def test_fan_agrees_with_astra():
    astra = pytest.importorskip("astra")
    H = FanBeam(ANGLES, SIZE, 150, 100, bins=151, pitch=1.5)
    beams = astra.create_proj_geom("fanflat", 1.5, 151, np.deg2rad(ANGLES), 150, 100)
    projector = astra.create_projector("line_fanflat", beams, astra.create_vol_geom(SIZE, SIZE))
    _, expected = astra.create_sino(disc(), projector)
    astra.clear()
    seen = H.forward(torch.from_numpy(disc())[None, None])[0, 0].numpy()
    assert np.linalg.norm(seen - expected) < 0.01 * np.linalg.norm(expected)


@pytest.mark.parametrize("way", [IN_SEGMENTS, ON_THE_FLY], ids=["segments", "on the fly"])
@pytest.mark.parametrize("size", [(18, 23), (23, 18), (1, 9)])
def test_every_way_is_the_same(way, size):
    H = FanBeam(ANGLES, size, 60, 30, pitch=1.2)
    other = copy.copy(H)
    vars(other).update(way, _matrices={})
    x = random(2, 3, *size)
    y = H.forward(x)
    assert relative(other.forward(x), y) < 1e-13
    assert relative(other.adjoint(y), H.adjoint(y)) < 1e-13
    assert relative(H.forward(x.float()), y) < 1e-6
    assert adjoint_gap(H, x.float()) < 1e-6


def test_every_pixel_is_seen_at_every_angle():
    """By as many rays as pass through it: where the magnification is the pitch, about one."""
    H = FanBeam(ANGLES, (20, 31), 200, 100, pitch=1.5)
    for angle in range(len(ANGLES)):
        only = torch.zeros(1, 1, len(ANGLES), H.bins, dtype=torch.float64)
        only[:, :, angle] = 1
        assert float(H.adjoint(only).min()) > 0.6
        assert float(H.adjoint(only).max()) < 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": 10}, "inside the image: it is 10 pixels from the axis, and the corners are 12.7"),
        ({"source": -50}, "source must be a length in pixels, above 0, got -50"),
        ({"source": np.nan}, "source must be a length"),
        ({"source": "far"}, "source must be a length"),
        ({"detector": -1}, "detector must be a length in pixels, at least 0"),
        ({"pitch": 0}, "pitch must be a length"),
        ({"bins": 0}, "bins must be how many the detector has"),
        ({"bins": 7.5}, "bins must be how many the detector has"),
        ({"center": np.inf}, "center must be a finite number of bins"),
        ({"size": "16"}, r"size must be \(height, width\)"),
        ({"angles": 360}, "angles must be a list"),
    ],
)
def test_bad_fan_beam(arguments, message):
    with pytest.raises(ValueError, match=message):
        FanBeam(**{"angles": [0.0], "size": 16, "source": 50, "detector": 20, **arguments})
