from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchdeal as td
from torchdeal.io.images import to_tensor

NUMPY_SHAPES = [
    *[(20, 17), (20, 17, 1), (20, 17, 2), (20, 17, 3), (20, 17, 4)],
    *[(2, 20, 17, 3), (2, 20, 17, 1), (1, 20, 17, 9)],
]
TORCH_SHAPES = [(20, 17), (3, 20, 17), (1, 20, 17), (4, 20, 17), (2, 3, 20, 17), (1, 1, 20, 17), (1, 9, 20, 17)]


@pytest.mark.parametrize("shape", NUMPY_SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "float32", "float64", ">u2", ">f4"])
def test_numpy_round_trip(shape, dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype) if np.dtype(dtype).kind == "u" else None
    array = (rng.integers(0, info.max + 1, shape) if info else rng.random(shape)).astype(dtype)
    tensor, image_format = to_tensor(array)
    assert tensor.ndim == 4
    assert float(tensor.min()) >= 0
    assert float(tensor.max()) <= 1
    back = image_format.restore(tensor)
    assert isinstance(back, np.ndarray)
    assert back.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_allclose(back, array, atol=0 if info else 1e-6)


@pytest.mark.parametrize("shape", TORCH_SHAPES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float16, torch.float32, torch.float64])
def test_torch_round_trip(shape, dtype):
    limit = {torch.uint8: 256, torch.uint16: 65536}.get(dtype)
    tensor = torch.randint(limit, shape).to(dtype) if limit else torch.rand(shape).to(dtype)
    nchw, image_format = to_tensor(tensor)
    assert nchw.ndim == 4
    back = image_format.restore(nchw)
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    torch.testing.assert_close(back.double(), tensor.double(), atol=0 if limit else 1e-6, rtol=0)


@given(st.integers(0, 65535), st.floats(-0.4, 0.4))
def test_integers_are_rounded_and_clipped(value, error):
    array = np.full((16, 16), value, dtype=np.uint16)
    tensor, image_format = to_tensor(array)
    assert np.array_equal(image_format.restore(tensor + error / 65535), array)
    assert image_format.restore(tensor + 2).max() == 65535
    assert image_format.restore(tensor - 2).min() == 0


def test_alpha_is_kept_bit_for_bit():
    rng = np.random.default_rng(0)
    rgba = rng.integers(0, 256, (16, 16, 4)).astype(np.uint8)
    tensor, image_format = to_tensor(rgba, alpha=True)
    assert tensor.shape == (1, 3, 16, 16)
    result = image_format.restore(torch.zeros_like(tensor))
    assert np.array_equal(result[..., 3], rgba[..., 3])
    assert result[..., :3].max() == 0


@pytest.mark.parametrize("of_torch", [False, True])
def test_alpha_that_is_no_number(of_torch):
    image = np.full((4, 4, 4), 0.5, np.float32)
    image[1, 2, 3] = np.nan
    with pytest.raises(ValueError, match="the transparency of the image holds NaN"):
        to_tensor(torch.from_numpy(image).permute(2, 0, 1) if of_torch else image, alpha=True)


def test_a_masked_array_is_refused():
    with pytest.raises(TypeError, match="masked array: fill it first"):
        to_tensor(np.ma.masked_invalid(np.array([[1.0, np.nan], [0.5, 0.2]])))


def test_half_precision_does_not_become_infinite():
    tensor, image_format = to_tensor(np.full((4, 4), 65504, np.float16), data_range=65504.0)
    assert (image_format.restore(1.01 * tensor) == 65504).all()


def test_alpha_of_tensors():
    rgba = torch.rand(2, 4, 16, 16)
    tensor, image_format = to_tensor(rgba, alpha=True)
    assert tensor.shape == (2, 3, 16, 16)
    result = image_format.restore(torch.zeros_like(tensor))
    assert torch.equal(result[:, 3], rgba[:, 3])
    assert float(result[:, :3].abs().max()) == 0


def test_layout_of_channels():
    array = np.zeros((16, 18, 3))
    array[3, 5, 2] = 1
    tensor, _ = to_tensor(array)
    assert float(tensor[0, 2, 3, 5]) == 1


def test_data_range():
    tensor, image_format = to_tensor(np.full((16, 16), 2000.0), data_range=4000)
    assert float(tensor.mean()) == 0.5
    assert float(image_format.restore(tensor).mean()) == 2000


def test_input_is_not_touched():
    array = np.random.default_rng(0).random((16, 16))
    before = array.copy()
    tensor, _ = to_tensor(array)
    tensor.mul_(0)
    assert np.array_equal(array, before)


