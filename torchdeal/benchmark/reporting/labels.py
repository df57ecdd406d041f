"""Names of methods, for people."""

from __future__ import annotations

LABELS = {  # of methods, for people; ours first
    "deal": "DEAL",
    "deal-light": "DEAL, light weights",
    "deal-1e-2": "DEAL, tolerance 1e-2",
    "deal-rule": "DEAL, sigma and lam from the noise",
    "deal-paper": "DEAL, sigma and lam of the paper",
    "deal-mean": "DEAL, mean over 8 symmetries",
    "bm3d": "BM3D",
    "tv": "Total variation",
    "nlm": "Non-local means",
    "wavelets": "Wavelets",
    "dncnn": "DnCNN",
    "fdncnn": "FDnCNN",
    "ffdnet": "FFDNet",
    "pnp-dncnn": "PnP-DnCNN",
    "crr": "CRR",
    "wcrr": "WCRR",
    "mmr": "MMR",
    "epll": "EPLL",
    "wiener": "Wiener",
    "richardson-lucy": "Richardson-Lucy",
    "zero-filling": "Zero-filling",
    "fbp": "Filtered back-projection",
}
OURS = "deal"
OURS_FIRST = [name for name in LABELS if name.startswith(OURS)]


def label(method: str) -> str:
    """Its name for people."""
    return LABELS.get(method) or (f"{method.partition(':')[2]} (DeepInverse)" if ":" in method else method)
