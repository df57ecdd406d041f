"""Where there is little or nothing to know: constant images, pure noise, one known pixel, none."""

import pytest
import torch

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Mask, Operator, Radon
from torchdeal.operators.blur_kernels import gaussian_kernel, motion_kernel

SIDE = 24
FEW = torch.rand(SIDE, SIDE, generator=torch.Generator().manual_seed(3)) < 0.2
ONE = torch.zeros(SIDE, SIDE, dtype=torch.bool)
ONE[5, 7] = True
NONE = torch.zeros(SIDE, SIDE, dtype=torch.bool)
OPERATORS: dict[str, Operator] = {
    "80 % missing": Mask(FEW),
    "one pixel": Mask(ONE),
    "MRI": Fourier((torch.arange(SIDE) % 4 == 0).expand(SIDE, SIDE)),
    "upscaling": Downsample(2, gaussian_kernel(0.8)),
    "CT": Radon(torch.arange(0, 180, 6), SIDE),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_constant_image_comes_back(gray, name):
    """Only one image has these measurements and no structure, and the run finds it soon."""
    H, constant = OPERATORS[name], torch.full((1, 1, SIDE, SIDE), 0.5)
    rec = td.reconstruct(H.forward(constant), H, model=gray, noise=0.02)
    assert rec.converged
    assert int(rec.iterations) <= 15
    assert float((rec.x - constant).abs().max()) < 1e-3


def test_pure_noise_is_averaged(gray):
    """What is known of it is its mean at most."""
    noise = torch.rand(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    H = Mask(FEW)
    rec = td.reconstruct(H.forward(noise), H, model=gray, noise=0.3)
    assert rec.converged
    assert float(rec.x.std()) < 0.1 * float(noise.std())
    assert float(rec.x.mean()) == pytest.approx(float(noise[..., FEW].mean()), abs=0.05)


def test_one_known_pixel_is_what_the_image_becomes(gray):
    image = torch.rand(1, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    H = Mask(ONE)
    rec = td.reconstruct(H.forward(image), H, model=gray, noise=0.02)
    assert rec.converged
    assert float((rec.x - image[0, 0, 5, 7]).abs().max()) < 0.01


@pytest.mark.parametrize("H", [Mask(NONE), Fourier(NONE)])
def test_nothing_measured_is_refused(gray, H):
    nothing = H.forward(torch.ones(1, 1, SIDE, SIDE))
    with pytest.raises(ValueError, match="measurements do not depend on the mean"):
        td.reconstruct(nothing, H, model=gray, noise=0.02)


def test_a_sharp_picture_deblurred_ends_and_says_what_moves(gray):
    """No image has these measurements: the run cannot settle, and knows it."""
    from conftest import picture

    H = Blur(motion_kernel(5, 0))
    rec = td.reconstruct(picture("camera", 32), H, model=gray, sigma=6.5 / 255, lam=0.27)
    assert rec.status is td.Status.UNSETTLED
    assert int(rec.iterations) <= 60
    assert rec.movement is not None
    assert float(rec.distance) > 10 * 1e-3
    assert f"row {int(rec.movement.row)}, column {int(rec.movement.column)}" in str(rec)
    on = td.reconstruct(picture("camera", 32), H, model=gray, sigma=6.5 / 255, lam=0.27, start=rec, max_iterations=1)
    assert int(on.iterations) == 1
