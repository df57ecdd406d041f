"""Each Triton kernel computes what plain torch does, in double precision on the CPU.

Without a GPU they run in Triton's interpreter, where Triton is installed and `TRITON_INTERPRET=1` is set.
"""

import os

import pytest
import torch
from conftest import relative

from torchdeal.backends.cuda.packing import PACK, packed_size
from torchdeal.backends.cuda.passes import Passes, TorchPasses

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available() and not INTERPRETED, reason="no CUDA device"),
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = {"rtol": 6e-4, "atol": 1e-5}  # one rounding to float16, 2^-11, of what was computed in float32
SINGLE = {"rtol": 1e-5, "atol": 1e-5}  # a few roundings to float32 of numbers around 1
BATCH, SIZES = 2, [(15, 18), (37, 50)]
TORCH: Passes = TorchPasses()

sizes = pytest.mark.parametrize(("height", "width"), SIZES)
all_channels = pytest.mark.parametrize("channels", [1, 3])
all_features = pytest.mark.parametrize("features", [16, 48, 128])


@pytest.fixture(scope="module")
def kernels() -> Passes:
    pytest.importorskip("triton")
    from torchdeal.backends.cuda.triton_passes import TritonPasses

    return TritonPasses()


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rows_last(values):
    """Channels-last, as all that is packed."""
    return values.contiguous(memory_format=torch.channels_last)


def splines(count=1):
    """Knots of splines that are not straight; the first begin as `|x|`, the last as `exp(-x^2)`."""
    knots, bend = torch.linspace(0, 3, 31), 0.05 * torch.rand(count, 31, generator=torch.Generator().manual_seed(1))
    return tuple(bend + torch.stack([*(count - 1) * [knots], torch.exp(-knots.square())]))


def noise_scales(features):
    return 1 + torch.rand(BATCH, features, 1, 1, generator=torch.Generator().manual_seed(2))


def check(kernel, twin, inputs, out, settings, tolerance):
    """Both write into `out`, which is wrong everywhere before; sizes come after it."""
    found, expected = out.to(DEVICE).fill_(torch.nan), torch.full_like(out, torch.nan, dtype=torch.float64)
    kernel(*(value.to(DEVICE) for value in inputs), found, *settings)
    twin(*(value.double() for value in inputs), expected, *settings)
    torch.testing.assert_close(found.cpu().double(), expected, **tolerance)


