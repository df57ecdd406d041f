"""Batches whose samples end at very different times, beside the same samples alone."""

import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.backends.cpu.fft import FFTBackend
from torchdeal.operators import Blur, Downsample, Fourier, Mask
from torchdeal.system import AttentiveSystem

SIZE = 32
TOLERANCE = 1e-3
LEVELS = (5.0, 50.0, 25.0)


@pytest.fixture(scope="module")
def light():
    return td.load("gray-light")


@pytest.fixture
def masks(monkeypatch):
    """How many images each mask is computed for."""
    counts, compute = [], FFTBackend.squared_mask

    def counted(self, x, alpha, **options):
        counts.append(len(x))
        return compute(self, x, alpha, **options)

    monkeypatch.setattr(FFTBackend, "squared_mask", counted)
    return counts


def pictures(name="camera"):
    return torch.cat([picture(name, SIZE, row=row) for row in (0, 96, 200)])


def batch(name="camera"):
    pairs = zip(pictures(name), LEVELS, strict=True)
    return torch.cat([noisy(one[None], sigma, i) for i, (one, sigma) in enumerate(pairs)])


def sampled(seed):
    columns = torch.rand(SIZE, generator=torch.Generator().manual_seed(seed)) < 0.5
    columns[:4] = columns[-4:] = True
    return columns.expand(SIZE, SIZE)


def levels_map():
    ramp = torch.linspace(0.5, 1.0, SIZE).expand(SIZE, SIZE)
    return torch.stack([sigma / 255 * ramp for sigma in LEVELS])[:, None]


def holes(seed):
    return torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) < 0.6


def problems():
    """Measurements, the operator of a sample or of all, and the options of a sample or of all."""
    each = {"sigma": [sigma / 255 for sigma in LEVELS]}
    phase = torch.polar(torch.ones(SIZE), torch.linspace(0, 1, SIZE))
    inverse = {"sigma": [0.02, 0.18, 0.08], "lam": [0.01, 2.0, 0.3]}
    yield "denoising", batch(), None, None, each
    yield "zeros among them", torch.cat([batch()[:1], torch.zeros(1, 1, SIZE, SIZE), batch()[1:2]]), None, None, each
    yield "noise maps", batch(), None, None, {"sigma": levels_map()}
    yield "channelwise", batch("astronaut"), None, None, {**each, "channelwise": True}
    yield "packed", batch(), None, None, {**each, "backend": "packed"}
    blur = Blur(torch.ones(3, 3) / 9)
    yield "blur", blur.forward(batch()), blur, None, inverse
    half = Downsample(2, torch.ones(3, 3) / 9)
    yield "super-resolution", half.forward(batch()), half, None, inverse
    inpaint = [Mask(holes(seed)) for seed in range(3)]
    together = Mask(torch.stack([H.mask for H in inpaint]))
    yield "masks of each", together.forward(batch()), together, inpaint, inverse
    scans = [Fourier(sampled(seed), real=False) for seed in range(3)]
    together = Fourier(torch.stack([H.mask for H in scans])[:, None], real=False)
    yield "complex", together.forward(phase * batch()), together, scans, inverse


# Preconditioners transform all samples at once, and matrix products take them together: these round differently.
SAME_BITS = ("denoising", "zeros among them", "channelwise")
PROBLEMS = {name: given for name, *given in problems()}


def of_sample(value, i):
    """What a sample has of its own: lists and maps have an entry for each."""
    return value[i] if isinstance(value, (list, torch.Tensor)) else value


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_sample_is_what_it_is_alone(name, light, monkeypatch):
    y, H, alone, options = PROBLEMS[name]
    how = {"model": light, "tolerance": TOLERANCE, "data_range": 1.0}
    parts, part = [], AttentiveSystem.part
    monkeypatch.setattr(AttentiveSystem, "part", lambda self, samples: parts.append(part(self, samples)) or parts[-1])
    found = td.reconstruct(y, H, **options, **how)
    assert parts, "it has not shrunk"
    assert None not in parts, "it could not"
    monkeypatch.setattr(AttentiveSystem, "part", lambda self, samples: None)
    whole = td.reconstruct(y, H, **options, **how)
    if name in SAME_BITS:
        assert torch.equal(found.x, whole.x)
    assert relative(found.x, whole.x) < 0.1 * TOLERANCE
    assert int((found.iterations - whole.iterations).abs().max()) <= (0 if name in SAME_BITS else 1)
    for i in range(len(y)):
        own = {key: of_sample(value, i) for key, value in options.items()}
        single = td.reconstruct(y[i : i + 1], alone[i] if alone else H, **own, **how)
        assert single.statuses[0] is found.statuses[i]
        assert float((single.x - found.x[i : i + 1]).norm()) <= 2 * TOLERANCE * float(single.x.norm())


def test_masks_are_computed_for_fewer_images(light, masks):
    found = td.reconstruct(batch(), model=light, sigma=[sigma / 255 for sigma in LEVELS])
    assert max(masks) == 3
    assert masks[-1] == 1
    assert sum(masks) == int(found.iterations.sum())  # as few as there could be


def test_operators_that_cannot_be_restricted_keep_the_batch(light, masks):
    own = (lambda x: x.flip(-1), lambda y: y.flip(-1))
    found = td.reconstruct(batch().flip(-1), own, model=light, sigma=[0.02, 0.18, 0.08], lam=[0.01, 2.0, 0.3])
    assert set(masks) == {3}
    assert sum(masks) == 3 * int(found.iterations.max())


def test_an_answer_can_be_asked_about_as_before(light):
    """Its problem is that of the whole batch."""
    found = td.reconstruct(batch(), model=light, sigma=[sigma / 255 for sigma in LEVELS])
    equation, x = found.posed()
    residual = equation.system().precise(x).residual_of(equation.b, x)
    assert residual.shape == x.shape
    assert relative(found.image, x) == 0
