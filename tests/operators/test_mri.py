"""The operators of MRI, beyond what every operator is tested for: against numpy, SigPy and sums of waves."""

import copy
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import sigpy
import torch
from conftest import picture, random
from operators.test_operators import MAPS, SAMPLED, SHAPE, TRAJECTORY, image

import torchdeal as td
from torchdeal.operators import Fourier, Identity, MultiCoilFourier, NonCartesianFourier, Weighted
from torchdeal.solvers import conjugate_gradient


@pytest.mark.parametrize("centered", [True, False])
def test_fourier_equals_numpy(centered):
    x = image(1)
    kspace = np.fft.fft2(np.fft.ifftshift(x, (-2, -1)) if centered else x, norm="ortho")
    expected = (np.fft.fftshift(kspace, (-2, -1)) if centered else kspace) * SAMPLED.numpy()
    np.testing.assert_allclose(Fourier(SAMPLED, centered=centered).forward(x), expected, atol=1e-12)


def test_fourier_of_everything_is_unitary():
    x = image(2, torch.complex128)
    torch.testing.assert_close(Fourier(real=False).normal(x), x)


def test_coils_see_the_image_through_their_maps():
    x = image(2)[:, :1]
    separate = [Fourier(SAMPLED, real=False).forward(coil * x) for coil in MAPS]
    torch.testing.assert_close(MultiCoilFourier(MAPS, SAMPLED).forward(x), torch.cat(separate, 1))


def test_bad_masks_and_maps():
    with pytest.raises(ValueError, match="mask must be"):
        Fourier(torch.ones(3, 4, 4))
    with pytest.raises(ValueError, match="maps must be"):
        MultiCoilFourier(torch.ones(4, 4))
    with pytest.raises(ValueError, match="the mask is for"):
        MultiCoilFourier(MAPS, torch.ones(4, 4))
    with pytest.raises(ValueError, match="weight must be"):
        Weighted(-torch.ones(3), Identity())


