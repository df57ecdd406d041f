"""In tiles or as a whole: the same result, within what is stated."""

import numpy as np
import pytest
import torch
from scale.helpers import LIGHT, as_image, differences, light, noisy

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Mask
from torchdeal.operators.blur_kernels import gaussian_kernel
from torchdeal.scale.local import local
from torchdeal.scale.reach import LEAST_TOLERANCE, overlap_for, reach
from torchdeal.scale.tiled import reconstruct_tiled

# Both runs are within the default tolerance of 1e-3 of their fixed points, and halos let through 1e-3 at most.
BOUND = 3e-3
PIXEL = 4.0  # of 255


def test_denoising_equals_that_of_the_whole():
    image = noisy(96, 96, 8).astype(np.float32)
    whole = td.denoise(image, sigma=8, model=LIGHT, data_range=255)
    found = reconstruct_tiled(image, sigma=8, model=LIGHT, tile=48, data_range=255)
    relative, largest = differences(found.x, whole)
    assert found.converged
    assert found.tiles == 4
    assert relative < BOUND
    assert largest < PIXEL


def test_without_a_halo_it_does_not():
    """The test above can fail."""
    image = noisy(64, 64, 15)
    whole = td.denoise(image, sigma=15, model=LIGHT)
    found = reconstruct_tiled(image, sigma=15, model=LIGHT, tile=32, overlap=0)
    assert differences(found.x, whole)[0] > 2 * BOUND


OPERATORS = {
    "valid blur": Blur(gaussian_kernel(1.0), "valid"),
    "mask": Mask(torch.rand(40, 48, generator=torch.Generator().manual_seed(0)) < 0.6),
    "downsampling": Downsample(2, gaussian_kernel(0.6, -0.5), "reflect"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_local_operators_equal_those_of_the_whole(name):
    H, model = OPERATORS[name], light()
    y = H.forward(as_image(noisy(40, 48, 0)))
    y = y + 8 / 255 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    y = H.forward(y) if isinstance(H, Mask) else y
    known = {"sigma": 12 / 255, "lam": 4.0, "tolerance": 3e-3}  # thrice the default, to be quick: so is the bound
    whole = td.reconstruct(y, H, model=model, data_range=1.0, **known)
    tile, overlap = (10, 6) if isinstance(H, Downsample) else (20, 12)  # little: parts must not be the whole
    cut = {"tile": tile, "overlap": overlap}
    found = reconstruct_tiled(y[0, 0].numpy(), None, H, model=model, data_range=1.0, **cut, **known)
    relative, largest = differences(found.x, local(H).measured(whole.x)[0, 0])
    assert relative < 3 * BOUND
    assert 255 * largest < PIXEL


def test_noise_and_parameters_are_found_once():
    """The same sigma everywhere, though one half of the picture looks quieter than the other."""
    image = noisy(96, 128, 10)
    image[:, :64] = noisy(96, 64, 4)
    seen = []
    import torchdeal.scale.tiles as tiles

    before = tiles.reconstruct
    try:
        tiles.reconstruct = lambda *a, **k: seen.append(k["sigma"]) or before(*a, **k)
        reconstruct_tiled(image, model=LIGHT, tile=64, overlap=4, max_iterations=1)
    finally:
        tiles.reconstruct = before
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert seen[0] > 0


def test_colours_and_stacks_are_looped_over():
    image = noisy(64, 80)
    stack = np.stack([image, image[::-1]])
    quick = {"model": LIGHT, "sigma": 15, "tile": 48, "overlap": 8, "max_iterations": 1}
    one = reconstruct_tiled(image, **quick).x
    target = np.zeros_like(stack)
    assert reconstruct_tiled(stack, target, **quick).x is target
    assert (target[0] == one).all()
    three = np.stack([image] * 3, -1)
    # The channels are one sample, whose sums are rounded in another way.
    middle = reconstruct_tiled(three, channelwise=True, **quick).x[..., 1]
    assert np.abs(middle.astype(int) - one).max() <= 1
    assert (middle != one).mean() < 1e-3


class TestReach:
    def test_more_noise_and_less_tolerance_look_further(self):
        assert reach(5) < reach(25) < reach(50)
        assert reach(25, 1e-2) < reach(25, 1e-3) < reach(25, LEAST_TOLERANCE)

    def test_the_operator_looks_on_its_own(self):
        blur = local(Blur(torch.ones(9, 9) / 81, "valid"))
        assert overlap_for(15, blur) == reach(15) + 4

    def test_what_was_not_measured_is_refused(self):
        with pytest.raises(ValueError, match="give the overlap itself"):
            reach(25, 1e-5)


@pytest.mark.parametrize(
    ("mask", "message"),
    [(torch.ones(16, 32), "the mask is 16 x 32, the picture 32 x 32: make them equal"), (torch.zeros(32, 32), "black")],
)
def test_masks_that_are_none(mask, message):
    with pytest.raises(ValueError, match=message):
        reconstruct_tiled(noisy(32, 32), None, Mask(mask), model=LIGHT, sigma=15, lam=1.0)
