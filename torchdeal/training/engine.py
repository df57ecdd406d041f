"""What a training step computes with: masks, penalties and the one step that is differentiated.

`DirectEngine` runs everywhere; its step is exact, in full precision. `QuickEngine` is for the CPU: few CG iterations,
by the fastest backend. `PackedEngine` is for CUDA: packed convolutions in half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.backends import Backend, choose_backend
from torchdeal.backends.cuda.graphs import Replays
from torchdeal.backends.cuda.packed import CHANNELS_LAST, PackedBackend, PackedMask
from torchdeal.backends.cuda.packing import PACK, pack, packed_bank
from torchdeal.model import Boundary, Weights
from torchdeal.model.attention import MASK_FLOOR, MASK_REACH
from torchdeal.model.boundary import reflect
from torchdeal.model.filters import REACH, analysis
from torchdeal.model.spline import even_spline
from torchdeal.operators import Operator
from torchdeal.precision import full_precision
from torchdeal.solvers import LinearSolution, conjugate_gradient, differentiable_solve, implicit_solve

LOOSE = 0.4  # reduction of the residual by a solve without gradient
LOOSE_LIMIT = 5  # CG iterations of such a solve at most
FORWARD, FORWARD_LIMIT = 0.05, 8  # of the step with gradient: relative to the residual at its start
BACKWARD, BACKWARD_LIMIT = 3e-3, 12  # of the solve for its gradient
EXACT = 1e-4  # tolerance of both where there is no hurry

ENGINES = ("direct", "quick", "packed")

LinearMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Equation:
    """`A(z) x = b` with `A(z) = H^T H + lam W^T M(z)^2 W`, apart from the weights: its solution is `T(z)`."""

    b: Tensor  # H^T y
    operator: Operator
    lam: Tensor  # (B, 1, 1, 1)
    alpha: Tensor  # (B, N, 1, 1)


class Engine(Protocol):
    """Computes with two sets of weights, of the same values: a frozen copy, and those that carry their gradients."""

    cg_iterations: Tensor  # of the corrections so far, mean over the batch; it stays in its place, for CUDA graphs

    def freeze(self, weights: Weights) -> None:
        """Take a copy of these weights for what needs no gradient: `correction`, and the solves of `step`."""
        ...

    def correction(self, x: Tensor, equation: Equation) -> Tensor:
        """Roughly `T(x) - x`, without gradient."""
        ...

    def track(self, weights: Weights) -> None:
        """Take these weights, which carry their gradients, for `step` and `mask`."""
        ...

    def step(self, z: Tensor, equation: Equation, *, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`T(z)` and `M(z)`, with the implicit gradient; the masks in any layout. The solve starts from z by default.

        The solves may use the frozen weights: they must have the values of those that are tracked.
        """
        ...

    def mask(self, x: Tensor, alpha: Tensor) -> Tensor:
        """`M(x)`, with gradient, in the same layout."""
        ...


