"""Simulated measurements of deblurring, super-resolution, MRI and CT, by the protocols of the paper.

Noise starts anew for every image, from `numpy.random.RandomState(0)`. What the paper does not state is ours: images of
MRI and CT (its own may not be passed on), and all of CT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.common import check_device, check_least, check_positive
from torchdeal.benchmark.denoising import draw_noise, list_images, read_clean
from torchdeal.estimation import default_parameters
from torchdeal.extras import optional
from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.operators import Blur, Downsample, Fourier, Mask, Operator, Radon
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

MOTION_KERNELS, GAUSSIAN_KERNELS = Path("kernels", "Levin09.npz"), Path("kernels", "kernels_12.npz")
DEBLUR_IMAGES, DEBLUR_KERNELS = ("01", "02", "05"), (1, 3)
DEBLUR_PAPER = {2.55: 0.5, 7.65: 2.5}  # noise on the 0..255 scale: lam, at PAPER_SIGMA
PATCH, SCALES, SUPERRESOLUTION_KERNELS = 256, (2, 3), (0, 1, 2, 3)
SUPERRESOLUTION_PAPER = {2.55: 0.28, 7.65: 2.5, 12.75: 5.5}
PAPER_SIGMA = 15.0
LEAST_CROP = 32
ACCELERATION, CENTRE_FRACTION, KSPACE_NOISE = 4, 0.08, 0.002
ANGLES, CT_SIZE, SINOGRAM_NOISE = 60, 256, 0.01  # the noise relative to the largest value of the sinogram


@dataclass(frozen=True)
class Plan:
    """What is to be measured. Raises ValueError for what cannot be."""

    data: Path
    problems: tuple[str, ...]
    limit: int | None = None  # the first images of each problem only
    crop: int | None = None  # side of the square at the centre of the images
    kernels: tuple[int, ...] = ()  # empty: those of the protocol
    scales: tuple[int, ...] = SCALES
    noises: tuple[float, ...] = ()  # of deblurring and super-resolution; empty: those of the protocol
    device: str = "cpu"
    tolerance: float = DEFAULT_TOLERANCE
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    threads: int | None = None
    tuned: bool = True  # also the rows that are tuned on the images, which take most of the time

    def __post_init__(self) -> None:
        check_device(self.device)
        check_data(self.data)
        check_least(self, limit=1, crop=LEAST_CROP, max_iterations=1, threads=1)
        check_positive("tolerance", self.tolerance)
        for noise in self.noises:
            check_positive("noise", noise)
        if min(self.scales) < 2:
            raise ValueError(f"scale must be at least 2, got {min(self.scales)}")


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

    problem: str
    name: str
    cases: list[Case]
    paper: tuple[float, float] | None = None  # sigma on the 0..255 scale and lam
    eight_bit: bool = False  # PSNR is taken of 8-bit images
    walk_from: int = 4  # where the search for the strength of total variation starts


def deblurring(plan: Plan) -> Iterator[Setting]:
    """Circular motion blur; the blurred image is rounded to 8 bits before noise is added."""
    model = bundled_model("gray", plan.device)
    paths = [named_image(plan.data / "test" / "Set12", name) for name in DEBLUR_IMAGES[: plan.limit]]
    kernels = read_kernels(plan.data / MOTION_KERNELS, plan.kernels or DEBLUR_KERNELS)
    for number, kernel in kernels.items():
        for noise in plan.noises or DEBLUR_PAPER:
            cases = [blurred(path.name, clean_image(path, model, plan.crop), kernel, noise) for path in paths]
            paper = (PAPER_SIGMA, DEBLUR_PAPER[noise]) if noise in DEBLUR_PAPER else None
            yield Setting("deblur", f"kernel {number}, noise {noise:g}", cases, paper, eight_bit=True)


def superresolution(plan: Plan) -> Iterator[Setting]:
    """Every s-th pixel of a colour image after a circular Gaussian blur."""
    model = bundled_model("color", plan.device)
    paths = list_images(plan.data / "test" / "CBSD68")[: plan.limit]
    kernels = read_kernels(plan.data / GAUSSIAN_KERNELS, plan.kernels or SUPERRESOLUTION_KERNELS)
    for scale in plan.scales:
        size = (plan.crop or PATCH) // scale * scale
        for number, kernel in kernels.items():
            for noise in plan.noises or SUPERRESOLUTION_PAPER:
                cases = [downsampled(path.name, clean_image(path, model, size), scale, kernel, noise) for path in paths]
                paper = (PAPER_SIGMA, SUPERRESOLUTION_PAPER[noise]) if noise in SUPERRESOLUTION_PAPER else None
                yield Setting("superresolution", f"x {scale}, kernel {number}, noise {noise:g}", cases, paper)


def mri(plan: Plan) -> Iterator[Setting]:
    """Single-coil k-space of a real image, a fourth of its columns."""
    model = bundled_model("gray", plan.device)
    cases = []
    for index, path in enumerate(list_images(plan.data / "test" / "MRI-knee")[: plan.limit]):
        clean = clean_image(path, model, plan.crop)
        clean = clean / clean.max().clamp_min(1 / 255)
        cases.append(column_sampled(path.name, clean, KSPACE_NOISE, seed=index))
    name = f"{ACCELERATION} x, centre {CENTRE_FRACTION:g}, noise {KSPACE_NOISE:g}"
    yield Setting("mri", name, cases, walk_from=14)


def ct(plan: Plan) -> Iterator[Setting]:
    """Parallel-beam projections of chest slices, reduced to about `CT_SIZE` by averaging pixels."""
    model = bundled_model("gray", plan.device)
    angles = np.arange(ANGLES) * (180 / ANGLES)
    sized = cache(lambda size: Radon(angles, size))  # images of one size share its matrix
    cases = []
    for path in list_images(plan.data / "test" / "CT")[: plan.limit]:
        clean = _tensor(_reduced(read_clean(path, model), plan.crop, path))
        operator = sized(tuple(clean.shape[-2:]))
        y = operator.forward(clean)
        noise = SINOGRAM_NOISE * float(y.max())
        y = y + torch.from_numpy(np.random.RandomState(0).normal(0, noise, tuple(y.shape)).astype(np.float32))
        cases.append(Case(path.name, clean, operator, y, noise, filtered_backprojection(y, angles, clean)))
    yield Setting("ct", f"{ANGLES} angles, noise {SINOGRAM_NOISE:.0%} of the maximum", cases, walk_from=6)


PROBLEMS: dict[str, Callable[[Plan], Iterator[Setting]]] = {
    "deblur": deblurring,
    "superresolution": superresolution,
    "mri": mri,
    "ct": ct,
}


def blurred(image: str, clean: Tensor, kernel: np.ndarray | Tensor, noise: float) -> Case:
    """Circular blur, rounded to 8 bits, then noise, on the 0..255 scale."""
    operator = Blur(kernel)
    rounded = (operator.forward(clean).clamp(0, 1) * 255).round() / 255
    y = rounded + _white_noise(rounded, noise)
    return Case(image, clean, operator, y, noise / 255, y)


def downsampled(image: str, clean: Tensor, scale: int, kernel: np.ndarray, noise: float) -> Case:
    """Circular blur and every `scale`-th pixel, then noise, on the 0..255 scale."""
    operator = Downsample(scale, kernel)
    y = operator.forward(clean)
    y = y + _white_noise(y, noise)
    return Case(image, clean, operator, y, noise / 255, bicubic(y, scale))


def masked(image: str, clean: Tensor, share: float, noise: float) -> Case:
    """This share of the pixels, at random, with noise on the 0..255 scale; the others are 0."""
    generator = np.random.RandomState(0)  # one for both: with the same seed the noise would depend on the mask
    shape = tuple(clean.shape[-2:])
    operator = Mask(generator.uniform(size=shape) < share)
    draws = generator.normal(0, noise / 255, shape).astype(np.float32)
    y = operator.forward(clean + torch.from_numpy(draws))
    return Case(image, clean, operator, y, noise / 255, y)


def column_sampled(image: str, clean: Tensor, noise: float, seed: int) -> Case:
    """Some columns of the k-space, of `random_columns`, with noise on real and imaginary part."""
    columns = random_columns(clean.shape[-1], np.random.RandomState(seed))
    operator = Fourier(torch.from_numpy(columns).expand(clean.shape[-2:]), centered=True)
    draws = np.random.RandomState(0).normal(0, noise, (2, *clean.shape)).astype(np.float32)
    y = operator.forward(clean) + torch.from_numpy(columns) * torch.complex(*torch.from_numpy(draws))
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


def psnr(x: Tensor, clean: Tensor, eight_bit: bool = False) -> float:
    """Of images in 0..1, clipped; after rounding to 8 bits if asked for."""
    x = x.double().clamp(0, 1)
    x = (x * 255).round() / 255 if eight_bit else x
    return -10 * math.log10(float((x - clean.double()).square().mean()))


def bicubic(y: Tensor, scale: int) -> Tensor:
    """Bicubic interpolation (Keys) with pixel (i, j) of y at (scale * i, scale * j), where it was taken."""
    rows, columns = (_cubic_weights(length, scale).to(y) for length in y.shape[-2:])
    return rows @ y @ columns.T


def _cubic_weights(length: int, scale: int) -> Tensor:
    """`(scale * length, length)`; beyond the border the last pixel is repeated."""
    nearby = torch.arange(-2, length + 2)
    distance = (torch.arange(scale * length)[:, None] / scale - nearby).abs()
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    weights = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    return torch.zeros(scale * length, length).index_add(1, nearby.clamp(0, length - 1), weights)


def random_columns(width: int, generator: np.random.RandomState) -> np.ndarray:
    """Which columns are sampled: those at the centre, the others at random, a fourth of all in the mean (fastMRI)."""
    centre = round(CENTRE_FRACTION * width)
    share = (width / ACCELERATION - centre) / (width - centre)
    columns = generator.uniform(size=width) < share
    first = (width - centre + 1) // 2
    columns[first : first + centre] = True
    return columns


def filtered_backprojection(y: Tensor, angles: np.ndarray, clean: Tensor) -> Tensor:
    """By scikit-image, with its ramp filter."""
    transform = optional("skimage.transform", "filtered back-projection", "demo")
    sinogram = y[0, 0].double().numpy().T
    image = transform.iradon(sinogram, angles, output_size=clean.shape[-1], filter_name="ramp", circle=False)
    return torch.from_numpy(image).float()[None, None]


def check_data(folder: Path) -> None:
    """Raise if there is no such folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give the one that holds test/ and kernels/")


