"""Operators that a user brings to `reconstruct`: what they return wrong is told, and their units do not matter."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur, Matrix, Operator, Scaled, adjoint_gap

MODEL = small_model(features=4, dtype=torch.float32)
KNOBS = {"model": MODEL, "sigma": 5 / 255, "lam": 0.5}


class Moving(Operator):
    """A camera that moves by a pixel. What it returns is changed by functions of a call's result, and its number."""

    measures_images = True

    def __init__(self, forward=lambda y, call: y, adjoint=lambda x, call: x):
        self.change_forward, self.change_adjoint, self.calls = forward, adjoint, {"forward": 0, "adjoint": 0}

    def _forward(self, x):
        self.calls["forward"] += 1
        return self.change_forward((x + x.roll(1, -1)) / 2, self.calls["forward"])

    def _adjoint(self, y):
        self.calls["adjoint"] += 1
        return self.change_adjoint((y + y.roll(-1, -1)) / 2, self.calls["adjoint"])


class MovingWithNormal(Moving):
    """The same with a `normal` of its own."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def normal(self, x):
        return self.change((2 * x + x.roll(1, -1) + x.roll(-1, -1)) / 4)


def measured(gain=1.0):
    return gain * noisy(Moving().forward(picture(size=18)), 3)


def one_pixel(value, from_call=1):
    def spoil(tensor, call):
        tensor = tensor.clone()
        if call >= from_call:
            tensor[..., 3, 3] = value
        return tensor

    return spoil


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("part", ["forward", "adjoint"])
@pytest.mark.parametrize("from_call", [1, 14])  # at once, and in the middle of a run, after the checks
def test_values_that_are_not_finite_are_refused_wherever_they_appear(part, value, from_call):
    H = Moving(**{part: one_pixel(value, from_call)})
    with pytest.raises(ValueError, match=f"Moving: the {part}.* returned NaN or infinite values"):
        td.reconstruct(measured(), H, **KNOBS)
    assert H.calls[part] >= from_call


def test_a_normal_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="MovingWithNormal: the normal returned NaN or infinite values"):
        td.reconstruct(measured(), MovingWithNormal(lambda x: x / 0), **KNOBS)


def test_one_sample_that_is_not_finite_is_enough():
    def second_sample(tensor, call):
        return torch.cat([tensor[:1], tensor[1:] * float("nan")]) if call > 13 else tensor

    with pytest.raises(ValueError, match="the adjoint returned NaN"):
        td.reconstruct(torch.cat([measured()] * 2), Moving(adjoint=second_sample), **KNOBS)


def test_adjoint_gap_of_what_is_not_finite():
    with pytest.raises(ValueError, match="the adjoint returned NaN"):
        adjoint_gap(Moving(adjoint=one_pixel(float("nan"))))


GAINS = [1e-15, 1e-12, 1e-6, 1e6, 1e12, 1e15]


@pytest.fixture(scope="module")
def at_gain_one():
    y = measured()
    return td.reconstruct(y, Moving(), **KNOBS), td.reconstruct(y, Moving(), model=MODEL, noise=3 / 255)


@pytest.mark.parametrize("gain", GAINS)
def test_the_gain_of_an_operator_does_not_change_the_image(gain, at_gain_one):
    H = Moving(lambda y, call: gain * y, lambda x, call: gain * x)
    by_knobs = td.reconstruct(measured(gain), H, **{**KNOBS, "lam": KNOBS["lam"] * gain**2})
    by_noise = td.reconstruct(measured(gain), H, model=MODEL, noise=3 / 255 * gain)
    for found, expected in zip((by_knobs, by_noise), at_gain_one, strict=True):
        assert found.converged
        assert relative(found.x, expected.x) < 2e-3
    assert adjoint_gap(H) < 1e-5


@pytest.mark.parametrize("gain", [1e-15, 1e15])
def test_the_gain_of_our_own_operators(gain):
    blur = Blur(torch.ones(3, 3) / 9)
    y = noisy(blur.forward(picture(size=18)), 3)
    expected = td.reconstruct(y, blur, **KNOBS)
    found = td.reconstruct(gain * y, Scaled(gain, blur), **{**KNOBS, "lam": KNOBS["lam"] * gain**2})
    assert found.converged
    assert relative(found.x, expected.x) < 2e-3


@pytest.mark.parametrize("first", range(1, 16))
def test_values_that_are_not_finite_from_some_call_on(first):
    """Also while sigma and lam are chosen."""
    with pytest.raises(ValueError, match="forward operator returned NaN"):
        td.reconstruct(measured(), Moving(one_pixel(torch.nan, first)), model=MODEL, noise=3 / 255)


@pytest.mark.parametrize("shape", [(1, 1, 0, 31), (0, 1, 8, 8)])
def test_measurements_that_are_empty(shape):
    with pytest.raises(ValueError, match="empty"):
        td.reconstruct(torch.zeros(shape), (lambda x: x, lambda y: y), model=MODEL, noise=3 / 255)


def test_a_kernel_that_requires_a_gradient_is_refused():
    with pytest.raises(ValueError, match=r"kernel requires a gradient.* give kernel.detach\(\)"):
        Blur(torch.ones(3, 3, requires_grad=True))
    with torch.no_grad():
        Blur(torch.ones(3, 3, requires_grad=True))


def gains_of_a_batch(*gains):
    """An operator with a gain of its own for each sample."""
    factors = torch.tensor(gains).view(-1, 1, 1, 1)
    return Moving(lambda y, call: factors * y, lambda x, call: factors * x), factors


def test_gains_within_a_batch_that_are_too_far_apart_are_refused():
    H, factors = gains_of_a_batch(1.0, 1e-15)
    with pytest.raises(ValueError, match=r"gains from 7\.\de-16 to .* reconstruct such samples one by one"):
        td.reconstruct(factors * measured(1.0), H, model=MODEL, noise=[0.01, 1e-17])


def test_gains_within_a_batch_may_differ():
    H, factors = gains_of_a_batch(1.0, 100.0)
    found = td.reconstruct(factors * measured(1.0), H, model=MODEL, noise=[3 / 255, 300 / 255])
    assert found.converged
    assert relative(found.x[1:], found.x[:1]) < 2e-3


def test_an_operator_may_look_at_its_image_as_one_vector():
    H = Moving(lambda y, call: y.view(-1).view(y.shape), lambda x, call: x)
    assert td.reconstruct(measured(1.0).repeat(2, 1, 1, 1), H, model=MODEL, noise=3 / 255).converged


def test_a_wrong_adjoint_is_refused_at_any_gain():
    wrong = Moving(lambda y, call: 1e-12 * y, lambda x, call: 2e-12 * x)
    with pytest.raises(ValueError, match="does not belong"):
        td.reconstruct(measured(1e-12), wrong, **KNOBS)


WRONG = {
    "float64": (lambda t, call: t.double(), "torch.float64 for torch.float32: convert .* or compute in float64"),
    "half": (lambda t, call: t.half(), "torch.float16 for torch.float32: convert"),
    "integers": (lambda t, call: t.long(), "torch.int64 for torch.float32: convert"),
    "numpy": (lambda t, call: t.numpy(), "a numpy array, not a torch tensor: use torch.from_numpy"),
    "None": (lambda t, call: None, "None: it lacks a `return`"),
    "a list": (lambda t, call: [t], "list, not a torch tensor"),
}


@pytest.mark.parametrize("model", [MODEL, None])
@pytest.mark.parametrize("part", ["forward", "adjoint"])
@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_tensor_of_the_right_kind(what, part, model):
    change, message = WRONG[what]
    with pytest.raises(TypeError, match=f"Moving: the {part}.* returned {message}"):
        td.reconstruct(measured(), Moving(**{part: change}), **{**KNOBS, "model": model})


def test_complex_results_for_real_measurements():
    H = Moving(adjoint=lambda x, call: x + 0j)
    with pytest.raises(ValueError, match="Moving: the adjoint returned a complex image for real measurements"):
        td.reconstruct(measured(), H, **KNOBS)
    H = Moving(forward=lambda y, call: y + 0j)
    with pytest.raises(ValueError, match=r"the forward operator returned complex measurements .* given are real"):
        td.reconstruct(measured(), H, **KNOBS)


def test_results_of_another_shape():
    with pytest.raises(ValueError, match=r"returned real measurements of shape \(1, 1, 17, 18\), but"):
        td.reconstruct(measured(), Moving(forward=lambda y, call: y[..., 1:, :]), **KNOBS)
    with pytest.raises(ValueError, match=r"should return images \(B, C, H, W\), got shape \(1, 324\)"):
        td.reconstruct(measured(), Moving(adjoint=lambda x, call: x.flatten(1)), **KNOBS)
    with pytest.raises(ValueError, match=r"should return images \(B, C, H, W\), got shape \(1, 324\)"):
        td.reconstruct(measured(), Moving(adjoint=lambda x, call: x.flatten(1)), **{**KNOBS, "model": None})


def test_a_normal_symbol_that_cannot_be():
    H = Moving()
    H.normal_symbol = lambda like: torch.full((1, 1), float("nan"))
    with pytest.raises(ValueError, match="Moving: normal_symbol must be finite and at least 0"):
        td.reconstruct(measured(), H, **KNOBS)


MATRIX = np.random.default_rng(0).normal(size=(200, 16 * 16)) / 16


@pytest.mark.parametrize("bare", [MATRIX, torch.from_numpy(MATRIX), scipy.sparse.csr_array(MATRIX)])
def test_a_bare_matrix_is_refused_with_what_to_do(bare):
    with pytest.raises(ValueError, match=r"use td.operators.Matrix\(matrix, \(C, H, W\)\), with C \* H \* W = 256"):
        td.reconstruct(np.zeros(200), bare, **KNOBS)


def test_vectors_in_numpy_and_torch_with_and_without_a_batch():
    H = Matrix(MATRIX.astype(np.float32), (16, 16))
    x = picture(size=16)
    y = H.forward(x)[0].numpy()
    expected = td.reconstruct(torch.from_numpy(y)[None], H, **KNOBS)
    assert relative(expected.x, x) < 0.3
    one, batch = td.reconstruct(y, H, **KNOBS).x, td.reconstruct(np.stack([y, y]), H, **KNOBS).x
    assert (one.shape, one.dtype, batch.shape) == ((16, 16), np.float32, (2, 16, 16, 1))
    np.testing.assert_allclose(one, expected.x[0, 0].numpy(), atol=1e-4)
    np.testing.assert_allclose(batch[1, ..., 0], one, atol=1e-4)
    assert td.reconstruct(torch.from_numpy(y), H, **KNOBS).x.shape == (1, 16, 16)
    big_endian = td.reconstruct(y.astype(">f8"), H, **KNOBS).x
    assert big_endian.dtype == np.float64
    np.testing.assert_allclose(big_endian, one, atol=1e-4)


def test_numpy_measurements_of_a_complex_image():
    H = td.operators.Fourier(real=False)
    y = H.forward(picture(size=16).to(torch.complex64))
    found = td.reconstruct(y.numpy(), H, **KNOBS).x
    assert (found.shape, found.dtype) == ((1, 16, 16, 1), np.complex64)
    np.testing.assert_allclose(found[0, ..., 0], td.reconstruct(y, H, **KNOBS).x[0, 0].numpy(), atol=1e-5)


class Mosaic(Operator):
    """A colour image of which each pixel has one colour, measured as a gray image."""

    measures_images = True
    image_shape, measurement_shape = (3, None, None), (1, None, None)

    def _forward(self, x):
        return x.mean(1, keepdim=True)

    def _adjoint(self, y):
        return y.expand(-1, 3, -1, -1) / 3


def test_a_gray_picture_measured_of_a_colour_image_gives_all_its_channels():
    y = picture(size=16)[0, 0].numpy()
    options = {**KNOBS, "channelwise": True, "max_iterations": 2}
    assert td.reconstruct(y, Mosaic(), **options).x.shape == (16, 16, 3)
    assert td.reconstruct(torch.from_numpy(y), Mosaic(), **options).x.shape == (3, 16, 16)


@pytest.mark.parametrize("bad", ["sinogram.npy", np.array(["a"]), None])
def test_measurements_that_are_no_numbers(bad):
    with pytest.raises(TypeError, match=r"the measurements (are a path, 'sinogram.npy'|must be a tensor or an array)"):
        td.reconstruct(bad, Matrix(MATRIX, (16, 16)), **KNOBS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_a_call_changes_nothing(dtype):
    y = measured()
    expected = td.reconstruct(y, Moving(), **KNOBS)
    with torch.autocast("cpu", dtype=dtype):
        found = td.reconstruct(y, Moving(), **KNOBS)
    assert torch.equal(found.x, expected.x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_refused(dtype):
    with pytest.raises(TypeError, match=rf"the model is in {dtype}.*use model.float\(\)"):
        td.denoise(measured(), sigma=0.1, model=small_model(features=4, dtype=torch.float32).to(dtype))


@pytest.mark.parametrize("name", ["y", "sigma", "lam", "start"])
def test_a_gradient_that_would_be_missing_is_refused(name):
    given = {"y": measured(), "sigma": torch.tensor(0.1), "lam": torch.tensor(1.0), "start": measured()}
    given[name] = given[name].requires_grad_()
    with pytest.raises(ValueError, match=f"{name} requires a gradient, but there is none through the solver"):
        td.reconstruct(given.pop("y"), Moving(), model=MODEL, **given)


def test_gradients_are_not_asked_for_without_grad_mode():
    y = measured().requires_grad_()
    with torch.no_grad():
        result = td.denoise(y, sigma=0.1, model=MODEL, tolerance=0.1)
    assert not result.requires_grad
    with pytest.raises(ValueError, match=r"image requires a gradient.*detach"):
        td.denoise(y, model=MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        td.denoise(y.detach(), sigma=0.1, model=MODEL, max_iterations=1)
