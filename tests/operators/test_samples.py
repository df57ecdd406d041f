"""Operators for some samples of a batch alone."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from conftest import random
from scipy.sparse.linalg import aslinearoperator

import torchdeal as td
from torchdeal.operators import (
    Blur,
    Fourier,
    Mask,
    MultiCoilFourier,
    NonCartesianFourier,
    Operator,
    Radon,
    Scaled,
    Stack,
    Weighted,
)
from torchdeal.operators.checked import checked, refuse_nonfinite

BATCH, SIZE = 4, (12, 10)
SAMPLES = torch.tensor([1, 3])
MASKS = random(BATCH, 1, *SIZE) > 0.4
MAPS = torch.randn(BATCH, 3, *SIZE, dtype=torch.complex128, generator=torch.Generator().manual_seed(3))
TRAJECTORY = (random(30, 2, seed=4) - 0.5) * torch.tensor(SIZE)

OF_EACH = {
    "mask": Mask(MASKS),
    "fourier": Fourier(MASKS),
    "coils": MultiCoilFourier(MAPS, MASKS),
    "coils, one mask": MultiCoilFourier(MAPS, MASKS[0, 0]),
    "masks, one set of coils": MultiCoilFourier(MAPS[0], MASKS, real=False),
    "trajectory and coils": NonCartesianFourier(TRAJECTORY, SIZE, MAPS),
    "weighted": Weighted(random(BATCH, 1, *SIZE), Blur(random(3, 3))),
    "weight for all of a mask for each": Weighted(random(1, *SIZE), Mask(MASKS)),
    "weight for each of a mask for each": Weighted(random(BATCH, 1, *SIZE), Mask(MASKS)),
    "scaled": 2.5 * Mask(MASKS),
    "composed": Mask(MASKS) @ Blur(random(3, 3)),
    "stack": Stack([Mask(MASKS), Blur(random(3, 3))], (1, *SIZE)),
}
FOR_ALL = {
    "blur": Blur(random(3, 3)),
    "radon": Radon(np.linspace(0, 180, 7), SIZE),
    "mask": Mask(MASKS[0, 0]),
    "coils": MultiCoilFourier(MAPS[0]),
    "composed": Mask(MASKS[0, 0]) @ Blur(random(3, 3)),
}


def image(seed=0):
    return torch.randn(BATCH, 1, *SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_restricted(operator):
    operator = operator.to(dtype=torch.float64)
    x, some = image(), operator.of_samples(SAMPLES)
    assert some is not None
    y = operator.forward(x)
    torch.testing.assert_close(some.forward(x[SAMPLES]), y[SAMPLES], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(some.adjoint(y[SAMPLES]), operator.adjoint(y)[SAMPLES], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(some.normal(x[SAMPLES]), operator.normal(x)[SAMPLES], rtol=1e-12, atol=1e-12)
    one = some.of_samples(torch.tensor([1]))  # again, to a single one
    torch.testing.assert_close(one.forward(x[3:]), y[3:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OF_EACH)
def test_what_each_sample_has_of_its_own(name):
    operator = OF_EACH[name]
    before = operator.forward(image())
    assert operator.batch == BATCH
    assert operator.of_samples(SAMPLES).batch == 2
    assert_restricted(operator)
    assert torch.equal(operator.forward(image()), before)  # itself it stays as it was


@pytest.mark.parametrize("name", FOR_ALL)
def test_what_is_the_same_for_all(name):
    assert FOR_ALL[name].of_samples(SAMPLES).batch is None
    assert_restricted(FOR_ALL[name])


class Gains(Operator):
    """Of a user, who has not said that there is one for each sample."""

    def __init__(self):
        self.gains = torch.linspace(1, 2, BATCH, dtype=torch.float64).view(-1, 1, 1, 1)

    def _forward(self, x):
        return self.gains * x

    _adjoint = _forward


class PartialGains(Gains):
    def of_samples(self, samples):
        some = PartialGains()
        some.gains = self.gains[samples]
        return some


class OwnMask(Mask):
    """A subclass may do anything."""


@pytest.mark.parametrize(
    "operator",
    [Gains(), Scaled(2.0, Gains()), Blur(random(3, 3)) @ Gains(), OwnMask(MASKS[0]), td.as_operator((abs, abs))],
)
def test_what_nobody_said_is_not_assumed(operator):
    assert operator.of_samples(SAMPLES) is None
    assert checked(operator, image()).of_samples(SAMPLES) is None


def test_a_user_can_say_it():
    assert_restricted(checked(PartialGains(), image()))
    assert_restricted(Scaled(2.0, PartialGains()))


def test_arrays_are_taken_one_by_one():
    assert_restricted(td.as_operator(aslinearoperator(random(50, 120).numpy()), image_shape=(1, *SIZE)))


def test_what_a_part_returns_is_checked_with_the_whole():
    operator = checked(PartialGains(), image())
    some = operator.of_samples(SAMPLES)
    some.operator.gains[:] = torch.inf
    some.forward(image()[SAMPLES])
    with pytest.raises(ValueError, match="NaN or infinite"):
        refuse_nonfinite(operator)


@dataclass
class Unhashable(Operator):
    """Equal to others of equal gain, so it has no hash."""

    gain: float = 2.0

    def _forward(self, x):
        return self.gain * x

    _adjoint = _forward

    def of_samples(self, samples):
        return self


def test_parts_need_no_hash():
    assert_restricted(Scaled(2.0, Unhashable()))
    assert_restricted(Stack([Unhashable(1.0), Unhashable(1.0)], (1, *SIZE)))


class StillForAll(PartialGains):
    """Forgets to say that its copy is for fewer."""

    def __init__(self):
        super().__init__()
        self.batch = BATCH

    def of_samples(self, samples):
        some = StillForAll()
        some.gains = self.gains[samples]
        return some


def test_a_copy_that_is_still_for_the_whole_batch_is_refused():
    for operator in (checked(StillForAll(), image()), Scaled(2.0, StillForAll())):
        with pytest.raises(ValueError, match=f"asked for 2 samples, returned .* a batch of {BATCH}: set `batch`"):
            operator.of_samples(SAMPLES)


class AllTheSame(Gains):
    """Says that it is the same for all, and is not."""

    def of_samples(self, samples):
        return self


def test_an_operator_that_is_not_the_same_for_all_is_told_so():
    some = checked(AllTheSame(), image()).of_samples(torch.tensor([1]))
    with pytest.raises(ValueError, match=f"a batch of {BATCH} for one of 1: .* of_samples must return a copy"):
        some.forward(image()[1:2])


class Flat(Operator):
    """Measurements that are no images, of a shape that it does not say."""

    measures_images = False

    def _forward(self, x):
        return x.flatten(1)

    def _adjoint(self, y):
        return y.view(len(y), 1, *SIZE)

    def of_samples(self, samples):
        return self


def test_weights_that_may_be_those_of_samples_keep_the_batch():
    assert Weighted(random(BATCH, SIZE[0] * SIZE[1]).abs(), Flat()).of_samples(SAMPLES) is None
    assert_restricted(Weighted(random(1, SIZE[0] * SIZE[1]).abs(), Flat()))
