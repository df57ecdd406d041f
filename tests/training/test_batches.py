"""Which batch each step sees, and what is in it."""

import math
from collections import Counter

import pytest
import torch

from torchdeal.operators import Blur, Identity, Mask
from torchdeal.training import read_images
from torchdeal.training.batches import draw, make_operator, seed_of, visit
from torchdeal.training.config import IterationConfig, TaskConfig

POOLS = [(16, 4), (3, 2), (5, 3), (1, 1), (2, 5), (7, 1)]


@pytest.fixture
def images(pictures):
    return read_images([pictures / "train"], channels=1, patch=16)


@pytest.mark.parametrize(("pool", "visits"), POOLS)
def test_every_batch_is_visited_as_often_as_asked(pool, visits):
    rounds = 5 * visits
    seen = [visit(step, IterationConfig(pool=pool, visits=visits)) for step in range(pool * rounds)]
    times, current = Counter(), {}
    for step, this in enumerate(seen):
        assert this.slot == step % pool  # the slots take turns
        assert this.first == (times[this.number] == 0)  # first visits come first
        if not this.first:
            assert current[this.slot] == this.number  # the point that is kept is that of this batch
        current[this.slot] = this.number
        times[this.number] += 1
    begun, unfinished = set(range(pool)), set(current.values())
    assert all(times[number] <= visits for number in begun)  # those of the first round, some of which end early
    assert {times[number] for number in times.keys() - begun - unfinished} == {visits}
    slots = {}
    for this in seen:
        assert slots.setdefault(this.number, this.slot) == this.slot  # no two slots share a number


@pytest.mark.parametrize(("pool", "visits"), POOLS)
def test_first_visits_are_spread_over_the_rounds(pool, visits):
    iterations = IterationConfig(pool=pool, visits=visits)
    firsts = [
        sum(visit(round_number * pool + slot, iterations).first for slot in range(pool))
        for round_number in range(3 * visits + 1)
    ]
    assert firsts[0] == pool
    assert max(firsts[1:]) - min(firsts[1:]) <= 1
    assert sum(firsts[1 : 1 + visits]) == pool  # every slot once in so many rounds


def tensors(batch):
    return batch.clean, batch.measured, batch.sigma


def test_a_seed_is_a_batch(images):
    one, again, other = (draw(images, TaskConfig(), 3, seed) for seed in (7, 7, 8))
    for first, second, third in zip(*map(tensors, (one, again, other)), strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)


def test_a_draw_leaves_the_generator_of_torch_alone(images):
    before = torch.get_rng_state()
    draw(images, TaskConfig(operator="inpainting"), 3, 7)
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_is_of_the_level_that_is_drawn(images):
    batch = draw(images, TaskConfig(sigma=(10.0, 40.0)), 500, 0)
    assert 10 <= float(batch.sigma.min()) < 11
    assert 39 < float(batch.sigma.max()) <= 40
    assert float(batch.sigma.mean()) == pytest.approx(25, abs=1.2)  # uniform: its mean has a deviation of 0.4
    noise = (batch.measured - batch.clean) * 255 / batch.sigma.view(-1, 1, 1, 1)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)  # 128000 numbers
    spread = noise.flatten(1).std(1)
    assert float((spread - 1).abs().max()) < 0.25  # of each sample, of 256 numbers: 5.6 deviations
    assert float(spread.mean()) == pytest.approx(1, abs=0.01)


def test_one_noise_level(images):
    assert torch.equal(draw(images, TaskConfig(sigma=(25.0, 25.0)), 4, 0).sigma, torch.full((4,), 25.0))


def test_denoising_has_no_operator(images):
    batch = draw(images, TaskConfig(sigma=(0.0, 0.0)), 2, 0)
    assert isinstance(batch.operator, Identity)
    assert torch.equal(batch.measured, batch.clean)


def test_a_blur_with_a_kernel(images):
    batch = draw(images, TaskConfig(operator="blur", kernel=((0.25, 0.75),), sigma=(0.0, 0.0)), 2, 0)
    assert isinstance(batch.operator, Blur)
    # The centre of a kernel of two numbers is the second one; a true convolution, circular
    expected = 0.75 * batch.clean + 0.25 * batch.clean.roll(-1, -1)
    torch.testing.assert_close(batch.measured, expected, rtol=0, atol=1e-6)


def test_a_gaussian_blur(images):
    batch = draw(images, TaskConfig(operator="blur", blur_sigma=1.5, sigma=(0.0, 0.0)), 2, 0)
    kernel = batch.operator.kernel
    assert kernel.shape == (11, 11)
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-6)
    for row, column in ((5, 5), (5, 7), (2, 8)):
        ratio = float(kernel[row, column] / kernel[5, 5])
        assert ratio == pytest.approx(math.exp(-((row - 5) ** 2 + (column - 5) ** 2) / (2 * 1.5**2)), rel=1e-5)
    assert float(batch.measured.var()) < float(batch.clean.var())


def test_inpainting_knows_its_share_of_the_pixels(images):
    batch = draw(images, TaskConfig(operator="inpainting", known=0.3, sigma=(0.0, 0.0)), 50, 0)
    assert isinstance(batch.operator, Mask)
    mask = batch.operator.mask
    assert mask.shape == (50, 1, 16, 16)
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    assert float(mask.mean()) == pytest.approx(0.3, abs=0.02)  # 12800 pixels: 5 deviations
    assert not torch.equal(mask[0], mask[1])
    assert torch.equal(batch.measured, mask * batch.clean)


def test_all_channels_of_a_pixel_are_known_or_none():
    image = torch.rand(2, 3, 16, 16)
    operator = make_operator(TaskConfig(operator="inpainting"), image, torch.Generator().manual_seed(0))
    known = operator.forward(torch.ones_like(image))
    assert torch.equal(known[:, 0], known[:, 1])
    assert torch.equal(known[:, 0], known[:, 2])


def test_seeds():
    seeds = {seed_of(a, b, c) for a in range(5) for b in range(5) for c in range(200)}
    assert len(seeds) == 5000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(1, 2, 3) == seed_of(1, 2, 3)
    assert seed_of(1, 2) != seed_of(2, 1)
    assert max(seeds) > 2**60
