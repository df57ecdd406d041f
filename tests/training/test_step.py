"""The loss: its three terms, and the iterations before the step that is differentiated."""

from dataclasses import fields, replace

import pytest
import torch
from conftest import noisy, picture, relative, small_model

import torchdeal as td
from torchdeal.operators import Identity
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.engine import Equation, choose_engine
from torchdeal.training.step import FINITE_STEP, TrainingStep, iterate, roughness, squared_contraction


def batch_of(sigmas=(10.0, 30.0), size=32):
    clean = picture(size=size).double()
    measured = torch.cat([noisy(clean, sigma, seed) for seed, sigma in enumerate(sigmas)])
    return Batch(clean.expand_as(measured), Identity(), measured, torch.tensor(sigmas, dtype=torch.float64))


def slope_changes(values, length):
    """`sum_k |slope_{k+1} - slope_k|` of a spline with equally spaced knots, one after the other."""
    gap = length / (len(values) - 1)
    slopes = [(values[k + 1] - values[k]) / gap for k in range(len(values) - 1)]
    return sum(abs(slopes[k + 1] - slopes[k]) for k in range(len(slopes) - 1))


def test_roughness_is_the_sum_of_all_changes_of_slope():
    weights = small_model().weights()
    expected = sum(slope_changes(phi.tolist(), 3.0) for phi in weights.phi)
    expected += slope_changes(weights.kappa.tolist(), 52.0)
    expected += sum(slope_changes(row.tolist(), 52.0) for row in weights.log_scaling)
    assert float(roughness(weights).detach()) == pytest.approx(expected, rel=1e-10)


def test_straight_splines_are_not_rough():
    weights = small_model().weights()
    straight = {"phi": tuple(torch.linspace(0, 3, 31).double() for _ in range(3)), "kappa": torch.linspace(0, 9, 53)}
    straight |= {"log_scaling": torch.linspace(3, 1, 14).double().expand(6, -1)}
    assert straight.keys() <= {field.name for field in fields(weights)}
    assert float(roughness(replace(weights, **straight))) < 1e-3


@pytest.mark.parametrize("engine", ["direct", "packed"])
def test_the_iterations_approach_the_fixed_point(engine):
    model, batch = small_model(features=8), batch_of(size=24)
    step = TrainingStep(model, LossConfig(gamma=1e-4), engine=engine)
    target = td.reconstruct(batch.measured, model=model, sigma=batch.sigma / 255, tolerance=1e-6).x
    cold = [step.approach(batch, None, count) for count in (2, 25)]
    distances = [relative(x, target) for x in cold]
    assert distances[1] < 1e-4 < distances[0]
    start = target + 0.02 * torch.randn_like(target)
    warm = step.approach(batch, start, 2)
    assert relative(warm, target) < min(relative(start, target), distances[0]) / 2


def test_the_iterations_are_without_gradient_and_of_the_given_number():
    model, batch = small_model(), batch_of()
    calls = []

    class Counting:
        def correction(self, x, equation):
            calls.append(x.clone())
            return 0.5 * (equation.b - x)  # towards b, by half

    weights = model.weights()
    equation = Equation(batch.measured, Identity(), weights.lam(batch.sigma), weights.alpha(batch.sigma))
    x = iterate(Counting(), equation, None, 1)
    assert len(calls) == 1
    assert float(calls[0].abs().max()) == 0
    assert torch.equal(x, 0.5 * batch.measured)
    start = torch.rand_like(x)
    iterate(Counting(), equation, start, 5)
    assert len(calls) == 6
    assert torch.equal(calls[1], start)
    found = TrainingStep(model, LossConfig(gamma=0.0), engine="direct").approach(batch, None, 2)
    assert not found.requires_grad


