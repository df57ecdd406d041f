"""Physics of the real DeepInverse as operators: the same numbers as ours, the right adjoint, and reconstructions."""

import json
import subprocess
import sys

import deepinv
import pytest
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Mask, MultiCoilFourier, adjoint_gap

physics = deepinv.physics

SIZE = (18, 20)
NOISE = 0.02
GENERATOR = torch.Generator().manual_seed(0)
KERNEL = torch.rand(3, 5, generator=GENERATOR)
KERNEL /= KERNEL.sum()
KEPT = (torch.rand(SIZE, generator=GENERATOR) > 0.4).float()
COLUMNS = (torch.rand(SIZE[1], generator=GENERATOR) > 0.5).float().expand(SIZE).clone()
COLUMNS[:, 8:12] = 1
MAPS = torch.randn(3, *SIZE, dtype=torch.complex64, generator=GENERATOR)
GAUSSIAN = physics.GaussianNoise(NOISE)


def theirs(name, **options):
    """A physics, and our operator that does the same."""
    filters = KERNEL[None, None]
    made = {
        "blur": lambda: physics.Blur(filters, padding="circular", **options),
        "blur by FFT": lambda: physics.BlurFFT((1, *SIZE), filters, **options),
        "blur, mirrored": lambda: physics.Blur(filters, padding="reflect", **options),
        "blur, no border": lambda: physics.Blur(filters, padding="valid", **options),
        "downsampling": lambda: physics.Downsampling((1, *SIZE), filters, factor=2, **options),
        "decimation": lambda: physics.Downsampling(filter=None, factor=2, **options),
        "inpainting": lambda: physics.Inpainting((1, *SIZE), KEPT[None], **options),
        "composed": lambda: physics.compose(
            physics.Blur(filters, padding="circular"), physics.Inpainting((1, *SIZE), KEPT[None], **options)
        ),
        "automatic adjoint": lambda: physics.LinearPhysics(A=lambda x: KEPT * x, img_size=(1, *SIZE), **options),
    }
    return made[name]()


OURS = {
    "blur": Blur(KERNEL),
    "blur by FFT": Blur(KERNEL),
    "blur, mirrored": Blur(KERNEL, "reflect"),
    "blur, no border": Blur(KERNEL, "valid"),
    "downsampling": Downsample(2, KERNEL),
    "decimation": Downsample(2),
    "inpainting": Mask(KEPT),
    "composed": Mask(KEPT) @ Blur(KERNEL),
    "automatic adjoint": Mask(KEPT),
}

# Without an operator of ours that does the same: how to make it, and channels of its images.
OTHERS = {
    "blur, border repeated": (lambda: physics.Blur(KERNEL[None, None], padding="replicate"), 1),
    "demosaicing": (lambda: physics.Demosaicing((3, *SIZE)), 3),
    "decolorize": (physics.Decolorize, 3),
    "compressed sensing": (lambda: physics.CompressedSensing(100, (1, *SIZE)), 1),
    "single pixel": (lambda: physics.SinglePixelCamera(100, (1, 16, 16)), 1),
    "tomography": (lambda: physics.Tomography(angles=10, img_width=16, normalize=False), 1),
    "MRI": (lambda: physics.MRI(COLUMNS), 2),
    "multi-coil MRI": (lambda: physics.MultiCoilMRI(COLUMNS, MAPS), 2),
}


def crop(name="camera", **where):
    return picture(name, size=SIZE[1], **where)[..., : SIZE[0], :]


def complex_image():
    """Two pictures as real and imaginary part, `(1, 2, H, W)`."""
    return torch.cat([crop(), 0.4 * crop(column=150)], 1)


def as_complex(channels):
    """`(B, 2, ...)`, real -> `(B, ...)`, complex."""
    return torch.complex(channels[:, 0], channels[:, 1])


def as_channels(image):
    """`(B, 1, H, W)`, complex -> `(B, 2, H, W)`, real."""
    return torch.cat([image.real, image.imag], 1)


@pytest.fixture(scope="module")
def model():
    return small_model(features=4, dtype=torch.float32)


