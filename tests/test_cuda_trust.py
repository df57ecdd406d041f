"""What is said about a result is the same on a GPU. Collected everywhere, run where there is one."""

import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Mask, Radon

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SIZE = 36
COLUMNS = torch.zeros(SIZE, SIZE)
COLUMNS[:, ::3] = COLUMNS[:, :3] = COLUMNS[:, -3:] = 1
OPERATORS = {
    "denoising": None,
    "blur": Blur(torch.ones(3, 3) / 9),
    "every second pixel": Downsample(2, torch.ones(2, 2) / 4),
    "holes": Mask(torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(3)) < 0.5),
    "k-space": Fourier(COLUMNS),
    "sinogram": Radon(range(0, 180, 9), SIZE),
}


def both(name, **options):
    """A small problem on the CPU and on the GPU."""
    operator = OPERATORS[name]
    y = picture(size=SIZE) if operator is None else operator.forward(picture(size=SIZE))
    y = y + 0.05 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    options = {"model": "gray", "tolerance": 1e-4, **options}
    return [td.reconstruct(one, operator, **options) for one in (y, y.cuda())]


@pytest.mark.parametrize("name", OPERATORS)
def test_sigma_and_lam_are_found(name):
    on_cpu, on_gpu = both(name, noise=0.05)
    assert on_gpu.x.is_cuda
    assert float(on_gpu.sigma) == pytest.approx(float(on_cpu.sigma), rel=1e-2)
    assert float(on_gpu.lam) == pytest.approx(float(on_cpu.lam), rel=2e-2)
    assert relative(on_gpu.x.cpu(), on_cpu.x) < 5e-3


@pytest.mark.parametrize("name", ["denoising", "blur", "holes", "k-space"])
def test_error_bars_and_samples(name):
    on_cpu, on_gpu = both(name, noise=0.05)
    assert relative(td.uncertainty(on_gpu, probes=8).cpu(), td.uncertainty(on_cpu, probes=8)) < 0.15  # random
    assert td.sample(on_gpu, 2).shape == (2, *on_gpu.x.shape)


@pytest.mark.parametrize("name", ["denoising", "sinogram"])
def test_explanations(name):
    one, other = (td.explain(rec).row(12, 14) for rec in both(name, noise=0.05))
    assert relative(other.weights.cpu(), one.weights) < 1e-2
    assert float(other.averaged) == pytest.approx(float(one.averaged), rel=1e-2)


@pytest.mark.parametrize("name", ["denoising", "every second pixel"])
def test_certificates(name):
    one, other = (rec.certificate(steps=4, starts=2).numbers() for rec in both(name, noise=0.05))
    for number in ("kernel", "largest", "energy_contraction"):
        assert other[number] == pytest.approx(one[number], rel=0.05), number


@pytest.mark.parametrize("noise", [td.Poisson(1 / 100, 0.02), td.Impulse(0.05)], ids=["photons", "impulses"])
@pytest.mark.parametrize("name", ["denoising", "blur"])
def test_other_noise(name, noise):
    on_cpu, on_gpu = both(name, noise=noise)
    assert relative(on_gpu.x.cpu(), on_cpu.x) < 5e-3


def test_noise_of_each_pixel():
    levels = torch.linspace(0.02, 0.1, SIZE).expand(1, 1, SIZE, SIZE).contiguous()
    on_cpu, on_gpu = both("blur", noise=levels, sigma=25 / 255)  # with less it does not settle
    assert relative(on_gpu.x.cpu(), on_cpu.x) < 5e-3


def test_what_moves_is_told():
    """A sharp picture is not blurred: such a run does not settle."""
    y = noisy(picture(size=SIZE), 0.0)
    rec = td.reconstruct(y.cuda(), Blur(torch.ones(1, 5) / 5), model="gray", sigma=6.5 / 255, lam=0.3)
    assert rec.status is not td.Status.CONVERGED
    assert rec.movement is None or 0 <= float(rec.movement.settled) <= 1