@pytest.mark.parametrize("engine", ["direct", "packed"])
def test_cg_iterations_are_counted(engine, monkeypatch):
    model, batch = small_model(), batch_of()
    step = TrainingStep(model, LossConfig(), engine=engine)
    assert step.take_cg_iterations() == 0
    for limit in (1, 3):
        monkeypatch.setattr("torchdeal.training.engine.LOOSE_LIMIT", limit)
        monkeypatch.setattr("torchdeal.training.engine.LOOSE", 1e-12)  # all of them are made
        step.approach(batch, None, 4)
        assert step.take_cg_iterations() == 4 * limit
    assert step.take_cg_iterations() == 0


@pytest.mark.parametrize("engine", ["direct", "packed"])
def test_the_loss_is_the_sum_of_its_terms(engine):
    model, batch, gamma = small_model(), batch_of(), 0.3
    before = 0.9 * batch.measured
    step = TrainingStep(model, LossConfig(gamma=gamma), engine=engine)
    results = {factor: step(batch, before, factor) for factor in (0.0, 1.0, 4.0)}
    weights = model.weights()
    alpha = weights.alpha(batch.sigma)
    for factor, result in results.items():
        errors = [(x - clean).square().sum() for x, clean in zip(result.x, batch.clean, strict=True)]
        changes = (weights.mask(result.x, alpha) - weights.mask(before, alpha)).square().sum((1, 2, 3))
        expected = sum(errors) / 2 + factor * gamma / 6 * changes.mean() + gamma * roughness(weights)
        assert float(result.error) == pytest.approx(float(sum(errors) / 2), rel=1e-9)
        assert float(result.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
        assert float(changes.detach().min()) > 1e-3
        assert not result.x.requires_grad
        assert not result.error.requires_grad


def near_the_fixed_point(engine, size=16, boundary="reflect"):
    """A model, an engine, the equation and the fixed point of a small problem, in double precision."""
    model, batch = small_model(1, boundary, features=8), batch_of(sigmas=(30.0,), size=size)
    with torch.no_grad():
        model.scaling.add_(2)  # masks that depend on the image: T contracts less
    weights = model.constrained()
    equation = Equation(batch.measured, Identity(), weights.lam(batch.sigma), weights.alpha(batch.sigma))
    fixed = td.reconstruct(batch.measured, model=model, sigma=batch.sigma / 255, tolerance=1e-9).x
    return model, choose_engine(weights, batch.clean, engine), equation, fixed


def test_the_contraction_is_the_spectral_radius_of_the_jacobian(monkeypatch):
    monkeypatch.setattr("torchdeal.training.step.FINITE_STEP", 1e-4)  # near enough to the derivative
    monkeypatch.setattr("torchdeal.training.step.POWER_ITERATIONS", 20)
    monkeypatch.setattr("torchdeal.training.engine.EXACT", 1e-11)
    _, engine, equation, fixed = near_the_fixed_point("direct", 8, "zero")

    @torch.no_grad()
    def image(z):
        return engine.step(z, replace(equation, b=equation.b.expand_as(z)))[0]

    steps = (1e-6 * torch.eye(fixed.numel(), dtype=fixed.dtype)).view(-1, *fixed.shape[1:]).split(16)
    jacobian = torch.cat([image(fixed + step) - image(fixed) for step in steps]).flatten(1) / 1e-6
    radius = float(torch.linalg.eigvals(jacobian).abs().max())
    before = fixed + 1e-6 * torch.rand_like(fixed)
    found, _ = squared_contraction(engine, before, engine.step(before, equation)[0], equation)
    assert float(found.detach().sqrt()) == pytest.approx(radius, rel=0.002)
    assert radius > 0.05


def test_power_iterations_go_on_from_a_direction_that_is_remembered(monkeypatch):
    monkeypatch.setattr("torchdeal.training.step.FINITE_STEP", 1e-4)
    monkeypatch.setattr("torchdeal.training.engine.EXACT", 1e-11)
    _, engine, equation, fixed = near_the_fixed_point("direct", 8)
    before = fixed + 1e-3 * torch.rand_like(fixed)
    x = engine.step(before, equation)[0].detach()
    found, v = torch.zeros(1), torch.zeros_like(before)  # 0: there was none
    for _ in range(6):
        found, v = squared_contraction(engine, before, x, equation, v)
    monkeypatch.setattr("torchdeal.training.step.POWER_ITERATIONS", 12)
    at_once, of_once = squared_contraction(engine, before, x, equation)
    assert relative(found.detach(), at_once.detach()) < 1e-6
    assert relative(v, of_once) < 1e-4


@pytest.mark.parametrize("engine", ["direct", "packed"])
def test_the_gradient_of_the_contraction(engine, monkeypatch):
    """Against differences, in the direction that the power iterations found."""
    monkeypatch.setattr("torchdeal.training.engine.EXACT", 1e-11)
    for name in ("FORWARD", "BACKWARD"):
        monkeypatch.setattr(f"torchdeal.training.engine.{name}", 1e-11)
        monkeypatch.setattr(f"torchdeal.training.engine.{name}_LIMIT", 500)
    model, chosen, equation, fixed = near_the_fixed_point(engine)
    before = fixed + 0.01 * torch.rand_like(fixed)
    directions = []
    step = chosen.step

    def recorded(z, *rest, **options):
        directions.append((z - before).detach())
        return step(z, *rest, **options)

    chosen.step = recorded
    chosen.track(model.constrained())
    squared_contraction(chosen, before, step(before, equation)[0], equation)[0].sum().backward()
    v = directions[-1]
    assert relative(v.norm(), FINITE_STEP * before.norm()) < 1e-9

    def along_v():
        with torch.no_grad():
            chosen.freeze(model.constrained())
            chosen.track(model.constrained())
            return float((step(before + v, equation)[0] - step(before, equation)[0]).square().sum() / v.square().sum())

    for parameter in (model.phi2, model.mix[0], model.filters[2]):
        change = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3), dtype=parameter.dtype)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * 1e-7 * change)
                values.append(along_v())
                parameter.sub_(sign * 1e-7 * change)
        expected = (values[0] - values[1]) / 2e-7
        assert float((parameter.grad * change).sum()) == pytest.approx(expected, rel=1e-3)


