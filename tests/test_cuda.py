"""The same answers on a GPU. Collected everywhere, run where there is one."""

import tempfile
import warnings
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.backends import DirectBackend, choose_backend
from torchdeal.backends.cuda.graphs import Replays
from torchdeal.backends.cuda.packed import PackedBackend
from torchdeal.backends.cuda.packing import unpack
from torchdeal.benchmark.command import main as benchmark
from torchdeal.benchmark.results import Results
from torchdeal.model import Boundary
from torchdeal.model.spline import even_spline
from torchdeal.operators import (
    Blur,
    Downsample,
    FanBeam,
    Fourier,
    Identity,
    Mask,
    MultiCoilFourier,
    NonCartesianFourier,
    Radon,
    adjoint_gap,
)
from torchdeal.precision import full_precision
from torchdeal.training import ImageSet, Trainer, parse_config
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.engine import DirectEngine, Equation, PackedEngine, attentive_step, choose_engine
from torchdeal.training.step import TrainingStep, iterate

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


def kernel(size=5):
    window = torch.hann_window(size + 2, periodic=False)[1:-1]
    return torch.outer(window, window) / window.sum() ** 2


def columns(height, width):
    """Which k-space is sampled: all of the lowest columns, every third of the others."""
    sampled = torch.arange(width) % 3 == 0
    sampled[:4] = sampled[-4:] = True
    return sampled.expand(height, width)


def coil_maps(coils, height, width):
    return torch.randn(coils, height, width, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))


OPERATORS = {
    "mask": lambda: Mask(torch.rand(48, 48, generator=torch.Generator().manual_seed(0)) < 0.5),
    "circular blur": lambda: Blur(kernel()),
    "reflected blur": lambda: Blur(kernel(), boundary="reflect"),
    "valid blur": lambda: Blur(kernel(), boundary="valid"),
    "downsample": lambda: Downsample(2, kernel()),
    "fourier": lambda: Fourier(columns(48, 48)),
    "complex fourier": lambda: Fourier(columns(48, 48), real=False),
    "coils": lambda: MultiCoilFourier(coil_maps(3, 48, 48), columns(48, 48)),
    "radon": lambda: (1 / 48) * Radon(torch.arange(0, 180, 6), (48, 48)),
    "fan beam": lambda: (1 / 48) * FanBeam(torch.arange(0, 360, 12), 48, source=150, detector=75, pitch=1.5),
    "composed": lambda: Mask(torch.ones(48, 48)) @ Blur(kernel()),
}


@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators_agree_with_the_cpu(name):
    H = OPERATORS[name]()
    clean = picture(size=48).to(torch.complex64 if name == "complex fourier" else torch.float32)
    y = H.forward(clean)
    y = y + 0.01 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
    on_gpu = H.to("cuda", torch.float32)
    assert on_gpu.forward(clean.cuda()).is_cuda
    assert relative(on_gpu.forward(clean.cuda()).cpu(), H.forward(clean)) < 1e-5
    assert relative(on_gpu.adjoint(y.cuda()).cpu(), H.adjoint(y)) < 1e-5
    assert adjoint_gap(on_gpu, clean.cuda()) < 1e-5
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a CUDA graph that could not be made
        first, second = (td.reconstruct(y.cuda(), H, model="gray", noise=0.01, tolerance=3e-4) for _ in range(2))
    assert torch.equal(first.x, second.x)
    on_cpu = td.reconstruct(y, H, model="gray", noise=0.01, tolerance=3e-4)
    assert first.status == on_cpu.status
    assert relative(first.x.cpu(), on_cpu.x) < 1e-3


def test_same_input_same_bits():
    y = noisy(picture(size=48), 15).cuda()
    first, second = (td.reconstruct(y, model="gray", sigma=15 / 255).x for _ in range(2))
    assert torch.equal(first, second)


def test_radon_agrees_with_the_cpu_and_repeats_its_bits():
    H, x = Radon(torch.arange(60) * 3.0, (128, 128)), picture(size=128)
    y = H.forward(x)
    projected, back = H.forward(x.cuda()), H.adjoint(y.cuda())
    assert relative(projected.cpu(), y) < 1e-6
    assert relative(back.cpu(), H.adjoint(y)) < 1e-6
    assert adjoint_gap(H.to("cuda"), x.cuda()) < 1e-6
    anew = Radon(torch.arange(60) * 3.0, (128, 128))
    for _ in range(5):
        assert torch.equal(H.forward(x.cuda()), projected)
        assert torch.equal(H.adjoint(y.cuda()), back)
    assert torch.equal(anew.forward(x.cuda()), projected)
    assert torch.equal(anew.adjoint(y.cuda()), back)


