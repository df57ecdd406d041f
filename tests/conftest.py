"""Shared problems. Everything random is seeded; everything double precision unless a test says otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data as pictures

import torchdeal as td
from torchdeal.operators import Radon

torch.set_num_threads(1)  # the tests run side by side, one process per core

# What cannot be passed on, or is too large: test images under data/test, prototype weights under weights.
# Tests that need it are skipped where it is not.
DATA = Path(os.environ.get("TORCHDEAL_DATA", Path(__file__).parents[2] / "shared"))


def small_model(channels=1, boundary="reflect", features=6, seed=0, dtype=torch.float64):
    """An untrained model with few filters and scaled-up responses, so that its masks are not constant."""
    torch.manual_seed(seed)
    model = td.DEAL(channels, boundary, features)
    with torch.no_grad():
        for kernel in model.mask_filters:
            kernel.mul_(3)
        model.phi1.add_(0.05 * torch.rand(31))
        model.phi2.add_(0.05 * torch.rand(31))
        model.scaling.copy_(torch.rand_like(model.scaling) + 2)
        model.kappa.add_(0.5)
    return model.to(dtype)


def random(*shape, seed=0):
    """Uniform numbers, double precision."""
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def radon_by(angles, size, circle=False, bins=None, center=0.0, **way):
    """`Radon` with its private settings: with no matrix, or as on CUDA."""
    operator = Radon(angles, size, circle=circle, bins=bins, center=center)
    vars(operator).update(way)
    return operator


IN_SEGMENTS, ON_THE_FLY = {"_in_segments": True}, {"_matrix_bytes": 0}


def dense(apply, shape, dtype=torch.float64):
    """The matrix of a linear map on `(1, *shape)` tensors, column by column."""
    size = int(np.prod(shape))
    columns = apply(torch.eye(size, dtype=dtype).view(size, *shape))
    return columns.reshape(size, -1).T


def assert_same_tensors(one, other):
    assert one.keys() == other.keys()
    assert len(one) > 0
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert different == []


def picture(name="camera", size=64, row=96, column=192):
    """A crop of a picture that ships with scikit-image, float32 `(1, C, size, size)` in 0..1."""
    pixels = getattr(pictures, name)()[row : row + size, column : column + size] / 255
    tensor = torch.from_numpy(pixels).float()
    return tensor.permute(2, 0, 1)[None] if tensor.ndim == 3 else tensor[None, None]


def centre(path):
    """Of a picture of 40 x 40, as written for the benchmarks, the central 32 x 32 in 0..1."""
    return np.asarray(Image.open(path))[4:36, 4:36] / 255


def noisy(clean, sigma, seed=0):
    """`clean` plus white noise of `sigma` on the 0..255 scale."""
    generator = torch.Generator().manual_seed(seed)
    return clean + sigma / 255 * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)


def relative(a, b):
    """`||a - b|| / ||b||`."""
    return float((a - b).norm() / b.norm())


@pytest.fixture(scope="session")
def gray():
    return td.load("gray")


@pytest.fixture(scope="session")
def color():
    return td.load("color")


@pytest.fixture(scope="session")
def gray_double():
    return td.load("gray").double()


@pytest.fixture
def deal(monkeypatch, capsys, tmp_path):
    """Run `deal ...` in a folder of its own; returns exit code, stdout, stderr."""
    from torchdeal import cli  # here: most tests have no use for it

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["deal", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run
