"""Sensitivity maps and noise, estimated from simulated measurements whose truth is known."""

import sys
from functools import partial

import numpy as np
import pytest
import sigpy.mri
import torch
from conftest import picture, relative

import torchdeal as td
from torchdeal import mri
from torchdeal.mri import KSpaceError
from torchdeal.operators import MultiCoilFourier

SIZE, COILS, NOISE = 48, 4, 0.005

# Zero frequencies are in the middle, unless a test says otherwise.
calibration_width, espirit_maps, estimate_noise = (
    partial(function, centered=True) for function in (mri.calibration_width, mri.espirit_maps, mri.estimate_noise)
)


def birdcage(coils=COILS, size=SIZE):
    maps = torch.from_numpy(sigpy.mri.birdcage_maps((coils, size, size))).to(torch.complex64)
    return maps / maps.abs().square().sum(0).sqrt()


def object_in_air(size=SIZE):
    """A picture inside a disc, as a head in the field of view."""
    row, column = torch.meshgrid(*[torch.arange(size) / size - 0.5] * 2, indexing="ij")
    return picture(size=size) * (row**2 + column**2 < 0.2)


def column_mask(width, size=SIZE, share=0.25):
    columns = torch.rand(size, generator=torch.Generator().manual_seed(0)) < share
    first = size // 2 - width // 2
    columns[first - 1] = columns[first + width] = False
    columns[first : first + width] = True
    return columns.expand(size, size)


def measured(maps, mask, noise=NOISE, centered=True):
    """K-space of the object, with noise of that deviation in its real and in its imaginary part."""
    H = MultiCoilFourier(maps, mask, centered=centered, real=False)
    y = H.forward(object_in_air(maps.shape[-1]).to(torch.complex64))
    generator = torch.Generator().manual_seed(1)
    return y + noise * 2**0.5 * torch.randn(y.shape, dtype=y.dtype, generator=generator) * H.fourier.mask


@pytest.mark.parametrize("width", [0, 1, 8, 11, 16])
def test_calibration_width(width):
    mask = column_mask(width) if width else torch.zeros(SIZE, SIZE)
    assert calibration_width(mask) == width
    assert mri.calibration_width(torch.fft.ifftshift(mask)) == width


def test_calibration_width_of_squares_and_of_everything():
    square = np.zeros((20, 31))
    square[10 - 4 : 10 + 5, 15 - 4 : 15 + 5] = 1
    assert calibration_width(square) == 9
    assert calibration_width(np.ones((20, 31))) == 20


@pytest.mark.parametrize("width", [8, 12, 16])
def test_maps_are_those_of_the_simulation(width):
    """Up to a phase per pixel: the angle between the vectors of coils, where there is an object."""
    maps, mask = birdcage(), column_mask(width)
    estimated = espirit_maps(measured(maps, mask)[0], mask)
    assert estimated.shape == maps.shape
    torch.testing.assert_close(estimated.abs().square().sum(0), torch.ones(SIZE, SIZE))
    cosine = (estimated.conj() * maps).sum(0).abs()[object_in_air()[0, 0] > 0.05]
    assert float(cosine.mean()) > (0.999 if width > 8 else 0.997)
    assert float(cosine.min()) > 0.95


def test_reconstruction_with_estimated_maps_is_close_to_that_with_the_true_ones(gray):
    """Errors of the magnitude: zero filling 32.8 dB, true maps 40.5, estimated 39.8."""
    maps, mask, clean = birdcage(), column_mask(16), object_in_air()
    y = measured(maps, mask)
    operators = [MultiCoilFourier(m, mask, centered=True, real=False) for m in (maps, espirit_maps(y[0], mask))]
    filled, (with_true, with_estimated) = (
        operators[0].adjoint(y),
        (td.reconstruct(y, H, model=gray, noise=NOISE).x for H in operators),
    )
    psnr = [-10 * float((x.abs() - clean).square().mean().log10()) for x in (filled, with_true, with_estimated)]
    assert psnr[2] > psnr[1] - 1.5
    assert psnr[2] > psnr[0] + 5
    assert relative(with_estimated.abs(), with_true.abs()) < 0.03


