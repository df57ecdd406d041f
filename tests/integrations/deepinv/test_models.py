"""DEAL as a reconstructor and a denoiser of the real DeepInverse."""

import deepinv
import pytest
import torch
from conftest import noisy, picture, relative, small_model
from torch.utils.data import DataLoader, TensorDataset

import torchdeal as td
from torchdeal.deepinv import DEAL, Denoiser
from torchdeal.operators import Blur

physics = deepinv.physics

SIGMA = 20 / 255
NOISE = 0.02
KERNEL = torch.outer(torch.tensor([0.25, 0.5, 0.25]), torch.tensor([0.2, 0.6, 0.2]))
TIGHT = 1e-4


def blur(**options):
    return physics.Blur(KERNEL[None, None], padding="circular", **options)


def photos(channels=1, size=24):
    name = "camera" if channels == 1 else "astronaut"
    return torch.cat([picture(name, size=size, column=150), picture(name, size=size, row=120, column=230)])


@pytest.fixture(scope="module")
def reconstructor():
    return DEAL()


@pytest.fixture(scope="module")
def denoiser():
    return Denoiser()


@pytest.mark.parametrize("channels", [1, 3])
def test_reconstructor_chooses_weights_and_reads_the_noise(reconstructor, channels):
    made = blur(noise_model=physics.GaussianNoise(NOISE))
    y = made(photos(channels))
    result = reconstructor(y, made)
    assert isinstance(reconstructor, deepinv.models.Reconstructor)
    expected = td.reconstruct(y, Blur(KERNEL), model="gray" if channels == 1 else "color", noise=NOISE).x
    assert relative(result, expected) < 1e-3


def test_arguments_of_the_call_go_before_those_of_the_constructor():
    made, y = blur(), noisy(Blur(KERNEL).forward(photos()), 5)
    model = small_model(features=4, dtype=torch.float32)
    reconstructor = DEAL(model, sigma=0.1, lam=0.5)
    assert torch.equal(reconstructor(y, made), td.reconstruct(y, made, sigma=0.1, lam=0.5, model=model).x)
    each = torch.tensor([0.3, 0.6])
    expected = td.reconstruct(y, made, sigma=0.05, lam=each, model=model).x
    assert torch.equal(reconstructor(y, made, sigma=0.05, lam=each), expected)
    noise_only = DEAL(model, noise=[0.01, 0.03])
    assert torch.equal(noise_only(y, made), td.reconstruct(y, made, noise=[0.01, 0.03], model=model).x)


def test_solve_tells_how_it_went_and_forward_warns(reconstructor):
    made, y = blur(), noisy(Blur(KERNEL).forward(photos()), 5)
    assert reconstructor.solve(y, made, noise=NOISE).status is td.Status.CONVERGED
    hurried = DEAL("gray", noise=NOISE, max_iterations=1)
    with pytest.warns(td.ConvergenceWarning, match="Raise max_iterations"):
        hurried(y, made)


@pytest.mark.parametrize("kind", ["blur", "MRI"])
def test_evaluation_by_deepinverse(reconstructor, kind):
    """`deepinv.test` on a data set: of a batch of two gray images, and of one complex image."""
    mask = torch.ones(24, 24)
    mask[:, 2:9:2] = mask[:, 15::2] = 0
    made, x = (blur(), photos()) if kind == "blur" else (physics.MRI(mask), photos().transpose(0, 1))
    made.set_noise_model(physics.GaussianNoise(NOISE))
    loader = DataLoader(TensorDataset(x, made(x)), batch_size=2)
    results = deepinv.test(reconstructor, loader, made, verbose=False, show_progress_bar=False, device="cpu")
    assert results["PSNR"] > results["PSNR no learning"] + 2


@pytest.mark.parametrize("channels", [1, 3])
def test_denoiser_equals_ours(denoiser, channels):
    y = noisy(photos(channels), 20)
    assert isinstance(denoiser, deepinv.models.Denoiser)
    expected = td.denoise(y, SIGMA, tolerance=denoiser.tolerance)
    for sigma in (SIGMA, torch.full((2, 1, 1, 1), SIGMA)):
        assert relative(denoiser(y, sigma), expected) < 1e-6


def test_denoiser_with_a_level_for_each_sample():
    denoiser, levels = Denoiser("gray", tolerance=TIGHT), torch.tensor([5.0, 30.0]) / 255
    y = torch.cat([noisy(image[None], 255 * float(level)) for image, level in zip(photos(), levels, strict=True)])
    together = denoiser(y, levels)
    for i in range(2):
        assert relative(together[i : i + 1], td.denoise(y[i : i + 1], float(levels[i]), tolerance=TIGHT)) < 1e-3


