"""Estimates of noise against noise that was added."""

import io

import numpy as np
import pytest
import torch
from conftest import picture
from PIL import Image
from skimage import data

from torchdeal.noise import (
    ROUNDING,
    NoiseLevel,
    estimate_sigma,
    estimate_sinogram_noise,
    known_noise_level,
    noise_levels,
    pooled_level,
)
from torchdeal.operators import Radon


def noise(sigma, shape=(128, 128), seed=0):
    return sigma * np.random.default_rng(seed).normal(size=shape)


def pixels(name):
    return getattr(data, name)()[:256, :256].astype(float)


def rounded(image):
    return image.round().clip(0, 255).astype(np.uint8)


def level(image):
    (found,) = noise_levels(image, data_range=255.0)
    return found


def holds(found, sigma):
    return found.low <= sigma <= found.high


def test_the_frames_of_a_stack_have_one():
    """Whatever a few of them are: empty, full of detail, or mostly outside of what was scanned."""
    frames = [pixels("camera")[:64, :64] + noise(12, (64, 64), seed) for seed in range(3)]
    frames += [np.zeros((64, 64))] * 4 + [pixels("grass")[:64, :64] * 3 + noise(12, (64, 64))]
    inside = np.hypot(*(np.indices((64, 64)) - 32)) < 22
    frames += [np.where(inside, 100 + noise(12, (64, 64)), 0)]
    found = pooled_level([level(frame) for frame in frames])
    assert found.sigma == pytest.approx(12, rel=0.15)
    assert holds(found, 12)
    assert pooled_level([NoiseLevel(0.0, 0.0, 0.0)]).sigma == 0


@pytest.mark.parametrize("sigma", [0.5, 5, 15, 25, 50])
def test_a_smooth_picture(sigma):
    row, column = np.mgrid[0:128, 0:128] / 128
    found = level(128 + 76 * np.sin(5 * row) * np.cos(4 * column) + noise(sigma))
    assert found.sigma == pytest.approx(sigma, rel=0.03)
    assert holds(found, sigma)
    assert found.high - found.low < 0.3 * sigma


@pytest.mark.parametrize("name", ["camera", "coins", "astronaut", "coffee"])
@pytest.mark.parametrize(("sigma", "error"), [(2, 0.16), (5, 0.06), (15, 0.04), (30, 0.03)])
def test_photographs(name, sigma, error):
    """They bring detail and noise of their own, which shows where little was added."""
    found = level(pixels(name) + noise(sigma, pixels(name).shape))
    assert found.sigma == pytest.approx(sigma, rel=error)
    assert found.high > sigma


@pytest.mark.parametrize(("name", "most"), [("camera", 0.8), ("astronaut", 0.8), ("brick", 0.8), ("grass", 5.0)])
def test_detail_is_not_taken_for_noise(name, most):
    """These pictures are clean, as far as anybody knows."""
    assert estimate_sigma(getattr(data, name)())[0] < most


@pytest.mark.parametrize("name", ["grass", "gravel"])
def test_where_all_may_be_detail_the_interval_begins_at_0(name):
    found = noise_levels(getattr(data, name)())[0]
    assert found.low == 0
    assert found.sigma < found.high


@pytest.mark.parametrize("name", ["camera", "astronaut", "grass", "coffee", "moon", "chelsea"])
def test_a_clean_picture_is_told_from_a_noisy_one(name):
    clean = getattr(data, name)()
    assert noise_levels(clean)[0].may_be_none(255)
    assert not noise_levels(rounded(clean + noise(10, clean.shape)))[0].may_be_none(255)


def test_noise_beyond_the_detail_is_seen():
    assert level(pixels("grass") + noise(10, (256, 256))).low > 5


@pytest.mark.parametrize("side", [5, 8, 12, 24, 64])
def test_the_interval_holds_the_noise_for_all_sizes(side):
    found = [level(100 + noise(3, (side, side + 3), seed)) for seed in range(20)]
    assert sum(holds(each, 3) for each in found) >= 18
    assert np.mean([each.sigma for each in found]) == pytest.approx(3, rel=0.1)


