"""Error bars: deviations and samples against dense inverses, and coverage where the model is true."""

import numpy as np
import pytest
import torch
from conftest import dense, noisy, picture, small_model

import torchdeal as td
from torchdeal.estimation import LAM_FACTOR
from torchdeal.operators import Blur, Downsample, Fourier, Mask
from torchdeal.uncertainty import CALIBRATION

SIZE = 18
MODEL = small_model(features=5)
KERNEL = torch.outer(*[torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1], dtype=torch.float64)] * 2)


def clean(size=SIZE):
    return picture(size=size).double()


def columns(size=SIZE):
    """Every third column, and the low ones."""
    mask = torch.zeros(size, size)
    mask[:, ::3] = mask[:, :2] = mask[:, -1:] = 1
    return mask


def holes(size=SIZE):
    return (torch.rand(size, size, generator=torch.Generator().manual_seed(3)) < 0.6).double()


OPERATORS = {
    "denoising": None,
    "blur": Blur(KERNEL),
    "every second pixel": Downsample(2),
    "holes": Mask(holes()),
    "k-space": Fourier(columns()),
}


def posed(name, **changes):
    """A reconstruction of a small picture, all of it to the last digits."""
    operator = OPERATORS[name]
    y = clean() if operator is None else operator.forward(clean())
    y = y + 0.05 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    given = {"sigma": 0.05} if operator is None else {"sigma": 0.06, "lam": 0.4}
    return td.reconstruct(y, operator, **{"model": MODEL, "tolerance": 1e-5, **given, **changes})


@torch.no_grad()
def precision(rec):
    """The matrix A, `(N, N)`: complex images are real ones of twice the size."""
    equation, x = rec.posed()
    apply = equation.system().precise(x).apply
    if not x.is_complex():
        return dense(lambda p: torch.cat([apply(one[None]) for one in p]), x.shape[1:])
    parts = (2, *x.shape[1:])
    as_complex = lambda p: torch.complex(p[:1], p[1:])  # noqa: E731
    return dense(lambda p: torch.stack([_real_parts(apply(as_complex(one))) for one in p]), parts)


def _real_parts(x):
    return torch.cat([x.real, x.imag])


@torch.no_grad()
def noise_of(rec):
    """By the rule `lam = factor kappa(sigma) (noise / sigma)^2`."""
    equation, _ = rec.posed()
    factor = 1 if equation.operator.is_identity else LAM_FACTOR
    relative = equation.lam.flatten() / (factor * equation.weights.lam(equation.sigma).flatten())
    return float(equation.sigma / 255 * relative.sqrt())


@pytest.mark.parametrize("name", OPERATORS)
def test_deviations_are_the_diagonal_of_the_inverse(name):
    rec = posed(name)
    expected = CALIBRATION * noise_of(rec) * torch.linalg.inv(precision(rec)).diagonal().sqrt().view(SIZE, SIZE)
    ratio = td.uncertainty(rec, probes=24)[0, 0] / expected - 1
    assert float(ratio.square().mean().sqrt()) < 0.08
    assert abs(float(ratio.mean())) < 0.02


def test_more_probes_are_more_accurate():
    rec = posed("k-space")
    expected = CALIBRATION * noise_of(rec) * torch.linalg.inv(precision(rec)).diagonal().sqrt().view(SIZE, SIZE)
    few, many = (td.uncertainty(rec, probes=probes)[0, 0] / expected - 1 for probes in (2, 50))
    assert float(many.norm()) < 0.6 * float(few.norm())


@pytest.mark.parametrize("name", ["denoising", "k-space"])
def test_samples_have_the_covariance_of_the_inverse(name):
    """In each quarter of the spectrum of A: of the weakest directions as of the strongest."""
    rec, count = posed(name), 60
    eigenvalues, vectors = torch.linalg.eigh(precision(rec))
    deviations = (td.sample(rec, count) - rec.x).view(count, -1) / (CALIBRATION * noise_of(rec))
    whitened = (deviations @ vectors) * eigenvalues.sqrt()
    for quarter in whitened.square().chunk(4, 1):  # each the mean of 4860 squares of standard deviation 1.4
        assert float(quarter.mean()) == pytest.approx(1, abs=0.07)
    correlations = (whitened.T @ whitened / count).triu(1)
    assert float(correlations.square().sum() * count) == pytest.approx(len(eigenvalues) ** 2 / 2, rel=0.05)


