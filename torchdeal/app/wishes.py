"""What a person chose on the page, checked, and the task of the command line that does it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdeal.app.uploads import SCANS, Upload, UploadError
from torchdeal.choice import Choice
from torchdeal.cli.ct import SimulatedSinogram, SinogramTask
from torchdeal.cli.deblur import Deblurring
from torchdeal.cli.denoise import Denoising
from torchdeal.cli.inpaint import RANDOM, Inpainting, masks_for, read_mask
from torchdeal.cli.mri import ScanTask, SimulatedScan
from torchdeal.cli.options import Settings
from torchdeal.cli.run import Task
from torchdeal.cli.shared import Device, WeightsSize
from torchdeal.cli.upscale import DEFAULT_SIGMA, DEFAULT_STD, Upscaling
from torchdeal.mri.data import MIDDLE
from torchdeal.operators import Blur, BlurBoundary
from torchdeal.operators.blur_kernels import gaussian_kernel, parse_kernel, read_kernel
from torchdeal.reconstruct import DEFAULT_TOLERANCE
from torchdeal.sinograms import Layout

FORMULA = re.compile(r"(gaussian|disk|motion):[-+.,\de]{1,24}")  # of a kernel; anything else might be a path
FILE, BRUSH = "file", "brush"
LIMITS = {
    "part": (32, 4096),
    "sigma": (0.0, 1000.0),
    "model_sigma": (0.0, 255.0),
    "lam": (1e-9, 1e9),
    "tolerance": (1e-5, 0.1),
    "scale": (2, 8),
    "known": (0.02, 1.0),
    "acceleration": (1.0, 16.0),
    "centre": (0.0, 1.0),
    "angles": (1, 720),
}


class Goal(Choice):
    """What is to be done with the picture."""

    DENOISE = "denoise"
    DEBLUR = "deblur"
    UPSCALE = "upscale"
    INPAINT = "inpaint"
    MRI = "mri"
    CT = "ct"


@dataclass(frozen=True)
class Wish:
    """The choices, with what a page that says nothing means. None: found automatically."""

    goal: Goal = Goal.DENOISE
    simulate: bool = False  # the picture is clean: degrade it first
    part: int | None = None  # of the middle of the picture: height and width
    weights: WeightsSize = WeightsSize.LIGHT
    sigma: float | None = None  # noise, on the 0..255 scale; of k-space and sinograms in their units
    model_sigma: float | None = None  # on the 0..255 scale
    lam: float | None = None
    tolerance: float = DEFAULT_TOLERANCE
    kernel: str = "gaussian:1.6"  # or "file": the one that was drawn or uploaded
    boundary: BlurBoundary = BlurBoundary.VALID
    scale: int = 2
    mask: str = BRUSH  # or "random"
    known: float = 0.5  # share of the pixels, of a random mask
    acceleration: float = 4.0
    centre: float = 0.08
    angles: int = 60

    @classmethod
    def of(cls, values: Any) -> Wish:
        """From JSON. Raises ValueError for what is not among the choices."""
        if not isinstance(values, Mapping):
            raise ValueError("The choices must be a JSON object.")
        defaults = {field.name: field.default for field in fields(cls)}
        for name in values:
            if name not in defaults:
                raise ValueError(f"There is no choice of the name {str(name)[:40]!r}.")
        return cls(**{name: _checked(name, value, defaults[name]) for name, value in values.items()})

    def __post_init__(self) -> None:
        if self.kernel != FILE and not FORMULA.fullmatch(self.kernel):
            raise ValueError("The kernel must be gaussian:STD, disk:RADIUS, motion:LENGTH,ANGLE, or file.")
        if self.mask not in (BRUSH, "random"):
            raise ValueError("The mask must be brush or random.")
        if self.mask == "random" and self.goal is Goal.INPAINT and not self.simulate:
            raise ValueError("A random mask is for a clean picture that is degraded first: paint what is missing.")
        if self.centre > 1 / self.acceleration:
            raise ValueError("The share in the centre must be at most 1 / acceleration: lower one of them.")

    def settings(self, upload: Upload, device: str) -> Settings:
        """As the options of the command line would be."""
        image = None if self.goal in (Goal.MRI, Goal.CT) else upload.image
        return self.settings_for(1 if image is None else image.colours, device)

    def settings_for(self, colours: int, device: str) -> Settings:
        """For an image with so many channels."""
        model = ("color" if colours == 3 else "gray") + ("-light" if self.weights is WeightsSize.LIGHT else "")
        sigma = DEFAULT_SIGMA if self.goal is Goal.UPSCALE and self.sigma is None else self.sigma
        return Settings(
            sigma=sigma,
            lam=self.lam,
            model_sigma=None if self.goal is Goal.DENOISE else self.model_sigma,  # it is the noise there
            model=model,
            device=Device(device),
            tolerance=self.tolerance,
            simulate=self.simulate,
        )


def _checked(name: str, value: Any, default: Any) -> Any:
    """A value of the type of its default, within its limits."""
    if isinstance(default, Choice):
        return type(default)(value)
    if isinstance(default, (bool, str)):
        if not isinstance(value, type(default)):
            raise ValueError(f"{name} must be {'yes or no' if isinstance(default, bool) else 'a text'}.")
        return value
    if value is None and default is None:
        return None
    low, high = LIMITS[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number.")
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low:g} to {high:g}.")
    return int(value) if isinstance(low, int) else float(value)


def task_for(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    """What the command of this name would do. Raises ValueError where something is missing for it."""
    picture = uploads["picture"]
    if wish.goal is not Goal.MRI and picture.suffix in SCANS:
        raise UploadError("This file holds k-space: choose MRI.")
    if wish.simulate and picture.image is None:
        raise UploadError("This file is no picture, so there is nothing to degrade: switch the simulation off.")
    if wish.goal is not Goal.MRI and picture.image is None:
        raise UploadError("The numbers in this file are complex: choose MRI.")
    return TASKS[wish.goal](wish, settings, uploads)


def kernel_of(wish: Wish, uploads: Mapping[str, Upload], shift: float = 0.0) -> Tensor:
    """The one that was uploaded or drawn, or that the formula says."""
    if wish.kernel != FILE:
        return parse_kernel(wish.kernel, shift)
    if "kernel" not in uploads:
        raise UploadError("Draw a kernel, or upload one.")
    return read_kernel(uploads["kernel"].path)


def _denoising(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    return Denoising(settings)


def _deblurring(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    return Deblurring(settings, Blur(kernel_of(wish, uploads), wish.boundary))


def _upscaling(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    return Upscaling(settings, wish.scale, gaussian_kernel(DEFAULT_STD * wish.scale, -(wish.scale - 1) / 2))


def _inpainting(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    if wish.mask == "random":
        name = f"{RANDOM}{wish.known:g}"
        return Inpainting(settings, name, masks_for(name, settings))
    if "mask" not in uploads:
        raise UploadError("Paint over what is missing, or upload a mask.")
    known = read_mask(uploads["mask"].path)
    image = uploads["picture"].image
    if image is not None and known.shape != torch.Size(image.size):
        sizes = [f"{height} x {width}" for height, width in (known.shape, image.size)]
        raise UploadError(f"The mask is {sizes[0]} pixels and the picture {sizes[1]}: make them equal.")
    return Inpainting(settings, "The mask", lambda picture: known)


def _scanning(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    if wish.simulate:
        return SimulatedScan(settings, wish.acceleration, wish.centre, real=True)
    picture = uploads["picture"]
    if picture.image is not None:
        raise UploadError("MRI needs k-space (.h5, .mrd, .npz, .npy), or a clean picture that is measured first.")
    return ScanTask(settings, MIDDLE, centered=True, maps=None, real=False, size=None)


def _projecting(wish: Wish, settings: Settings, uploads: Mapping[str, Upload]) -> Task:
    degrees = np.arange(wish.angles) * (180 / wish.angles)
    if wish.simulate:
        return SimulatedSinogram(settings, degrees)
    return SinogramTask(settings, degrees, None, Layout.auto, 0.0, None)


TASKS = {
    Goal.DENOISE: _denoising,
    Goal.DEBLUR: _deblurring,
    Goal.UPSCALE: _upscaling,
    Goal.INPAINT: _inpainting,
    Goal.MRI: _scanning,
    Goal.CT: _projecting,
}
