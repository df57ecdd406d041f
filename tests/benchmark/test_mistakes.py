"""Operators that are slightly wrong are so by as much as they should be."""

import numpy as np
import pytest
import torch
from conftest import random, relative

from torchdeal.benchmark.mri import ring_of_coils
from torchdeal.benchmark.robustness import mistakes
from torchdeal.operators import Blur, Downsample, MultiCoilFourier, Radon
from torchdeal.operators.blur_kernels import gaussian_kernel, motion_kernel
from torchdeal.simulate import random_columns


def moments(kernel):
    """The centre, from the middle of the kernel, and the covariance."""
    height, width = kernel.shape
    share = (kernel / kernel.sum()).double().numpy()
    places = np.stack(np.meshgrid(np.arange(height) - height // 2, np.arange(width) - width // 2, indexing="ij"))
    centre = (places * share).sum((1, 2))
    return centre, np.einsum("ihw,jhw,hw->ij", places, places, share) - np.outer(centre, centre)


def test_a_kernel_that_is_not_changed_stays():
    kernel = motion_kernel(9, 30)
    found = mistakes.resampled(kernel)
    rim = (found.shape[0] - kernel.shape[0]) // 2
    assert torch.allclose(found[rim:-rim, rim:-rim], kernel, atol=1e-6)


@pytest.mark.parametrize("kernel", [gaussian_kernel(2.0), gaussian_kernel(2.5)[:, :-1]], ids=["odd", "even"])
def test_a_wider_kernel_has_5_per_cent_more_deviation(kernel):
    wide = mistakes.wider_kernel(Blur(kernel, "reflect"))
    assert isinstance(wide, Blur)
    assert wide.boundary.value == "reflect"
    assert float(wide.kernel.sum()) == pytest.approx(float(kernel.sum()))
    (centre, before), (moved, after) = moments(kernel), moments(wide.kernel)
    assert np.allclose(moved, 1.05 * centre, atol=0.02)
    assert np.allclose(np.sqrt(np.diag(after) / np.diag(before)), 1.05, atol=0.005)


def test_a_kernel_is_turned_by_2_degrees():
    kernel = motion_kernel(15, 30)
    (_, before), (_, after) = moments(kernel), moments(mistakes.turned_kernel(Blur(kernel)).kernel)
    (_, old), (_, new) = np.linalg.eigh(before), np.linalg.eigh(after)
    assert np.degrees(np.arccos(abs(old[:, 1] @ new[:, 1]))) == pytest.approx(2, abs=0.05)


def test_a_quarter_turn_is_exact():
    kernel = random(5, 5).float()
    found = mistakes.resampled(kernel, degrees=90.0)
    rim = (found.shape[0] - 5) // 2
    inside = found[rim:-rim, rim:-rim]
    assert min(relative(inside, torch.rot90(kernel, turns)) for turns in (1, -1)) < 1e-4


def test_super_resolution_keeps_its_scale():
    wide = mistakes.wider_kernel(Downsample(3, gaussian_kernel(1.2)))
    assert (wide.scale, wide.size) == (3, None)
    (_, before), (_, after) = moments(gaussian_kernel(1.2)), moments(wide.blur.kernel)
    assert np.sqrt(after[0, 0] / before[0, 0]) == pytest.approx(1.05, abs=0.005)


def test_maps_are_off_by_5_per_cent_and_smoothly():
    maps, mask = ring_of_coils(4, (32, 24)), random_columns((32, 24), 4, 0.1)
    wrong = mistakes.wrong_maps(MultiCoilFourier(maps, mask, centered=True))
    assert torch.equal(wrong.fourier.mask, MultiCoilFourier(maps, mask, centered=True).fourier.mask)
    assert wrong.fourier.centered
    error = wrong.maps / maps - 1
    assert float(error.abs().square().mean().sqrt()) == pytest.approx(0.05, rel=1e-3)
    assert float(error.diff(dim=-1).abs().max()) < 0.05  # a jump would be several times as large
    assert float(error.imag.abs().mean()) > 0.01


def test_angles_are_off_each_by_itself():
    right = Radon(np.arange(60) * 3.0, (24, 20), center=0.5)
    wrong = mistakes.wrong_angles(right)
    errors = (wrong.angles - right.angles).double()
    assert float(errors.std()) == pytest.approx(0.2, rel=0.2)
    assert (wrong.size, wrong.bins, wrong.center) == (right.size, right.bins, right.center)
    x = random(1, 1, 24, 20).float()
    assert 1e-4 < relative(wrong.forward(x), right.forward(x)) < 0.1
