"""The equations of the method as a system that solvers take: `A(x) = H^T H + lam W^T M(x)^2 W`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchdeal.backends import Backend, choose_backend
from torchdeal.backends.cpu.workers import together
from torchdeal.model import Boundary, Weights
from torchdeal.model.filters import REACH, impulse_responses
from torchdeal.operators import Operator
from torchdeal.solvers import System
from torchdeal.solvers.preconditioning import Preconditioning

LITTLE = 1 << 16  # numbers of an image for which an operator is left to one thread
WELL_CONDITIONED = 100.0  # lam up to which a correction in denoising may be solved for with rough penalties


@dataclass(frozen=True)
class AttentiveSystem:
    """`x -> A(x) = H^T H + lam W^T M(x)^2 W`, with the masks frozen at x.

    A gray model sees each channel of a colour image as an image, and real and imaginary part of a complex one.
    """

    backend: Backend
    operator: Operator
    lam: Tensor  # (B, 1, 1, 1)
    alpha: Tensor  # (B, N, 1, 1), or (B, N, H, W) where the noise is not the same everywhere
    channels: int  # of the model
    well_conditioned: bool  # a correction may be solved for with rough penalties
    preconditioning: Preconditioning | None = None
    y: Tensor | None = None  # the measurements, where residuals are wanted

    @classmethod
    def of(
        cls,
        weights: Weights,
        operator: Operator,
        b: Tensor,
        lam: Tensor,
        alpha: Tensor,
        backend: str | None = None,
        y: Tensor | None = None,
    ) -> AttentiveSystem:
        """The system for images like b, by the backend of that name, or the fastest one."""
        chosen = choose_backend(weights, b, backend, local=alpha.shape[-2:] != (1, 1))
        channels = weights.filters[0].shape[1]
        # With H = I the condition of A is about 1 + lam: the error of a rough penalty stays small in the solution.
        well_conditioned = operator.is_identity and float(lam.max()) <= WELL_CONDITIONED
        known = preconditioning(weights, operator, b)
        return cls(chosen, operator, lam, alpha, channels, well_conditioned, known, y)

    def precise(self, x: Tensor) -> System:
        return self._at(x, precise=True)

    def rough(self, x: Tensor) -> System:
        """To about 1e-3, where the backend saves time that way."""
        return self._at(x, precise=False)

    def part(self, samples: Tensor) -> AttentiveSystem | None:
        """The same for these samples of the batch alone, `(n,)`; None where the operator is not to be had for them."""
        operator = self.operator.of_samples(samples)
        if operator is None:
            return None

        def rows(values: Tensor) -> Tensor:
            """There are one or several of a sample."""
            return values.unflatten(0, (len(self.lam), -1))[samples].flatten(0, 1)

        return replace(
            self,
            operator=operator,
            lam=rows(self.lam),
            alpha=rows(self.alpha),
            preconditioning=self.preconditioning and self.preconditioning.part(samples),
            y=None if self.y is None else self.y[samples],
        )

    def _at(self, x: Tensor, precise: bool) -> System:
        images = seen_by_model(x, self.channels)
        alpha = self.alpha.repeat_interleave(len(images) // len(self.alpha), 0)
        squared_mask = self.backend.squared_mask(images, alpha, precise=precise)

        def penalty(p: Tensor, precise: bool) -> Tensor:
            return as_seen(self.backend.penalty(seen_by_model(p, self.channels), squared_mask, precise=precise), p)

        def apply(p: Tensor, precise: bool) -> Tensor:
            return self._normal(p).addcmul(self.lam.to(p.dtype), penalty(p, precise))

        # Where H sees nothing, A is small, and rounding errors of b - H^T H x would be large corrections. H^T (y - H x)
        # has hardly any there.
        def residual(x: Tensor) -> Tensor:
            assert self.y is not None
            with self._threads_for_operator(x):
                data = self.operator.adjoint(self.y - self.operator.forward(x))
            return data.addcmul(self.lam.to(x.dtype), penalty(x, precise), value=-1)

        preconditioner = self._preconditioner(squared_mask)
        rough = partial(apply, precise=False) if self.well_conditioned else None
        # A preconditioner is made of new tensors each time. Else what is solved depends on `kind` alone.
        replayable = preconditioner is None and self.operator.replayable and self.backend.replayable(len(images))
        kind = "rough" if self.well_conditioned or not precise else "precise"
        key = kind if replayable else None
        return System(
            apply=partial(apply, precise=precise),
            approximate=rough,
            preconditioner=preconditioner,
            key=key,
            smallest=1.0 if self.operator.is_identity else 0.0,  # A = I + lam W^T M^2 W
            residual=None if self.y is None else residual,
        )

    def _normal(self, p: Tensor) -> Tensor:
        if self.operator.is_identity:
            return p
        with self._threads_for_operator(p):
            return self.operator.normal(p)

    def _threads_for_operator(self, p: Tensor) -> AbstractContextManager[None]:
        """All for large images, since it may be much work, and does not come in pieces.

        One whose symbol is known is little work. For small images threads have more to wait for than to do.
        """
        return together() if self.preconditioning is None and p.numel() > LITTLE else nullcontext()

    def _preconditioner(self, squared_mask: Any) -> Callable[[Tensor], Tensor] | None:
        if self.preconditioning is None:
            return None
        return self.preconditioning.at(self.lam, *self.backend.mask_sums(squared_mask, self.preconditioning.energy))


def preconditioning(weights: Weights, operator: Operator, like: Tensor) -> Preconditioning | None:
    """What makes preconditioners for images like `like`; None where nothing is known of `H^T H`, or in denoising.

    (With `H = I` it saves a third of the CG iterations but little time: masks cost more there than solves.)
    """
    symbol = None if operator.is_identity else operator.normal_symbol(like)
    if symbol is None or min(like.shape[-2:]) <= REACH:  # it mirrors the image once
        return None
    filters, reflecting = impulse_responses(weights.filters), weights.boundary is Boundary.REFLECT
    diagonal, aliasing = operator.normal_diagonal(like), operator.normal_aliasing(like)
    return Preconditioning(filters, reflecting, symbol, diagonal, like, aliasing)


def seen_by_model(x: Tensor, channels: int) -> Tensor:
    """What the model sees: real images of its number of channels; of a complex one two, each with masks of its own."""
    parts = torch.view_as_real(x).movedim(-1, 1) if x.is_complex() else x
    return parts.reshape(-1, channels, *x.shape[-2:])


def as_seen(parts: Tensor, like: Tensor) -> Tensor:
    """The inverse of `seen_by_model`."""
    if not like.is_complex():
        return parts.view_as(like)
    real, imaginary = parts.view(len(like), 2, *like.shape[1:]).unbind(1)
    return torch.complex(real, imaginary)
