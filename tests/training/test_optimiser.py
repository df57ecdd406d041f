"""The rate of each step, and the clipping of the gradient."""

import math

import pytest
import torch

from torchdeal.training.config import OptimiserConfig
from torchdeal.training.optimiser import clip_gradient, learning_rate


@pytest.mark.parametrize(("norm", "expected"), [(3.0, 0.5), (0.1, 0.1), (math.inf, 0.0), (math.nan, 0.0)])
def test_a_gradient_is_clipped(norm, expected):
    parameters = [torch.nn.Parameter(torch.zeros(9)), torch.nn.Parameter(torch.zeros(2, 3))]
    without = torch.nn.Parameter(torch.zeros(2))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    parameters[1].grad[1, 1] = norm
    assert float(clip_gradient([*parameters, without], 0.5)) == pytest.approx(norm, nan_ok=True)
    total = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in parameters))
    assert total == pytest.approx(expected, abs=1e-5)
    assert without.grad is None


def test_the_cosine_schedule():
    config = OptimiserConfig(steps=100, lr=1.0, final_lr=0.2, warmup=0)
    assert learning_rate(0, config) == 1.0
    assert learning_rate(50, config) == pytest.approx(0.6)
    assert learning_rate(100, config) == pytest.approx(0.2)
    rates = [learning_rate(step, config) for step in range(101)]
    assert rates == sorted(rates, reverse=True)


def test_the_start_is_linear():
    config = OptimiserConfig(steps=10**9, lr=1.0, warmup=9)
    assert [learning_rate(step, config) for step in range(12)] == pytest.approx([*[k / 10 for k in range(1, 11)], 1, 1])


def test_restarts_come_after_cycles_that_double():
    config = OptimiserConfig(steps=1000, lr=1.0, final_lr=0.0, warmup=0, schedule="restarts", cycle=10)
    rates = [learning_rate(step, config) for step in range(150)]
    assert [step for step, rate in enumerate(rates) if rate == 1.0] == [0, 10, 30, 70]
    assert rates[5] == pytest.approx(0.5)
    assert rates[20] == pytest.approx(0.5)
    assert rates[50] == pytest.approx(0.5)
    assert rates[30:70] == sorted(rates[30:70], reverse=True)
