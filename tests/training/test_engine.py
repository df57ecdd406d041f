"""The engines: the same step and the same gradient, that of a dense solve."""

import pytest
import torch
from conftest import dense, relative, small_model

from torchdeal.model.filters import analysis
from torchdeal.operators import Blur, Identity, Operator
from torchdeal.training import engine as engines
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.engine import ENGINES, DirectEngine, Equation, PackedEngine, QuickEngine, choose_engine
from torchdeal.training.step import TrainingStep

OPERATORS = {
    "identity": Identity(),
    "blur": Blur(torch.tensor([[0.1, 0.2, 0.1], [0.1, 0.3, 0.2]], dtype=torch.float64)),
}


@pytest.fixture
def precise(monkeypatch):
    """All solves of a step to the last digits."""
    for name in ("EXACT", "FORWARD", "BACKWARD"):
        monkeypatch.setattr(engines, name, 1e-13)
    for name in ("FORWARD_LIMIT", "BACKWARD_LIMIT"):
        monkeypatch.setattr(engines, name, 1000)


def bent_model(channels=1, features=4):
    """Splines without a straight piece: the second-order variation has a gradient everywhere."""
    model = small_model(channels, features=features)
    with torch.no_grad():
        for spline in (model.phi3, model.kappa):
            spline.add_(0.05 * torch.rand(spline.shape, dtype=torch.float64))
    return model


def random_batch(channels=1, height=16, width=16, size=2, operator: Operator | None = None):
    torch.manual_seed(1)
    clean, measured = torch.rand(2, size, channels, height, width, dtype=torch.float64)
    return Batch(clean, operator or Identity(), measured, torch.linspace(5, 25, size, dtype=torch.float64))


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("channels", "operator"), [(1, "identity"), (1, "blur"), (3, "identity")])
@pytest.mark.parametrize("other", ["quick", "packed"])
@pytest.mark.usefixtures("precise")
def test_the_others_equal_the_direct_one(channels, operator, other):
    model, batch = bent_model(channels), random_batch(channels, 16, 20, operator=OPERATORS[operator])
    b = batch.operator.adjoint(batch.measured)
    results = []
    for name in ("direct", other):
        weights = model.weights()
        engine = choose_engine(weights, batch.clean, name)
        lam, alpha = weights.lam(batch.sigma), weights.alpha(batch.sigma)
        z, equation = batch.measured, Equation(b, batch.operator, lam, alpha)
        for _ in range(3):
            z = z + engine.correction(z, equation)
        x, mask = engine.step(z, equation)
        change = engine.mask(x, alpha) - mask
        loss = (x - batch.clean).square().sum() + change.square().sum()
        results.append((z.detach(), x.detach(), loss.detach(), change.detach(), gradients(loss, model)))
    (z, x, loss, change, of_direct), (other_z, other_x, other_loss, other_change, of_other) = results
    assert relative(other_z, z) < 1e-10
    assert relative(other_x, x) < 1e-8
    assert relative(other_loss, loss) < 1e-8
    assert relative(other_change.flatten().sort()[0], change.flatten().sort()[0]) < 1e-8  # packed: in another order
    for name, expected in of_direct.items():
        assert float(expected.norm()) > 0, name
        assert relative(of_other[name], expected) < 1e-8, name


def dense_loss(model, batch, before, gamma):
    """The three terms of the paper, the step by `torch.linalg.solve`, differentiated by autograd alone."""
    weights = model.weights()
    lam, alpha = weights.lam(batch.sigma), weights.alpha(batch.sigma)
    shape = batch.clean.shape[1:]
    normal = dense(batch.operator.normal, shape)
    W = dense(lambda images: analysis(images, weights.filters, weights.boundary), shape)
    masks, solutions = weights.mask(before, alpha), []
    for b, strength, mask in zip(batch.operator.adjoint(batch.measured), lam, masks, strict=True):
        A = normal + strength.squeeze() * W.T @ (mask.square().flatten()[:, None] * W)
        solutions.append(torch.linalg.solve(A, b.flatten()).view(shape))
    x = torch.stack(solutions)
    bends = [phi.diff(n=2).abs().sum() * 30 / 3 for phi in weights.phi]
    bends += [weights.kappa.diff(n=2).abs().sum() * 52 / 52, weights.log_scaling.diff(n=2).abs().sum() * 13 / 52]
    change = (weights.mask(x, alpha) - masks).square().sum() / len(x)
    error = (x - batch.clean).square().sum() / len(x)
    return x, error + gamma / model.features * change + gamma * sum(bends)


