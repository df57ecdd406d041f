"""K-space: files, sensitivity maps, noise, and what becomes of the image."""

from torchdeal.kspace.calibration import calibration_width, espirit_maps
from torchdeal.kspace.data import KSpace, KSpaceError, centre_crop, infer_mask
from torchdeal.kspace.noise import estimate_noise
from torchdeal.kspace.read import read_kspace
from torchdeal.kspace.sampling import random_columns
from torchdeal.kspace.write import check_result_path, write_image

__all__ = [
    "KSpace",
    "KSpaceError",
    "calibration_width",
    "centre_crop",
    "check_result_path",
    "espirit_maps",
    "estimate_noise",
    "infer_mask",
    "random_columns",
    "read_kspace",
    "write_image",
]
