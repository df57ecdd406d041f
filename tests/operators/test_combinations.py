"""Combinations of operators: what is known about them, and whose adjoints are taken on trust."""

from typing import NamedTuple

import pytest
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Blur, Compose, Identity, Mask, Operator, Scaled, Stack, Weighted, is_trusted

SHAPE = (2, 6, 5)


class Known(Operator):
    """The identity, with all that an operator can know about itself."""

    def __init__(self, **known):
        vars(self).update({"image_shape": SHAPE, "measurement_shape": SHAPE} | known)

    def _forward(self, x):
        return x

    def _adjoint(self, y):
        return y


IMAGE = {"image_shape": (2, None, 5), "data_range": 1.0, "complex_channels": True}
MEASUREMENT = {"measurement_shape": (2, 6, None), "measures_images": True, "noise": 0.25}
ALL = IMAGE | MEASUREMENT | {"batch": 3, "replayable": True}


def attributes(operator):
    return {name: getattr(operator, name) for name in (*ALL, "is_identity")}


UNIFORM, UNEVEN = torch.full(SHAPE, 4.0), torch.rand(SHAPE) + 1
STACKED = {"image_shape": SHAPE, "measurement_shape": (2 * 60,), "measures_images": False}
NO_IMAGE = {"image_shape": SHAPE, "data_range": None, "complex_channels": False, "replayable": False}
NO_MEASUREMENT = {"measurement_shape": SHAPE, "measures_images": False, "noise": None, "replayable": False}
CASES = {  # of one operator that knows all, and one that knows only its shapes
    "scaled": (lambda all, few: -3.0 * all, ALL | {"noise": 0.75}),
    "weighted": (lambda all, few: Weighted(UNEVEN, all), ALL | {"noise": None}),
    "weighted by one number": (lambda all, few: Weighted(UNIFORM, all), ALL | {"noise": 1.0}),
    "composed": (lambda all, few: all @ all, ALL),
    "what sees the image": (lambda all, few: few @ all, ALL | NO_MEASUREMENT),
    "what measures": (lambda all, few: all @ few, ALL | NO_IMAGE),
    "stack of likes": (lambda all, few: Stack([all, all], SHAPE), ALL | STACKED),
    "stack": (lambda all, few: Stack([few, all], SHAPE), ALL | STACKED | {"noise": None, "replayable": False}),
}


@pytest.mark.parametrize(("combine", "expected"), CASES.values(), ids=CASES)
def test_what_is_known_follows_from_the_parts(combine, expected):
    assert attributes(combine(Known(**ALL), Known())) == expected | {"is_identity": False}


def test_nothing_is_known_of_parts_that_say_nothing():
    nothing = Known(image_shape=None, measurement_shape=None)
    for combined in (2.0 * nothing, nothing @ nothing, Weighted(UNIFORM, nothing)):
        assert attributes(combined) == attributes(nothing)


def test_a_combination_is_never_the_identity():
    assert Identity().is_identity
    assert not (1.0 * Identity()).is_identity
    assert not (Identity() @ Identity()).is_identity


def test_noise_of_each_sample():
    operator = Known(noise=torch.tensor([0.1, 0.2]))
    torch.testing.assert_close((-2.0 * operator).noise, torch.tensor([0.2, 0.4]))
    assert torch.equal(Stack([operator, operator], SHAPE).noise, operator.noise)
    assert Stack([operator, Known(noise=0.1)], SHAPE).noise is None


def test_a_stack_of_images_of_different_ranges_is_refused():
    with pytest.raises(ValueError, match="white is 1 and 255"):
        Stack([Known(data_range=1.0), Known(data_range=255.0), Known()], SHAPE)


SAME = {
    "scaled": lambda H: 1.0 * H,
    "weighted": lambda H: Weighted(torch.ones(1), H),
    "composed": lambda H: Identity() @ H,
}


@pytest.mark.parametrize("combine", SAME.values(), ids=SAME)
def test_images_of_a_known_range_are_not_rescaled(combine):
    """A picture in 0..0.1: without the range that the operator knows it would be taken for one in other units."""
    blur = Blur(torch.ones(3, 3) / 9)
    H = td.as_operator((blur.forward, blur.adjoint))
    H.data_range = 1.0
    clean = 0.1 * picture(size=20)
    y = noisy(blur.forward(clean), 1)
    options = {"model": small_model(features=4, dtype=torch.float32), "noise": 1 / 255, "max_iterations": 5}
    expected = td.reconstruct(y, H, **options).x
    assert relative(td.reconstruct(y, combine(H), **options).x, expected) < 1e-6
    rescaled = td.reconstruct(y, (blur.forward, blur.adjoint), **options).x
    assert relative(rescaled, expected) > 1e-2


# Trust


class Careless(Blur):
    """A user's: what it inherits is tested, what it changes is not."""

    def _adjoint(self, y):
        return 2 * super()._adjoint(y)


class CarelessScaled(Scaled):
    def _adjoint(self, y):
        return y


BLUR, CARELESS = Blur(torch.ones(3, 3) / 9), Careless(torch.ones(3, 3) / 9)


@pytest.mark.parametrize("operator", [BLUR, Mask(torch.ones(4, 4)), 2.0 * BLUR, BLUR @ BLUR, Weighted(UNIFORM, BLUR)])
def test_our_own_are_trusted(operator):
    assert is_trusted(operator)
    assert is_trusted(Stack([operator, Identity()], (1, 4, 4) if operator.image_shape else SHAPE))


@pytest.mark.parametrize(
    "operator",
    [
        CARELESS,
        2.0 * CARELESS,
        BLUR @ (CARELESS @ BLUR),
        Weighted(UNIFORM, CARELESS),
        Stack([BLUR, CARELESS], SHAPE),
        CarelessScaled(2.0, BLUR),
        Compose(Known(), BLUR),
        td.as_operator((lambda x: x, lambda y: y)),
    ],
)
def test_trust_is_not_inherited(operator):
    assert not is_trusted(operator)


def test_a_wrong_adjoint_of_a_subclass_is_refused():
    with pytest.raises(ValueError, match="adjoint does not belong"):
        td.reconstruct(picture(size=16), CARELESS, model=small_model(dtype=torch.float32), noise=0.01)


def test_named_tuples_of_an_operator_keep_their_names():
    class Geometry(NamedTuple):
        height: int
        width: int

    operator = Known()
    operator.geometry, operator.parts = Geometry(6, 5), (torch.ones(2), "text", Identity())
    moved = operator.to(dtype=torch.float64)
    assert moved.geometry.width == 5
    assert [getattr(moved.parts[0], "dtype", None), moved.parts[1]] == [torch.float64, "text"]
