"""The same answers on a GPU. Collected everywhere, run where there is one."""

import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.operators import Blur, Identity
from torchdeal.precision import full_precision
from torchdeal.reconstruct import attentive_step

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize(("name", "image"), [("gray", "camera"), ("color", "astronaut")])
@pytest.mark.parametrize("sigma", [5, 25])
def test_denoising_agrees_with_the_cpu(name, image, sigma):
    y = noisy(picture(image, 48), sigma)
    on_gpu = td.reconstruct(y.cuda(), model=td.load(name, device="cuda"), sigma=sigma / 255)
    on_cpu = td.reconstruct(y, model=td.load(name), sigma=sigma / 255)
    assert on_gpu.converged
    assert on_gpu.x.is_cuda
    assert relative(on_gpu.x.cpu(), on_cpu.x) < 1e-3


def test_deblurring_agrees_with_the_cpu_and_returns_to_where_it_came_from():
    H = Blur(torch.ones(5, 5) / 25)
    y = noisy(H.forward(picture(size=48)), 2.55)
    options = {"model": "gray", "sigma": 15 / 255, "lam": 0.5}
    on_gpu = td.reconstruct(y, H, device="cuda", **options)
    assert on_gpu.x.device.type == "cpu"
    assert relative(on_gpu.x, td.reconstruct(y, H, **options).x) < 3e-3


def test_same_input_same_bits():
    y = noisy(picture(size=48), 15).cuda()
    first, second = (td.reconstruct(y, model="gray", sigma=15 / 255).x for _ in range(2))
    assert torch.equal(first, second)


def test_gradient_of_one_step_agrees_with_the_cpu():
    def gradients(device):
        model = td.load("gray", device=device).requires_grad_(True)
        y = torch.cat([noisy(picture(size=32), s) for s in (10, 30)]).to(device)
        weights, sigma = model.weights(), torch.tensor([10.0, 30.0], device=device)
        with full_precision(torch.device(device)):
            x, _ = attentive_step(y, y, Identity(), weights, lam=weights.lam(sigma), alpha=weights.alpha(sigma))
            x.square().sum().backward()
        return torch.cat([p.grad.flatten().cpu() for p in model.parameters()])

    assert relative(gradients("cuda"), gradients("cpu")) < 0.01


def test_a_model_is_not_moved_by_a_call():
    model = td.load("gray")
    td.reconstruct(noisy(picture(size=32), 15), model=model, sigma=15 / 255, device="cuda")
    assert next(model.parameters()).device.type == "cpu"