def read_kernels(path: Path, numbers: Sequence[int]) -> dict[int, np.ndarray]:
    """Those with these numbers, float32. Raises ValueError where one is missing."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; it should hold the blur kernels k0, k1, ...")
    try:
        with np.load(path) as archive:
            missing = [number for number in numbers if f"k{number}" not in archive]
            if missing:
                raise ValueError(f"{path}: there is no kernel {missing[0]}")
            return {number: archive[f"k{number}"].astype(np.float32) for number in numbers}
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None


def named_image(folder: Path, name: str) -> Path:
    """The file whose name without its ending is this one."""
    for path in list_images(folder):
        if path.stem == name:
            return path
    raise ValueError(f"{folder}: there is no image {name}")


def _reduced(clean: np.ndarray, crop: int | None, path: Path) -> np.ndarray:
    """The square at the centre, pixels averaged in blocks so that about `CT_SIZE` are left on a side."""
    block = max(1, min(clean.shape) // CT_SIZE)
    side = crop or min(clean.shape) // block
    if side * block > min(clean.shape):
        raise ValueError(f"{path}: the image is {clean.shape[0]} x {clean.shape[1]}, too small for --crop {crop}")
    top, left = ((length - side * block) // 2 for length in clean.shape)
    square = clean[top : top + side * block, left : left + side * block]
    return square.reshape(side, block, side, block).mean((1, 3))


def clean_image(path: Path, model: DEAL, crop: int | None) -> Tensor:
    """`(1, C, H, W)` in 0..1; only its centre if `crop` is given."""
    return _tensor(read_clean(path, model, crop))


def _tensor(image: np.ndarray) -> Tensor:
    pixels = torch.from_numpy(np.ascontiguousarray(image)).float()
    return pixels[None, None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)[None].contiguous()


def _white_noise(like: Tensor, sigma: float) -> Tensor:
    """That of the protocol: drawn anew for every image, in the order rows, columns, colours."""
    channels, height, width = like.shape[1:]
    return _tensor(draw_noise((height, width) if channels == 1 else (height, width, channels), sigma))


@cache
def bundled_model(name: str, device: str) -> DEAL:
    """Loaded once."""
    return load(name, device=device)
