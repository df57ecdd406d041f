"""What is read off inner products, beside the vectors themselves."""

import numpy as np
import pytest
import torch

from torchdeal.solvers.geometry import Geometry, host_array, inner_products_of

SHAPE = 2, 3, 4, 5
KINDS = [torch.float32, torch.float64, torch.complex64]


def vectors(count, dtype):
    return torch.randn(count, *SHAPE, dtype=dtype, generator=torch.Generator().manual_seed(0))


def steps(dtype, earlier=3):
    """x, d and the pairs before, the latest last."""
    x, d, *others = vectors(2 + 2 * earlier, dtype)
    pairs = list(zip(others[::2], others[1::2], strict=True))
    return x, d, pairs, geometry_of(x, d, pairs)


def geometry_of(x, d, pairs):
    return Geometry(host_array(inner_products_of(x, d, pairs)))


def flat(v):
    """Real vectors in double, complex numbers as two."""
    real = torch.view_as_real(v) if v.is_complex() else v
    return real.double().flatten(1)


def inner(a, b):
    return (flat(a) * flat(b)).sum(1)


@pytest.mark.parametrize("dtype", KINDS)
def test_lengths_and_ratios(dtype):
    x, d, pairs, seen = steps(dtype)
    assert seen.earlier == 3
    np.testing.assert_allclose(seen.step, flat(d).norm(dim=1), rtol=1e-7)
    for back, (before, correction) in enumerate(reversed(pairs)):
        move, change = x - before, (x + d) - (before + correction)
        expected = flat(change).norm(dim=1) / flat(move).norm(dim=1)
        np.testing.assert_allclose(seen.ratios()[:, back], expected, rtol=1e-5)
        assert seen.went_back()[:, back].tolist() == (inner(move, change) < 0).tolist()


@pytest.mark.parametrize("dtype", KINDS)
def test_the_last_movement(dtype):
    x, d, pairs, seen = steps(dtype)
    before, correction = pairs[-1]
    movement, change = (x + d) - (before + correction), d - correction
    assert seen.turned.tolist() == (inner(d, movement) < 0).tolist()
    assert seen.opposed.tolist() == (inner(d, correction) < 0).tolist()
    np.testing.assert_allclose(seen.aitken, inner(d, change) / inner(change, change), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("known", [(3, 3), (1, 2), (0, 3)])
def test_secants_agree_with_a_dense_least_squares_solve(dtype, known):
    x, d, pairs, seen = steps(dtype)
    explained, left = seen.secants(np.array(known))
    for sample, count in enumerate(known):
        some = pairs[::-1][:count]
        target = flat(d)[sample]
        if not count:
            assert float(explained[sample]) == 0
            assert float(left[sample]) == pytest.approx(float(target.norm()))
            continue
        changes = torch.stack([flat(d - correction)[sample] for _, correction in some], 1)
        images = torch.stack([flat((x + d) - (before + correction))[sample] for before, correction in some], 1)
        weights = torch.linalg.lstsq(changes, target[:, None]).solution
        assert float(explained[sample]) == pytest.approx(float((images @ weights).norm()), rel=1e-6)
        assert float(left[sample]) == pytest.approx(float((target[:, None] - changes @ weights).norm()), rel=1e-6)


def test_within_a_transform_of_torch():
    """Whose tensors numpy cannot see."""
    x, d, pairs, seen = steps(torch.float64)
    found = []

    def look(x):
        inside = geometry_of(x, d, pairs)
        found.append((inside.step, inside.ratios(), inside.secants(np.array([3, 2]))))
        return x.sum()

    torch.func.jvp(look, (x,), (x,))
    step, ratio, secants = found[0]
    np.testing.assert_allclose(step, seen.step)
    np.testing.assert_allclose(ratio, seen.ratios())
    np.testing.assert_allclose(secants, seen.secants(np.array([3, 2])))


def test_nothing_before():
    _, d, _, seen = steps(torch.float64, earlier=0)
    explained, left = seen.secants(np.array([0, 0]))
    assert explained.tolist() == [0, 0]
    np.testing.assert_allclose(left, flat(d).norm(dim=1))


def test_small_differences_of_large_images_survive():
    """Steps of 1e-4 of the image in float32: products of the images would be wrong by more than these are."""
    large = 1 + torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    move, d = 1e-4 * torch.randn(2, 1, 1, 64, 64, generator=torch.Generator().manual_seed(2))
    before, x = large, large + move
    seen = geometry_of(x, d, [(before, 0.5 * d)])
    change = (x - before).double() + 0.5 * d.double()
    assert seen.ratios().item() == pytest.approx(float(change.norm() / (x - before).double().norm()), rel=1e-6)
