import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, rotate
from scipy.ndimage import shift as shifted

from torchdeal.operators.blur_kernels import disk_kernel, gaussian_kernel, motion_kernel, parse_kernel


def impulse(size=31):
    image = np.zeros((size, size))
    image[size // 2, size // 2] = 1
    return image


def centre(kernel):
    """Of its mass, relative to (height // 2, width // 2)."""
    rows, columns = np.indices(kernel.shape)
    return [
        float((kernel * (places - size // 2)).sum()) for places, size in zip((rows, columns), kernel.shape, strict=True)
    ]


@pytest.mark.parametrize("std", [0.5, 1.6, 3.0])
def test_a_gaussian_is_that_of_scipy(std):
    kernel = gaussian_kernel(std).numpy()
    reach = kernel.shape[0] // 2
    expected = gaussian_filter(impulse(), std, radius=reach)[15 - reach : 16 + reach, 15 - reach : 16 + reach]
    np.testing.assert_allclose(kernel, expected, atol=1e-7)


@pytest.mark.parametrize("shift", [-0.5, -1.0, 0.25])
def test_a_gaussian_can_be_shifted(shift):
    kernel = gaussian_kernel(1.5, shift).numpy()
    assert kernel.sum() == pytest.approx(1)
    assert centre(kernel) == pytest.approx([shift, shift], abs=0.01)
    whole = gaussian_kernel(1.5, -1.0).numpy()
    np.testing.assert_allclose(whole, shifted(np.pad(gaussian_kernel(1.5).numpy(), 1), (-1, -1), order=0), atol=1e-3)


@pytest.mark.parametrize(("length", "angle"), [(7, 0), (7, 90), (10, 30), (10, 150), (0.5, 45)])
def test_a_motion(length, angle):
    """Mass 1, centred, and as long as a line is: its variance along the motion is length^2 / 12."""
    kernel = motion_kernel(length, angle).double().numpy()
    assert kernel.sum() == pytest.approx(1, abs=1e-5)
    assert all(size % 2 for size in kernel.shape)
    assert centre(kernel) == pytest.approx([0, 0], abs=1e-5)
    rows, columns = np.indices(kernel.shape) - (np.array(kernel.shape) // 2)[:, None, None]
    along = columns * np.cos(np.radians(angle)) - rows * np.sin(np.radians(angle))
    across = columns * np.sin(np.radians(angle)) + rows * np.cos(np.radians(angle))
    assert 0 <= (kernel * along**2).sum() - length**2 / 12 < 0.26  # sharing with neighbours widens it a little
    assert (kernel * across**2).sum() < 0.26


def test_a_motion_goes_counter_clockwise():
    kernel = motion_kernel(9, 30).numpy()
    reference = rotate(np.pad(motion_kernel(9, 0).numpy(), ((8, 8), (3, 3))), 30, reshape=False, order=1)
    padding = [(17 - size) // 2 for size in kernel.shape]
    kernel = np.pad(kernel, [(p, p) for p in padding])
    assert np.corrcoef(kernel.ravel(), reference.ravel())[0, 1] > 0.9
    assert np.corrcoef(kernel[::-1].ravel(), reference.ravel())[0, 1] < 0.6


def test_names():
    assert torch.equal(parse_kernel("gaussian:1.6"), gaussian_kernel(1.6))
    assert torch.equal(parse_kernel("gaussian:1.2", -0.5), gaussian_kernel(1.2, -0.5))
    assert torch.equal(parse_kernel("motion:15,30"), motion_kernel(15, 30))


def supersampled_disk(radius, shift, reach, fine=101):
    """How many of the points of a fine grid in each pixel lie in the disk."""
    places = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - 0.5 - reach
    inside = (places[:, None] - shift) ** 2 + (places[None, :] - shift) ** 2 <= radius**2
    counts = inside.reshape(2 * reach + 1, fine, 2 * reach + 1, fine).sum((1, 3))
    return counts / counts.sum()


@pytest.mark.parametrize("shift", [0.0, -0.5, 1.25])
@pytest.mark.parametrize("radius", [0.3, 0.5, 1.0, 2.5, 6.2])
def test_a_disk_covers_what_a_fine_grid_says(radius, shift):
    kernel = disk_kernel(radius, shift).double().numpy()
    np.testing.assert_allclose(kernel, supersampled_disk(radius, shift, kernel.shape[0] // 2), atol=2e-3 / radius)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert kernel[0].any() == (shift <= 0)  # the centre of the disk stays near that of the kernel, whose size is odd
    assert torch.equal(parse_kernel(f"disk:{radius}", shift), disk_kernel(radius, shift))


@pytest.mark.parametrize("text", ["disk:0", "disk:-2", "disk:nan", "disk:2000"])
def test_disks_that_are_none(text):
    with pytest.raises(ValueError, match="the radius of a disk kernel must be above 0"):
        parse_kernel(text)
