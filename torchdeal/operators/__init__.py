"""Linear operators `H`: what turns an image into measurements."""

from torchdeal.operators.adapters import adjoint_gap, as_operator, check_adjoint
from torchdeal.operators.base import Compose, Operator, Scaled, Stack, Weighted
from torchdeal.operators.checked import is_trusted
from torchdeal.operators.fan_beam import FanBeam
from torchdeal.operators.imaging import Blur, BlurBoundary, Downsample, Identity, Mask
from torchdeal.operators.matrix import Matrix
from torchdeal.operators.mri import Fourier, MultiCoilFourier, NonCartesianFourier
from torchdeal.operators.tomography import Radon

__all__ = [
    "Blur",
    "BlurBoundary",
    "Compose",
    "Downsample",
    "FanBeam",
    "Fourier",
    "Identity",
    "Mask",
    "Matrix",
    "MultiCoilFourier",
    "NonCartesianFourier",
    "Operator",
    "Radon",
    "Scaled",
    "Stack",
    "Weighted",
    "adjoint_gap",
    "as_operator",
    "check_adjoint",
    "is_trusted",
]
