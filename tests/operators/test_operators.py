"""Every operator earns the same tests: add it to OPERATORS."""

import numpy as np
import pytest
import torch
from conftest import IN_SEGMENTS, ON_THE_FLY, dense, radon_by, random
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import convolve
from scipy.signal import convolve2d
from scipy.sparse import csr_array

import torchdeal as td
from torchdeal.operators import (
    Blur,
    Downsample,
    FanBeam,
    Fourier,
    Identity,
    Mask,
    Matrix,
    MultiCoilFourier,
    NonCartesianFourier,
    Operator,
    Radon,
    Stack,
    Weighted,
    adjoint_gap,
)

SHAPE = (3, 12, 10)  # C, H, W


SAMPLED = random(*SHAPE[1:]) > 0.4
MAPS = torch.randn(4, *SHAPE[1:], dtype=torch.complex128, generator=torch.Generator().manual_seed(3))
MATRIX = (random(50, 360, seed=5) - 0.5) * (random(50, 360, seed=6) > 0.7)
TRAJECTORY = (random(90, 2, seed=4) - 0.5) * torch.tensor(SHAPE[1:])  # cycles per field of view


OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "mask": Mask(random(*SHAPE[1:]) > 0.4),
    "mask per channel": Mask(random(*SHAPE)),
    **{
        f"blur {boundary} {height}x{width}": Blur(random(height, width), boundary)
        for boundary in ("circular", "zero", "reflect", "valid")
        for height, width in ((1, 1), (5, 5), (4, 7), (6, 3))
    },
    "downsample": Downsample(2),
    "downsample 2 with blur": Downsample(2, random(3, 4)),
    "downsample 5 with a size": Downsample(5, random(3, 3), "reflect", size=SHAPE[1:]),
    "radon": Radon(np.linspace(0, 180, 7), SHAPE[1:]),
    "radon in segments": radon_by(np.linspace(0, 180, 7), SHAPE[1:], **IN_SEGMENTS),
    "radon with its axis aside": Radon(np.linspace(0, 180, 7), SHAPE[1:], bins=30, center=1.3),
    "fan beam": FanBeam(np.linspace(0, 360, 7), SHAPE[1:], 60, 30, pitch=1.5, center=-0.5),
    "radon on the fly": radon_by(np.linspace(0, 180, 7), SHAPE[1:], **ON_THE_FLY),
    **{
        f"{name} of a {'real' if real else 'complex'} image": operator
        for real in (True, False)
        for name, operator in {
            "fourier": Fourier(SAMPLED, real=real),
            "fourier centered": Fourier(SAMPLED, centered=True, real=real),
            "coils": MultiCoilFourier(MAPS, SAMPLED, real=real),
            "coils centered": MultiCoilFourier(MAPS, SAMPLED, centered=True, real=real),
            "trajectory": NonCartesianFourier(TRAJECTORY, SHAPE[1:], real=real),
            "trajectory and coils": NonCartesianFourier(TRAJECTORY, SHAPE[1:], MAPS, real=real),
        }.items()
    },
    "stack": Stack([Blur(random(3, 3)), Mask(random(*SHAPE[1:]) > 0.5), Downsample(2)], SHAPE),
    "weighted": Weighted(random(*SHAPE), Blur(random(3, 2))),
    **{
        f"matrix {kind}": Matrix(convert(MATRIX), SHAPE, **options)
        for kind, convert, options in (
            ("dense", lambda matrix: matrix, {}),
            ("sparse", lambda matrix: csr_array(matrix.numpy()), {}),
            ("of a complex image", lambda matrix: matrix + 1j * matrix.flip(0), {}),
            ("of a real image", lambda matrix: csr_array((matrix + 1j * matrix.flip(0)).numpy()), {"real": True}),
        )
    },
    "scaled": 2.5 * Blur(random(3, 3)),
    "composed": Mask(random(*SHAPE[1:]) > 0.5) @ Blur(random(5, 4), "reflect"),
    "composed and scaled": -0.5 * (Blur(random(3, 3), "zero") @ Mask(random(*SHAPE))),
}