@pytest.mark.parametrize("name", OURS)
def test_same_numbers_as_our_operator(name):
    x = torch.rand(2, 1, *SIZE, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(td.as_operator(theirs(name)).forward(x), OURS[name].forward(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_adjoint(name):
    made, channels = (theirs(name), 1) if name in OURS else (OTHERS[name][0](), OTHERS[name][1])
    size = (16, 16) if name in ("tomography", "single pixel") else SIZE
    assert adjoint_gap(made, torch.zeros(2, channels, *size)) < 1e-5


def test_adjoint_without_an_image_where_the_physics_says_its_size():
    for made in (theirs("blur by FFT"), theirs("downsampling"), OTHERS["demosaicing"][0](), OTHERS["MRI"][0]()):
        assert adjoint_gap(made) < 1e-5
    with pytest.raises(ValueError, match=r"should have shape \(batch, any, 18, 20\)"):
        td.as_operator(theirs("blur by FFT")).forward(torch.zeros(1, 1, 9, 9))


@pytest.mark.parametrize("name", OURS)
def test_reconstruction_equals_that_of_our_operator(name, model):
    y = noisy(OURS[name].forward(torch.cat([crop(), crop(row=10)])), 5)  # the second is almost a constant
    options = {"model": model, "sigma": 5 / 255, "lam": 0.5, "tolerance": 1e-5}
    result = td.reconstruct(y, theirs(name), **options)
    assert result.x.dtype == torch.float32
    assert relative(result.x, td.reconstruct(y, OURS[name], **options).x) < 1e-4


def test_colour(color):
    clean = crop("astronaut")
    operator = Blur(KERNEL)
    y = noisy(operator.forward(clean), 5)
    result = td.reconstruct(y, physics.Blur(KERNEL[None, None], padding="circular"), noise=5 / 255)
    assert result.x.shape == clean.shape
    assert relative(result.x, td.reconstruct(y, operator, model=color, noise=5 / 255).x) < 1e-3


@pytest.mark.parametrize("name", ["blur", "inpainting", "composed"])
def test_noise_of_the_physics_is_the_default(name, model):
    made = theirs(name, noise_model=GAUSSIAN)
    y = made(crop())
    result = td.reconstruct(y, made, model=model)
    assert torch.equal(result.x, td.reconstruct(y, made, model=model, noise=NOISE).x)
    assert relative(result.x, td.reconstruct(y, made, model=model, noise=2 * NOISE).x) > 1e-3


def test_noise_of_the_physics_for_each_sample(model):
    levels = torch.tensor([0.01, 0.05])
    made = theirs("blur", noise_model=physics.GaussianNoise(levels))
    y = made(torch.cat([crop(), crop(column=150)]))
    result = td.reconstruct(y, made, model=model).x
    assert torch.equal(result, td.reconstruct(y, made, model=model, noise=[0.01, 0.05]).x)
    assert relative(result, td.reconstruct(y, made, model=model, noise=[0.05, 0.01]).x) > 1e-3


def test_noise_of_the_physics_gives_lam_where_only_sigma_is_given(model):
    made = theirs("blur", noise_model=GAUSSIAN)
    y = made(crop())
    result = td.reconstruct(y, made, model=model, sigma=0.1)
    assert torch.equal(result.x, td.reconstruct(y, made, model=model, sigma=0.1, noise=NOISE).x)


@pytest.mark.parametrize("noise_model", [physics.ZeroNoise(), physics.PoissonNoise()], ids=["none", "Poisson"])
def test_noise_that_is_not_gaussian_has_to_be_given(noise_model, model):
    made = theirs("blur", noise_model=noise_model)
    with pytest.raises(ValueError, match="give noise"):
        td.reconstruct(crop(), made, model=model)


def test_denoising_uses_the_learned_strength(gray):
    made = physics.Denoising(physics.GaussianNoise(15 / 255))
    y = made(crop())
    assert torch.equal(td.reconstruct(y, made, model=gray).x, td.denoise(y, 15 / 255, model=gray))


def test_denoising_with_weights_is_no_identity(model):
    made = physics.Denoising(GAUSSIAN, mask=KEPT)
    y = noisy(KEPT * crop(), 5)
    result = td.reconstruct(y, made, model=model, lam=0.5, sigma=5 / 255, tolerance=1e-5)
    ours = td.reconstruct(y, Mask(KEPT), model=model, lam=0.5, sigma=5 / 255, tolerance=1e-5)
    assert relative(result.x, ours.x) < 1e-4


MRI = {
    "single coil": (lambda **o: physics.MRI(COLUMNS, **o), Fourier(COLUMNS, centered=True, real=False)),
    "multi-coil": (
        lambda **o: physics.MultiCoilMRI(COLUMNS, MAPS, **o),
        MultiCoilFourier(MAPS, COLUMNS, centered=True, real=False),
    ),
    "composed": (
        lambda **o: physics.compose(physics.MRI(COLUMNS), physics.MRI(COLUMNS, **o)),
        Fourier(COLUMNS, centered=True, real=False) @ Fourier(COLUMNS, centered=True, real=False),
    ),
}


@pytest.mark.parametrize("name", MRI)
def test_two_channels_are_a_complex_image(name, model):
    """Measurements and image in the layout of DeepInverse; the numbers are those of our complex operator."""
    make, ours = MRI[name]
    made = make(noise_model=GAUSSIAN)
    x = torch.cat([complex_image(), complex_image().flip(-1)])
    y = made(x)
    kspace = as_complex(y) if name == "multi-coil" else as_complex(y)[:, None]
    options = {"model": model, "sigma": 0.05, "lam": 0.1}
    result = td.reconstruct(y, made, **options).x
    assert result.shape == x.shape
    assert relative(result, as_channels(td.reconstruct(kspace, ours, **options).x)) < 1e-4


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_complex_images_of_any_range(scale, gray):
    """The noise of the physics as the default, and the range of the image by its magnitude: as with our operator."""
    made = physics.MRI(COLUMNS, noise_model=physics.GaussianNoise(NOISE * scale))
    x = scale * torch.cat([crop() - 0.5, 0.5 - crop()], 1)  # its real part spans more than its magnitude
    y = made(x)
    result = td.reconstruct(y, made, model=gray, tolerance=1e-2).x
    ours = td.reconstruct(
        as_complex(y)[:, None], MRI["single coil"][1], model=gray, noise=NOISE * scale, tolerance=1e-2
    ).x
    assert relative(result, as_channels(ours)) < 5e-3  # each is within 1e-2 of the fixed point, by its own iterations
    assert relative(result, x) < relative(made.A_adjoint(y), x)


def test_complex_channels_survive_composition(model):
    made = td.as_operator(physics.MRI(COLUMNS))
    y = made.forward(complex_image())
    options = {"model": model, "sigma": 0.05}
    plain = td.reconstruct(y, made, lam=0.1, **options).x
    assert relative(td.reconstruct(2 * y, 2 * made, lam=0.4, **options).x, plain) < 1e-4


def test_physics_stays_where_it_is_and_complex_buffers_stay_complex():
    """In double precision as accurate as ours, from a copy; the physics of the caller is as it was."""
    made, ours = MRI["multi-coil"][0](), MRI["multi-coil"][1].to(dtype=torch.float64)
    x = complex_image().double()
    adapted = td.as_operator(made).to(dtype=torch.float64)
    expected = ours.forward(as_complex(x)[:, None])
    torch.testing.assert_close(as_complex(adapted.forward(x)), expected, atol=1e-12, rtol=0)
    assert (made.mask.dtype, made.coil_maps.dtype) == (torch.float32, torch.complex64)
    assert adapted.to(dtype=torch.float64).physics is adapted.physics


def test_double_precision_model():
    model = small_model(features=4)
    y = noisy(OURS["downsampling"].forward(crop()), 5).double()
    options = {"model": model, "sigma": 5 / 255, "lam": 0.5, "tolerance": 1e-9}
    result = td.reconstruct(y, theirs("downsampling"), **options).x
    assert relative(result, td.reconstruct(y, OURS["downsampling"], **options).x) < 1e-7


REFUSED = {
    "nonlinear": (physics.Haze, "not linear"),
    "nonlinear, with an adjoint": (lambda: physics.RandomPhaseRetrieval(10, (1, 8, 8)), "not linear"),
    "stacked": (lambda: theirs("blur").stack(theirs("inpainting")), r"operators\.Stack"),
    "a sequence": (lambda: physics.DynamicMRI(torch.ones(2, 4, 4)), "slices or frames"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(TypeError, match=message):
        td.as_operator(make())


def test_wrong_adjoint_is_refused(model):
    made = physics.LinearPhysics(A=lambda x: x.roll(1, -1), A_adjoint=lambda y: y.roll(1, -1))
    with pytest.raises(ValueError, match="adjoint does not belong"):
        td.reconstruct(crop(), made, model=model, noise=NOISE)


def test_torchdeal_does_not_import_deepinv():
    script = (
        "import json, sys, torchdeal; torchdeal.as_operator((abs, abs)); print(json.dumps('deepinv' in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) is False
