"""An image in a batch becomes what it becomes alone: of all competitors that need no package, with small weights."""

from dataclasses import replace

import pytest
import torch
from conftest import noisy, picture, random, relative
from safetensors.torch import save_file

from torchdeal.benchmark.peers import DENOISERS, SOLVERS, find_denoiser, find_solver
from torchdeal.benchmark.peers.base import NORM_MARGIN, squared_norm
from torchdeal.operators import Blur, Downsample, Fourier, MultiCoilFourier, Radon

SIZE, SIGMA = 16, 15.0
PACKAGES = {"bm3d", "nlm", "wavelets", "ffdnet"}


def zero_mean(*shape, seed):
    kernel = random(*shape, seed=seed) - 0.5
    return kernel - kernel.mean((2, 3), keepdim=True)


def networks():
    """A convolution that finds a little of an image's detail, as noise."""
    layer = {"conv0.weight": 0.3 * zero_mean(1, 1, 3, 3, seed=1), "conv0.bias": torch.zeros(1).double()}
    told = {"conv0.weight": torch.cat([-layer["conv0.weight"], torch.zeros(1, 1, 3, 3)], 1)}
    told["conv0.weight"][0, 0, 1, 1] += 1
    return {"dncnn_gray_s15": layer, "pnp_dncnn_gray_s15": layer, "fdncnn_gray": told | {"conv0.bias": torch.zeros(1)}}


def ridge(rho):
    knots, mu = torch.linspace(-0.1, 0.1, 101, dtype=torch.float64), 40.0
    profile = (mu + rho) * knots.clamp(-0.002, 0.002) - rho * knots.clamp(-0.098, 0.098)
    kernels = [0.2 * zero_mean(2, 1, 5, 5, seed=1), *(0.2 * random(2, 2, 5, 5, seed=seed) for seed in (2, 3))]
    weights = {f"conv{i}.weight": kernel for i, kernel in enumerate(kernels)}
    weights |= {"profile_derivative": profile, "profile_knots": knots, "mu": torch.tensor([mu])}
    return weights | {"log_scale": 3 + random(2, 11), "log_scale_knots": torch.arange(0.0, 31.0, 3.0)}


def mixture():
    roots = random(3, 64, 64) - 0.5
    covariances = torch.tensor([0.1, 0.01, 0.001]).view(3, 1, 1) * (roots @ roots.mT / 64 + 0.01 * torch.eye(64))
    return {"log_weights": torch.tensor([0.5, 0.3, 0.2]).log(), "covariances": covariances}


def masked():
    blurs = {f"mask_conv{i}.weight": torch.full((2, 1, 7, 7), 1 / 49) for i in range(2)}
    kernels = {"conv0.weight": zero_mean(2, 1, 7, 7, seed=1), "conv1.weight": zero_mean(2, 2, 7, 7, seed=2)}
    knots = torch.linspace(0, 1, 21)
    splines = {"mask_spline": (-knots * torch.tensor([[1.0], [3.0]])).exp(), "mask_spline_knots": knots}
    return {
        **blurs,
        **kernels,
        **splines,
        "mask_scale": torch.ones(2),
        "lam": torch.tensor([0.005]),
        "lip": 400 * knots[-1:],
    }


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")
    files = {**networks(), "crr_nn_gray": ridge(0.0), "wcrr_nn_gray": ridge(1.0), "epll_gray": mixture()}
    files |= {f"mmr_gray_s{level}": masked() for level in ("05", "15")}
    for name, tensors in files.items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def images():
    """An easy one, and one with details."""
    return torch.cat([0.4 + 0.1 * picture(size=SIZE), picture(size=SIZE, row=200, column=300)]).double()


def short_solver(name, weights):
    """With few iterations where it would take many."""
    solver = find_solver(name).make(weights, 1, "cpu")
    return replace(solver, max_iterations=100) if name in ("crr", "wcrr") else solver


@pytest.mark.parametrize("name", [name for name in DENOISERS if name not in PACKAGES])
def test_denoisers(name, weights, images):
    y = noisy(images, SIGMA)
    denoiser = find_denoiser(name).make(weights, 1, "cpu")
    both = denoiser(y, SIGMA)
    assert relative(both, y) > 1e-3
    assert relative(both, torch.cat([denoiser(one, SIGMA) for one in y.split(1)])) < 1e-9


PROBLEMS = {
    "deblur": Blur(torch.eye(5, dtype=torch.float64) / 5),
    "superres": Downsample(2, torch.ones(3, 3, dtype=torch.float64) / 9),
    "mri": Fourier((torch.arange(SIZE) % 3 != 1).expand(SIZE, SIZE)),
    "ct": Radon(torch.arange(0.0, 180.0, 20.0).numpy(), (SIZE, SIZE)).to(dtype=torch.float64),
}


@pytest.mark.parametrize(
    ("problem", "name"),
    [(problem, name) for problem in PROBLEMS for name, p in SOLVERS.items() if problem in p.problems],
)
def test_solvers(problem, name, weights, images):
    H = PROBLEMS[problem]
    measured = H.forward(images)
    noise = 0.02 * float(measured.abs().max())
    y = measured + noise * torch.randn(measured.shape, dtype=measured.dtype, generator=torch.Generator().manual_seed(0))
    solver = short_solver(name, weights)
    both = solver(y, H, noise)
    assert both.shape == images.shape
    assert relative(both, torch.cat([solver(one, H, noise) for one in y.split(1)])) < 1e-5


def masks():
    return (
        torch.stack([torch.arange(SIZE) % 3 != 1, torch.arange(SIZE) % 4 < 2])
        .view(2, 1, 1, SIZE)
        .expand(-1, -1, SIZE, -1)
    )


def coils():
    angle = 2 * torch.pi * random(2, 3, SIZE, SIZE)
    return torch.polar(torch.full_like(angle, 3**-0.5), angle)


SINGLE = (Fourier(masks()), [Fourier(mask[0]) for mask in masks()])
SEVERAL = (
    MultiCoilFourier(coils(), masks()),
    [MultiCoilFourier(maps, mask[0]) for maps, mask in zip(coils(), masks(), strict=True)],
)


@pytest.mark.parametrize(("joint", "own"), [SINGLE, SEVERAL], ids=["one coil", "coils"])
@pytest.mark.parametrize("name", [name for name, peer in SOLVERS.items() if "mri" in peer.problems])
def test_solvers_where_each_image_has_a_mask_of_its_own(name, joint, own, weights, images):
    y = joint.forward(images)
    solver = short_solver(name, weights)
    alone = [solver(part, H, 0.02) for part, H in zip(y.split(1), own, strict=True)]
    assert relative(solver(y, joint, 0.02), torch.cat(alone)) < 1e-4  # steps follow the largest norm of the batch


@pytest.mark.parametrize(("joint", "own"), [SINGLE, SEVERAL], ids=["one coil", "coils"])
def test_the_norm_of_an_operator_for_a_batch_is_the_largest(joint, own):
    largest = max(H.norm((1, SIZE, SIZE)) for H in own) ** 2
    assert largest <= squared_norm(joint, (1, SIZE, SIZE)) <= NORM_MARGIN**2 * largest
