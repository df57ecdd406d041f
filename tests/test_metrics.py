import math

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from torchdeal.metrics import decibels, psnr, ssim


def images(*shape):
    generator = np.random.default_rng(0)
    return generator.random(shape) * 1.5 - 0.2, generator.random(shape)


def test_psnr_of_arrays_and_tensors():
    x, clean = images(1, 1, 8, 8)
    expected = peak_signal_noise_ratio(clean, x.clip(0, 1), data_range=1)
    assert psnr(x, clean) == pytest.approx(expected)
    assert psnr(torch.from_numpy(x).float(), torch.from_numpy(clean)) == pytest.approx(expected, abs=1e-4)


def test_psnr_of_eight_bits():
    x, clean = images(20, 20)
    clean = (clean * 255).round() / 255
    pixels = [np.round(image.clip(0, 1) * 255).astype(np.uint8) for image in (clean, x)]
    assert psnr(x, clean, eight_bit=True) == pytest.approx(peak_signal_noise_ratio(*pixels))
    assert psnr(clean + 0.4 / 255, clean, eight_bit=True) > 40


def test_psnr_of_the_truth_and_of_nothing():
    _, clean = images(4, 4)
    assert psnr(clean, clean) == math.inf
    assert math.isnan(psnr(clean * math.nan, clean))
    assert decibels(0.01) == pytest.approx(20)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 3)])
def test_ssim(shape):
    x, clean = images(*shape)
    channel_axis = None if len(shape) == 2 else 2
    expected = structural_similarity(clean, x.clip(0, 1), data_range=1, channel_axis=channel_axis)
    assert ssim(x, clean) == pytest.approx(expected)


def test_ssim_of_a_tiny_image_is_refused_in_words():
    with pytest.raises(ValueError, match="at least 7 x 7"):
        ssim(*images(6, 20))
