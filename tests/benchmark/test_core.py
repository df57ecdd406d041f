"""Problems, batches and scores: nothing is mixed, and a batch gives what its problems give alone."""

import gc
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from conftest import noisy, picture, random, relative, small_model

from torchdeal.benchmark import core
from torchdeal.benchmark.core import Cell, PosedProblem, answers, batches, joined, middle
from torchdeal.benchmark.methods import OurSolver
from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.operators import Blur, Fourier, Identity, MultiCoilFourier


def cell(kind="deblur", **how):
    return Cell("cell", "table", "column", kind, 1, list, **how)


def problem(operator, name="a", size=(8, 8), noise=0.1, seed=0):
    clean = random(1, 1, *size, seed=seed).float()
    return PosedProblem(name, clean, operator.forward(clean), operator, noise)


def mask(seed, size=(8, 8)):
    return random(*size, seed=seed) > 0


def maps(seed, coils=3, size=(8, 8)):
    return torch.complex(random(coils, *size, seed=seed), random(coils, *size, seed=seed + 1)).to(torch.complex64)


def names(groups):
    return ["".join(problem.image for problem in group) for group in groups]


@pytest.fixture
def three_at_once(monkeypatch):
    monkeypatch.setitem(core.PIXELS_AT_ONCE, "cpu", 3 * 64 + 1)


@pytest.mark.usefixtures("three_at_once")
def test_batches_do_not_mix():
    blur, other = Blur(np.ones((3, 3)) / 9), Blur(np.ones((3, 3)) / 9)
    problems = [
        problem(blur, "a"),
        problem(other, "b"),
        problem(blur, "c", size=(8, 9)),
        problem(blur, "d", noise=0.2),
        problem(blur, "e"),
        problem(Fourier(mask(1)), "f"),
        problem(Fourier(mask(2)), "g"),
        problem(Fourier(mask(1), centered=True), "h"),
        problem(Fourier(mask(1), real=False), "i"),
        problem(Fourier(), "j"),
        problem(Fourier(), "k"),
        problem(MultiCoilFourier(maps(0), mask(1)), "l"),
        problem(MultiCoilFourier(maps(2), mask(2)), "m"),
        problem(MultiCoilFourier(maps(2), mask(2), real=False), "n"),
        problem(MultiCoilFourier(maps(4, coils=2), mask(2)), "o"),
    ]
    assert names(batches(problems, "cpu")) == ["ae", "b", "c", "d", "fg", "h", "i", "j", "k", "lm", "n", "o"]


@pytest.mark.usefixtures("three_at_once")
def test_batches_fill_the_device():
    operator = Identity()
    assert names(batches([problem(operator, name) for name in "abcdefgh"], "cpu")) == ["abc", "def", "gh"]
    assert names(batches([problem(operator, name, (40, 40)) for name in "ab"], "cpu")) == ["a", "b"]


def test_a_cpu_takes_one_at_a_time():
    operator = Identity()
    assert names(batches([problem(operator, name) for name in "abc"], "cpu")) == ["a", "b", "c"]


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("coils", [0, 3])
def test_operators_are_joined(coils, centered):
    operators = [
        MultiCoilFourier(maps(seed), mask(seed), centered=centered) if coils else Fourier(mask(seed), centered=centered)
        for seed in (1, 3, 5)
    ]
    problems = [problem(operator, seed=seed) for seed, operator in enumerate(operators)]
    y, together = joined(problems)
    x = torch.cat([problem.clean for problem in problems])
    assert torch.equal(y, torch.cat([problem.y for problem in problems]))
    alone = torch.cat([one.forward(image) for one, image in zip(operators, x.split(1), strict=True)])
    assert relative(together.forward(x), alone) < 1e-6
    alone = torch.cat([one.adjoint(image) for one, image in zip(operators, y.split(1), strict=True)])
    assert relative(together.adjoint(y), alone) < 1e-6
    assert together.adjoint(y).is_complex() == operators[0].adjoint(y[:1]).is_complex()


def test_the_same_operator_is_not_joined():
    operator = Fourier(mask(1))
    assert joined([problem(operator), problem(operator, seed=1)])[1] is operator


