"""The learned parts: filters `W`, attention `M`, and the model that holds their parameters."""

from torchdeal.model.boundary import Boundary
from torchdeal.model.deal import DEAL, SIGMA_MAX, SYMMETRIES, Weights

__all__ = ["DEAL", "SIGMA_MAX", "SYMMETRIES", "Boundary", "Weights"]
