"""Every operator earns the same tests: add it to OPERATORS."""

import numpy as np
import pytest
import torch
from conftest import dense, picture
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import convolve
from scipy.signal import convolve2d
from skimage.transform import radon

import torchdeal as td
from torchdeal.operators import (
    Blur,
    Downsample,
    Fourier,
    Identity,
    Mask,
    MultiCoilFourier,
    Operator,
    Radon,
    Stack,
    Weighted,
    adjoint_gap,
)

SHAPE = (3, 12, 10)  # C, H, W


def random(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
    "stack": Stack([Blur(random(3, 3)), Mask(random(*SHAPE[1:]) > 0.5), Downsample(2)], SHAPE),
    "weighted": Weighted(random(*SHAPE), Blur(random(3, 2))),
    "scaled": 2.5 * Blur(random(3, 3)),
    "composed": Mask(random(*SHAPE[1:]) > 0.5) @ Blur(random(5, 4), "reflect"),
    "composed and scaled": -0.5 * (Blur(random(3, 3), "zero") @ Mask(random(*SHAPE))),
}

everyone = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])


def image(batch=2, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *SHAPE, dtype=dtype, generator=generator)


@everyone
@every_dtype
def test_adjoint(operator, dtype):
    operator = operator.to(dtype=dtype.to_real() if dtype.is_complex else dtype)
    assert adjoint_gap(operator, image(dtype=dtype)) < (1e-5 if dtype in (torch.float32, torch.complex64) else 1e-12)
    assert operator.forward(image(dtype=dtype)).dtype == dtype


@everyone
def test_adjoint_equals_dense_transpose(operator):
    H = dense(operator.forward, SHAPE)
    Ht = dense(operator.adjoint, operator.forward(image(1)).shape[1:])
    torch.testing.assert_close(Ht, H.T, atol=1e-13, rtol=0)


@everyone
@every_dtype
def test_linearity(operator, dtype):
    operator = operator.to(dtype=dtype.to_real() if dtype.is_complex else dtype)
    x, y = image(dtype=dtype), image(dtype=dtype, seed=1)
    torch.testing.assert_close(operator(2 * x - 3 * y), 2 * operator(x) - 3 * operator(y), atol=1e-4, rtol=1e-4)


@everyone
def test_batch(operator):
    x = image(3)
    separate = torch.cat([operator.forward(sample[None]) for sample in x])
    torch.testing.assert_close(operator.forward(x), separate, atol=1e-13, rtol=0)


@everyone
def test_normal(operator):
    x = image()
    torch.testing.assert_close(operator.normal(x), operator.adjoint(operator.forward(x)), atol=1e-12, rtol=0)


@everyone
def test_gradient(operator):
    x = image(1).requires_grad_()
    assert torch.autograd.gradcheck(operator.forward, (x,), fast_mode=True)
    assert torch.autograd.gradcheck(operator.adjoint, (operator.forward(x).detach().requires_grad_(),), fast_mode=True)


@everyone
def test_norm(operator):
    expected = float(torch.linalg.matrix_norm(dense(operator.forward, SHAPE), 2))
    assert operator.norm(SHAPE, iterations=500) == pytest.approx(expected, rel=3e-3)


@everyone
def test_to_leaves_the_original_alone(operator):
    before = operator.forward(image())
    operator.to(dtype=torch.float32)
    assert torch.equal(operator.forward(image()), before)


@pytest.mark.parametrize(("boundary", "mode"), [("circular", "wrap"), ("zero", "constant"), ("reflect", "mirror")])
@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 99))
def test_blur_equals_scipy(boundary, mode, height, width, seed):
    kernel, x = random(height, width, seed=seed), random(1, 1, 11, 10, seed=seed + 1)
    result = Blur(kernel, boundary).forward(x)[0, 0]
    np.testing.assert_allclose(result, convolve(x[0, 0].numpy(), kernel.numpy(), mode=mode), atol=1e-12)


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
        Blur(torch.ones(9, 9)).forward(torch.zeros(1, 1, 8, 20))


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


def test_unknown_boundary():
    with pytest.raises(ValueError, match="mirrored"):
        Blur(torch.ones(3, 3), "mirrored")


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


@pytest.mark.parametrize(
    ("circle", "shape"), [(True, (33, 33)), (True, (32, 32)), (False, (32, 32)), (False, (21, 30))]
)
def test_radon_equals_scikit_image(circle, shape):
    picture = random(1, 1, *shape)
    if circle:  # scikit-image warns where the image is not zero outside the circle
        row, column = np.ogrid[: shape[0], : shape[1]]
        outside = (row - shape[0] // 2) ** 2 + (column - shape[1] // 2) ** 2 > (shape[0] // 2) ** 2
        picture[..., torch.from_numpy(outside)] = 0
    angles = np.array([0.0, 17.0, 90.0, 133.3, 180.0])
    expected = radon(picture[0, 0].numpy(), angles, circle=circle).T
    np.testing.assert_allclose(Radon(angles, shape, circle=circle).forward(picture)[0, 0], expected, atol=1e-10)


def test_radon_in_chunks(monkeypatch):
    x = image(2)
    whole = OPERATORS["radon"].forward(x)
    back = OPERATORS["radon"].adjoint(whole)
    monkeypatch.setattr("torchdeal.operators.tomography.CHUNK_NUMBERS", 1)
    torch.testing.assert_close(OPERATORS["radon"].forward(x), whole, atol=1e-12, rtol=0)
    torch.testing.assert_close(OPERATORS["radon"].adjoint(whole), back, atol=1e-12, rtol=0)


def test_bad_radon():
    with pytest.raises(ValueError, match="square"):
        Radon([0.0], (4, 5), circle=True)
    with pytest.raises(ValueError, match="angles"):
        Radon([np.nan], (4, 4))


SAMPLED = random(*SHAPE[1:]) > 0.4
MAPS = torch.randn(4, *SHAPE[1:], dtype=torch.complex128, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("coils", [True, False])
def test_adjoint_of_fourier(real, centred, coils):
    options = {"centred": centred, "real": real}
    operator = MultiCoilFourier(MAPS, SAMPLED, **options) if coils else Fourier(SAMPLED, **options)
    x = image(dtype=torch.float64 if real else torch.complex128)[:, :1]
    assert adjoint_gap(operator, x) < 1e-12
    assert operator.adjoint(operator.forward(x)).dtype == x.dtype


@pytest.mark.parametrize("centred", [True, False])
def test_fourier_equals_numpy(centred):
    x = image(1)
    kspace = np.fft.fft2(np.fft.ifftshift(x, (-2, -1)) if centred else x, norm="ortho")
    expected = (np.fft.fftshift(kspace, (-2, -1)) if centred else kspace) * SAMPLED.numpy()
    np.testing.assert_allclose(Fourier(SAMPLED, centred=centred).forward(x), expected, atol=1e-12)


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


def test_mri_from_a_third_of_the_lines_is_better_than_zero_filling(gray):
    """A real-valued image; measurements are complex."""
    clean = picture(size=48)
    sampled = torch.rand(1, 48, generator=torch.Generator().manual_seed(0)) < 0.25
    sampled[:, 20:28] = True
    H = Fourier(sampled.expand(48, 48))
    y = H.forward(clean)
    y = y + 0.01 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1)) * H.mask
    result = td.reconstruct(y, H, model=gray, sigma=10 / 255, lam=0.1)
    errors = [float((x - clean).square().mean()) for x in (H.adjoint(y), result.x)]
    assert errors[1] < 0.5 * errors[0]
