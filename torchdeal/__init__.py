"""torchdeal: image reconstruction by deep attentive least squares (DEAL)."""

from typing import TYPE_CHECKING, Any

from torchdeal import operators
from torchdeal.explain import Explanation, explain
from torchdeal.fidelity import Impulse, Poisson
from torchdeal.io.checkpoint import load, save
from torchdeal.model import DEAL
from torchdeal.operators import as_operator
from torchdeal.reconstruct import ConvergenceWarning, denoise, reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.scale.stacks import reconstruct_many
from torchdeal.solvers import Progress, Solution, Status
from torchdeal.uncertainty import sample, uncertainty

if TYPE_CHECKING:
    from torchdeal.scale.tiled import reconstruct_tiled

__version__ = "0.1.0"

__all__ = [
    "DEAL",
    "ConvergenceWarning",
    "Explanation",
    "Impulse",
    "Poisson",
    "Progress",
    "Reconstruction",
    "Solution",
    "Status",
    "as_operator",
    "denoise",
    "explain",
    "load",
    "operators",
    "reconstruct",
    "reconstruct_many",
    "reconstruct_tiled",
    "sample",
    "save",
    "uncertainty",
]


def __getattr__(name: str) -> Any:
    """What is imported when it is asked for."""
    if name == "reconstruct_tiled":
        from torchdeal.scale.tiled import reconstruct_tiled

        return reconstruct_tiled
    raise AttributeError(f"module 'torchdeal' has no attribute {name!r}")