everyone = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
everyone_in_every_dtype = pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        pytest.param(operator, dtype, id=f"{name} {dtype}")
        for name, operator in OPERATORS.items()
        for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
        if not (dtype.is_complex and getattr(operator, "real", False))  # its adjoint is that of real images
    ],
)


def image(batch=2, dtype=torch.float64, seed=0, operator=None):
    """For any operator, or in the channels and the kind of numbers of this one."""
    generator = torch.Generator().manual_seed(seed)
    channels = (operator.image_shape or (None,))[0] if operator is not None else None
    if operator is not None and not getattr(operator, "real", True):
        dtype = dtype.to_complex()
    return torch.randn(batch, channels or SHAPE[0], *SHAPE[1:], dtype=dtype, generator=generator)


def real_matrix(apply, like):
    """The matrix of a linear map on tensors `(1, ...)` like this one, of real and imaginary parts."""
    size = like[0].numel()
    basis = torch.eye(size, dtype=like.dtype)
    basis = torch.cat([basis, 1j * basis]) if like.is_complex() else basis
    columns = apply(basis.view(len(basis), *like.shape[1:]))
    matrix = (torch.view_as_real(columns) if columns.is_complex() else columns).reshape(len(basis), -1).T
    if columns.is_complex():  # all real parts first, as in the basis
        matrix = matrix.reshape(-1, 2, len(basis)).transpose(0, 1).reshape(-1, len(basis))
    return matrix


@everyone_in_every_dtype
def test_adjoint(operator, dtype):
    operator = operator.to(dtype=dtype.to_real() if dtype.is_complex else dtype)
    x = image(dtype=dtype)[:, : (operator.image_shape or (None,))[0]]
    assert adjoint_gap(operator, x) < (1e-5 if dtype in (torch.float32, torch.complex64) else 1e-12)
    measures_complex = hasattr(operator, "real")
    assert operator.forward(x).dtype == (dtype.to_complex() if measures_complex else dtype)


@everyone
def test_adjoint_equals_dense_transpose(operator):
    x = image(1, operator=operator)
    H = real_matrix(operator.forward, x)
    Ht = real_matrix(operator.adjoint, operator.forward(x))
    torch.testing.assert_close(Ht, H.T, atol=1e-13, rtol=0)


@everyone_in_every_dtype
def test_linearity(operator, dtype):
    operator = operator.to(dtype=dtype.to_real() if dtype.is_complex else dtype)
    x, y = (image(dtype=dtype, seed=seed)[:, : (operator.image_shape or (None,))[0]] for seed in (0, 1))
    torch.testing.assert_close(operator(2 * x - 3 * y), 2 * operator(x) - 3 * operator(y), atol=1e-4, rtol=1e-4)


@everyone
def test_batch(operator):
    x = image(3, operator=operator)
    separate = torch.cat([operator.forward(sample[None]) for sample in x])
    torch.testing.assert_close(operator.forward(x), separate, atol=1e-13, rtol=0)


@everyone
def test_normal(operator):
    x = image(operator=operator)
    torch.testing.assert_close(operator.normal(x), operator.adjoint(operator.forward(x)), atol=1e-12, rtol=0)


@everyone
def test_gradient(operator):
    x = image(1, operator=operator).requires_grad_()
    y = operator.forward(x).detach().requires_grad_()
    assert torch.autograd.gradcheck(operator.forward, (x,), fast_mode=True)
    assert torch.autograd.gradcheck(operator.adjoint, (y,), fast_mode=True)
    assert torch.autograd.gradcheck(operator.normal, (x,), fast_mode=True)


@everyone
def test_norm(operator):
    x = image(1, operator=operator)
    expected = float(torch.linalg.matrix_norm(real_matrix(operator.forward, x), 2))
    norm = operator.norm(tuple(x.shape[1:]), iterations=500, complex_image=x.is_complex())
    assert norm == pytest.approx(expected, rel=3e-3)


