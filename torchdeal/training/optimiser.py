"""Adam: its rate at each step, the clipping of its gradient, and its state as tensors with names."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from torchdeal.model import DEAL
from torchdeal.model.spline import sigma_knots
from torchdeal.training.config import OptimiserConfig

STATE = ("step", "exp_avg", "exp_avg_sq")


def adam(model: nn.Module, config: OptimiserConfig) -> torch.optim.Adam:
    """Adam for all parameters; in a CUDA graph its rate must be a tensor."""
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    rate = torch.tensor(config.lr, device=device) if on_gpu else config.lr
    return torch.optim.Adam(model.parameters(), rate, betas=config.betas, foreach=True, capturable=on_gpu)


def restrict(model: DEAL, above: float) -> list[tuple[nn.Parameter, Tensor]]:
    """Leave only what decides on noise levels above this one to be trained: knots of the splines in sigma.

    A knot is part of the piece before it, too: that must begin at this level or above.

    Returns these parameters, each with 1 at knots that are trained and 0 at the others, for their gradients.
    """
    if above < 0:
        return []
    model.requires_grad_(False)
    chosen = [model.kappa, model.scaling]
    for values in chosen:
        values.requires_grad_(True)
    return [(values, _trained_knots(values, above).to(values).expand_as(values)) for values in chosen]


def _trained_knots(values: Tensor, above: float) -> Tensor:
    knots = sigma_knots(values)
    return torch.cat([knots.new_zeros(1, dtype=torch.bool), knots[:-1] >= above])


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Written, if it is a tensor, where a CUDA graph looks for it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(step: int, config: OptimiserConfig) -> float:
    """Cosine from `lr` to `final_lr`, once or in cycles that double, after a linear start."""
    position, length = step, config.steps
    if config.schedule == "restarts":
        length = config.cycle
        while position >= length:
            position, length = position - length, 2 * length
    share = min(position / length, 1.0)
    rate = config.final_lr + (config.lr - config.final_lr) * (1 + math.cos(math.pi * share)) / 2
    return rate * min(1.0, (step + 1) / (config.warmup + 1))


def clip_gradient(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scale the gradient to a norm of `limit` at most, and return its norm; one that is not finite becomes 0."""
    known = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.clip_grad_norm_(known, limit, foreach=True)
    for parameter in known:
        assert parameter.grad is not None
        parameter.grad.copy_(torch.where(torch.isfinite(norm), parameter.grad, 0))
    return norm


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of Adam, with the names of the parameters."""
    names = [name for name, _ in model.named_parameters()]
    states = optimiser.state_dict()["state"].items()
    return {f"adam.{names[i]}.{key}": torch.as_tensor(state[key]) for i, state in states for key in state}


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimiser_tensors`."""
    content = optimiser.state_dict()
    content["state"] = {
        i: {key: tensors[f"adam.{name}.{key}"] for key in STATE if f"adam.{name}.{key}" in tensors}
        for i, (name, _) in enumerate(model.named_parameters())
        if f"adam.{name}.step" in tensors
    }
    optimiser.load_state_dict(content)