def test_denoiser_sees_two_channels_as_two_images(denoiser):
    levels = torch.tensor([5.0, 20.0]) / 255
    y = noisy(torch.cat([photos(), photos().flip(0)], 1), 15)
    together = denoiser(y, levels)
    for i, channel in ((0, 1), (1, 0)):
        alone = denoiser(y[i : i + 1, channel : channel + 1], levels[i])
        assert relative(together[i : i + 1, channel : channel + 1], alone) < 1e-3


def test_denoiser_takes_other_channels_only_if_asked(denoiser):
    y = noisy(photos()[:1].expand(1, 4, 24, 24), 20)
    with pytest.raises(ValueError, match="channelwise"):
        denoiser(y, SIGMA)
    result = Denoiser(channelwise=True)(y, SIGMA)
    assert relative(result[:, 3:], denoiser(y[:, 3:], SIGMA)) < 1e-3
    with pytest.raises(ValueError, match="channels"):
        Denoiser("color")(y[:, :1], SIGMA)


def test_denoiser_takes_iterates_beyond_the_range_of_images(denoiser):
    """An algorithm may overshoot, which is no mistake of scale. A constant more in is a constant more out."""
    y = noisy(photos()[:1], 20)
    assert relative(denoiser(y + 4, SIGMA) - 4, denoiser(y, SIGMA)) < 1e-2


def test_plug_and_play():
    """Proximal gradient with the denoiser: five iterations gain at least two decibels."""
    made = blur(noise_model=physics.GaussianNoise(NOISE))
    x = photos()
    y = made(x)
    algorithm = deepinv.optim.optim_builder(
        "PGD",
        prior=deepinv.optim.PnP(Denoiser("gray")),
        data_fidelity=deepinv.optim.L2(),
        max_iter=5,
        params_algo={"stepsize": 1.0, "g_param": 0.03, "lambda": 1.0},
    )
    result = algorithm(y, made)
    psnr = deepinv.metric.PSNR()
    assert bool((psnr(result, x) > psnr(y, x) + 2).all())


def test_same_answer_as_deepinverse_with_the_same_weights(tmp_path):
    """Its own DEAL, with filters that were drawn at random; a batch is more than it can do."""
    torch.manual_seed(0)
    theirs = deepinv.models.DEAL(
        pretrained=None,
        sigma_denoiser=SIGMA,
        lambda_reg=1.0,
        clamp_output=False,
        device="cpu",
        outer_iter=20,
        inner_iter=40,
    ).eval()
    torch.save(theirs.model.state_dict(), tmp_path / "weights.pth")
    ours = DEAL(tmp_path / "weights.pth", tolerance=TIGHT)
    y = noisy(photos(size=16)[:1], 20)
    assert relative(ours(y, physics.Denoising(physics.GaussianNoise(SIGMA))), theirs(y, physics.Denoising())) < 2e-3
    y = Blur(KERNEL).forward(y)
    assert relative(ours(y, blur(), sigma=SIGMA, lam=1.0), theirs(y, blur())) < 2e-3


@pytest.mark.parametrize("make", [DEAL, Denoiser])
def test_weights_move_and_are_saved_with_the_module(make):
    module = make().double()
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}
    names = set(module.state_dict())
    assert {name.split(".")[1] for name in names} == {"gray", "color"}
    y = noisy(photos()[:1], 20).double()
    second = SIGMA if make is Denoiser else physics.Denoising(physics.GaussianNoise(SIGMA))
    expected = td.denoise(y, SIGMA, model=td.load("gray").double())
    assert relative(module(y, second), expected) < 1e-12


def with_gradient(tensor):
    return tensor.clone().requires_grad_()


def test_no_gradient_is_an_error_rather_than_wrong():
    model = small_model(features=4, dtype=torch.float32)
    reconstructor, denoiser, made = DEAL(model.requires_grad_(False), noise=NOISE), Denoiser(model), blur()
    y = noisy(photos(), 20)
    learned_blur = physics.Blur(with_gradient(KERNEL[None, None]), padding="circular")
    results = {
        "measurements": lambda: reconstructor(with_gradient(y), made),
        "physics": lambda: reconstructor(y, learned_blur),
        "strength": lambda: reconstructor(y, made, lam=torch.tensor(0.5, requires_grad=True)),
        "noisy image": lambda: denoiser(with_gradient(y), SIGMA),
        "level": lambda: denoiser(y, torch.tensor(SIGMA, requires_grad=True)),
    }
    for name, compute in results.items():
        with pytest.raises(RuntimeError, match="for inference"):
            compute().sum().backward()
        with torch.no_grad():
            assert not compute().requires_grad, name
    with pytest.raises(RuntimeError, match="for inference"):
        torch.func.jvp(lambda image: denoiser(image, SIGMA), (y,), (y,))
    assert not reconstructor(y, made).requires_grad
    model.requires_grad_(True)
    with pytest.raises(RuntimeError, match="for inference"):
        reconstructor(y, made).sum().backward()
