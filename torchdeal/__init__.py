"""torchdeal: image reconstruction by deep attentive least squares (DEAL)."""

from torchdeal import operators
from torchdeal.io.checkpoint import load, save
from torchdeal.model import DEAL
from torchdeal.operators import as_operator
from torchdeal.reconstruct import ConvergenceWarning, denoise, reconstruct
from torchdeal.reconstruction import Reconstruction
from torchdeal.solvers import Progress, Solution, Status

__version__ = "0.1.0"

__all__ = [
    "DEAL",
    "ConvergenceWarning",
    "Progress",
    "Reconstruction",
    "Solution",
    "Status",
    "as_operator",
    "denoise",
    "load",
    "operators",
    "reconstruct",
    "save",
]
