"""`torchdeal.integrations.deepinv`, by its shorter name: `from torchdeal.deepinv import DEAL, Denoiser`."""

from torchdeal.integrations.deepinv import DEAL, Denoiser

__all__ = ["DEAL", "Denoiser"]