def choose_engine(weights: Weights, image: Tensor, name: str | None = None) -> Engine:
    """The engine of that name, or the fastest one, for images like `image`."""
    fits = weights.boundary is Boundary.REFLECT and all(size % PACK == 0 for size in image.shape[-2:])
    if name == "packed" and not fits:
        raise ValueError(f"the packed engine needs the boundary reflect and patches that are multiples of {PACK}")
    if name == "packed" or (name is None and image.is_cuda and fits):
        return PackedEngine(weights, *image.shape[-2:])
    if name == "quick" or (name is None and image.device.type == "cpu"):
        return QuickEngine(weights, image)
    if name in (None, "direct"):
        return DirectEngine(weights, image)
    raise ValueError(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")


def loose_correction(backend: Backend, x: Tensor, equation: Equation, count: Tensor) -> Tensor:
    """Roughly `T(x) - x`: a few conjugate gradients, which are counted, and nothing that waits for a GPU."""
    mask = backend.squared_mask(x, equation.alpha, precise=False)
    A = _system(backend, mask, equation.operator, equation.lam)
    solution = _few_iterations(A, equation.b - A(x), LOOSE, LOOSE_LIMIT)
    count.add_(solution.iterations.to(count.dtype).mean())
    return solution.x


def _few_iterations(A: LinearMap, b: Tensor, tolerance: float, limit: int) -> LinearSolution:
    check_every = 0 if b.is_cuda else None
    return conjugate_gradient(A, b, tolerance=tolerance, max_iterations=limit, check_every=check_every)


def _system(backend: Backend, mask: Any, operator: Operator, lam: Tensor) -> LinearMap:
    return lambda p: operator.normal(p).addcmul(lam, backend.penalty(p, mask, precise=False))


def attentive_step(
    z: Tensor,
    equation: Equation,
    weights: Weights,
    *,
    start: Tensor | None = None,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
) -> tuple[Tensor, Tensor]:
    """`T(z)` and `M(z)`, with the implicit gradient in z, the tensors of the equation and the weights.

    This is the last step of training, and the only one that is differentiated.

    Args:
        z: where the masks are taken, `(B, C, H, W)`.
        equation: with an operator that is constant.
        weights: of a model, from `model.weights()`.
        start: first guess of the solution.
        tolerance: relative, of the forward and of the backward solve.
        max_iterations: of each.
    """
    mask = weights.mask(z, equation.alpha)

    def apply(p: Tensor, lam: Tensor, mask: Tensor, *filters: Tensor) -> Tensor:
        return equation.operator.normal(p) + lam * replace(weights, filters=filters).penalty(p, mask.square())

    parameters = (equation.lam, mask, *weights.filters)
    x = implicit_solve(apply, equation.b, parameters, start=start, tolerance=tolerance, max_iterations=max_iterations)
    return x, mask


class DirectEngine(Engine):
    """Any device, boundary and precision."""

    def __init__(self, weights: Weights, image: Tensor):
        self.image = image
        self.cg_iterations = torch.zeros((), device=image.device)
        self.freeze(weights)
        self.track(weights)

    def freeze(self, weights: Weights) -> None:
        self.backend = choose_backend(_without_gradient(weights), self.image)

    def track(self, weights: Weights) -> None:
        self.weights = weights

    @torch.no_grad()
    def correction(self, x: Tensor, equation: Equation) -> Tensor:
        return loose_correction(self.backend, x, equation, self.cg_iterations)

    def step(self, z: Tensor, equation: Equation, *, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return attentive_step(z, equation, self.weights, start=z if start is None else start, tolerance=EXACT)

    def mask(self, x: Tensor, alpha: Tensor) -> Tensor:
        return self.weights.mask(x, alpha)


class QuickEngine(DirectEngine):
    """Plain convolutions where something is differentiated; few CG iterations by the fastest backend in the solves."""

    def step(self, z: Tensor, equation: Equation, *, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        backend, weights, lam = self.backend, self.weights, equation.lam  # not those of a later step
        mask = weights.mask(z, equation.alpha)
        with torch.no_grad():
            squared = backend.squared_mask(z, equation.alpha)
        A = _system(backend, squared, equation.operator, lam.detach())

        def solve(b: Tensor, start: Tensor | None) -> Tensor:
            if start is None:
                return _few_iterations(A, b, BACKWARD, BACKWARD_LIMIT).x
            return start + _few_iterations(A, b - A(start), FORWARD, FORWARD_LIMIT).x

        def pairing(v: Tensor, x: Tensor, lam: Tensor, mask: Tensor, *filters: Tensor) -> Tensor:
            """`<v, lam W^T M^2 W x> = lam sum M^2 (W v) (W x)`."""
            of_v, of_x = analysis(torch.cat([v, x]), filters, weights.boundary).chunk(2)
            return (lam * (mask.square() * of_v * of_x).sum((1, 2, 3), keepdim=True)).sum()

        start = z if start is None else start
        return differentiable_solve(solve, pairing, equation.b, (lam, mask, *weights.filters), start=start), mask


class PackedEngine(Engine):
    """Packed convolutions in half precision; masks are packed too.

    Args:
        weights: the first ones, with the boundary reflect.
        height: of the images, a multiple of 4, as is the width.
        width: of the images.
        dtype: of the convolutions that are differentiated. (bfloat16 has the range that gradients need.)
    """

    def __init__(self, weights: Weights, height: int, width: int, *, dtype: torch.dtype | None = None):
        like = weights.mix[0]
        self.dtype = dtype or (torch.bfloat16 if like.is_cuda else like.dtype)
        self.cg_iterations = torch.zeros((), device=like.device)
        self.backend = PackedBackend(_without_gradient(weights), height, width, graphs=False)
        self.replays = Replays()
        self.track(weights)

    def freeze(self, weights: Weights) -> None:
        with full_precision(weights.kappa.device):
            self.backend.load(weights)

    def track(self, weights: Weights) -> None:
        self.weights = weights
        with full_precision(weights.kappa.device):
            self.analysis = [self._low(kernel) for kernel in packed_bank(weights.filters)]
            self.mask_bank = [self._low(kernel) for kernel in packed_bank(weights.mask_filters)]
        self.mix = [self._low(kernel) for kernel in weights.mix]

    @torch.no_grad()
    def correction(self, x: Tensor, equation: Equation) -> Tensor:
        operator = equation.operator

        def correct(x: Tensor, b: Tensor, lam: Tensor, alpha: Tensor) -> Tensor:
            return loose_correction(self.backend, x, Equation(b, operator, lam, alpha), self.cg_iterations)

        return self._run("correction", correct, operator, x, equation.b, equation.lam, equation.alpha)

    def step(self, z: Tensor, equation: Equation, *, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        operator, lam = equation.operator, equation.lam
        start = z if start is None else start
        mask = self.mask(z, equation.alpha)
        squared = mask.detach().square().to(self.backend.dtype, memory_format=CHANNELS_LAST)
        frozen = lam.detach(), squared  # inputs of the graphs: another step before the backward must not change them

        def forward(b: Tensor, start: Tensor, lam: Tensor, squared: Tensor) -> Tensor:
            A = _system(self.backend, PackedMask(squared, None), operator, lam)
            return start + _few_iterations(A, b - A(start), FORWARD, FORWARD_LIMIT).x

        def backward(gradient: Tensor, lam: Tensor, squared: Tensor) -> Tensor:
            A = _system(self.backend, PackedMask(squared, None), operator, lam)
            return _few_iterations(A, gradient, BACKWARD, BACKWARD_LIMIT).x

        @torch.no_grad()
        def solve(b: Tensor, start: Tensor | None) -> Tensor:
            if start is None:
                return self._run("backward", backward, operator, b.contiguous(), *frozen)
            return self._run("forward", forward, operator, b, start, *frozen)

        return differentiable_solve(solve, self._pairing, equation.b, (lam, mask, *self.analysis), start=start), mask

    def mask(self, x: Tensor, alpha: Tensor) -> Tensor:
        """`M(x)`, packed, in full precision."""
        phi1, phi2, phi3 = self.weights.phi
        image = x - x.mean((1, 2, 3), keepdim=True)  # W_mask maps constants to 0; smaller numbers lose less
        features = self._convolutions(pack(reflect(image, MASK_REACH)), self.mask_bank)
        features = self._unpacked(even_spline(features, phi1))
        features = even_spline(F.conv2d(features, self.mix[0]), phi2)
        features = F.conv2d(features, self.mix[1]).to(alpha.dtype) * alpha
        return self._packed(even_spline(features, phi3).clamp(MASK_FLOOR, 1))

    def _pairing(self, v: Tensor, x: Tensor, lam: Tensor, mask: Tensor, *analysis: Tensor) -> Tensor:
        """`<v, lam W^T M^2 W x> = lam sum M^2 (W v) (W x)`."""
        images = torch.cat([v, x - x.mean((1, 2, 3), keepdim=True)])
        scale = images.square().mean((1, 2, 3), keepdim=True).sqrt().clamp_min(torch.finfo(images.dtype).tiny)
        responses = self._convolutions(pack(reflect(images / scale, REACH)), list(analysis))
        of_v, of_x = responses.to(mask.dtype).chunk(2)
        scale_v, scale_x = scale.chunk(2)
        energies = (mask.square() * of_v * of_x).sum((1, 2, 3), keepdim=True)
        return (lam * scale_v * scale_x * energies).sum()

    def _run(self, name: str, function: Callable[..., Tensor], operator: Operator, *inputs: Tensor) -> Tensor:
        """As a CUDA graph, in denoising only: another operator may hold tensors of its own, others in each batch."""
        if not inputs[0].is_cuda or not operator.is_identity:
            return function(*inputs)
        return self.replays.run((name, len(inputs[0])), function, *inputs)

    def _convolutions(self, image: Tensor, bank: list[Tensor]) -> Tensor:
        image = self._low(image)
        for kernel in bank:
            image = F.conv2d(image, kernel)
        return image

    def _low(self, values: Tensor) -> Tensor:
        return values.to(self.dtype).contiguous(memory_format=CHANNELS_LAST)

    def _unpacked(self, packed: Tensor) -> Tensor:
        """`unpack` for the channels-last layout: pixels move, their features stay together."""
        batch, _, height, width = packed.shape
        cells = packed.permute(0, 2, 3, 1).reshape(batch, height, width, PACK, PACK, -1).transpose(2, 3)
        return cells.reshape(batch, height * PACK, width * PACK, -1).permute(0, 3, 1, 2)

    def _packed(self, image: Tensor) -> Tensor:
        """`pack` likewise."""
        batch, _, height, width = image.shape
        cells = image.permute(0, 2, 3, 1).reshape(batch, height // PACK, PACK, width // PACK, PACK, -1)
        cells = cells.transpose(2, 3).reshape(batch, height // PACK, width // PACK, -1)
        return cells.permute(0, 3, 1, 2)


def _without_gradient(weights: Weights) -> Weights:
    """A copy of the weights, that nothing else changes."""
    copies = {
        name: tuple(value.detach().clone() for value in getattr(weights, name))
        for name in ("filters", "mask_filters", "mix", "phi")
    }
    return replace(weights, log_scaling=weights.log_scaling.detach(), kappa=weights.kappa.detach(), **copies)
