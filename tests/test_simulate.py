import numpy as np
import pytest
import torch
from conftest import picture
from skimage.transform import iradon

from torchdeal.mri import calibration_width
from torchdeal.operators import Radon
from torchdeal.simulate import bicubic, filtered_back_projection, random_columns


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


def test_bicubic_keeps_the_samples_and_straight_lines():
    y = picture(size=12)
    large = bicubic(y, 3)
    assert large.shape == (1, 1, 36, 36)
    assert torch.allclose(large[..., ::3, ::3], y, atol=1e-5)
    ramp = torch.arange(12.0).expand(1, 1, 12, 12)
    assert torch.allclose(bicubic(ramp, 3)[0, 0, 7, 6:27], torch.arange(6, 27) / 3, atol=1e-4)


def test_a_fourth_of_the_columns_in_the_mean_with_the_centre():
    columns = np.stack([random_columns((1, 320), 4, 0.08, seed, exact=False)[0] for seed in range(200)])
    assert columns.mean() == pytest.approx(1 / 4, abs=0.005)
    always = np.flatnonzero(columns.all(0))
    assert always.tolist() == list(range(147, 173))  # 26 of 320, about the zero frequency at 160


def test_columns_are_those_of_fastmri():
    for width, seed in ((320, 0), (95, 3)):
        draws = np.random.RandomState(seed).uniform(size=width)
        centre = round(0.08 * width)
        expected = draws < (width / 4 - centre) / (width - centre)
        first = (width - centre + 1) // 2
        expected[first : first + centre] = True
        assert np.array_equal(random_columns((2, width), 4, 0.08, seed, exact=False)[1], expected)


@pytest.mark.parametrize("size", [(24, 24), (18, 24)])
def test_filtered_back_projection(size):
    angles = np.arange(30) * 6.0
    clean = picture(size=24)[..., : size[0], : size[1]]
    H = Radon(angles, size)
    found = filtered_back_projection(H.forward(clean), H)
    square = iradon(H.forward(clean)[0, 0].numpy().T, angles, output_size=24, filter_name="ramp", circle=False)
    top = 12 - size[0] // 2
    assert found.shape == clean.shape
    assert np.allclose(found[0, 0], square[top : top + size[0]], atol=1e-4)
    assert float((found - clean).square().mean()) < 0.02
