"""A reconstruction: the image, how the run went, and the problem that it solves.

The problem stays with its answer, so that questions can be asked later: how sure is it, why did it do that, what is
known about the fixed point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchdeal.io.images import ImageFormat
from torchdeal.model import Weights
from torchdeal.operators import Operator
from torchdeal.solvers import Solution
from torchdeal.system import AttentiveSystem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from torchdeal.certificate import Certificate


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


def posed_by(result: Any) -> tuple[PosedEquation, Tensor]:
    """The problem of a result and its answer. Raises TypeError for an image, ValueError for what solves no problem."""
    if not isinstance(result, Reconstruction):
        kind = type(result).__name__
        raise TypeError(f"give what td.reconstruct returned, not an object of type {kind}: rec = td.reconstruct(...)")
    if result.symmetries > 1:
        raise ValueError(
            "this result is a mean of several answers, which is the answer to no single problem: to ask about one, "
            "reconstruct with symmetries=1"
        )
    return result.posed()


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction(Solution):
    """What `reconstruct` returns: a `Solution`, with what it solves.

    Attributes:
        sigma: the noise level that the model assumed, in the units of the data: `(B,)`, or a map.
        lam: the strength, `(B,)`, or a map.
        equation: the problem as it was solved.
        image: the answer to it, `(B, C, H, W)` in 0..1.
        symmetries: how many x is the mean over.
    """

    sigma: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    lam: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False)
    equation: PosedEquation | None = field(default=None, repr=False)
    image: Tensor | None = field(default=None, repr=False)
    symmetries: int = field(default=1, repr=False)

    def posed(self) -> tuple[PosedEquation, Tensor]:
        """The problem and its answer. Raises ValueError for a result that solves none, as of a picture left alone."""
        if self.equation is None or self.image is None:
            raise ValueError("this result was not reconstructed: there is no problem to ask about")
        return self.equation, self.image

    def certificate(
        self,
        *,
        steps: int = 8,
        starts: int = 0,
        tolerance: float = 1e-3,
        max_iterations: int = 500,
        callback: Callable[[str], None] | None = None,
    ) -> Certificate:
        """What is known about this answer: eigenvalues, contraction, distance, stability, uniqueness.

        It takes about ten times as long as the reconstruction itself, and each start as long as one more.

        Args:
            steps: of Lanczos, for each number (half as many for the sensitivity). More are more accurate, and take
                longer.
            starts: solve again from so many other starts (zero, `H^T y`, noise), and say how far apart the answers are.
            tolerance: of these runs, as in `reconstruct`.
            max_iterations: likewise.
            callback: called with the name of each part before it is computed.

        Returns:
            a `Certificate`: numbers per sample, and sentences by `str()`.
        """
        from torchdeal.certificate import certify

        limits = {"tolerance": tolerance, "max_iterations": max_iterations}
        return certify(self, steps=steps, starts=starts, callback=callback, **limits)

    def plot(self, *, sample: int = 0, truth: Any = None) -> Figure:
        """What was measured, the answer, and the residual of each iteration, side by side.

        Where measurements are no images, `H^T y` stands in their place, in a range of its own.

        Args:
            sample: which one of a batch.
            truth: an image like `x`, if it is known: it is shown too, and the PSNR of the others. White is the peak
                where measurements are images, else the largest value of the truth. Of complex images it is that of the
                magnitudes.

        Returns:
            a `matplotlib.figure.Figure`. A notebook shows it where it is the last value of a cell, or by `display`; a
            script by `plt.show()`; `savefig` writes it.
        """
        from torchdeal.display.figure import draw

        return draw(self, sample, truth)

    def _repr_html_(self) -> str | None:
        """What a notebook shows. Where there is nothing to show, None: then it shows the `repr`."""
        from torchdeal.display.html import page_of

        try:
            return page_of(self)
        except Exception:  # a look at a result must not end in an error
            return None