@pytest.mark.parametrize(
    ("engine", "operator"),
    [("direct", "blur"), ("quick", "identity"), ("quick", "blur"), ("packed", "identity"), ("packed", "blur")],
)
@pytest.mark.usefixtures("precise")
def test_the_gradient_of_the_loss_is_that_of_a_dense_solve(engine, operator):
    gamma = 0.7  # large: all three terms count
    model, batch = bent_model(), random_batch(operator=OPERATORS[operator])
    before = torch.rand_like(batch.clean)
    result = TrainingStep(model, LossConfig(gamma=gamma), engine=engine)(batch, before)
    x, loss = dense_loss(model, batch, before, gamma)
    assert relative(result.x, x.detach()) < 1e-8
    assert relative(result.loss.detach(), loss.detach()) < 1e-8
    found, expected = gradients(result.loss, model), gradients(loss, model)
    for name, gradient in expected.items():
        assert relative(found[name], gradient) < 1e-8, name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.usefixtures("precise")
def test_a_step_before_the_backward_changes_nothing(engine):
    model, batch = bent_model(), random_batch()
    step = TrainingStep(model, LossConfig(gamma=0.1), engine=engine)

    def gradient(interrupted):
        result = step(batch, batch.measured)
        if interrupted:
            other = random_batch()
            step(Batch(other.clean, other.operator, 1 - other.measured, 2 * other.sigma), 1 - other.measured)
        return gradients(result.loss, model)

    alone, interrupted = gradient(False), gradient(True)
    assert all(torch.equal(alone[name], interrupted[name]) for name in alone)


def test_later_weights_take_the_place_of_earlier_ones():
    """An engine is kept from step to step: what it computes must be that of the weights it got last."""
    batch = random_batch()
    for name in ENGINES:
        first, second = bent_model().weights(), small_model(features=4, seed=3).weights()
        lam, alpha = second.lam(batch.sigma), second.alpha(batch.sigma)
        arguments = batch.measured, Equation(batch.measured, batch.operator, lam, alpha)
        kept, new = choose_engine(first, batch.clean, name), choose_engine(second, batch.clean, name)
        before = kept.correction(*arguments)
        kept.freeze(second)
        kept.track(second)
        assert torch.equal(kept.correction(*arguments), new.correction(*arguments))
        assert torch.equal(kept.step(*arguments)[0], new.step(*arguments)[0])
        assert relative(before, new.correction(*arguments)) > 1e-3


@pytest.mark.parametrize("engine", ["quick", "packed"])
def test_the_tolerances_of_the_solves_are_enough(monkeypatch, engine):
    """As it is used, its gradient points where the exact one does."""
    model, batch = bent_model(), random_batch(height=32, width=32)

    def gradient():
        step = TrainingStep(model, LossConfig(gamma=1e-4), engine=engine)
        before = step.approach(batch, None, 8)
        return torch.cat([g.flatten() for g in gradients(step(batch, before).loss, model).values()])

    rough = gradient()
    for name in ("FORWARD", "BACKWARD"):
        monkeypatch.setattr(engines, name, 1e-13)
        monkeypatch.setattr(engines, f"{name}_LIMIT", 1000)
    exact = gradient()
    assert not torch.equal(rough, exact)
    assert relative(rough, exact) < 0.05


def test_the_choice_of_the_engine():
    weights, image = small_model().weights(), torch.zeros(1, 1, 16, 20, dtype=torch.float64)
    assert isinstance(choose_engine(weights, image), QuickEngine)  # on a CPU
    assert type(choose_engine(weights, image, "direct")) is DirectEngine
    assert isinstance(choose_engine(weights, image, "packed"), PackedEngine)


def test_engines_that_do_not_fit():
    weights, image = small_model().weights(), torch.zeros(1, 1, 16, 18, dtype=torch.float64)
    with pytest.raises(ValueError, match="multiples of 4"):
        choose_engine(weights, image, "packed")
    with pytest.raises(ValueError, match="boundary reflect"):
        choose_engine(small_model(boundary="zero").weights(), image[..., :16], "packed")
    with pytest.raises(ValueError, match="no engine 'fast': choose one of direct, quick, packed"):
        choose_engine(weights, image, "fast")
    assert isinstance(choose_engine(small_model(boundary="zero").weights(), image), QuickEngine)