def grid(height, width):
    """All frequencies of the centered discrete Fourier transform, row by row."""
    return torch.cartesian_prod(torch.arange(height) - height // 2, torch.arange(width) - width // 2)


@pytest.mark.parametrize("size", [SHAPE[1:], (9, 16)])
def test_the_trajectory_of_all_grid_points_is_cartesian(size):
    x = torch.randn(2, 1, *size, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    maps = torch.randn(3, *size, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    for operator, cartesian in (
        (NonCartesianFourier(grid(*size), size, real=False), Fourier(centered=True, real=False)),
        (
            NonCartesianFourier(grid(*size), size, maps, real=False),
            MultiCoilFourier(maps, centered=True, real=False),
        ),
    ):
        expected = cartesian.forward(x)
        torch.testing.assert_close(operator.forward(x), expected.flatten(2), atol=1e-12, rtol=0)
        torch.testing.assert_close(operator.adjoint(expected.flatten(2)), cartesian.adjoint(expected))
        torch.testing.assert_close(operator.normal(x), cartesian.normal(x))


def test_trajectory_equals_the_sum_of_waves():
    x, (height, width) = image(1, torch.complex128), SHAPE[1:]
    rows = torch.exp(-2j * np.pi / height * TRAJECTORY[:, :1] * (torch.arange(height) - height // 2))
    columns = torch.exp(-2j * np.pi / width * TRAJECTORY[:, 1:] * (torch.arange(width) - width // 2))
    expected = torch.einsum("kh,bchw,kw->bck", rows, x, columns) / (height * width) ** 0.5
    torch.testing.assert_close(NonCartesianFourier(TRAJECTORY, SHAPE[1:]).forward(x), expected, atol=1e-12, rtol=0)


def test_trajectory_equals_sigpy():
    """To the precision of SigPy: another implementation, the same unit."""
    x = image(1, torch.complex128)[0, 0]
    expected = sigpy.nufft(x.numpy(), TRAJECTORY.numpy(), oversamp=2, width=8)
    np.testing.assert_allclose(
        NonCartesianFourier(TRAJECTORY, SHAPE[1:]).forward(x[None, None])[0, 0], expected, atol=1e-4
    )


def test_maps_per_sample():
    maps = torch.stack([MAPS, 2 * MAPS])
    x = image(2)[:, :1]
    for operator, single in (
        (MultiCoilFourier(maps, SAMPLED), MultiCoilFourier(MAPS, SAMPLED)),
        (NonCartesianFourier(TRAJECTORY, SHAPE[1:], maps), NonCartesianFourier(TRAJECTORY, SHAPE[1:], MAPS)),
    ):
        torch.testing.assert_close(operator.forward(x)[1], 2 * single.forward(x)[1])
        torch.testing.assert_close(operator.normal(x)[1], 4 * single.normal(x)[1])
        with pytest.raises(ValueError, match="batch of 2"):
            operator.forward(x[:1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(5, 3), (8, 8)), r"\(samples, 2\)"),
        ((torch.zeros(0, 2), (8, 8)), r"\(samples, 2\)"),
        ((torch.zeros(5, 2) + 1j, (8, 8)), "must be real"),
        ((torch.tensor([[0.0, np.nan]]), (8, 8)), "NaN"),
        ((torch.tensor([[0.0, 20.0]]), (8, 8)), "is the unit right"),
        ((torch.zeros(5, 2), (8, 0)), "the size must be"),
        ((torch.zeros(5, 2), (8, 8), MAPS), "the maps are for"),
    ],
)
def test_bad_trajectories(arguments, message):
    with pytest.raises(ValueError, match=message):
        NonCartesianFourier(*arguments)


def test_non_cartesian_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "finufft", None)
    with pytest.raises(ImportError, match=r"pip install 'torchdeal\[mri\]'"):
        NonCartesianFourier(TRAJECTORY, SHAPE[1:])


def test_trajectories_survive_copies():
    operator = NonCartesianFourier(TRAJECTORY, SHAPE[1:], MAPS)
    x = image(1)[:, :1]
    for copied in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
        assert torch.equal(copied.forward(x), operator.forward(x))


def test_mri_along_spokes_is_better_than_least_squares(gray):
    """24 spokes, a third of what 48 x 48 pixels need."""
    clean = picture(size=48)
    angles, radii = torch.arange(24) * torch.pi / 24, torch.arange(-48, 48) / 2
    spokes = torch.stack([torch.outer(angles.cos(), radii), torch.outer(angles.sin(), radii)], -1).reshape(-1, 2)
    H = NonCartesianFourier(spokes, (48, 48))
    y = H.forward(clean)
    y = y + 0.02 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    result = td.reconstruct(y, H, model=gray, noise=0.02 / 2**0.5)
    least_squares = conjugate_gradient(
        H.to(dtype=torch.float32).normal, H.adjoint(y), tolerance=1e-2, max_iterations=30
    ).x
    errors = [float((x - clean).square().mean()) for x in (least_squares, result.x)]
    assert result.converged
    assert errors[1] < 0.6 * errors[0]


def test_mri_from_a_third_of_the_lines_is_better_than_zero_filling(gray):
    """A real-valued image; measurements are complex."""
    clean = picture(size=48)
    sampled = torch.rand(1, 48, generator=torch.Generator().manual_seed(0)) < 0.25
    sampled[:, 20:28] = True
    H = Fourier(sampled.expand(48, 48), centered=True)
    y = H.forward(clean)
    y = y + 0.01 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1)) * H.mask
    result = td.reconstruct(y, H, model=gray, sigma=10 / 255, lam=0.1)
    errors = [float((x - clean).square().mean()) for x in (H.adjoint(y), result.x)]
    assert errors[1] < 0.5 * errors[0]


SQUARE, COILS = np.ones((16, 16)), np.ones((2, 16, 16), np.complex64)
POINTS = np.zeros((5, 2))
BAD = {
    "mask: path": (lambda: Fourier("mask.npy"), "the mask must be an array or a tensor, not a path"),
    "mask: one dimension": (lambda: Fourier(SQUARE[0]), r"of whole columns it is numpy\.broadcast_to"),
    "mask: texts": (lambda: Fourier(np.array([["a"]])), "must be an array or a tensor of numbers, got <U1 values"),
    "mask: objects": (lambda: Fourier(np.array([[None]])), "of numbers, got object values"),
    "mask: nothing": (lambda: Fourier(np.ones((0, 0))), "not empty"),
    "mask: ragged": (lambda: Fourier([[1], [1, 0]]), "ragged list"),
    "maps: nothing": (lambda: MultiCoilFourier(None), "the maps must be an array or a tensor of numbers, got NoneType"),
    "maps: path": (lambda: MultiCoilFourier(Path("maps.npy")), "the maps must be an array or a tensor, not a path"),
    "maps: one coil": (lambda: MultiCoilFourier(SQUARE), r"one coil needs none: Fourier\(mask\)"),
    "maps: empty": (lambda: MultiCoilFourier(COILS[:0]), "not empty"),
    "maps: batches": (
        lambda: MultiCoilFourier(np.stack([COILS] * 3), np.ones((2, 1, 16, 16))),
        "the mask is for a batch of 2, the maps are for one of 3",
    ),
    "trajectory: path": (lambda: NonCartesianFourier("t.npy", 16), "the trajectory must be .* not a path"),
    "trajectory: transposed": (lambda: NonCartesianFourier(POINTS.T, 16), r"\(2, samples\) by transposing"),
    "trajectory: spokes": (lambda: NonCartesianFourier(POINTS[None], 16), r"reshape\(-1, 2\)"),
    "trajectory: size": (lambda: NonCartesianFourier(POINTS, "16"), r"the size must be \(height, width\)"),
    "an array": (lambda: Fourier(SQUARE).forward(np.ones((1, 1, 16, 16))), "must be a torch tensor, got ndarray"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("dtype", [">f4", np.longdouble, np.uint16, bool])
def test_masks_of_any_numbers(dtype):
    mask = np.arange(16 * 16).reshape(16, 16) % 3 > 0
    x = random(1, 1, 16, 16)
    expected = torch.from_numpy(mask) * torch.fft.fft2(x, norm="ortho")
    torch.testing.assert_close(Fourier(mask.astype(dtype)).to(dtype=torch.float64).forward(x), expected)


@pytest.mark.parametrize("scale", [0.5, 3.14])
def test_a_trajectory_that_is_in_other_units(scale):
    pytest.importorskip("finufft")
    trajectory = np.linspace(-scale, scale, 100).reshape(50, 2)
    with pytest.warns(UserWarning, match="in cycles per pixel, multiply it by") as caught:
        NonCartesianFourier(trajectory, 64)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NonCartesianFourier(10 * trajectory, 64)