def test_only_contractions_above_what_is_good_enough_are_penalised():
    model, batch = small_model(), batch_of()
    before = 0.9 * batch.measured
    plain = TrainingStep(model, LossConfig(), engine="direct")(batch, before)
    assert plain.contraction is None
    strict = TrainingStep(model, LossConfig(slowness=5.0, contraction=0.0), engine="direct")(batch, before, 2.0)
    easy = TrainingStep(model, LossConfig(slowness=5.0, contraction=0.999), engine="direct")(batch, before, 2.0)
    without = TrainingStep(model, LossConfig(), engine="direct")(batch, before, 2.0)
    assert float(easy.loss.detach()) == pytest.approx(float(without.loss.detach()), rel=1e-9)
    assert float(strict.loss.detach()) > float(easy.loss.detach()) + 9.9 * float(strict.contraction) ** 2
    assert 0 < float(easy.contraction) < 1


def test_without_its_factor_the_second_term_is_not_computed(monkeypatch):
    model, batch = small_model(), batch_of()
    step = TrainingStep(model, LossConfig(gamma=0.3), engine="direct")
    step.approach(batch, None, 1)
    asked = []
    mask = type(step._engine).mask
    monkeypatch.setattr(type(step._engine), "mask", lambda self, x, alpha: asked.append(1) or mask(self, x, alpha))
    step(batch, batch.measured, 0.0)
    assert asked == []
    step(batch, batch.measured, 1.0)
    assert asked == [1]


def test_the_engine_is_the_one_that_was_named():
    model, batch = small_model(), batch_of()
    for name in ("direct", "packed"):
        step = TrainingStep(model, LossConfig(gamma=0.0), engine=name)
        step.approach(batch, None, 1)
        assert type(step._engine) is type(choose_engine(model.weights(), batch.clean, name))
