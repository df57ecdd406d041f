"""Simulated measurements of deblurring, super-resolution, MRI and CT, by the protocols of the paper.

Noise starts anew for every image, from `numpy.random.RandomState(0)`. What the paper does not state is ours: images of
MRI and CT (its own may not be passed on), and all of CT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torchdeal.benchmark.images import draw_noise, list_images, named_image, read_clean
from torchdeal.benchmark.plan import SolvingPlan, argument, option
from torchdeal.estimation import default_parameters
from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.operators import Blur, Downsample, Fourier, Operator, Radon
from torchdeal.simulate import bicubic, filtered_back_projection, random_columns

MOTION_KERNELS, GAUSSIAN_KERNELS = "Levin09.npz", "kernels_12.npz"
DEBLUR_IMAGES, DEBLUR_KERNELS = ("01", "02", "05"), (1, 3)
DEBLUR_PAPER = {2.55: (15.0, 0.5), 7.65: (15.0, 2.5)}  # noise on the 0..255 scale: sigma on that scale, and lam
PATCH, SCALES, SUPERRESOLUTION_KERNELS = 256, (2, 3), (0, 1, 2, 3)
SUPERRESOLUTION_PAPER = {2.55: (15.0, 0.28), 7.65: (15.0, 2.5), 12.75: (15.0, 5.5)}
LEAST_CROP = 32
ACCELERATION, CENTRE_FRACTION, KSPACE_NOISE = 4, 0.08, 0.002
ANGLES, CT_SIZE, SINOGRAM_NOISE = 60, 256, 0.01  # the noise relative to the largest value of the sinogram


@dataclass(frozen=True, kw_only=True)
class DataPlan(SolvingPlan):
    """A plan for the images and kernels of the paper."""

    data: Path = argument("the folder that holds test/ and kernels/")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data.is_dir():
            raise ValueError(f"{self.data}: no such folder; give the one that holds test/ and kernels/")


@dataclass(frozen=True, kw_only=True)
class InversePlan(DataPlan):
    """Which problems, images and settings."""

    problem: str = option("all", "the only one", choices=("deblur", "superresolution", "mri", "ct", "all"))
    limit: int | None = option(None, "the first images of each problem only", least=1)
    crop: int | None = option(None, "side of the square at the centre of the images", least=LEAST_CROP)
    kernels: tuple[int, ...] = option((), "number of the blur kernel; by default those of the protocol")
    scales: tuple[int, ...] = option(SCALES, "of super-resolution", least=2)
    noises: tuple[float, ...] = option(
        (), "0..255, of deblurring and super-resolution; by default those of the protocol", positive=True
    )
    tuned: bool = option(True, "without total variation and the best lam: much quicker", flag="--untuned")

    @property
    def problems(self) -> list[str]:
        """Their names."""
        return [name for name in PROBLEMS if self.problem in (name, "all")]


@dataclass(frozen=True)
class Case:
    """One image and what was measured of it, `(1, ...)` each."""

    image: str
    clean: Tensor
    operator: Operator
    y: Tensor
    noise: float  # standard deviation in the units of y, of the real and of the imaginary part
    plain: Tensor


@dataclass(frozen=True)
class Setting:
    """Images of one problem with one operator and one noise level."""

    name: str
    cases: list[Case]
    paper: tuple[float, float] | None = None  # sigma on the 0..255 scale and lam
    eight_bit: bool = False  # PSNR is taken of 8-bit images
    walk_from: int = 4  # where the search for the strength of total variation starts


def deblurring(plan: InversePlan) -> Iterator[Setting]:
    """Circular motion blur; the blurred image is rounded to 8 bits before noise is added."""
    model = bundled_model("gray", plan.device)
    paths = [named_image(plan.data / "test" / "Set12", name) for name in DEBLUR_IMAGES[: plan.limit]]
    kernels = {number: read_kernel(plan.data, MOTION_KERNELS, number) for number in plan.kernels or DEBLUR_KERNELS}
    for number, kernel in kernels.items():
        for noise in plan.noises or DEBLUR_PAPER:
            cases = [blurred(path.name, read_clean(path, model, plan.crop), kernel, noise) for path in paths]
            yield Setting(f"kernel {number}, noise {noise:g}", cases, DEBLUR_PAPER.get(noise), eight_bit=True)


def superresolution(plan: InversePlan) -> Iterator[Setting]:
    """Every s-th pixel of a colour image after a circular Gaussian blur."""
    model = bundled_model("color", plan.device)
    paths = list_images(plan.data / "test" / "CBSD68")[: plan.limit]
    numbers = plan.kernels or SUPERRESOLUTION_KERNELS
    kernels = {number: read_kernel(plan.data, GAUSSIAN_KERNELS, number) for number in numbers}
    for scale in plan.scales:
        size = (plan.crop or PATCH) // scale * scale
        for number, kernel in kernels.items():
            for noise in plan.noises or SUPERRESOLUTION_PAPER:
                cases = [downsampled(path.name, read_clean(path, model, size), kernel, scale, noise) for path in paths]
                name = f"x {scale}, kernel {number}, noise {noise:g}"
                yield Setting(name, cases, SUPERRESOLUTION_PAPER.get(noise))


def mri(plan: InversePlan) -> Iterator[Setting]:
    """Single-coil k-space of a real image, a fourth of its columns."""
    model = bundled_model("gray", plan.device)
    cases = []
    for index, path in enumerate(list_images(plan.data / "test" / "MRI-knee")[: plan.limit]):
        clean = read_clean(path, model, plan.crop)
        clean = clean / clean.max().clamp_min(1 / 255)
        cases.append(column_sampled(path.name, clean, KSPACE_NOISE, seed=index))
    name = f"{ACCELERATION} x, centre {CENTRE_FRACTION:g}, noise {KSPACE_NOISE:g}"
    yield Setting(name, cases, walk_from=14)


def ct(plan: InversePlan) -> Iterator[Setting]:
    """Parallel-beam projections of chest slices, reduced to about `CT_SIZE` by averaging pixels."""
    model = bundled_model("gray", plan.device)
    sized = cache(lambda *size: Radon(np.arange(ANGLES) * (180 / ANGLES), size))  # images of one size share its matrix
    cases = []
    for path in list_images(plan.data / "test" / "CT")[: plan.limit]:
        clean = reduced(read_clean(path, model), plan.crop, path)
        operator = sized(*clean.shape[2:])
        y = operator.forward(clean)
        noise = SINOGRAM_NOISE * float(y.max())
        y = y + torch.from_numpy(np.random.RandomState(0).normal(0, noise, tuple(y.shape)).astype(np.float32))
        cases.append(Case(path.name, clean, operator, y, noise, filtered_back_projection(y, operator)))
    yield Setting(f"{ANGLES} angles, noise {SINOGRAM_NOISE:.0%} of the maximum", cases, walk_from=6)


PROBLEMS = {"deblur": deblurring, "superresolution": superresolution, "mri": mri, "ct": ct}


def blurred(image: str, clean: Tensor, kernel: np.ndarray | Tensor, noise: float) -> Case:
    """Circular blur, rounded to 8 bits, then noise, on the 0..255 scale."""
    operator = Blur(kernel)
    rounded = (operator.forward(clean).clamp(0, 1) * 255).round() / 255
    y = rounded + draw_noise(rounded, noise)
    return Case(image, clean, operator, y, noise / 255, y)


def downsampled(image: str, clean: Tensor, kernel: np.ndarray, scale: int, noise: float) -> Case:
    """Circular blur and every `scale`-th pixel, then noise, on the 0..255 scale."""
    operator = Downsample(scale, kernel)
    y = operator.forward(clean)
    y = y + draw_noise(y, noise)
    return Case(image, clean, operator, y, noise / 255, bicubic(y, scale))


def column_sampled(image: str, clean: Tensor, noise: float, seed: int) -> Case:
    """A fourth of the columns of the k-space, in the mean, with noise on real and imaginary part."""
    mask = random_columns((clean.shape[2], clean.shape[3]), ACCELERATION, CENTRE_FRACTION, seed, exact=False)
    operator = Fourier(mask, centered=True)
    draws = np.random.RandomState(0).normal(0, noise, (2, *clean.shape)).astype(np.float32)
    y = operator.forward(clean) + mask * torch.complex(*torch.from_numpy(draws))
    return Case(image, clean, operator, y, noise, operator.adjoint(y))


def rule_parameters(model: DEAL, case: Case, sigma: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sigma on the 0..255 scale and lam, `(B,)` each, as `reconstruct` takes them from the noise.

    Where `sigma` is given, `(B,)`, lam is that of the rule for it.
    """
    device = next(model.parameters()).device
    noise = torch.tensor([case.noise * 255], device=device)
    with torch.no_grad():
        sigma, lam = default_parameters(model.weights(), case.operator.to(device), case.clean.to(device), noise, sigma)
    return sigma, lam.flatten()


def read_kernel(data: Path, file: str, number: int) -> np.ndarray:
    """The blur kernel with this number, float32. Raises ValueError where it is missing."""
    path = data / "kernels" / file
    if not path.is_file():
        raise ValueError(f"{path}: no such file; it should hold the blur kernels k0, k1, ...")
    try:
        with np.load(path) as archive:
            if f"k{number}" not in archive:
                raise ValueError(f"{path}: there is no kernel {number}")
            return archive[f"k{number}"].astype(np.float32)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


def reduced(clean: Tensor, crop: int | None, path: Path) -> Tensor:
    """The square at the centre, pixels averaged in blocks so that about `CT_SIZE` are left on a side."""
    height, width = clean.shape[2:]
    block = max(1, min(height, width) // CT_SIZE)
    side = crop or min(height, width) // block
    if side * block > min(height, width):
        raise ValueError(f"{path}: the image is {height} x {width}, too small for --crop {crop}")
    top, left = (height - side * block) // 2, (width - side * block) // 2
    return F.avg_pool2d(clean[..., top : top + side * block, left : left + side * block], block)


@cache
def bundled_model(name: str, device: str) -> DEAL:
    """Loaded once."""
    return load(name, device=device)