def test_the_interval_is_narrower_where_more_is_known():
    widths = [found.high - found.low for found in (level(100 + noise(3, (n, n))) for n in (8, 32, 128))]
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (3, 40), (2, 2, 3)])
def test_too_small(shape):
    with pytest.raises(ValueError, match="too small to estimate its noise: at least 4 x 4 is needed; give it"):
        estimate_sigma(np.zeros(shape))


@pytest.mark.parametrize("value", [0, 128, 255])
@pytest.mark.parametrize("shape", [(4, 5), (16, 16), (64, 64, 3)])
def test_a_uniform_picture_has_none(value, shape):
    assert noise_levels(np.full(shape, value, np.uint8)) == [NoiseLevel(0.0, 0.0, 0.0)]
    assert noise_levels(np.full(shape, value / 255 / 3)) == [NoiseLevel(0.0, 0.0, 0.0)]


def test_rounding_adds_its_own():
    assert level(rounded(128 + noise(0.5))).sigma == pytest.approx(np.hypot(0.5, 255 * ROUNDING), rel=0.05)


@pytest.mark.parametrize("sigma", [2, 10, 25])
@pytest.mark.parametrize(("rows", "error"), [(128, 0.08), (240, 0.2)])
def test_areas_that_are_blown_out_do_not_count(sigma, rows, error):
    image = pixels("camera")
    image[:rows] = 300
    found = level(rounded(image + noise(sigma, image.shape)))
    assert found.sigma == pytest.approx(sigma, rel=error)
    assert found.low < 1.05 * np.hypot(sigma, 0.5)  # with the noise that the picture brings
    assert sigma < found.high


@pytest.mark.parametrize("sigma", [2, 10, 25])
def test_what_is_clipped_everywhere_is_no_upper_bound(sigma):
    """Of black with noise half is lost: what is left is smaller, and the interval says so."""
    found = level(rounded(noise(sigma)))
    assert found.sigma < 0.7 * sigma
    assert found.high > 0.9 * sigma


@pytest.mark.parametrize("sigma", [0, 5])
@pytest.mark.parametrize("pattern", ["checkerboard", "stripes", "Bayer"])
def test_patterns_of_two_pixels_are_not_noise(sigma, pattern):
    rows, columns = np.indices((128, 128)) % 2
    shown = {"checkerboard": rows ^ columns, "stripes": columns, "Bayer": (2 * rows + columns) % 3}[pattern]
    assert level(60.0 * shown + noise(sigma)).sigma == pytest.approx(sigma, abs=0.3)


def test_blocks_of_jpeg_are_not_taken_for_noise():
    file = io.BytesIO()
    Image.fromarray(data.camera()).save(file, "JPEG", quality=75)
    assert level(np.asarray(Image.open(file))).sigma < 0.5


def test_coloured_noise_may_be_more_than_is_seen():
    """Averages over 3 x 3 pixels have hardly any high frequencies left."""
    white = torch.from_numpy(noise(30, (1, 1, 130, 130)))
    found = level(100 + torch.nn.functional.avg_pool2d(white, 3, stride=1))
    assert found.low == 0
    assert found.high > 2 * found.sigma


def test_units_offsets_and_orientation():
    image = pixels("camera")[:64, :96] + noise(7, (64, 96))
    found = noise_levels(image, data_range=255.0)[0]
    other = noise_levels(1000 * image.T + 5e5, data_range=1.0)[0]
    ends = [other.sigma / 1000, other.low / 1000, other.high / 1000]
    assert ends == pytest.approx([found.sigma, found.low, found.high], rel=1e-3)
    assert estimate_sigma(rounded(image))[0] == pytest.approx(7, rel=0.1)
    assert estimate_sigma(image / 255)[0] == pytest.approx(found.sigma / 255)


