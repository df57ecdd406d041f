"""MRI: k-space from files, its noise, the sensitivity maps of its coils, and files of the image."""

from torchdeal.mri.calibration import calibration_width, espirit_maps, estimate_noise
from torchdeal.mri.data import KSpace, KSpaceError, centre_crop, infer_mask
from torchdeal.mri.read import read_kspace, read_maps
from torchdeal.mri.write import check_result_path, write_image

__all__ = [
    "KSpace",
    "KSpaceError",
    "calibration_width",
    "centre_crop",
    "check_result_path",
    "espirit_maps",
    "estimate_noise",
    "infer_mask",
    "read_kspace",
    "read_maps",
    "write_image",
]