def test_gradient_of_one_step_agrees_with_the_cpu():
    def gradients(device):
        model = td.load("gray", device=device).requires_grad_(True)
        y = torch.cat([noisy(picture(size=32), s) for s in (10, 30)]).to(device)
        weights, sigma = model.weights(), torch.tensor([10.0, 30.0], device=device)
        with full_precision(torch.device(device)):
            x, _ = attentive_step(y, Equation(y, Identity(), weights.lam(sigma), weights.alpha(sigma)), weights)
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
            visible = unpack(rough.packed)[..., :height, :width]
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


def test_a_neighbour_does_not_change_a_sample():
    """A sample in a batch ends where it ends alone: the same status, as many iterations, within the tolerance.

    Not the same bits: rough or precise arithmetic is chosen for a batch as a whole, so that an easy picture beside a
    hard one is computed otherwise than alone. The contract is that this changes results by less than the tolerance,
    relative, and the number of outer iterations by at most 3.
    """
    sigmas, tolerance = torch.tensor([5.0, 45.0]) / 255, 1e-3
    y = torch.cat([noisy(picture("camera", 64), 5), noisy(picture("coins", 64), 45)]).cuda()
    together = td.reconstruct(y, sigma=sigmas, tolerance=tolerance)
    for sample, sigma in enumerate(sigmas.tolist()):
        alone = td.reconstruct(y[sample : sample + 1], sigma=sigma, tolerance=tolerance)
        assert alone.converged
        assert together.statuses[sample] == alone.statuses[0]
        assert abs(int(together.iterations[sample]) - int(alone.iterations[0])) <= 3
        assert relative(together.x[sample : sample + 1], alone.x) < tolerance


def test_choice_of_the_backend():
    weights, x, _ = problem()
    assert isinstance(choose_backend(weights, x), PackedBackend)
    assert isinstance(choose_backend(replace(weights, boundary=Boundary.ZERO), x), DirectBackend)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-3), (torch.float16, 5e-4)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_splines_agree_with_the_cpu(dtype, tolerance, memory_format):
    torch.manual_seed(0)
    # Beyond the last knot, exactly on knots, and 0; more numbers than a program of the kernel works on
    x = torch.cat([1.5 * torch.randn(2, 8, 50, 51), torch.linspace(-3.5, 3.5, 71).expand(2, 8, 10, 71)[..., :51]], 2)
    x, grad = x.to(dtype).contiguous(memory_format=memory_format), torch.randn(x.shape).to(dtype)
    coefficients = torch.rand(31)
    results = []
    for device in ("cpu", "cuda"):
        leaves = [value.to(device).detach().requires_grad_() for value in (x, coefficients)]
        y = even_spline(*leaves)
        y.backward(grad.to(device))
        assert y.dtype == leaves[0].grad.dtype == dtype
        results.append([value.detach().cpu().double() for value in (y, leaves[0].grad, leaves[1].grad)])
    on_cpu, on_gpu = results
    assert relative(on_gpu[0], on_cpu[0]) < tolerance
    assert relative(on_gpu[1], on_cpu[1]) < tolerance
    assert relative(on_gpu[2], on_cpu[2]) < 1e-4  # sums in float32, whatever the dtype of x


def training_batch(size=64, sigmas=(5.0, 15.0, 25.0, 45.0)):
    clean = picture(size=size).expand(len(sigmas), -1, -1, -1).contiguous()
    measured = torch.cat([noisy(clean[:1], sigma, seed) for seed, sigma in enumerate(sigmas)])
    return Batch(clean.cuda(), Identity(), measured.cuda(), torch.tensor(sigmas).cuda())


def equation(weights, batch):
    return Equation(batch.measured, batch.operator, weights.lam(batch.sigma), weights.alpha(batch.sigma))


def parameter_gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()


def test_the_gradient_in_half_precision_points_where_the_exact_one_does():
    model, batch = td.load("gray", device="cuda").requires_grad_(True), training_batch()
    engines = [PackedEngine(model.weights(), 64, 64), DirectEngine(model.weights(), batch.clean)]
    with torch.no_grad():
        z = iterate(engines[0], equation(model.weights(), batch), None, 15)
    gradients = []
    for engine in engines:
        model.zero_grad()
        weights = model.weights()
        engine.track(weights)
        with full_precision(z.device):
            x, _ = engine.step(z, equation(weights, batch))
            (x - batch.clean).square().sum().backward()
        gradients.append(parameter_gradients(model))
    assert float(torch.nn.functional.cosine_similarity(*gradients, dim=0)) > 0.995
    assert 0.95 < float(gradients[0].norm() / gradients[1].norm()) < 1.05