@everyone
def test_to_leaves_the_original_alone(operator):
    x = image(operator=operator)
    before = operator.forward(x)
    operator.to(dtype=torch.float32)
    assert torch.equal(operator.forward(x), before)


@pytest.mark.parametrize(("boundary", "mode"), [("circular", "wrap"), ("zero", "constant"), ("reflect", "mirror")])
@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 99))
def test_blur_equals_scipy(boundary, mode, height, width, seed):
    kernel, x = random(height, width, seed=seed), random(1, 1, 11, 10, seed=seed + 1)
    result = Blur(kernel, boundary).forward(x)[0, 0]
    np.testing.assert_allclose(result, convolve(x[0, 0].numpy(), kernel.numpy(), mode=mode), atol=1e-12)


@pytest.mark.parametrize(("boundary", "mode"), [("circular", "wrap"), ("zero", "constant"), ("reflect", "mirror")])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 3), (4, 2), (6, 11)])
def test_a_blur_that_is_larger_than_the_image(boundary, mode, size):
    kernel, x = random(9, 7), random(1, 1, *size, seed=1)
    blur = Blur(kernel, boundary)
    expected = convolve(x[0, 0].numpy(), kernel.numpy(), mode=mode)
    np.testing.assert_allclose(blur.forward(x)[0, 0], expected, atol=1e-12)
    matrix, transposed = (dense(apply, (1, *size)) for apply in (blur.forward, blur.adjoint))
    assert torch.allclose(transposed, matrix.T, atol=1e-12)


def test_mask_takes_numpy_and_bool():
    mask = np.zeros((4, 5), dtype=bool)
    mask[1] = True
    result = Mask(mask).forward(torch.ones(1, 2, 4, 5))
    assert float(result.sum()) == 10


def test_shapes_are_checked():
    with pytest.raises(
        ValueError, match=r"Mask: the image should have shape \(batch, any, 12, 10\), got \(1, 1, 12, 11\)"
    ):
        OPERATORS["mask"].forward(torch.zeros(1, 1, 12, 11))
    with pytest.raises(ValueError, match="batch dimension"):
        Identity().forward(torch.zeros(5))
    with pytest.raises(ValueError, match="smaller than the blur kernel"):
        Blur(torch.ones(9, 9), "valid").forward(torch.zeros(1, 1, 8, 20))


@pytest.mark.parametrize("bad", [np.array([[np.nan]]), np.ones(3), np.ones((2, 2)) * 1j, np.ones((0, 3))])
def test_bad_kernels(bad):
    with pytest.raises((ValueError, TypeError), match="kernel"):
        Blur(bad)


def test_mask_per_sample():
    masks = (random(3, 1, 6, 5) > 0.5).double()
    operator = Mask(masks)
    x = torch.ones(3, 2, 6, 5, dtype=torch.float64)
    assert torch.equal(operator.forward(x), masks.expand(3, 2, 6, 5))
    assert adjoint_gap(operator) < 1e-5
    with pytest.raises(ValueError, match="for a batch of 3"):
        operator.forward(x[:2])


def test_operators_own_their_data():
    mask = np.ones((4, 4))
    operator, flipped = Mask(mask), Blur(np.arange(6.0).reshape(2, 3)[::-1, ::-1])
    mask[:] = 0
    assert float(operator.forward(torch.ones(1, 1, 4, 4)).sum()) == 16
    assert flipped.kernel[0, 0] == 5


def test_adjoint_of_another_shape():
    with pytest.raises(ValueError, match=r"returns shape \(1, 1, 64, 63\)"):
        adjoint_gap((lambda x: x[..., 1:], lambda y: y))