def test_a_dead_coil_a_batch_and_other_layouts():
    maps, mask = birdcage(), column_mask(16)
    maps[0] = 0
    y = measured(maps, mask)
    estimated = espirit_maps(y, mask)
    assert estimated.shape == y.shape
    assert float(estimated[0, 0].abs().max()) < 0.05
    assert torch.equal(espirit_maps(y[0].numpy()), estimated[0])
    corner = torch.fft.ifftshift(y, (-2, -1))
    shifted = mri.espirit_maps(corner, torch.fft.ifftshift(mask))
    assert torch.equal(shifted, torch.fft.ifftshift(estimated, (-2, -1)))


def test_what_espirit_needs(monkeypatch):
    y = measured(birdcage(), column_mask(16))[0]
    with pytest.raises(KSpaceError, match="at least 8 wide; this one is 5 wide: give sensitivity maps"):
        espirit_maps(y * column_mask(5), column_mask(5))
    with pytest.raises(KSpaceError, match="at least 20 wide; this one is 16 wide"):
        espirit_maps(y, column_mask(16), width=20)
    with pytest.raises(KSpaceError, match="only one"):
        espirit_maps(y[:1], column_mask(16))
    monkeypatch.setitem(sys.modules, "sigpy.mri.app", None)
    with pytest.raises(ImportError, match=r"ESPIRiT needs sigpy: pip install 'torchdeal\[mri\]'"):
        espirit_maps(y, column_mask(16))


@pytest.mark.parametrize("level", [1e-6, 1.0])
@pytest.mark.parametrize("centered", [True, False])
def test_level_of_pure_noise(level, centered):
    noise = level * 2**0.5 * torch.randn(4, 64, 64, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
    mask = column_mask(8, 64)
    assert estimate_noise(noise * mask, mask, centered=centered) == pytest.approx(level, rel=0.05)
    assert estimate_noise((noise * mask).numpy(), centered=centered) == pytest.approx(level, rel=0.05)


@pytest.mark.parametrize("level", [0.001, 0.02])
def test_level_of_noise_beside_a_smooth_image(level):
    frequency = torch.fft.fftshift(torch.fft.fftfreq(128))
    spectrum = torch.exp(-300 * (frequency[:, None] ** 2 + frequency**2))
    mask, maps = column_mask(16, 128), birdcage(4, 128)
    signal = measured(maps, mask, 0) * spectrum
    y = signal + measured(maps, mask, level) - measured(maps, mask, 0)
    assert estimate_noise(y, mask) == pytest.approx(level, rel=0.05)
    corner = torch.fft.ifftshift(y, (-2, -1))
    assert mri.estimate_noise(corner, torch.fft.ifftshift(mask)) == pytest.approx(estimate_noise(y, mask))


@pytest.mark.parametrize(("level", "factor"), [(0.02, 1.2), (0.01, 1.6)])
def test_sharp_edges_count_as_noise(level, factor):
    mask = column_mask(16, 128)
    estimate = estimate_noise(measured(birdcage(4, 128), mask, level), mask)
    assert 0.95 * level < estimate < factor * level


def test_noise_of_nothing():
    with pytest.raises(ValueError, match="zero"):
        estimate_noise(torch.zeros(1, 8, 8, dtype=torch.complex64))
    with pytest.raises(ValueError, match="nothing was measured"):
        estimate_noise(torch.ones(1, 8, 8, dtype=torch.complex64), torch.zeros(8, 8))
    with pytest.raises(ValueError, match="complex"):
        estimate_noise(torch.ones(8, 8))


@pytest.mark.parametrize("values", [[[1j, 2], [3, 4]], "scan.h5", None])
def test_what_is_no_kspace(values):
    with pytest.raises(KSpaceError, match=r"must be a complex array or tensor, got .* read_kspace reads files"):
        mri.estimate_noise(values)


def test_a_mask_of_one_dimension_has_no_middle():
    with pytest.raises(ValueError, match=r"must be \(H, W\), got \(8,\)"):
        mri.calibration_width(np.ones(8))
