"""Winograd's convolution is a convolution: torch's own, in double precision, is the measure."""

import pytest
import torch
import torch.nn.functional as F
from conftest import relative

from torchdeal.backends.cpu.winograd import STEP, TileConvolution, as_phases, transformed_kernels


def convolved(image, kernel, rows_at_a_time):
    """A valid convolution of `(C, h, w)` by tiles, a few rows of them at a time."""
    channels, height, width = image.shape
    rows, columns = (-(-(size - 2) // STEP) + 1 for size in (height, width))
    padded = F.pad(image, (0, STEP * columns - width, 0, STEP * rows - height))
    phases = image.new_zeros(STEP, STEP, channels, rows * columns + 1)
    phases[..., :-1] = as_phases(padded).flatten(-2)
    convolution = TileConvolution(image, channels, rows_at_a_time * columns)
    result = torch.empty_like(padded)[:, :-STEP]
    for first in range(0, rows - 1, rows_at_a_time):
        last = min(first + rows_at_a_time, rows - 1)
        tiles = convolution(phases, transformed_kernels(kernel), slice(first * columns, last * columns), columns)
        as_phases(result)[..., first:last, :] = tiles.unflatten(-1, (-1, columns))
    return result[:, : height - 2, : width - 2]


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(3, 3), (4, 5), (6, 6), (7, 22), (33, 19), (30, 34)])
@pytest.mark.parametrize("channels", [1, 5, 128])
@pytest.mark.parametrize("rows_at_a_time", [1, 3])
def test_is_a_convolution(size, channels, rows_at_a_time):
    image, kernel = random(channels, *size), random(channels, channels, 3, 3)
    result = convolved(image, kernel, rows_at_a_time)
    assert relative(result, F.conv2d(image[None], kernel)[0]) < 1e-13


def test_other_memory_layouts():
    image, kernel = random(21, 30, 5).permute(2, 1, 0), random(3, 3, 5, 5).permute(2, 3, 1, 0)
    assert relative(convolved(image, kernel, 2), F.conv2d(image[None], kernel)[0]) < 1e-13


def test_single_precision():
    image, kernel = random(128, 40, 40, dtype=torch.float32), random(128, 128, 3, 3, dtype=torch.float32)
    assert relative(convolved(image, kernel, 4), F.conv2d(image[None].double(), kernel.double())[0]) < 5e-6


def test_phases_are_a_view():
    image = random(2, 8, 12)
    phases = as_phases(image)
    assert phases.shape == (4, 4, 2, 2, 3)
    assert phases[3, 1, 0, 1, 2] == image[0, 7, 9]
    assert phases.data_ptr() == image.data_ptr()
