"""Pictures in files, for the commands."""

import json

import numpy as np
from conftest import picture
from PIL import Image


def pixels(name="camera", size=48, row=300, column=170):
    """A crop as float64 `(H, W)` or `(H, W, 3)` on the 0..255 scale."""
    return picture(name, size, row, column)[0].permute(1, 2, 0).squeeze(-1).double().numpy() * 255


def save(path, array):
    Image.fromarray(np.asarray(array).round().clip(0, 255).astype(np.uint8)).save(path)


def load(path):
    return np.asarray(Image.open(path)).astype(np.float64)


def psnr(a, b, white=255.0):
    return -10 * np.log10(np.mean(((np.asarray(a) - b) / white) ** 2))


def noise(shape, sigma, seed=0):
    return np.random.default_rng(seed).normal(0, sigma, shape)


def only_result(out):
    (result,) = json.loads(out)["results"]
    return result