def test_each_image_of_a_batch_by_itself_and_the_mean_of_its_channels():
    channels = [128 + noise(sigma, seed=seed) for seed, sigma in enumerate((2, 4, 9))]
    batch = torch.from_numpy(np.stack([np.stack(channels), np.stack(channels[:1] * 3)]))
    apart = [estimate_sigma(channel, data_range=255.0)[0] for channel in channels]
    assert estimate_sigma(batch, data_range=255.0) == pytest.approx([sum(apart) / 3, apart[0]], rel=1e-4)
    assert apart == pytest.approx([2, 4, 9], rel=0.05)


def test_a_large_picture_is_sampled():
    assert level(100 + noise(4, (900, 1500))).sigma == pytest.approx(4, rel=0.02)


def test_as_a_sentence():
    assert str(NoiseLevel(4.912, 0.0, 6.0)) == "4.91, between 0 and 6"


@pytest.mark.parametrize("sigma", [0.02, 0.1])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_noise_of_the_known_pixels(sigma, share):
    """Of a smooth picture, where it is exact; values of pixels that are not known do not count."""
    generator = torch.Generator().manual_seed(0)
    row, column = torch.meshgrid(torch.linspace(0, 3, 128), torch.linspace(0, 2, 128), indexing="ij")
    added = sigma * torch.randn(2, 3, 128, 128, generator=generator)
    known = torch.rand(128, 128, generator=generator) < share
    image = torch.where(known, 0.5 + 0.3 * torch.sin(row) * torch.cos(column) + added, 100 * added)
    assert known_noise_level(image, known).sigma == pytest.approx(sigma, rel=0.03)


def test_noise_of_the_known_pixels_of_a_photograph():
    """Its texture counts as noise too, but for little."""
    image = picture(size=128) + 0.04 * torch.randn(1, 1, 128, 128, generator=torch.Generator().manual_seed(0))
    known = torch.rand(128, 128, generator=torch.Generator().manual_seed(1)) < 0.7
    found = known_noise_level(image, known)
    assert 0.04 <= found.sigma < (0.04**2 + 0.02**2) ** 0.5
    assert found.low == 0  # all may be texture
    assert found.high > found.sigma


@pytest.mark.parametrize("sigma", [1, 5, 20])
def test_noise_of_a_photograph_with_scratches(sigma):
    """Blocks between them are known: detail counts as little as in a whole picture."""
    image = torch.from_numpy(pixels("camera") + noise(sigma, (256, 256)))[None, None]
    known = torch.ones(256, 256, dtype=torch.bool)
    known[::20], known[:, 100:104] = False, False
    found = known_noise_level(torch.where(known, image, torch.nan), known)
    assert found.sigma == pytest.approx(sigma, rel=0.12)
    assert found.low < 1.01 * np.hypot(sigma, 0.5)  # with the noise that the picture brings
    assert sigma < found.high


def test_too_few_known_neighbours():
    alone = torch.zeros(64, 64, dtype=torch.bool)
    alone[::2, ::2] = True
    for known in (alone, alone[:2, :2]):
        with pytest.raises(ValueError, match="give it, as sigma in denoising, else as noise; on the command"):
            known_noise_level(torch.rand(1, 1, *known.shape), known)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_noise_of_a_sinogram(share):
    """Of a disc and a smaller one in it, with noise of this share of the largest value."""
    row, column = torch.meshgrid(*[torch.arange(128) - 63.5] * 2, indexing="ij")
    image = (torch.hypot(row, column) < 55).float() + (torch.hypot(row - 9, column + 20) < 15).float()
    clean = Radon(torch.linspace(0, 180, 31)[:-1], (128, 128)).forward(image[None, None])
    sigma = share * float(clean.max())
    noisy = clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    assert estimate_sinogram_noise(noisy) == pytest.approx(sigma, rel=0.1)
    assert estimate_sinogram_noise(clean) < 0.2 * 0.01 * float(clean.max())