def test_ninety_per_cent_are_covered_where_the_model_is_true():
    """Constant masks: the prior is Gaussian, images are drawn from it and measured, and nothing else is uncertain."""
    model = small_model(features=5)
    operator, sigma, noise, count = Mask(holes(24)), 0.06, 0.04, 16
    with torch.no_grad():
        model.phi3.fill_(0.3)
        lam = float(model.weights().lam(torch.tensor([sigma * 255]).double())) * LAM_FACTOR * (noise / sigma) ** 2
    given = {"model": model, "sigma": sigma, "lam": lam}
    like = torch.zeros(1, 1, 24, 24, dtype=torch.float64)
    prior = precision(td.reconstruct(like, operator, **given)) - torch.diag(holes(24).flatten())
    eigenvalues, vectors = torch.linalg.eigh(prior)
    seen = eigenvalues > 1e-9 * eigenvalues[-1]
    assert int(seen.sum()) == 24 * 24 - 1  # of all but constants
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(count, 24 * 24 - 1, generator=generator, dtype=torch.float64)
    truth = 0.5 + noise * (draws / eigenvalues[seen].sqrt()) @ vectors[:, seen].T
    truth = truth.view(count, 1, 24, 24)
    y = operator.forward(truth + noise * torch.randn(truth.shape, generator=generator, dtype=torch.float64))
    rec = td.reconstruct(y, operator, tolerance=1e-5, **given)
    error = (rec.x - truth).abs() / (td.uncertainty(rec) / CALIBRATION)
    assert float((error < 1.645).double().mean()) == pytest.approx(0.90, abs=0.02)
    assert float((error < 0.674).double().mean()) == pytest.approx(0.50, abs=0.03)
    assert float((error < 1.960).double().mean()) == pytest.approx(0.95, abs=0.02)


def test_a_complex_image_has_the_deviation_of_its_parts():
    operator = Fourier(columns(), real=False)
    image = torch.complex(clean(), 0.5 * clean().flip(-1))
    y = operator.forward(image)
    y = y + 0.02 * torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    rec = td.reconstruct(y, operator, model=MODEL, sigma=0.06, lam=0.4, data_range=1.0, tolerance=1e-4)
    variances = torch.linalg.inv(precision(rec)).diagonal().view(2, SIZE, SIZE)
    expected = CALIBRATION * noise_of(rec) * variances.mean(0).sqrt()
    found = td.uncertainty(rec, probes=24)
    assert found.dtype == torch.float64
    assert float((found[0, 0] / expected - 1).square().mean().sqrt()) < 0.08
    samples = td.sample(rec, 40) - rec.x
    assert samples.is_complex()
    for part, variance in zip((samples.real, samples.imag), variances, strict=True):
        allowed = (CALIBRATION * noise_of(rec)) ** 2 * variance
        assert float((part.square().mean((0, 1, 2)) / allowed).mean()) == pytest.approx(1, abs=0.1)