@pytest.mark.parametrize("make", [lambda word: Blur(torch.ones(3, 3), word), lambda word: Downsample(2, None, word)])
def test_a_boundary_that_is_none_of_the_choices(make):
    choices = "choices for the blur boundary, which are circular, zero, reflect, valid"
    with pytest.raises(ValueError, match=f"'wrap' is none of the {choices}"):
        make("wrap")


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_a_factor_that_is_not_finite(factor):
    with pytest.raises(ValueError, match="the factor of an operator must be finite"):
        factor * Identity()


class Pair:
    """An operator written by a user, with no base class."""

    def forward(self, x):
        return 2 * x.flip(-1)

    def adjoint(self, y):
        return 2 * y.flip(-1)


class Physics:
    def A(self, x):
        return 3 * x

    def A_adjoint(self, y):
        return 3 * y


@pytest.mark.parametrize("obj", [Pair(), Physics(), (lambda x: 3 * x, lambda y: 3 * y), Identity()])
def test_as_operator(obj):
    operator = td.as_operator(obj)
    assert isinstance(operator, Operator)
    assert adjoint_gap(obj, image()) < 1e-12
    assert adjoint_gap(obj) < 1e-5


def test_adjoint_gap_of_a_wrong_adjoint():
    for wrong in ((lambda x: x.cumsum(-1), lambda y: y.cumsum(-1)), (lambda x: x, lambda y: 1.05 * y)):
        for size in (16, 512):
            assert adjoint_gap(wrong, torch.zeros(1, 1, size, size)) > 1e-2


def test_as_operator_names_the_remedy():
    with pytest.raises(TypeError, match="forward and adjoint"):
        td.as_operator(object())


def test_valid_blur_equals_scipy():
    kernel, x = random(4, 3), random(1, 1, 11, 10)
    expected = convolve2d(x[0, 0].numpy(), kernel.numpy(), mode="valid")
    np.testing.assert_allclose(Blur(kernel, "valid").forward(x)[0, 0], expected, atol=1e-12)


def test_downsample_keeps_every_other_pixel_of_the_blurred_image():
    kernel, x = random(5, 5), image(1)
    assert torch.equal(Downsample(2, kernel).forward(x), Blur(kernel).forward(x)[..., 0::2, 0::2])
    assert Downsample(3, size=(12, 10)).forward(x).shape == (1, 3, 4, 4)
    with pytest.raises(ValueError, match="no multiple of the scale 4"):
        Downsample(4).forward(x)
    for scale in (0, 1.5, True):
        with pytest.raises(ValueError, match="whole number"):
            Downsample(scale)


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if hasattr(operator, "real")])
def test_the_adjoint_returns_what_the_image_is(name):
    operator = OPERATORS[name]
    x = image(operator=operator)
    assert operator.adjoint(operator.forward(x)).dtype == operator.normal(x).dtype == x.dtype


@everyone
def test_normal_symbol_and_diagonal(operator):
    """The symbol is the diagonal of `F H^T H F^*`; the diagonal is that of `H^T H`, or its mean."""
    operator = operator.to(dtype=torch.float64)
    real = getattr(operator, "real", True)
    like = image(batch=1, dtype=torch.float64 if real else torch.complex128, operator=operator)
    symbol = operator.normal_symbol(like)
    if symbol is None:
        return
    shape = like.shape[1:]
    units = torch.eye(like.numel(), dtype=like.dtype).view(-1, *shape)
    normal = operator.normal(units).reshape(len(units), -1).T.to(torch.complex128)
    transform = torch.fft.fft2(units.to(torch.complex128), norm="ortho").reshape(len(units), -1).T
    expected = (transform @ normal @ transform.mH).diagonal().real.view(shape)
    torch.testing.assert_close(symbol.expand_as(like)[0], expected)
    diagonal, true = operator.normal_diagonal(like).expand_as(like)[0], normal.diagonal().real.view(shape)
    if not isinstance(operator, (Downsample, Weighted)):
        torch.testing.assert_close(diagonal, true)
    torch.testing.assert_close(diagonal.mean((1, 2)), true.mean((1, 2)))
