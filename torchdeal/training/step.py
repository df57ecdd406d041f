"""The loss of a batch: iterations without gradient, one step with, and the three terms of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchdeal.backends.cuda.graphs import Replays
from torchdeal.model import DEAL, Weights
from torchdeal.model.spline import PHI_END, SIGMA_END, SIGMA_START
from torchdeal.solvers import extrapolation
from torchdeal.solvers.cg import inner_products
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.engine import Engine, Equation, PackedEngine, choose_engine

FINITE_STEP = 0.02  # of the image: half precision does not see what smaller ones change in the masks
POWER_ITERATIONS = 2
NEVER_ZERO = 1e-4  # of what was removed from the image: the last step is 0 where its solve had nothing to do


@dataclass(frozen=True)
class StepResult:
    """What a step found; everything but the loss is detached."""

    loss: Tensor
    error: Tensor  # `||x_K - x||^2`, mean over the batch
    x: Tensor  # x_K
    contraction: Tensor | None  # of T, mean over the batch; None where it was not asked for
    direction: Tensor | None = None  # what T shrinks least, as far as it was found


class TrainingStep(nn.Module):
    """A batch in, its loss out: a module, so that `DistributedDataParallel` can hold it.

    Args:
        model: what is trained.
        config: the weights of the terms.
        engine: `"direct"`, `"quick"` or `"packed"`; by default the fastest one that fits.
    """

    def __init__(self, model: DEAL, config: LossConfig, *, engine: str | None = None):
        super().__init__()
        self.model, self.config, self.engine_name = model, config, engine
        self._engine: Engine | None = None
        self._replays = Replays()

    @torch.no_grad()
    def approach(self, batch: Batch, start: Tensor | None, iterations: int) -> Tensor:
        """`x_{K-1}`: iterations without gradient, from the start, or from zero if None."""
        engine = self._engine_for(batch.clean)

        def freeze(sigma: Tensor) -> tuple[Tensor, Tensor]:
            weights = self.model.constrained()
            engine.freeze(weights)
            return weights.lam(sigma), weights.alpha(sigma)

        graph = isinstance(engine, PackedEngine) and batch.clean.is_cuda
        lam, alpha = self._replays.run("freeze", freeze, batch.sigma) if graph else freeze(batch.sigma)
        b = batch.operator.adjoint(batch.measured)
        return iterate(engine, Equation(b, batch.operator, lam, alpha), start, iterations)

    def forward(
        self, batch: Batch, before: Tensor, occasional: float = 1.0, direction: Tensor | None = None
    ) -> StepResult:
        """The loss of the step from `before`.

        `direction` is what an earlier visit of this batch found that T shrinks least; 0 where there was none.

        The terms that only some steps have, that of the masks and that of the contraction, are multiplied by
        `occasional`; 0 leaves them out.
        """
        weights = self.model.constrained()
        engine = self._engine_for(batch.clean)
        engine.track(weights)
        lam, alpha, gamma = weights.lam(batch.sigma), weights.alpha(batch.sigma), self.config.gamma
        equation = Equation(batch.operator.adjoint(batch.measured), batch.operator, lam, alpha)
        x, mask = engine.step(before, equation)
        error = (x - batch.clean).square().sum() / len(x)
        loss = error + gamma * roughness(weights)
        contraction = found = None
        if occasional:
            change = (engine.mask(x, alpha) - mask).square().sum() / len(x)
            loss = loss + occasional * gamma / self.model.features * change
        if occasional and self.config.slowness:
            squared, found = squared_contraction(engine, before, x, equation, direction)
            excess = (squared - self.config.contraction**2).clamp_min(0).mean()
            loss = loss + occasional * self.config.slowness * excess
            contraction = squared.detach().sqrt().mean()
        return StepResult(loss, error.detach(), x.detach(), contraction, found)

    def take_cg_iterations(self) -> float:
        """Those of `approach` since the last time, mean over the batch."""
        if self._engine is None:
            return 0.0
        count = float(self._engine.cg_iterations)
        self._engine.cg_iterations.zero_()
        return count

    def _engine_for(self, image: Tensor) -> Engine:
        if self._engine is None:
            with torch.no_grad():
                self._engine = choose_engine(self.model.constrained(), image, self.engine_name)
        return self._engine


def iterate(engine: Engine, equation: Equation, start: Tensor | None, count: int) -> Tensor:
    """`count` inexact steps towards the fixed point, with momentum: the start of `solve_fixed_point`, with no test."""
    x = torch.zeros_like(equation.b) if start is None else start
    age = x.new_zeros(len(x))
    reached = before = None
    for left in reversed(range(count)):
        correction = engine.correction(x, equation)
        new = x + correction
        x = new
        if reached is not None and before is not None and left:
            turned, change = inner_products(correction, new - reached) < 0, correction - before
            opposed = inner_products(correction, before) < 0
            aitken = inner_products(correction, change) / inner_products(change, change)
            age, factor = extrapolation(age, turned, opposed, aitken)
            x = new + factor.view(-1, 1, 1, 1) * (new - reached)
        reached, before, age = new, correction, age + 1
    return x


def squared_contraction(
    engine: Engine, before: Tensor, x: Tensor, equation: Equation, direction: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`||T(before + v) - T(before)||^2 / ||v||^2` per sample, differentiable, for the v that T shrinks least; and v.

    That v is found by power iterations, and is constant for the gradient. They start from the direction that was found
    at an earlier visit, or else from the last step, where the directions that T shrinks fast have died out already.

    Args:
        engine: that tracks the weights.
        before: close to the fixed point.
        x: `T(before)`, with its gradient.
        equation: what T solves.
        direction: from an earlier visit; samples for which it is 0 have none.
    """

    def scaled(direction: Tensor) -> Tensor:
        size = FINITE_STEP * before.square().sum((1, 2, 3), keepdim=True).sqrt()
        norm = direction.square().sum((1, 2, 3), keepdim=True).sqrt()
        return direction * (size / norm.clamp_min(torch.finfo(norm.dtype).tiny))

    def moved(v: Tensor) -> Tensor:
        """`T(before + v) - T(before)`."""
        return engine.step(before + v, equation, start=x.detach())[0] - x

    with torch.no_grad():
        v = x - before + NEVER_ZERO * (equation.b - x)
        if direction is not None:
            v = torch.where(direction.square().sum((1, 2, 3), keepdim=True) > 0, direction, v)
        v = scaled(v)
        for _ in range(POWER_ITERATIONS):
            v = scaled(moved(v))
    squared = moved(v).square().sum((1, 2, 3)) / v.square().sum((1, 2, 3)).clamp_min(torch.finfo(v.dtype).tiny)
    return squared, v


def roughness(weights: Weights) -> Tensor:
    """The second-order total variation of all splines: how much their slopes change."""
    sigma_range = SIGMA_END - SIGMA_START
    splines = [(phi, PHI_END) for phi in weights.phi]
    splines += [(weights.kappa, sigma_range), (weights.log_scaling, sigma_range)]
    terms = [values.diff(n=2).abs().sum() * ((values.shape[-1] - 1) / length) for values, length in splines]
    return torch.stack(terms).sum()