def test_another_step_before_the_backward_changes_nothing():
    model, batch = td.load("gray", device="cuda").requires_grad_(True), training_batch()
    step = TrainingStep(model, LossConfig(gamma=1e-4), engine="packed")
    before = step.approach(batch, None, 5)
    other = Batch(batch.clean, batch.operator, 1 - batch.measured, batch.sigma)

    def gradient(interrupted):
        model.zero_grad()
        result = step(batch, before, 0.0)
        if interrupted:
            step(other, 1 - before, 0.0)
        result.loss.backward()
        return parameter_gradients(model)

    for _ in range(3):  # computed, captured, replayed
        alone = gradient(False)
    assert relative(gradient(True), alone) < 0.01


def image_set(patch):
    pixels = (255 * picture(size=128)[0]).round().to(torch.uint8)
    one = torch.tensor([128])
    return ImageSet(pixels.flatten(), torch.tensor([0]), one, one, channels=1, patch=patch).to("cuda")


def test_steps_are_the_same_with_and_without_graphs(monkeypatch):
    config = parse_config(
        {
            "data": {"train": ["camera"], "patch": 64, "batch": 4},
            "iterations": {"outer": [[0.0, 4, 6]], "pool": 2, "visits": 2},
            "optimiser": {"steps": 6, "warmup": 0},
            "loss": {"occasional": 2, "slowness": 1.0},  # each kind of step is computed, captured and replayed
        }
    )
    start = torch.cat([parameter.flatten() for parameter in td.load("gray", device="cuda").parameters()])
    changes = []
    # Some gradients of convolutions differ from call to call, and Adam's first steps enlarge what is small
    with torch.backends.cudnn.flags(deterministic=True), tempfile.TemporaryDirectory() as folder:
        for graphs in (True, False):
            trainer = Trainer(config, Path(folder) / str(graphs), image_set(64), model=td.load("gray"))
            if graphs:
                replays = trainer.replays._replays
            else:
                monkeypatch.setattr(Replays, "run", lambda self, key, function, *inputs: function(*inputs))
            trainer.run()
            weights = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])
            changes.append((weights - start).double())
    assert set(replays) == {0.0, 2.0}
    assert all(replay is not None and replay.function is None for replay in replays.values())  # graphs indeed
    assert relative(*changes) < 1e-3


def test_pixels_of_more_than_8_bits_are_drawn_as_bytes_are():
    plain = image_set(64)
    deep = replace(plain, pixels=plain.pixels.half())
    one, other = (images.draw(8, torch.Generator("cuda").manual_seed(0)) for images in (plain, deep))
    assert torch.equal(one, other)


def test_fine_tuning_is_measured(tmp_path):
    """From pictures of 16 bits in files to weights and rows, all on the GPU."""
    benchmark(["finetune", "--quick", "--device", "cuda", "--sigmas", "25", "--out", str(tmp_path)])
    results = Results.load(tmp_path / "finetune.json")
    methods = {method: [row.values for row in results.rows if row.method == method] for method in ("before", "after")}
    for before, after in zip(methods["before"], methods["after"], strict=True):
        assert (before["status"], after["status"]) == ("CONVERGED", "CONVERGED")
        assert abs(before["psnr"] - after["psnr"]) < 0.5  # after two steps


def test_choice_of_the_engine():
    weights, x, _ = problem()
    assert isinstance(choose_engine(weights, x), PackedEngine)
    assert isinstance(choose_engine(weights, x[..., :47]), DirectEngine)
    assert isinstance(choose_engine(replace(weights, boundary=Boundary.ZERO), x), DirectEngine)


def test_mri_along_a_trajectory_agrees_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    trajectory = (torch.rand(2000, 2, generator=generator) - 0.5) * 48
    maps = torch.randn(3, 48, 48, dtype=torch.complex64, generator=generator)
    H = NonCartesianFourier(trajectory, (48, 48), maps, real=False)
    y = H.forward(picture(size=48).to(torch.complex64))
    x = torch.randn(1, 1, 48, 48, dtype=torch.complex64, generator=generator)
    on_gpu = H.to("cuda", torch.float32)
    assert on_gpu.device.type == "cuda"
    for apply in ("forward", "normal"):
        result = getattr(on_gpu, apply)(x.cuda())
        assert result.is_cuda
        assert relative(result.cpu(), getattr(H, apply)(x)) < 1e-5
    assert relative(on_gpu.adjoint(y.cuda()).cpu(), H.adjoint(y)) < 1e-5
    assert adjoint_gap(on_gpu, x.cuda()) < 1e-5
    first, second = (td.reconstruct(y.cuda(), H, model="gray", noise=0.01).x for _ in range(2))
    assert torch.equal(first, second)
    assert relative(first.cpu(), td.reconstruct(y, H, model="gray", noise=0.01).x) < 3e-3
