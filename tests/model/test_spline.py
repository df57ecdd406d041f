import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from torchdeal.model.spline import even_spline, non_decreasing, non_increasing, sigma_spline

values = hnp.arrays(np.float64, 31, elements=st.floats(-5, 5))
points = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10))


def interpolated(x, knots, coefficients):
    """numpy's interpolation, with the outer pieces going on."""
    x = np.abs(x)
    slope = (coefficients[-1] - coefficients[-2]) / (knots[-1] - knots[-2])
    return np.where(x > knots[-1], coefficients[-1] + slope * (x - knots[-1]), np.interp(x, knots, coefficients))


@given(points, values)
def test_even_spline_equals_numpy(x, coefficients):
    expected = interpolated(x, np.linspace(0, 3, 31), coefficients)
    result = even_spline(torch.from_numpy(x), torch.from_numpy(coefficients))
    np.testing.assert_allclose(result, expected, atol=1e-10)


def test_even_spline_propagates_nan():
    result = even_spline(torch.tensor([float("nan"), 1.0]), torch.linspace(0, 3, 31))
    assert torch.isnan(result[0])
    assert float(result[1]) == pytest.approx(1.0)


def test_even_spline_gradient():
    torch.manual_seed(0)
    x = (4 * torch.randn(2, 3, 5, 5, dtype=torch.float64)).requires_grad_()
    coefficients = torch.rand(31, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(even_spline, (x, coefficients))


@given(values)
def test_monotone_projections(coefficients):
    c = torch.from_numpy(coefficients)
    up, down = non_decreasing(c), non_increasing(c)
    assert float(up.diff().min()) >= -1e-12
    assert float(down.diff().max()) <= 1e-12
    for projected in (up, down):
        assert float(projected.mean()) == pytest.approx(float(c.mean()), abs=1e-9)


def test_monotone_projection_leaves_the_feasible_alone():
    c = torch.linspace(-1, 4, 31, dtype=torch.float64)
    torch.testing.assert_close(non_decreasing(c), c)
    torch.testing.assert_close(non_increasing(-c), -c)


@pytest.mark.parametrize("knots", [14, 53])
def test_sigma_spline_equals_numpy(knots):
    rng = np.random.default_rng(0)
    coefficients, sigma = rng.normal(size=(3, knots)), np.array([0.0, 0.3, 7.9, 25.0, 50.0, 51.0])
    result = sigma_spline(torch.from_numpy(coefficients), torch.from_numpy(sigma))
    expected = np.stack([np.interp(sigma, np.linspace(-1, 51, knots), row) for row in coefficients])
    np.testing.assert_allclose(result, expected, atol=1e-12)
