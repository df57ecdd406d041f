"""`Radon`, beside scikit-image, ASTRA and its own other ways; what all operators share is in test_operators.py."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import IN_SEGMENTS, ON_THE_FLY, radon_by, random, relative
from skimage import data as pictures
from skimage.transform import radon

import torchdeal as td
from torchdeal.operators import Radon, adjoint_gap


@pytest.mark.parametrize(
    ("circle", "shape"), [(True, (33, 33)), (True, (32, 32)), (False, (32, 32)), (False, (21, 30))]
)
def test_radon_equals_scikit_image(circle, shape):
    picture = random(1, 1, *shape)
    if circle:  # scikit-image warns where the image is not zero outside the circle
        row, column = np.ogrid[: shape[0], : shape[1]]
        outside = (row - shape[0] // 2) ** 2 + (column - shape[1] // 2) ** 2 > (shape[0] // 2) ** 2
        picture[..., torch.from_numpy(outside)] = 0
    angles = np.array([0.0, 17.0, 90.0, 133.3, 180.0])
    expected = radon(picture[0, 0].numpy(), angles, circle=circle).T
    np.testing.assert_allclose(Radon(angles, shape, circle=circle).forward(picture)[0, 0], expected, atol=1e-10)


def test_radon_agrees_with_astra():
    astra = pytest.importorskip("astra")
    size, angles = 61, np.array([0.0, 17.0, 45.0, 60.0, 90.0, 133.0, 170.0])
    picture = pictures.camera()[100 : 100 + 2 * size, 150 : 150 + 2 * size]
    picture = picture.reshape(size, 2, size, 2).mean((1, 3)) / 255
    operator = Radon(angles, (size, size))
    assert operator.bins % 2  # as the size is: else its centre is not that of ASTRA
    beams = astra.create_proj_geom("parallel", 1.0, operator.bins, np.deg2rad(angles))
    projector = astra.create_projector("strip", beams, astra.create_vol_geom(size, size))
    _, expected = astra.create_sino(picture, projector)
    astra.clear()
    ours = operator.forward(torch.from_numpy(picture)[None, None])[0, 0].numpy()
    assert np.linalg.norm(ours - expected) < 5e-3 * np.linalg.norm(expected)  # areas there, interpolation here


@pytest.mark.parametrize("way", [{}, IN_SEGMENTS], ids=["rows", "segments"])
@pytest.mark.parametrize(("size", "circle"), [((18, 23), False), ((23, 18), False), ((19, 19), True), ((20, 20), True)])
def test_radon_by_matrix_equals_interpolation(way, size, circle):
    angles = [0.0, 25.0, 45.0, 90.0, 133.3, 180.0, -270.0, 1000.0]
    matrix, on_the_fly = (radon_by(angles, size, circle=circle, **kind) for kind in (way, ON_THE_FLY))
    x = random(2, 3, *size)
    y = on_the_fly.forward(x)
    assert relative(matrix.forward(x), y) < 1e-13
    assert relative(matrix.adjoint(y), on_the_fly.adjoint(y)) < 1e-13
    assert relative(matrix.forward(x.float()), y) < 1e-6
    assert relative(matrix.adjoint(y.float()), on_the_fly.adjoint(y)) < 1e-6
    assert adjoint_gap(matrix, x.float()) < 1e-6


def test_radon_of_a_single_row():
    x = random(1, 1, 1, 9)
    assert torch.equal(Radon([0.0], (1, 9)).forward(x), F.pad(x, (2, 2)))


def test_radon_in_half_precision():
    x = random(1, 1, 8, 8)
    assert relative(Radon([0.0, 30.0], (8, 8)).normal(x.bfloat16()), Radon([0.0, 30.0], (8, 8)).normal(x)) < 0.05


def test_radon_shares_its_matrices_with_its_copies():
    operator, x = Radon([0.0, 30.0], (8, 8)), random(1, 1, 8, 8)
    single = operator.to("cpu", torch.float32)
    single.normal(x.float())
    built = dict(operator._matrices)
    assert len(built) == 2
    operator.to(dtype=torch.float32).normal(x.float())
    (2.0 * operator).to(dtype=torch.float32).normal(x.float())
    assert all(operator._matrices[key] is matrix for key, matrix in built.items())
    operator.normal(x)
    assert len(single._matrices) == 4
    for copied in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert not copied._matrices
        assert torch.equal(copied.normal(x), operator.normal(x))


def test_radon_builds_its_matrix_where_gradients_are_off():
    operator, x = Radon([0.0, 30.0], (8, 8)), random(1, 1, 8, 8)
    with torch.inference_mode():
        operator.normal(x)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(operator.forward(x).square().sum() / 2, x)
    torch.testing.assert_close(gradient, operator.normal(x.detach()))


def test_large_radon_has_no_matrix():
    few, many = (Radon(np.arange(number), (512, 512)) for number in (160, 170))
    assert few._has_matrix(torch.float32)
    assert not few._has_matrix(torch.float64)
    assert not many._has_matrix(torch.float32)


def test_radon_on_the_fly_in_chunks(monkeypatch):
    x, operator = random(2, 3, 12, 10), radon_by([0.0, 30.0, 135.0], (12, 10), **ON_THE_FLY)
    whole = operator.forward(x)
    back = operator.adjoint(whole)
    monkeypatch.setattr("torchdeal.operators.tomography.CHUNK_NUMBERS", 1)
    torch.testing.assert_close(operator.forward(x), whole, atol=1e-12, rtol=0)
    torch.testing.assert_close(operator.adjoint(whole), back, atol=1e-12, rtol=0)


@pytest.mark.parametrize("way", [{}, ON_THE_FLY], ids=["matrix", "interpolation"])
def test_a_rotation_axis_that_is_not_in_the_middle(way):
    """By whole bins the projections move; by parts of one their centre of mass does."""
    x = F.interpolate(F.pad(random(1, 1, 4, 5), (1, 1, 1, 1)), (12, 15), mode="bilinear")
    wide = radon_by([0.0, 30.0, 135.0], (12, 15), bins=40, **way).forward(x)
    moved = radon_by([0.0, 30.0, 135.0], (12, 15), bins=40, center=3, **way)
    torch.testing.assert_close(moved.forward(x), wide.roll(3, -1))
    assert adjoint_gap(moved, x) < 1e-12
    partly = radon_by([0.0, 30.0, 135.0], (12, 15), bins=40, center=-0.4, **way).forward(x)
    bins = torch.arange(40, dtype=torch.float64)
    means = [(y * bins).sum(-1) / y.sum(-1) for y in (wide, partly)]
    torch.testing.assert_close(means[1], means[0] - 0.4, atol=0.02, rtol=0)


def test_bins_beyond_the_image_see_nothing():
    x, angles = random(1, 1, 9, 9), [0.0, 30.0, 90.0]
    own = Radon(angles, 9)
    torch.testing.assert_close(Radon(angles, 9, bins=own.bins + 10).forward(x), F.pad(own.forward(x), (5, 5)))
    torch.testing.assert_close(Radon(angles, 9, bins=own.bins - 6).forward(x), own.forward(x)[..., 3:-3])


def test_one_number_is_a_square():
    x = random(1, 1, 8, 8)
    assert torch.equal(Radon([0.0, 30.0], 8).forward(x), Radon([0.0, 30.0], (8, 8)).forward(x))
    assert Radon([0.0], np.array([4, 6])).size == (4, 6)


def test_a_sinogram_of_numpy(gray):
    """Gives the image that the tensor gives, as an array."""
    H = Radon(np.arange(0, 180, 12), 20)
    y = H.forward(random(1, 1, 20, 20)).float()
    options = {"model": gray, "noise": 0.1, "max_iterations": 2, "data_range": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", td.ConvergenceWarning)
        expected, x = (td.reconstruct(values, H, **options).x for values in (y, y[0, 0].numpy()))
    np.testing.assert_array_equal(np.squeeze(x), expected[0, 0].numpy())


def test_sinograms_of_numpy_are_not_taken_for_colours():
    stack = np.ones((3, 15, 29), np.float32)
    with pytest.raises(ValueError, match=r"those of 3 images, or of the channels of one: give y\[:, None\]"):
        td.reconstruct(stack, Radon(np.arange(0, 180, 12), 20), noise=0.1)


BAD = {
    "a rectangle": (([0.0], (4, 5)), {"circle": True}, "square"),
    "nan": (([np.nan], (4, 4)), {}, "angles must be finite"),
    "no angles": (([], (4, 4)), {}, "angles must be finite numbers, at least one"),
    "how many": ((180, (4, 4)), {}, r"angles must be a list.*numpy\.arange\(180\)"),
    "words": ((["a"], (4, 4)), {}, "angles must be an array or a tensor of numbers, got list"),
    "nothing": ((None, (4, 4)), {}, "angles must be an array or a tensor of numbers, got NoneType"),
    "complex": ((np.array([1j]), (4, 4)), {}, "angles must be real numbers"),
    "three sizes": (([0.0], (3, 4, 5)), {}, r"size must be \(height, width\) .* got \(3, 4, 5\)"),
    "parts of pixels": (([0.0], (4.5, 4)), {}, "size must be"),
    "no size": (([0.0], None), {}, "size must be"),
    "size in words": (([0.0], "64"), {}, "size must be"),
    "empty": (([0.0], (0, 4)), {}, "size must be"),
    "no bins": (([0.0], 4), {"bins": -3}, "bins must be"),
    "no center": (([0.0], 4), {"center": "auto"}, "center must be a finite number of bins"),
}


@pytest.mark.parametrize(("arguments", "options", "message"), BAD.values(), ids=BAD)
def test_bad_radon(arguments, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Radon(*arguments, **options)


def test_angles_that_look_like_radians():
    with pytest.warns(UserWarning, match=r"from 0 to 3.09: they are taken for degrees; .* numpy.rad2deg") as caught:
        Radon(np.arange(60) * np.pi / 60, 8)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Radon(np.arange(60) * 3.0, 8)
        Radon([0.0, 1.0, 3.0], 8)


def test_whole_numbers_are_no_image():
    with pytest.raises(TypeError, match=r"Radon needs floating-point numbers, got torch.int32: use .float\(\)"):
        Radon([0.0], 8).forward(torch.ones(1, 1, 8, 8, dtype=torch.int32))
