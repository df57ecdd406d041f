"""What k-space says about its scan: the noise, at its edge, and the coil sensitivities, in its middle."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchdeal.extras import optional
from torchdeal.mri.data import KSpaceError, as_kspace, measured_mask
from torchdeal.noise import deviation

OUTER, FEWEST = 0.02, 500  # share, and least number, of the samples of a coil that are taken for noise
KERNEL = 6  # of ESPIRiT
WIDEST = 24  # calibration region that is used: more costs time and changes little
NARROWEST = 8  # from which on the kernels can be told from noise


def estimate_noise(
    kspace: Tensor | np.ndarray, mask: Tensor | np.ndarray | None = None, *, centered: bool = False
) -> float:
    """The standard deviation of the noise in the real and in the imaginary part, in the units of the data.

    The image hardly reaches the highest frequencies: the median absolute value of the outermost fiftieth of the samples
    that were measured, over all coils and slices, is that of the noise. It is too high where the image does reach them
    (sharp edges, low resolution, little noise: a picture of 128 x 128 with noise of 1 % of white gets 1.3 times as
    much), and too low where samples were filtered, or filled with zeros that the mask counts as measured. Coils of
    different noise get one number between theirs.

    Args:
        kspace: complex, `(H, W)`, `(coils, H, W)` or `(slices, coils, H, W)`.
        mask: what was measured, `(H, W)` or `(W,)`; by default what is not zero.
        centered: the zero frequency is in the middle, else at [0, 0].
    """
    values = as_kspace(kspace)
    measured = measured_mask(values, mask)
    radius = _radius((values.shape[-2], values.shape[-1]), centered)[measured]
    if not len(radius):
        raise ValueError("the k-space is zero: there is no noise to estimate")
    number = min(max(round(OUTER * len(radius)), FEWEST), len(radius))
    outer = radius >= radius.topk(number).values[-1]
    samples = values[..., measured.to(values.device)][..., outer.to(values.device)]
    return deviation(torch.view_as_real(samples.to(torch.complex128)))


def _radius(size: tuple[int, int], centered: bool) -> Tensor:
    """Of each frequency, relative to the highest one of its direction."""
    rows, columns = (torch.fft.fftfreq(length, dtype=torch.float64) for length in size)
    radius = torch.hypot(rows[:, None], columns[None])
    return torch.fft.fftshift(radius) if centered else radius


def calibration_width(mask: Tensor | np.ndarray, *, centered: bool = False) -> int:
    """The width of the largest square in the middle of k-space that is fully sampled; 0 if there is none."""
    sampled = np.asarray(mask) != 0
    if sampled.ndim != 2:
        raise ValueError(f"the mask must be (H, W), got {sampled.shape}")
    sampled = sampled if centered else np.fft.fftshift(sampled)
    height, width = sampled.shape
    full = 0
    for size in range(1, min(height, width) + 1):
        top, left = height // 2 - size // 2, width // 2 - size // 2
        if not sampled[top : top + size, left : left + size].all():
            break
        full = size
    return full


def espirit_maps(
    kspace: Tensor | np.ndarray,
    mask: Tensor | np.ndarray | None = None,
    *,
    centered: bool = False,
    width: int | None = None,
    threshold: float = 0.02,
    crop: float = 0.0,
) -> Tensor:
    """Coil sensitivities by ESPIRiT (Uecker et al. 2014, by SigPy), for `MultiCoilFourier`.

    The sum of their squared magnitudes is 1. Their phase is relative to the strongest coil, and the image has the phase
    of that coil: it is complex, `MultiCoilFourier(maps, mask, real=False)`. The maps are smooth also across the border
    of the image, so they are wrong near it where the object goes on there.

    Args:
        kspace: complex, `(coils, H, W)` or `(B, coils, H, W)`.
        mask: what was measured, `(H, W)` or `(W,)`; by default what is not zero.
        centered: the zero frequency is in the middle, of the image and of the k-space, else at [0, 0].
        width: of the calibration region, a square in the middle of k-space; by default as large as the mask has it, but
            at most 24.
        threshold: singular values below this share of the largest are noise.
        crop: maps are zero where the eigenvalue, 1 for pure signal, is below. It blackens the background (0.8 is
            usual), but also the object where the calibration region is narrow: with 10 lines a third of it.

    Returns:
        maps, complex, of the shape of `kspace`.
    """
    values = as_kspace(kspace)
    found = calibration_width(measured_mask(values, mask), centered=centered)
    wanted = min(found, WIDEST) if width is None else width
    if not NARROWEST <= wanted <= found:
        raise KSpaceError(
            f"ESPIRiT needs a fully sampled square in the middle of k-space, at least {max(wanted, NARROWEST)} wide; "
            f"this one is {found} wide: give sensitivity maps, or measure more lines in the middle"
        )
    if values.shape[-3] < 2:
        raise KSpaceError("ESPIRiT compares coils, and this k-space has only one: it needs no maps")
    samples = values if values.ndim == 4 else values[None]
    maps = torch.stack([_maps(sample, wanted, threshold, crop, centered) for sample in samples])
    return maps.view(values.shape)


def _maps(kspace: Tensor, width: int, threshold: float, crop: float, centered: bool) -> Tensor:
    """Of one slice `(coils, H, W)`."""
    espirit = optional("sigpy.mri.app", "ESPIRiT", "mri").EspiritCalib
    array = (kspace if centered else torch.fft.fftshift(kspace, (-2, -1))).cpu().numpy()
    # SigPy takes the phase relative to the first coil, which must see something.
    order = np.argsort(-np.square(np.abs(array)).sum((1, 2)), kind="stable")
    with np.errstate(invalid="ignore", divide="ignore"):
        sorted_maps = espirit(
            array[order], calib_width=width, thresh=threshold, kernel_width=KERNEL, crop=crop, show_pbar=False
        ).run()
    maps = np.empty_like(array)
    maps[order] = np.where(np.isfinite(sorted_maps), sorted_maps, 0)
    result = torch.from_numpy(maps).to(kspace)
    return result if centered else torch.fft.ifftshift(result, (-2, -1))
