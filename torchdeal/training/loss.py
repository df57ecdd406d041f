"""The loss of a batch: iterations without gradient, one step with, and the three terms of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchdeal.model import DEAL, Weights
from torchdeal.model.spline import PHI_END, SIGMA_END, SIGMA_START
from torchdeal.operators import Operator
from torchdeal.replay import Replays
from torchdeal.solvers import momentum
from torchdeal.training.batches import Batch
from torchdeal.training.engine import Engine, PackedEngine, choose_engine


@dataclass(frozen=True)
class Outcome:
    """What a step found; everything but the loss is detached."""

    loss: Tensor
    error: Tensor  # `||x_K - x||^2`, mean over the batch
    x: Tensor  # x_K


class TrainingStep(nn.Module):
    """A batch in, its loss out: a module, so that `DistributedDataParallel` can hold it.

    Args:
        model: what is trained.
        gamma: weight of the second and third term.
        engine: `"direct"` or `"packed"`; by default the fastest one that fits.
    """

    def __init__(self, model: DEAL, *, gamma: float, engine: str | None = None):
        super().__init__()
        self.model, self.gamma, self.engine_name = model, gamma, engine
        self._engine: Engine | None = None
        self._replays = Replays()

    @torch.no_grad()
    def approach(self, batch: Batch, start: Tensor | None, iterations: int) -> Tensor:
        """`x_{K-1}`: iterations without gradient, from the start, or from zero if None."""
        engine = self._engine_for(batch.clean)

        def prepare(sigma: Tensor) -> tuple[Tensor, Tensor]:
            weights = self.model.constrained()
            engine.prepare(weights)
            return weights.lam(sigma), weights.alpha(sigma)

        graph = isinstance(engine, PackedEngine) and batch.clean.is_cuda
        lam, alpha = self._replays.run("prepare", prepare, batch.sigma) if graph else prepare(batch.sigma)
        b = batch.operator.adjoint(batch.measured)
        return iterate(engine, b, batch.operator, lam, alpha, start, iterations)

    def forward(self, batch: Batch, before: Tensor, consistency: float = 1.0) -> Outcome:
        """The loss of the step from `before`; consistency is a factor of its second term, which 0 leaves out."""
        weights = self.model.constrained()
        engine = self._engine_for(batch.clean)
        engine.load(weights)
        lam, alpha = weights.lam(batch.sigma), weights.alpha(batch.sigma)
        x, mask = engine.step(before, batch.operator.adjoint(batch.measured), batch.operator, lam, alpha)
        error = (x - batch.clean).square().sum() / len(x)
        loss = error + self.gamma * roughness(weights)
        if consistency:
            change = (engine.mask(x, alpha) - mask).square().sum() / len(x)
            loss = loss + consistency * self.gamma / self.model.features * change
        return Outcome(loss, error.detach(), x.detach())

    def _engine_for(self, image: Tensor) -> Engine:
        if self._engine is None:
            with torch.no_grad():
                self._engine = choose_engine(self.model.constrained(), image, self.engine_name)
        return self._engine


def iterate(
    engine: Engine, b: Tensor, operator: Operator, lam: Tensor, alpha: Tensor, start: Tensor | None, count: int
) -> Tensor:
    """`count` inexact steps towards the fixed point, with momentum: the start of `solve_fixed_point`, with no test."""
    x = torch.zeros_like(b) if start is None else start
    age = torch.zeros(len(b), device=b.device, dtype=b.dtype)
    reached = before = None
    for left in reversed(range(count)):
        correction = engine.correction(x, b, operator, lam, alpha)
        new = x + correction
        x = new
        if reached is not None and before is not None and left:
            age, factor = momentum(age, correction, before, new - reached)
            x = new + factor.view(-1, 1, 1, 1) * (new - reached)
        reached, before, age = new, correction, age + 1
    return x


def roughness(weights: Weights) -> Tensor:
    """The second-order total variation of all splines: how much their slopes change."""
    sigma_range = SIGMA_END - SIGMA_START
    splines = [(phi, PHI_END) for phi in weights.phi]
    splines += [(weights.kappa, sigma_range), (weights.log_scaling, sigma_range)]
    terms = [values.diff(n=2).abs().sum() * ((values.shape[-1] - 1) / length) for values, length in splines]
    return torch.stack(terms).sum()
