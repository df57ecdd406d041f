"""Simulated pictures of a fluorescence microscope: filaments, nuclei and puncta, blurred as by its optics."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from torchdeal.io.atomic import replacing

MARGIN = 32  # pixels around a picture: what lies there shines into it, and the blur wraps around in it
POINTS_PER_PIXEL = 2  # of a filament
FOCUS, HAZE = (1.0, 1.8), 10.0  # deviations in pixels of the blur in focus, and out of it
DEPTH = 65535


def write_pictures(folder: Path, count: int, side: int) -> None:
    """PNG files of 16 bits with these pictures, numbered from 0."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        with replacing(folder / f"{seed:02}.png") as temporary:
            Image.fromarray((picture(seed, side) * DEPTH).round().astype(np.uint16)).save(temporary, "PNG")


def picture(seed: int, side: int) -> np.ndarray:
    """A clean picture `(side, side)` in 0..1; the same for the same seed."""
    random = np.random.default_rng(seed)
    size = side + 2 * MARGIN
    area = (size / 256) ** 2
    light = 0.15 * random.uniform(0.3, 1) * _nuclei(random, size, 1 + random.poisson(3 * area))
    light += random.uniform(0.2, 1) * _filaments(random, size, random.poisson(20 * area))
    light += random.uniform(1, 4) * _puncta(random, size, random.poisson(60 * area))
    seen = _blurred(light, random.uniform(*FOCUS)) + random.uniform(0.1, 0.5) * _blurred(light, HAZE)
    inside = seen[MARGIN:-MARGIN, MARGIN:-MARGIN].clip(min=0)
    offset = random.uniform(0.01, 0.08)  # of the camera
    return offset + (1 - offset) * inside / max(float(inside.max()), np.finfo(float).tiny)


def _filaments(random: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Curves whose direction changes slowly."""
    image, steps = np.zeros((size, size)), POINTS_PER_PIXEL * size
    for _ in range(count):
        direction = random.uniform(0, 2 * np.pi) + np.cumsum(random.normal(0, 0.03, steps))
        start = random.uniform(0, size, (2, 1))
        places = start + np.cumsum([np.sin(direction), np.cos(direction)], 1) / POINTS_PER_PIXEL
        _add(image, places, random.uniform(0.5, 1) / POINTS_PER_PIXEL)
    return image


def _puncta(random: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Points of different brightness."""
    image = np.zeros((size, size))
    _add(image, random.uniform(0, size, (2, count)), random.exponential(1, count))
    return image


def _nuclei(random: np.random.Generator, size: int, count: int) -> np.ndarray:
    """Ellipses with a texture."""
    down, right = np.mgrid[:size, :size]
    texture = _blurred(random.standard_normal((size, size)), 2.5)
    texture = 1 + 0.25 * texture / texture.std()
    image = np.zeros((size, size))
    for _ in range(count):
        (y, x), (long, short) = random.uniform(0, size, 2), random.uniform(12, 30, 2)
        angle = random.uniform(0, np.pi)
        along = np.cos(angle) * (down - y) + np.sin(angle) * (right - x)
        across = np.cos(angle) * (right - x) - np.sin(angle) * (down - y)
        image = np.maximum(image, random.uniform(0.5, 1) * (np.hypot(along / long, across / short) < 1))
    return image * texture


def _add(image: np.ndarray, places: np.ndarray, light: float | np.ndarray) -> None:
    """Light at places `(2, n)` between pixels, shared by the four around; what is outside is lost."""
    corner = np.floor(places).astype(int)
    inside = ((corner >= 0) & (corner < len(image) - 1)).all(0)
    corner, (down, right) = corner[:, inside], (places - corner)[:, inside]
    light = np.broadcast_to(light, inside.shape)[inside]
    for y, of_y in ((0, 1 - down), (1, down)):
        for x, of_x in ((0, 1 - right), (1, right)):
            np.add.at(image, (corner[0] + y, corner[1] + x), light * of_y * of_x)


def _blurred(image: np.ndarray, deviation: float) -> np.ndarray:
    """By a Gaussian, around the edges."""
    frequencies = [np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])]
    squared = frequencies[0] ** 2 + frequencies[1] ** 2
    return np.fft.irfft2(np.fft.rfft2(image) * np.exp(-2 * (np.pi * deviation) ** 2 * squared), image.shape)
