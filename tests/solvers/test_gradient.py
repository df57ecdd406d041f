import pytest
import torch
from conftest import small_model

import torchdeal as td
from torchdeal.operators import Blur, Identity, Operator
from torchdeal.solvers import implicit_solve
from torchdeal.training.engine import Equation, attentive_step

OPERATORS = {
    "identity": Identity(),
    "blur": Blur(torch.tensor([[0.1, 0.1, 0.0], [0.1, 0.6, 0.1]], dtype=torch.float64)),
}


def step(model: td.DEAL, z, y, operator: Operator, sigma, tolerance=1e-13):
    weights = model.weights()
    equation = Equation(operator.adjoint(y), operator, weights.lam(sigma), weights.alpha(sigma))
    return attentive_step(z, equation, weights, tolerance=tolerance)


def setting(batch, channels=1, boundary="reflect"):
    model = small_model(channels, boundary, features=3).train()
    torch.manual_seed(1)
    z, y = (torch.rand(batch, channels, 15, 16, dtype=torch.float64, requires_grad=True) for _ in range(2))
    sigma = torch.linspace(3, 30, batch, dtype=torch.float64)
    return model, z, y, sigma


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("boundary", ["reflect", "zero"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_gradcheck_of_the_one_step_map(batch, boundary, operator):
    model, z, y, sigma = setting(batch, boundary=boundary)
    names, parameters = zip(*model.named_parameters(), strict=True)

    def function(z, y, *values):
        # functional_call puts the perturbed values in the place of the parameters
        replaced = dict(zip(names, values, strict=True))
        return torch.func.functional_call(Step(model, OPERATORS[operator], sigma), _prefixed(replaced), (z, y))

    assert torch.autograd.gradcheck(function, (z, y, *parameters), fast_mode=True, atol=1e-6)


class Step(torch.nn.Module):
    def __init__(self, model, operator, sigma):
        super().__init__()
        self.model, self.operator, self.sigma = model, operator, sigma

    def forward(self, z, y):
        return step(self.model, z, y, self.operator, self.sigma)[0]


def _prefixed(values):
    return {f"model.{name}": value for name, value in values.items()}


def test_gradcheck_in_colour():
    model, z, y, sigma = setting(1, channels=3)
    assert torch.autograd.gradcheck(lambda z, y: step(model, z, y, Identity(), sigma)[0], (z, y), fast_mode=True)


def test_every_parameter_gets_a_gradient():
    model, z, y, sigma = setting(2)
    step(model, z, y, Identity(), sigma)[0].square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def parameter_gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_a_forward_in_between_changes_nothing():
    def gradient(interrupted):
        model, z, y, sigma = setting(2)
        x, _ = step(model, z, y, Identity(), sigma)
        if interrupted:
            other = torch.rand(3, 1, 20, 20, dtype=torch.float64)
            td.reconstruct(other, model=model, sigma=40 / 255, max_iterations=2)
            step(model, other, other, OPERATORS["blur"], torch.full((3,), 45.0, dtype=torch.float64))
        x.square().sum().backward()
        return parameter_gradients(model)

    assert torch.equal(gradient(False), gradient(True))


def test_mean_and_sum_reduced_losses_are_proportional():
    def gradient(reduce):
        model, z, y, sigma = setting(2)
        x, _ = step(model, z, y, Identity(), sigma, tolerance=1e-6)
        reduce(x.square()).backward()
        return parameter_gradients(model), x.numel()

    total, count = gradient(torch.sum)
    mean, _ = gradient(torch.mean)
    torch.testing.assert_close(mean * count, total, rtol=1e-9, atol=1e-12)


def test_implicit_gradient_equals_that_of_a_dense_solve():
    torch.manual_seed(0)
    root = torch.randn(2, 6, 6, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    eye = torch.eye(6, dtype=torch.float64)

    def apply(p, root):
        return p + (root.mT @ (root @ p[..., None]))[..., 0]

    weights = torch.randn(2, 6, dtype=torch.float64)
    implicit = torch.autograd.grad((weights * implicit_solve(apply, b, (root,), tolerance=1e-14)).sum(), (b, root))
    x = torch.linalg.solve(eye + root.mT @ root, b[..., None])[..., 0]
    expected = torch.autograd.grad((weights * x).sum(), (b, root))
    for a, e in zip(implicit, expected, strict=True):
        torch.testing.assert_close(a, e, atol=1e-9, rtol=0)
