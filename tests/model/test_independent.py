"""A and M against a second implementation, in numpy, from the equations alone."""

import numpy as np
import pytest
import torch
from conftest import DATA, small_model
from numpy.lib.stride_tricks import sliding_window_view
from scipy.optimize import minimize

import torchdeal as td

SIGMA, LAM = 25.0, 3.0
PROTOTYPES = ["gray_zero", "gray_reflect", "color_reflect"]


def conv(x, kernel, padding):
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    n = kernel.shape[-1]
    return np.einsum("cyxij,ocij->oyx", sliding_window_view(x, (n, n), (1, 2)), kernel, optimize=True)


def pad(x, width):
    return np.pad(x, ((0, 0), (width, width), (width, width)), mode="reflect")


def pad_adjoint(z, width):
    rows, columns = (np.pad(np.arange(n - 2 * width), width, mode="reflect") for n in z.shape[1:])
    out = np.zeros((z.shape[0], rows.max() + 1, columns.max() + 1))
    np.add.at(out, (slice(None), rows[:, None], columns[None]), z)
    return out


def largest_gain(kernels):
    """The largest `||W x||^2 / ||x||^2` over plane waves x: simplex searches from the best points of a fine grid."""
    impulses = np.eye(kernels[0].shape[1])[:, :, None, None] * np.pad([[1.0]], 24)
    response = np.stack([conv(conv(conv(i, kernels[0], 0), kernels[1], 0), kernels[2], 0) for i in impulses])
    n = np.arange(25)

    def gain(w):
        f = np.einsum("icyx,y,x->ci", response, np.exp(-1j * w[0] * n), np.exp(-1j * w[1] * n), optimize=True)
        return np.linalg.norm(f, 2) ** 2

    spectrum = np.fft.rfft2(response, (256, 256)).transpose(2, 3, 0, 1)
    gains = np.linalg.eigvalsh(spectrum.conj() @ spectrum.transpose(0, 1, 3, 2))[..., -1]
    best = 0.0
    for index in np.argsort(gains, axis=None)[-20:]:
        start = 2 * np.pi * np.array(np.unravel_index(index, gains.shape)) / 256
        simplex = start + 0.01 * np.array([[0, 0], [1, 0], [0, 1]])
        options = {"xatol": 1e-6, "fatol": 1e-9, "initial_simplex": simplex}
        best = max(best, -minimize(lambda w: -gain(w), start, method="Nelder-Mead", options=options).fun)
    return best


def spline(x, values):
    x, knots = np.abs(x), np.linspace(0, 3, 31)
    slope = (values[-1] - values[-2]) / 0.1
    return np.where(x > 3, values[-1] + slope * (x - 3), np.interp(x, knots, values))


def monotone(values, sign):
    steps = np.maximum(sign * np.diff(values), 0)
    rise = sign * np.concatenate([[0], np.cumsum(steps)])
    return rise + (values - rise).mean()


def second_implementation(model, x):
    """`M(x)` and `A x = x + lam W^T M^2 W x`."""
    p = {name: value.double().numpy() for name, value in model.state_dict().items()}
    reflecting = model.boundary.value == "reflect"
    banks = {}
    for name in ("filters", "mask_filters"):
        first = p[f"{name}.0"]
        banks[name] = [first - first.mean((1, 2, 3), keepdims=True), p[f"{name}.1"], p[f"{name}.2"]]
    banks["filters"][0] = banks["filters"][0] / np.sqrt(largest_gain(banks["filters"]))

    z = pad(x, 14) if reflecting else x
    for kernel in banks["mask_filters"]:
        z = conv(z, kernel, 0 if reflecting else 4)
    z = conv(spline(z, monotone(p["phi1"], 1)), p["mix.0"], 0 if reflecting else 1)
    z = conv(spline(z, monotone(p["phi2"], 1)), p["mix.1"], 0 if reflecting else 1)
    s = np.array([np.interp(SIGMA, np.linspace(-1, 51, 14), row) for row in p["scaling"]])
    alpha = np.exp(s) / (SIGMA + 1e-5)
    mask = np.clip(spline(alpha[:, None, None] * z, monotone(p["phi3"], -1)), 0.01, 1)

    z = pad(x, 12) if reflecting else x
    for kernel in banks["filters"]:
        z = conv(z, kernel, 0 if reflecting else 4)
    z = mask**2 * z
    for kernel in reversed(banks["filters"]):
        z = conv(z, kernel[:, :, ::-1, ::-1].transpose(1, 0, 2, 3), 8 if reflecting else 4)
    return mask, x + LAM * (pad_adjoint(z, 12) if reflecting else z)


def compare(model):
    rng = np.random.default_rng(0)
    x = rng.random((model.channels, 22, 19))
    with torch.no_grad():
        weights = model.weights()
        tensor = torch.from_numpy(x)[None].to(next(model.parameters()).dtype)
        mask = weights.mask(tensor, weights.alpha(torch.tensor([SIGMA], dtype=tensor.dtype)))
        result = tensor + LAM * weights.penalty(tensor, mask.square())
    expected_mask, expected = second_implementation(model, x)
    assert np.linalg.norm(mask[0].numpy() - expected_mask) < 1e-5 * np.linalg.norm(expected_mask)
    assert np.linalg.norm(result[0].numpy() - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["gray", "color"])
def test_bundled_weights(name):
    compare(td.load(name))


@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("channels", [1, 3])
def test_random_weights(boundary, channels):
    compare(small_model(channels, boundary, features=16))


@pytest.mark.skipif(not (DATA / "weights").is_dir(), reason="the prototype weights are not here")
@pytest.mark.parametrize("name", PROTOTYPES)
def test_prototype_weights(name):
    compare(td.load(DATA / "weights" / f"{name}.safetensors"))
