import numpy as np
import pytest
import torch
from conftest import noisy, picture, small_model

import torchdeal as td


@pytest.fixture(scope="session")
def truth():
    return (picture(size=40)[0, 0].numpy() * 255).round().astype(np.uint8)


@pytest.fixture(scope="session")
def degraded(truth):
    return (noisy(picture(size=40), 15)[0, 0].numpy() * 255).round().clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def gray_rec(degraded):
    return td.reconstruct(degraded, model=small_model(), sigma=15)


@pytest.fixture(scope="session")
def batch_rec():
    images = noisy(picture(size=40), 15).repeat(6, 1, 1, 1)
    return td.reconstruct(images, model=small_model(), sigma=[0.01 * n for n in range(2, 8)])


@pytest.fixture(scope="session")
def color_rec():
    return td.reconstruct(noisy(picture("astronaut", 24), 15), model=small_model(3), sigma=15 / 255)


@pytest.fixture(scope="session")
def kspace_rec():
    """Of a complex image, from half of its columns and those in the middle."""
    image = picture(size=32).to(torch.complex128) * np.exp(0.5j)
    mask = np.arange(32) % 2 == 0
    mask[:4] = mask[-4:] = True
    H = td.operators.Fourier(np.tile(mask, (32, 1)), real=False)
    return td.reconstruct(H.forward(image), H, model=small_model(), sigma=0.1, lam=0.1)
