"""A reconstruction: the image, how the run went, and the problem that it solves.

The problem stays with its answer, so that questions can be asked later: how sure is it, why did it do that, what is
known about the fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchdeal.io.images import ImageFormat
from torchdeal.model import Weights
from torchdeal.operators import Operator
from torchdeal.solvers import Solution
from torchdeal.system import AttentiveSystem


@dataclass(frozen=True, eq=False)
class PosedEquation:
    """`A(x) x = H^T y` as it was solved: images are in 0..1, and `H` has a gain that is not far from 1.

    Attributes:
        weights: of the model.
        operator: `H`.
        y: the measurements.
        b: `H^T y`.
        sigma: on the 0..255 scale, `(B,)`; where noise is not the same everywhere, a map for each image that the model
            sees, `(P, 1, H, W)`.
        lam: `(B, 1, 1, 1)`.
        noise: the standard deviation of the noise in y, `(B, 1, 1, 1)` or a map; None where it is not known.
        scale: the value of white, `(B,)`, in images that `image_format` restores.
        image_format: what results look like to the user.
        backend: by which name it was chosen; None: the fastest.
    """

    weights: Weights
    operator: Operator
    y: Tensor
    b: Tensor
    sigma: Tensor
    lam: Tensor
    noise: Tensor | None
    scale: Tensor
    image_format: ImageFormat
    backend: str | None = None

    def system(self) -> AttentiveSystem:
        """`x -> A(x)`."""
        alpha = self.weights.alpha(self.sigma)
        return AttentiveSystem.of(self.weights, self.operator, self.b, self.lam, alpha, self.backend, self.y)

    def restored(self, x: Tensor) -> Any:
        """An image `(B, C, H, W)` in 0..1 as the user has images."""
        return self.image_format.restore(x * self.scale.view(-1, 1, 1, 1))


@dataclass(frozen=True, eq=False)
class Reconstruction(Solution):
    """What `reconstruct` returns: a `Solution`, with what it solves.

    Attributes:
        sigma: the noise level that the model assumed, in the units of the data: `(B,)`, or a map.
        lam: the strength, `(B,)`, or a map.
        equation: the problem as it was solved.
        image: the answer to it, `(B, C, H, W)` in 0..1.
    """

    sigma: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    lam: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    equation: PosedEquation | None = field(default=None, repr=False)
    image: Tensor | None = field(default=None, repr=False)

    def posed(self) -> tuple[PosedEquation, Tensor]:
        """The problem and its answer. Raises ValueError for a result that solves none, as of a picture left alone."""
        if self.equation is None or self.image is None:
            raise ValueError("this result was not reconstructed: there is no problem to ask about")
        return self.equation, self.image