def test_read_only_and_strided_arrays():
    array = np.arange(400, dtype=np.uint8).reshape(20, 20)[::-1, ::2]
    array.flags.writeable = False
    tensor, image_format = to_tensor(array)
    assert np.array_equal(image_format.restore(tensor), array)


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        (np.full((16, 16), np.nan), ValueError, "NaN"),
        (np.full((16, 16), np.inf), ValueError, "NaN or infinite"),
        (np.full((16, 16), 128.0), ValueError, "data_range"),
        (np.zeros((16, 16), dtype=np.int32), TypeError, "int32, whose white is not known: set data_range"),
        (np.zeros((16, 16), dtype=bool), TypeError, r"bool: convert it by array.astype\('uint8'\) \* 255"),
        (torch.zeros(16, 16, dtype=torch.bool), TypeError, "bool: convert it"),
        (np.zeros((16, 16), dtype=complex), TypeError, "complex128: give its magnitude"),
        (np.zeros((16, 16), dtype=np.longdouble), TypeError, "float128: convert it by array.astype"),
        (np.zeros((16, 16), dtype="U3"), TypeError, "pixels are numbers"),
        (np.zeros((16, 16), dtype=[("r", "u1"), ("g", "u1")]), TypeError, r"fields \(r, g\): stack them as channels"),
        (np.zeros((16, 16), dtype=object), TypeError, "object: pixels are numbers"),
        (np.zeros((16, 16), dtype=np.uint64), TypeError, "uint64: convert it"),
        (np.zeros((0, 16)), ValueError, "empty"),
        (np.zeros(16), ValueError, r"\(16,\)"),
        (np.zeros((5, 16, 16)), ValueError, r"a stack of gray images is \(B, H, W, 1\)"),
        (np.zeros((3, 16, 16)), ValueError, r"numpy.moveaxis\(image, -3, -1\)"),
        (np.zeros((2, 3, 16, 16)), ValueError, r"numpy.moveaxis\(image, -3, -1\)"),
        (torch.zeros(1, 1, 1, 16, 16), ValueError, "must be"),
        (torch.zeros(2, 16, 16, 3), ValueError, r"permute\(0, 3, 1, 2\)"),
        (torch.zeros(16, 16, 1), ValueError, r"permute\(2, 0, 1\)"),
        ("picture.png", TypeError, "a path, 'picture.png', but an array is wanted: read it first"),
        (Path("picture.png"), TypeError, "a path, 'picture.png', but an array is wanted: read it first"),
    ],
)
def test_bad_images(image, error, message):
    with pytest.raises(error, match=message):
        to_tensor(image)


def test_the_image_with_a_bad_value_is_named():
    stack = np.zeros((3, 16, 16, 1))
    stack[1, 5, 5] = np.nan
    with pytest.raises(ValueError, match="image 2 of 3"):
        to_tensor(stack)


@pytest.mark.parametrize("array", [np.zeros((16, 16)), np.zeros((16, 16, 3)), torch.zeros(1, 3, 16, 16)])
def test_transparency_that_is_not_there(array):
    with pytest.raises(ValueError, match="with alpha there are 2 or 4"):
        to_tensor(array, alpha=True)


@pytest.mark.parametrize(
    ("image", "channels"), [(np.ones((16, 17, 2)), 2), (np.ones((16, 17, 4)), 4), (torch.ones(2, 4, 16, 17), 4)]
)
def test_channels_are_channels_unless_they_are_said_to_be_alpha(image, channels):
    tensor, image_format = to_tensor(image)
    assert tensor.shape[1] == channels
    assert image_format.alpha is None
    assert float(abs(image_format.restore(torch.zeros_like(tensor))).max()) == 0


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint32", ">i2"])
@pytest.mark.parametrize("of_torch", [False, True])
def test_other_integers_with_a_data_range_never_wrap_around(dtype, of_torch):
    info = np.iinfo(dtype)
    array = np.array([[info.min, 0, 100], [info.max, 7, info.min // 2]]).astype(dtype)
    exact = array.astype(np.dtype(dtype).newbyteorder("="))
    image = torch.from_numpy(exact) if of_torch else array
    tensor, image_format = to_tensor(image, data_range=1000)
    if info.max < 2**53:
        assert np.array_equal(np.asarray(image_format.restore(tensor)), exact)
    above, below = (np.asarray(image_format.restore(tensor.float() + step)) for step in (1e17, -1e17))
    assert above.min() >= info.max - 2**10
    assert below.max() <= info.min + 2**10


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("of_torch", [False, True])
def test_denoise_leaves_a_channel_alone_only_where_it_is_said_to_be_alpha(channels, of_torch):
    array = np.random.default_rng(0).random((16, 16, channels)).astype(np.float32)
    image = torch.from_numpy(array).movedim(-1, 0) if of_torch else array
    options = {"sigma": 0.1, "tolerance": 0.1}

    def last(result):
        return np.asarray(result[-1] if of_torch else result[..., -1])

    assert np.abs(last(td.denoise(image, channelwise=True, **options)) - array[..., -1]).max() > 0.01
    assert np.array_equal(last(td.denoise(image, alpha=True, **options)), array[..., -1])
    with pytest.raises(ValueError, match=r"set channelwise .* or set alpha if the last channel is transparency"):
        td.denoise(image, **options)


def test_the_noise_of_colours_is_not_that_of_transparency():
    rng = np.random.default_rng(0)
    image = np.stack([np.full((32, 32), 0.5), rng.random((32, 32))], -1) + rng.normal(0, 0.02, (32, 32, 1))
    assert td.noise.estimate_sigma(image, alpha=True)[0] == pytest.approx(0.02, rel=0.3)
