"""The same answers on a GPU. Collected everywhere, run where there is one."""

from dataclasses import fields, replace

import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.backends import DirectBackend, PackedBackend, choose_backend
from torchdeal.backends.passes import unpack
from torchdeal.model import Boundary
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


def problem(name="gray", image="camera", batch=1, height=48, width=48):
    """Weights on the device, noisy images of that size, and alpha, another noise level for each."""
    weights = td.load(name, device="cuda").weights()
    x = torch.cat([noisy(picture(image, max(height, width)), 25, seed) for seed in range(batch)])[..., :height, :width]
    return weights, x.cuda(), weights.alpha(torch.linspace(10, 30, batch).cuda())


def exact(weights):
    """The direct backend in double precision, on the CPU."""
    values = {field.name: getattr(weights, field.name) for field in fields(weights)}
    return DirectBackend(replace(weights, **{name: to_double(value) for name, value in values.items()}))


def to_double(value):
    if isinstance(value, tuple):
        return tuple(to_double(part) for part in value)
    return value.cpu().double() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(
    ("name", "image", "batch", "height", "width"),
    [("gray", "camera", 1, 15, 18), ("gray", "camera", 3, 64, 50), ("color", "astronaut", 2, 37, 80)],
)
@torch.no_grad()
def test_the_packed_backend_is_rough_and_precise(name, image, batch, height, width):
    weights, x, alpha = problem(name, image, batch, height, width)
    reference = exact(weights)
    expected = reference.squared_mask(x.cpu().double(), alpha.cpu().double())
    p = torch.randn_like(x)
    penalty = reference.penalty(p.cpu().double(), expected)
    with full_precision(x.device):
        packed = PackedBackend(weights, height, width)
        for _ in range(3):  # computed, captured, replayed
            rough = packed.squared_mask(x, alpha, precise=False)
            visible = unpack(rough.packed, packed.packing)[..., :height, :width]
            assert relative(visible.cpu(), expected) < 5e-3
            assert relative(packed.penalty(p, rough, precise=False).cpu(), penalty) < 2e-3
            precise = packed.squared_mask(x, alpha)
            assert relative(precise.full.cpu(), expected) < 3e-6
            assert relative(packed.penalty(p, precise).cpu(), penalty) < 3e-6
            assert relative(packed.penalty(p, precise, precise=False).cpu(), penalty) < 2e-3


@pytest.mark.parametrize("precise", [True, False])
@torch.no_grad()
def test_the_packed_backend_repeats_its_bits(precise):
    weights, x, alpha = problem(batch=2)
    results = []
    with full_precision(x.device):
        for _ in range(2):
            packed = PackedBackend(weights, *x.shape[-2:])
            for _ in range(3):
                mask = packed.squared_mask(x, alpha, precise=precise)
                results.append(packed.penalty(x, mask, precise=precise))
    assert all(torch.equal(result, results[0]) for result in results)


@torch.no_grad()
def test_a_replay_sees_new_inputs():
    weights, x, alpha = problem(batch=2)
    with full_precision(x.device):
        packed = PackedBackend(weights, *x.shape[-2:])
        for image in (x, x.flip(-1), x.flip(-2)):
            fresh = PackedBackend(weights, *x.shape[-2:])
            masks = [backend.squared_mask(image, alpha, precise=False) for backend in (packed, fresh)]
            assert torch.equal(masks[0].packed, masks[1].packed)
            first, second = packed.penalty(image, masks[0], precise=False), packed.penalty(x, masks[0], precise=False)
            assert torch.equal(first, fresh.penalty(image, masks[1], precise=False))
            assert torch.equal(second, fresh.penalty(x, masks[1], precise=False))


@pytest.mark.parametrize("sigma", [5, 25])
def test_packed_and_direct_reconstructions_agree(sigma):
    y = noisy(picture(size=50), sigma).cuda()
    packed, direct = (td.reconstruct(y, sigma=sigma / 255, backend=name) for name in ("packed", "direct"))
    assert packed.converged
    assert relative(packed.x, direct.x) < 1e-3


def test_choice_of_the_backend():
    weights, x, _ = problem()
    assert isinstance(choose_backend(weights, x), PackedBackend)
    assert isinstance(choose_backend(replace(weights, boundary=Boundary.ZERO), x), DirectBackend)
