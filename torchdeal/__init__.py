"""torchdeal: image reconstruction by deep attentive least squares (DEAL)."""

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
    "sample",
    "save",
    "uncertainty",
]