def test_a_noise_map_scales_the_inverse_on_both_sides():
    levels = torch.full((SIZE, SIZE), 0.03, dtype=torch.float64)
    levels[:, SIZE // 2 :] = 0.12
    levels[:4] = 0
    rec = td.reconstruct(noisy(clean(), 10), sigma=levels, model=MODEL, tolerance=1e-4)
    found, equation = td.uncertainty(rec, probes=24)[0, 0], rec.equation
    assert bool((found[:4] == 0).all())
    # share^2 is lam / kappa: multiplied by it, A is I + kappa W^T M^2 W, the matrix for one level
    share = (equation.lam / equation.weights.lam(levels[None, None] * 255)).sqrt()[0, 0].detach()
    inverse = torch.linalg.inv(precision(rec)).diagonal().view(SIZE, SIZE)
    expected = CALIBRATION * levels * share * inverse.sqrt()
    assert float((found[4:] / expected[4:] - 1).square().mean().sqrt()) < 0.08


def test_a_map_that_is_the_same_everywhere_is_one_number():
    y = noisy(clean(), 12)
    one, everywhere = (
        td.uncertainty(td.reconstruct(y, sigma=sigma, model=MODEL, tolerance=1e-5))
        for sigma in (12 / 255, np.full((SIZE, SIZE), 12 / 255))
    )
    assert float((one / everywhere - 1).abs().max()) < 5e-3  # the solves are to 1e-2


def test_units_and_layouts_are_those_of_the_image():
    pixels = (picture("astronaut", size=SIZE)[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    given = {"model": small_model(features=5, dtype=torch.float32), "channelwise": True}
    integers = td.reconstruct(pixels, sigma=15, **given)
    floats = td.reconstruct(torch.from_numpy(pixels / 255).permute(2, 0, 1)[None], sigma=15 / 255, **given)
    deviation = td.uncertainty(integers)
    assert isinstance(deviation, np.ndarray)
    assert (deviation.dtype, deviation.shape) == (np.float32, (SIZE, SIZE, 3))
    expected = td.uncertainty(floats)
    assert expected.dtype == torch.float64  # that of the picture
    np.testing.assert_allclose(deviation, 255 * expected[0].permute(1, 2, 0).numpy(), rtol=1e-3)
    samples = td.sample(integers, 3)
    assert (samples.dtype, samples.shape) == (np.float32, (3, SIZE, SIZE, 3))
    np.testing.assert_allclose(samples[0], 255 * td.sample(floats, 1)[0, 0].permute(1, 2, 0).numpy(), atol=0.05)


def test_transparency_has_no_deviation():
    pixels = np.dstack([clean()[0, 0].numpy(), np.ones((SIZE, SIZE))])
    rec = td.reconstruct(pixels, sigma=0.05, alpha=True, model=MODEL)
    assert td.uncertainty(rec, probes=1).shape == (SIZE, SIZE, 1)


def test_a_colour_model():
    rec = td.reconstruct(noisy(picture("astronaut", size=SIZE).double(), 15), sigma=15 / 255, model=small_model(3))
    expected = CALIBRATION * noise_of(rec) * torch.linalg.inv(precision(rec)).diagonal().sqrt().view(3, SIZE, SIZE)
    assert float((td.uncertainty(rec, probes=24)[0] / expected - 1).square().mean().sqrt()) < 0.08


def test_each_image_of_a_batch_has_its_own():
    y = torch.cat([noisy(clean(), 5), noisy(clean().flip(-1), 40)])
    batch = td.uncertainty(td.reconstruct(y, sigma=[5 / 255, 40 / 255], model=MODEL), probes=24)
    for index, sigma in enumerate((5, 40)):
        alone = td.uncertainty(td.reconstruct(y[index : index + 1], sigma=sigma / 255, model=MODEL), probes=24)
        assert float((batch[index] / alone[0] - 1).square().mean().sqrt()) < 0.08


def test_a_batch_with_an_operator_for_each_image():
    masks = torch.stack([holes(), 1 - holes()])[:, None]
    y = masks * torch.cat([clean()] * 2)
    rec = td.reconstruct(y, Mask(masks), sigma=0.06, lam=0.4, model=MODEL)
    deviation = td.uncertainty(rec)
    for mask, found in zip(masks, deviation, strict=True):
        assert float(found[mask == 0].mean()) > 1.5 * float(found[mask == 1].mean())


def test_the_noise_need_not_be_known():
    """What counts is the noise that sigma and lam stand for."""
    known, unknown = posed("blur", noise=0.05), posed("blur")
    assert unknown.equation.noise is None
    assert torch.equal(td.uncertainty(unknown, probes=2), td.uncertainty(known, probes=2))


def test_the_same_seed_gives_the_same_and_progress_is_told():
    rec, told = posed("denoising"), []
    first = td.sample(rec, 3, seed=5, callback=lambda done, count: told.append((done, count)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert torch.equal(td.sample(rec, 2, seed=5), first[:2])
    assert not torch.equal(td.sample(rec, 1, seed=6), first[:1])
    assert torch.equal(td.uncertainty(rec, probes=2), td.uncertainty(rec, probes=2, callback=lambda *_: told.append(0)))
    assert told[3:] == [0, 0]


@pytest.mark.parametrize("ask", [lambda rec: td.uncertainty(rec, probes=0), lambda rec: td.sample(rec, -1)])
def test_no_probes_are_refused(ask):
    with pytest.raises(ValueError, match="must be a positive integer"):
        ask(posed("denoising"))


def test_what_was_not_reconstructed_has_no_deviation():
    picture_left_alone = td.Reconstruction(**vars(td.Solution.at_once(clean())))
    with pytest.raises(ValueError, match="there is no problem to ask about"):
        td.uncertainty(picture_left_alone)


def test_a_pixel_that_is_known_is_surest_and_those_far_from_it_least():
    mask = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    mask[3, 3] = 1
    deviation = td.uncertainty(td.reconstruct(0.5 * mask[None, None], Mask(mask), sigma=0.05, lam=0.1, model=MODEL))
    deviation = deviation[0, 0]
    assert int(deviation.argmin()) == 3 * SIZE + 3
    assert float(deviation[-4:, -4:].mean()) > 1.2 * float(deviation[2:5, 2:5].mean())


@pytest.mark.parametrize("shape", [(1, 1), (3, 20)])
def test_a_picture_smaller_than_the_filters(shape):
    """Whatever the filters, an average of measurements is no surer than all of them, and no less sure than one."""
    deviation = td.uncertainty(td.reconstruct(np.full(shape, 0.5), sigma=0.05, model=MODEL))
    assert deviation.shape == shape
    assert ((deviation > 0.8 * 0.05 / np.sqrt(np.prod(shape))) & (deviation < 1.2 * 0.05)).all()


def test_without_noise_nothing_is_uncertain():
    assert not td.uncertainty(td.reconstruct(clean(), sigma=0, model=MODEL)).any()


def test_a_weaker_lam_in_denoising_does_not_make_bars_narrower():
    """Less is smoothed away, so more noise is left: bars that followed lam alone would say the opposite."""
    image = noisy(picture(size=32), 25)
    learned = td.reconstruct(image, sigma=25 / 255, model="gray-light", data_range=1.0)
    weak = td.reconstruct(image, sigma=25 / 255, model="gray-light", data_range=1.0, lam=0.1 * float(learned.lam))
    bars = [float(td.uncertainty(rec, probes=8).mean()) for rec in (learned, weak)]
    assert bars[1] > 1.2 * bars[0]
