"""Linear operators `H`: what turns an image into measurements."""

from torchdeal.operators.adapters import adjoint_gap, as_operator, check_adjoint, is_trusted
from torchdeal.operators.base import Compose, Operator, Scaled
from torchdeal.operators.imaging import Blur, BlurBoundary, Identity, Mask

__all__ = [
    "Blur",
    "BlurBoundary",
    "Compose",
    "Identity",
    "Mask",
    "Operator",
    "Scaled",
    "adjoint_gap",
    "as_operator",
    "check_adjoint",
    "is_trusted",
]