def test_answers_of_a_batch_are_those_of_its_problems():
    model = small_model(features=4, dtype=torch.float32).requires_grad_(False)
    method = OurSolver(model, {}, tolerance=1e-4, max_iterations=200)
    problems = []
    for seed in (1, 3):
        operator, clean = Fourier(mask(seed, (16, 16)), centered=True), picture(size=16, row=96 + 9 * seed)
        y = operator.forward(noisy(clean, 5, seed))
        problems.append(PosedProblem(f"{seed}", clean, y, operator, 0.02))
    together = answers(method, problems, cell("mri"), "cpu")
    for one, (x, values) in zip(problems, together, strict=True):
        ((alone, run),) = answers(method, [one], cell("mri"), "cpu")
        assert x.shape == (1, 1, 16, 16)
        assert relative(x, alone) < 3e-4
        assert (values["status"], values["batch"], run["batch"]) == ("CONVERGED", 2, 1)
        assert values.keys() == {"seconds", "batch", "status", "iterations", "cg_iterations", "distance"}
        assert values["distance"] < 1e-4


@dataclass(frozen=True, eq=False)
class Hungry:
    """A solver whose memory holds one image."""

    error: type[Exception]
    words: str = "CUDA out of memory"
    most: int = 1
    batches: list = field(default_factory=list)
    held: list = field(default_factory=list)

    def __call__(self, y, H, noise):
        gc.collect()
        assert all(reference() is None for reference in self.held)  # what filled the memory is gone
        self.batches.append(len(y))
        work = y + 1
        self.held.append(weakref.ref(work))
        if len(y) > self.most:
            raise self.error(self.words)
        return y * 2


@pytest.mark.parametrize(
    "error", [(torch.OutOfMemoryError,), (RuntimeError, "DefaultCPUAllocator: can't allocate memory"), (MemoryError,)]
)
def test_too_large_a_batch_is_halved(error):
    operator, method = Identity(), Hungry(*error)
    problems = [problem(operator, name, seed=seed) for seed, name in enumerate("abc")]
    found = answers(method, problems, cell(), "cpu")
    assert method.batches == [3, 1, 2, 1, 1]
    assert [values["batch"] for _, values in found] == [1, 1, 1]
    for one, (x, _) in zip(problems, found, strict=True):
        assert torch.equal(x, 2 * one.y)


def test_too_large_an_image_is_a_reason_and_other_errors_are_errors():
    with pytest.raises(Unavailable, match="not enough memory on cpu for this image"):
        answers(Hungry(torch.OutOfMemoryError, most=0), [problem(Identity())], cell(), "cpu")
    with pytest.raises(RuntimeError, match="shapes"):
        answers(Hungry(RuntimeError, "shapes", most=0), [problem(Identity())], cell(), "cpu")


def test_a_denoiser_is_told_sigma():
    told = []

    def denoiser(y, *how):
        told.append(how)
        return y

    answers(denoiser, [problem(Identity(), noise=0.1)], cell("denoising"), "cpu")
    answers(denoiser, [problem(Fourier(mask(1)), noise=0.1)], cell("mri"), "cpu")
    (sigma,), (operator, noise) = told
    assert (sigma, noise) == (pytest.approx(25.5), 0.1)
    assert torch.equal(operator.mask, mask(1))


def test_scores():
    rng = np.random.default_rng(0)
    x, clean = rng.normal(0.5, 0.4, (1, 1, 13, 10)), (rng.random((1, 1, 13, 10)) * 255).round() / 255
    given = torch.from_numpy(x), torch.from_numpy(clean)
    clipped = x.clip(0, 1)
    assert cell().score(*given) == pytest.approx(-10 * np.log10(np.mean((clipped - clean) ** 2)))
    pixels, right = np.round(clipped * 255), np.round(clean * 255)
    expected = 20 * np.log10(255) - 10 * np.log10(np.mean((pixels - right) ** 2))
    assert cell(eight_bit=True).score(*given) == pytest.approx(expected)
    part = np.s_[..., 3:9, 2:8]  # 6 of 13 from 3, of 10 from 2
    assert cell(centre=6).score(*given) == pytest.approx(-10 * np.log10(np.mean((clipped - clean)[part] ** 2)))
    assert cell(centre=320).score(*given) == cell().score(*given)


def test_the_middle_of_images():
    image = torch.arange(5 * 8).view(1, 1, 5, 8)
    assert torch.equal(middle(image, 4), image[..., 0:4, 2:6])
    assert torch.equal(middle(image, 6), image[..., :, 1:7])
    assert torch.equal(middle(image, 9), image)