@sizes
@all_channels
@pytest.mark.parametrize(("top", "reach"), [(0, 12), (0, 14), (8, 14)])
def test_pack_image(kernels, height, width, channels, top, reach):
    x, mean, variance = normal(BATCH, channels, height, width), normal(BATCH), 0.5 + normal(BATCH).square()
    rows, columns = (packed_size(size + 2 * (reach - 12)) + 24 // PACK for size in (height - top, width))
    out = rows_last(torch.empty(BATCH, PACK * PACK * channels, rows, columns, dtype=torch.float16))
    check(kernels.pack_image, TORCH.pack_image, (x, mean, variance), out, (top, reach), HALF)


@sizes
@all_channels
def test_fold_packed(kernels, height, width, channels):
    rows, columns = (packed_size(size) + 24 // PACK for size in (height, width))
    packed = rows_last(normal(BATCH, PACK * PACK * channels, rows, columns, dtype=torch.float16))
    out, variance = torch.empty(BATCH, channels, height, width), 0.5 + normal(BATCH).square()
    check(kernels.fold_packed, TORCH.fold_packed, (packed, variance), out, (12,), SINGLE)


@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("channels", [16, 48, 128])
def test_overlap_add(kernels, taps, channels):
    columns = normal(BATCH * 7 * 10, taps * taps * channels, dtype=torch.float16)
    out = rows_last(torch.empty(BATCH, channels, 7 + taps - 1, 10 + taps - 1, dtype=torch.float16))
    check(kernels.overlap_add, TORCH.overlap_add, (columns,), out, (taps,), HALF)


@sizes
@all_features
def test_unpacked_spline(kernels, height, width, features):
    shape = BATCH, PACK * PACK * features, packed_size(height), packed_size(width)
    packed = rows_last(1.5 * normal(*shape, dtype=torch.float16))  # some beyond the last knot
    out = rows_last(torch.empty(BATCH, features, height, width, dtype=torch.float16))
    check(kernels.unpacked_spline, TORCH.unpacked_spline, (packed, *splines()), out, (), HALF)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, HALF), (torch.float32, SINGLE)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_spline_in_place(kernels, dtype, tolerance, memory_format):
    values = 1.5 * normal(BATCH, 16, 15, 18, dtype=dtype)
    found = values.contiguous(memory_format=memory_format).to(DEVICE, copy=True)
    expected, (coefficients,) = values.double(), splines()
    kernels.spline_in_place(found, coefficients.to(DEVICE))
    TORCH.spline_in_place(expected, coefficients.double())
    torch.testing.assert_close(found.cpu().double(), expected, **tolerance)


@sizes
@all_features
@pytest.mark.parametrize("top", [0, 8])
def test_packed_squared_mask(kernels, height, width, features, top):
    strip = rows_last(normal(BATCH, features, height - top, width, dtype=torch.float16))
    shape = BATCH, PACK * PACK * features, packed_size(height), packed_size(width)
    found = rows_last(torch.full(shape, 0.25, dtype=torch.float16)).to(DEVICE)
    expected = torch.full(shape, 0.25, dtype=torch.float64)  # rows above the strip stay what they are
    inputs = strip, noise_scales(features), *splines()
    kernels.packed_squared_mask(*(value.to(DEVICE) for value in inputs), found, top)
    TORCH.packed_squared_mask(*(value.double() for value in inputs), expected, top)
    torch.testing.assert_close(found.cpu().double(), expected, **HALF)


@sizes
@all_features
def test_pack_mask(kernels, height, width, features):
    mask = normal(BATCH, features, height, width)
    shape = BATCH, PACK * PACK * features, packed_size(height), packed_size(width)
    out = rows_last(torch.empty(shape, dtype=torch.float16))
    check(kernels.pack_mask, TORCH.pack_mask, (mask,), out, (), HALF)


@sizes
@pytest.mark.parametrize("features", [16, 48, 128, 144])
def test_mixing(kernels, height, width, features):
    responses = normal(BATCH, features, height + 4 + 3, width + 4 + 2)  # as large as a transform
    mix = [normal(features, features, 3, 3, seed=seed) / (3 * features**0.5) for seed in (3, 4)]
    alpha, phi = noise_scales(features), splines(3)
    whole = torch.full((BATCH, features, height + 1, width + 2), torch.nan, device=DEVICE)
    found, expected = whole[..., 1:, 2:], torch.empty(BATCH, features, height, width, dtype=torch.float64)
    weights = [kernels.mixing_weights(kernel.to(DEVICE)) for kernel in mix]
    kernels.mixing(responses.to(DEVICE), alpha.to(DEVICE), weights, tuple(p.to(DEVICE) for p in phi), found)
    doubles = [kernel.double() for kernel in mix], tuple(p.double() for p in phi)
    TORCH.mixing(responses.double(), alpha.double(), *doubles, expected)
    assert relative(found.cpu().double(), expected) < 3e-6
    torch.testing.assert_close(found.cpu().double(), expected, **SINGLE)
    assert whole[..., 0, :].isnan().all()  # nothing beside its part is touched
    assert whole[..., :2].isnan().all()


@sizes
@all_features
def test_weigh(kernels, height, width, features):
    responses = normal(BATCH, features, height + 25, width + 24)
    mask = normal(BATCH, features, height + 3, width + 2, seed=1)[..., 3:, 2:]  # a tile of a larger one
    found, expected = responses.to(DEVICE, copy=True), responses.clone()
    kernels.weigh(found, mask.to(DEVICE))
    TORCH.weigh(expected, mask)
    assert torch.equal(found.cpu(), expected)  # one multiplication has one answer


@sizes
@all_channels
@all_features
def test_expand(kernels, height, width, channels, features):
    image = torch.view_as_complex(normal(BATCH, channels, height, width, 2))
    filters = torch.view_as_complex(normal(features, channels, height, width, 2, seed=1))
    found = kernels.expand(image.to(DEVICE), filters.to(DEVICE))
    assert relative(found.cpu(), TORCH.expand(image.to(torch.complex128), filters.to(torch.complex128))) < 1e-6


@sizes
@all_channels
@all_features
def test_contract(kernels, height, width, channels, features):
    spectra = torch.view_as_complex(normal(BATCH, features, height, width, 2))
    filters = torch.view_as_complex(normal(features, channels, height, width, 2, seed=1))
    found = kernels.contract(spectra.to(DEVICE), filters.to(DEVICE))
    assert relative(found.cpu(), TORCH.contract(spectra.to(torch.complex128), filters.to(torch.complex128))) < 1e-6
