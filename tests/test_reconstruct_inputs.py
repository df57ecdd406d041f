"""What `reconstruct` is given: operators and models of a user, data of any range, and what it refuses."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from conftest import noisy, picture, relative

import torchdeal as td
from torchdeal.estimation import default_parameters
from torchdeal.operators import Blur, Fourier, Identity, Mask, Operator


class Flip:
    def forward(self, x):
        return x.flip(-1)

    def adjoint(self, y):
        return y.flip(-1)


def test_a_users_operator(gray):
    y = noisy(picture(size=24), 15)
    flipped = td.reconstruct(y.flip(-1), Flip(), model=gray, sigma=15 / 255, lam=8.0)
    plain = td.reconstruct(y, Identity(), model=gray, sigma=15 / 255, lam=8.0)
    assert relative(flipped.x, plain.x) < 1e-3


def test_wrong_adjoint_is_refused_with_both_numbers(gray):
    y = noisy(picture(size=24), 15)
    wrong = (lambda x: x.cumsum(-1), lambda y: y.cumsum(-1))
    with pytest.raises(ValueError, match=r"<H u, v> = \S+ but <u, H\^T v> = \S+"):
        td.reconstruct(y, wrong, model=gray, sigma=15 / 255, lam=1.0)


class WrongSubclass(Operator):
    def _forward(self, x):
        return x.cumsum(-1)

    def _adjoint(self, y):
        return y.cumsum(-1)


@pytest.mark.parametrize("operator", [WrongSubclass(), 2.0 * WrongSubclass(), Identity() @ WrongSubclass()])
def test_wrong_adjoints_are_refused_however_they_come(gray, operator):
    with pytest.raises(ValueError, match="does not belong"):
        td.reconstruct(noisy(picture(size=24), 15), operator, model=gray, sigma=15 / 255, lam=1.0)


def test_model_by_path(tmp_path, gray):
    td.save(gray, tmp_path / "mine.safetensors")
    y = noisy(picture(size=20), 15)
    mine = td.reconstruct(y, model=tmp_path / "mine.safetensors", sigma=15 / 255)
    assert torch.equal(mine.x, td.reconstruct(y, model=gray, sigma=15 / 255).x)


def test_start_is_scaled_by_its_own_dtype(gray):
    y = (noisy(picture(size=20), 15)[0, 0].clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    as_float = td.reconstruct(y, model=gray, sigma=15.0, start=y / 255.0, keep_path=True)
    np.testing.assert_array_equal(as_float.path[0], y)


def test_numpy_numbers_are_numbers(gray):
    options = {"tolerance": np.float32(0.1), "max_iterations": np.int64(50)}
    assert td.reconstruct(noisy(picture(size=20), 15), model=gray, sigma=15 / 255, **options).converged


def test_torch_precision_settings_of_the_caller_do_not_matter(gray):
    script = (
        "import torch, torchdeal as td\n"
        "if hasattr(torch.backends, 'fp32_precision'): torch.backends.fp32_precision = 'tf32'\n"
        "print(td.reconstruct(torch.rand(1, 1, 20, 20), sigma=0.1).status.name)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "CONVERGED"


@pytest.mark.parametrize("function", [lambda x: x**2, lambda x: x.abs(), lambda x: x + 1])
def test_operator_that_is_not_linear_is_refused(gray, function):
    with pytest.raises(ValueError, match=r"the operator is not linear: H\(u \+ 2 v\) differs"):
        td.reconstruct(noisy(picture(size=24), 15), (function, lambda y: y), model=gray, sigma=15 / 255, lam=1.0)


def test_operator_that_returns_nan_is_refused(gray):
    y = noisy(picture(size=24), 15)
    with pytest.raises(ValueError, match="operator: the adjoint returned NaN"):
        td.reconstruct(y, (lambda x: x, lambda y: y / 0 * 0), model=gray, sigma=15 / 255, lam=1.0)


def undersampled(factor=1.0, noise=0.01):
    """A picture, `H` that sees half of its k-space, and what it measures, all multiplied by a factor."""
    x = picture(size=32)
    mask = (torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    H = Fourier(mask)
    random = torch.randn(2, 1, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    return x * factor, H, (H.forward(x) + mask * noise * torch.complex(*random)) * factor


@pytest.mark.parametrize("factor", [1e-6, 4000.0])
def test_data_of_any_range(gray, factor):
    """Raw k-space, or Hounsfield units: as good as the same data scaled by hand, without a word about it."""
    x, H, y = undersampled()
    by_hand = td.reconstruct(y, H, model=gray, noise=0.01, data_range=float(x.max() - x.min()))
    scaled_x, H, scaled_y = undersampled(factor)
    automatic = td.reconstruct(scaled_y, H, model=gray, noise=0.01 * factor)
    assert automatic.converged
    error, by_hand_error = relative(automatic.x, scaled_x), relative(by_hand.x, x)
    assert error < 1.05 * by_hand_error
    assert by_hand_error < 0.7 * relative(H.adjoint(y), x)


def test_a_picture_that_uses_a_small_part_of_its_range(gray):
    x = 900 + 2000 * picture(size=32)[0, 0]
    y = (x + 100 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).numpy().astype(np.uint16)
    result = td.reconstruct(y, model=gray, sigma=100.0, data_range="auto")
    assert result.x.dtype == np.uint16
    by_hand = td.reconstruct((y - 900.0) / 2000, model=gray, sigma=0.05).x * 2000 + 900
    error = np.linalg.norm(result.x - x.numpy())
    assert error < 1.05 * np.linalg.norm(by_hand - x.numpy())
    assert error < 0.6 * np.linalg.norm(y - x.numpy())


def test_noise_gives_both_knobs_unless_they_are_given(gray):
    x = picture(size=32)
    H = Blur(torch.ones(3, 3) / 9)
    y = noisy(H.forward(x), 2.55)
    by_rule = td.reconstruct(y, H, model=gray, noise=2.55 / 255)
    level, strength = default_parameters(gray.weights(), H, H.adjoint(y), torch.tensor([2.55]))
    by_hand = td.reconstruct(y, H, model=gray, sigma=float(level) / 255, lam=float(strength))
    assert relative(by_rule.x, by_hand.x) < 1e-5
    half = td.reconstruct(y, H, model=gray, noise=2.55 / 255, sigma=float(level) / 255)
    assert relative(by_rule.x, half.x) < 1e-5
    assert relative(by_rule.x, x) < 0.8 * relative(y, x)


def test_a_sample_does_not_depend_on_its_batch_with_the_rules(gray):
    _, H, y = undersampled()
    batch = td.reconstruct(torch.cat([y, 100 * y]), H, model=gray, noise=[0.01, 1.0])
    alone = td.reconstruct(y, H, model=gray, noise=0.01)
    assert relative(batch.x[:1], alone.x) < 1e-5


GOOD = np.full((20, 20), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": GOOD * np.nan}, "NaN"),
        ({"y": GOOD * np.inf}, "NaN or infinite"),
        ({"y": GOOD * 255}, "data_range"),
        ({"y": np.zeros((20, 20, 3)), "model": "gray"}, "3 channels and the model 1: use the model color"),
        ({"y": GOOD, "model": "color"}, "1 channels and the model 3: use the model gray"),
        ({"sigma": -1.0}, "sigma must be finite and at least 0"),
        ({"sigma": float("nan")}, "sigma must be finite"),
        ({"sigma": "loud"}, "sigma must be a number"),
        ({"sigma": [0.1, 0.2]}, "sigma has 2 values for a batch of 1"),
        ({"lam": 0.0}, "lam must be finite and above 0"),
        ({"lam": -2.0}, "lam must be finite and above 0"),
        ({"lam": float("inf")}, "lam must be finite"),
        ({"tolerance": 0.0}, "tolerance must be a positive number"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
        ({"max_iterations": 2.5}, "max_iterations must be a positive integer"),
        ({"start": GOOD[:16]}, "the start has shape"),
        ({"data_range": -1.0}, "data_range must be a positive number"),
        ({"data_range": "wide"}, "data_range must be a positive number or 'auto'"),
        ({"H": Blur(np.ones((3, 3)) / 9), "lam": None, "noise": 0.0}, "noise must be finite and above 0"),
        ({"H": Mask(np.ones((9, 9)))}, "the measurement should have shape"),
        ({"model": "no/such.safetensors"}, "no weights at"),
    ],
)
def test_bad_arguments(arguments, message):
    given = {"y": GOOD, "sigma": 0.1, "lam": 1.0, **arguments}
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        td.reconstruct(given.pop("y"), given.pop("H", None), **given)


def test_misspelt_options_are_refused():
    with pytest.raises(TypeError, match="tolerence"):
        td.reconstruct(GOOD, sigma=0.1, tolerence=1)


def test_untrained_noise_levels_are_warned_of(gray):
    image = (picture(size=20)[0, 0].numpy() * 255).astype(np.uint8)
    with pytest.warns(UserWarning, match="sigma = 60 is beyond the noise levels of the training, 0 to 50"):
        td.reconstruct(image, model=gray, sigma=60.0, max_iterations=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        td.reconstruct(image, model=gray, sigma=50.0, max_iterations=1)
