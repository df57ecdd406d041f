import math

import numpy as np
import pytest
import torch
from conftest import picture

from torchdeal.equivalent_noise import (
    CENTRE,
    FLAT_SHARE,
    POWER,
    _most_likely_steps,
    _white_noise_that_leaves,
    equivalent_noise,
    laplacian,
)
from torchdeal.operators import Blur, Fourier, Identity, Mask

SIZE = 16


def signs_like(image):
    return torch.randint(0, 2, image.shape, generator=torch.Generator().manual_seed(0)).to(image) * 2 - 1


def dense(linear, size=SIZE):
    units = torch.eye(size * size, dtype=torch.float64).view(-1, 1, size, size)
    return linear(units).flatten(1).T


def drawn_from_the_prior(tau, size=64):
    """A picture whose gradients are as likely as the prior says, by the eigenvectors of the Laplacian."""
    place = torch.arange(size, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * (place + 0.5) * place[:, None]) * math.sqrt(2 / size)
    cosines[0] /= math.sqrt(2)
    values = 2 - 2 * torch.cos(math.pi * place / size)
    roughness = values[:, None] + values
    roughness[0, 0] = math.inf
    draw = torch.from_numpy(np.random.RandomState(0).normal(size=(size, size)))
    return (cosines.T @ (draw * tau / roughness.sqrt()) @ cosines)[None, None]


def test_the_laplacian_is_that_of_all_differences():
    found = dense(laplacian)
    rows = []
    for i in range(SIZE):
        for j in range(SIZE):
            for down, right in ((1, 0), (0, 1)):
                if i + down < SIZE and j + right < SIZE:
                    row = torch.zeros(SIZE, SIZE, dtype=torch.float64)
                    row[i, j], row[i + down, j + right] = -1, 1
                    rows.append(row.flatten())
    gradient = torch.stack(rows)
    torch.testing.assert_close(found, gradient.T @ gradient)


@pytest.mark.parametrize("level", [0.02, 0.1, 0.4])
def test_white_noise_that_leaves_an_error_does(level):
    tau = 0.05
    inverse = torch.linalg.inv(torch.eye(SIZE * SIZE) / level**2 + dense(laplacian) / tau**2)
    error = inverse.diagonal().mean().sqrt()
    found = _white_noise_that_leaves(error[None], torch.tensor([tau]), (SIZE, SIZE))
    assert float(found) == pytest.approx(level, rel=1e-4)


@pytest.mark.parametrize("H", [Identity(), Mask(torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) > 0.5)])
@pytest.mark.parametrize("tau", [0.03, 0.12])
def test_the_steps_of_a_picture_from_the_prior_are_found(H, tau):
    H = H.to("cpu", torch.float64)
    x, noise = drawn_from_the_prior(tau), torch.tensor([0.01], dtype=torch.float64)
    y = H.forward(x + 0.01 * torch.from_numpy(np.random.RandomState(1).normal(size=x.shape)))
    found, _ = _most_likely_steps(H, H.adjoint(y), noise, signs_like(x), rounds=15)
    assert float(found) == pytest.approx(tau, rel=0.15)


def test_for_white_noise_it_is_that_noise_but_for_the_bend():
    x, noise = picture(size=64), torch.tensor([0.1])
    y = x + 0.1 * torch.from_numpy(np.random.RandomState(0).normal(size=x.shape)).float()
    found = equivalent_noise(Identity(), y, noise, signs_like(x))
    assert float(found) == pytest.approx(0.1 * (0.1 / CENTRE) ** (POWER - 1), rel=0.1)


def test_the_error_is_that_of_the_dense_covariance():
    H = Blur(torch.ones(3, 3) / 9).to("cpu", torch.float64)
    x, noise = picture(size=SIZE).double(), torch.tensor([0.02], dtype=torch.float64)
    b = H.adjoint(H.forward(x))
    tau, _ = _most_likely_steps(H, b, noise, signs_like(x))
    matrix = dense(H.forward)
    precision = matrix.T @ matrix / noise**2 + dense(laplacian) / (FLAT_SHARE * tau) ** 2
    error = torch.linalg.inv(precision).diagonal().mean().sqrt()[None]
    level = _white_noise_that_leaves(error, FLAT_SHARE * tau, (SIZE, SIZE))
    found = [equivalent_noise(H, b, noise, torch.roll(signs_like(x), k, -1)) for k in range(16)]
    assert float(torch.stack(found).mean()) == pytest.approx(float(level * (level / CENTRE) ** (POWER - 1)), rel=0.1)


def test_it_grows_with_what_is_missing_and_with_detail():
    x = picture(size=48)
    noise = torch.tensor([0.01])
    holes = torch.rand(48, 48, generator=torch.Generator().manual_seed(0))
    levels = []
    for missing in (0.2, 0.5, 0.8):
        H = Mask(holes > missing)
        levels.append(float(equivalent_noise(H, H.forward(x), noise, signs_like(x))))
    assert levels == sorted(levels)
    smooth = 0.2 * x
    H = Mask(holes > 0.5)
    assert float(equivalent_noise(H, H.forward(smooth), noise, signs_like(x))) < levels[1]


def test_samples_do_not_depend_on_one_another():
    x = torch.cat([picture(size=32), 0.3 * picture(size=32)])
    H, noise = Fourier(torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) > 0.4), torch.tensor([0.01, 0.05])
    b = H.adjoint(H.forward(x))
    signs = signs_like(x[:1]).expand_as(x).contiguous()
    together = equivalent_noise(H, b, noise, signs)
    alone = torch.cat([equivalent_noise(H, b[i : i + 1], noise[i : i + 1], signs[:1]) for i in range(2)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=0)


def test_a_complex_image_has_one():
    x = torch.complex(picture(size=32), 0.5 * picture(size=32))
    H = Fourier(torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) > 0.4, real=False)
    found = equivalent_noise(H, H.adjoint(H.forward(x)), torch.tensor([0.01]), signs_like(x.real).to(x.dtype))
    assert found.dtype == torch.float32
    assert 0.001 < float(found) < 1


def test_an_empty_picture_has_one():
    x = torch.zeros(1, 1, 24, 24)
    assert 0 < float(equivalent_noise(Identity(), x, torch.tensor([0.05]), signs_like(x))) < 0.2
