import pytest
import torch
from conftest import picture

from torchdeal.estimation import (
    LAM_FACTOR,
    LEAST_SPREAD,
    MOST_SPREADS,
    default_parameters,
    estimate_range,
    gain,
)
from torchdeal.operators import Blur, Fourier, Identity, Mask


def test_the_rule_for_inverse_problems(gray):
    weights, like = gray.weights(), torch.zeros(2, 1, 32, 32)
    noise = torch.tensor([2.55, 7.65])
    sigma, lam = default_parameters(weights, Blur(torch.ones(5, 5) / 25), like, noise)
    assert float(sigma[0]) < float(sigma[1]) <= 50
    torch.testing.assert_close(lam.flatten(), LAM_FACTOR * weights.lam(sigma).flatten() * (noise / sigma) ** 2)


def test_the_rule_follows_the_scale_of_the_operator(gray):
    H, like = Blur(torch.ones(5, 5) / 25), torch.zeros(1, 1, 32, 32)
    sigma, lam = default_parameters(gray.weights(), H, like, torch.tensor([2.55]))
    scaled_sigma, scaled_lam = default_parameters(gray.weights(), 1000.0 * H, like, torch.tensor([2550.0]))
    torch.testing.assert_close(scaled_sigma, sigma)
    torch.testing.assert_close(scaled_lam, 1e6 * lam, rtol=1e-5, atol=0)


def test_gain_is_the_mean_diagonal_and_each_sample_has_its_own():
    mask = torch.zeros(2, 1, 16, 16)
    mask[0, :, :4], mask[1] = 1, 0.5
    torch.testing.assert_close(gain(Mask(mask), torch.zeros(2, 1, 16, 16)), torch.tensor([0.5, 0.5]))
    alone = gain(Blur(torch.rand(3, 3, generator=torch.Generator().manual_seed(0))), torch.zeros(1, 1, 16, 16))
    H = Blur(torch.rand(3, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(gain(H, torch.zeros(3, 1, 16, 16)), alone.expand(3))


@pytest.mark.parametrize("factor", [1e-12, 1.0, 4000.0])
def test_range_of_an_image(factor):
    x = factor * picture(size=48)
    H = Fourier(torch.ones(48, 48))
    measured = estimate_range(H, H.adjoint(H.forward(x)))
    assert float(measured) == pytest.approx(float(x.max() - x.min()), rel=0.1)


def test_the_range_of_nothing_is_one():
    assert float(estimate_range(Identity(), torch.zeros(1, 1, 16, 16))) == 1.0


def test_sigma_is_at_most_eight_times_what_a_plain_inversion_leaves(gray):
    """Few columns of k-space, and hardly any noise: it counts as a spread of 3."""
    columns = torch.zeros(48, 48)
    columns[:, ::8] = columns[:, :2] = 1
    H, like = Fourier(columns), torch.zeros(1, 1, 48, 48)
    b = H.adjoint(H.forward(picture(size=48)))
    quiet, _ = default_parameters(gray.weights(), H, b, torch.tensor([0.5]))
    assert float(quiet) == pytest.approx(MOST_SPREADS * LEAST_SPREAD)
    louder = torch.tensor([2 * LEAST_SPREAD]) * gain(H, like)
    assert 1.05 * float(quiet) < float(default_parameters(gray.weights(), H, b, louder)[0]) <= 50
