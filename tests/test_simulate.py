import pytest
import torch

from torchdeal.mri import calibration_width
from torchdeal.simulate import random_columns


@pytest.mark.parametrize(("width", "acceleration", "centre"), [(96, 4, 0.08), (320, 8, 0.04), (45, 3, 0.1), (30, 1, 0)])
def test_as_many_columns_as_asked_for(width, acceleration, centre):
    mask = random_columns((20, width), acceleration, centre)
    assert mask.shape == (20, width)
    assert (mask == mask[0]).all()
    assert int(mask[0].sum()) == round(width / acceleration)
    assert calibration_width(mask.T.repeat(1, 20), centered=True) >= round(width * centre) - 1  # in the middle


def test_the_seed_decides():
    assert torch.equal(random_columns((8, 64), 4, 0.08, 1), random_columns((8, 64), 4, 0.08, 1))
    assert not torch.equal(random_columns((8, 64), 4, 0.08, 1), random_columns((8, 64), 4, 0.08, 2))


@pytest.mark.parametrize(("acceleration", "centre"), [(0.5, 0.1), (100, 0.0), (4, 0.3), (4, -0.1), (float("nan"), 0.1)])
def test_impossible(acceleration, centre):
    with pytest.raises(ValueError, match="must be from"):
        random_columns((8, 64), acceleration, centre)
