"""What the figures show: the shipped weights, and one picture that they denoise. Computed once, for all figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.images import draw_noise, fit, read_picture
from torchdeal.explain import Explanation, explain
from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL, Weights
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction

SIGMA = 25.0  # of the noise in the picture, on the 0..255 scale
TIGHTER = 1 / 50  # how much closer to the fixed point lies what distances to it are taken to


@dataclass(frozen=True)
class Study:
    """How large the pictures are, how far the iterations go, and where they are computed.

    All is computed in float64, so that distances to the fixed point can be followed down to small ones.

    Attributes:
        size: of the pictures, in pixels.
        tolerance: of the reconstructions.
        steps: of the iteration from several starts.
        device: where they are computed.
        image: the picture that is denoised; by default scikit-image's camera.
    """

    size: int = 256
    tolerance: float = 1e-4
    steps: int = 20
    device: str = "cpu"
    image: Path | None = None

    @classmethod
    def quick(cls, device: str = "cpu", image: Path | None = None) -> Study:
        return cls(size=48, tolerance=2e-3, steps=5, device=device, image=image)

    def model(self, name: str) -> DEAL:
        return load(name, device=self.device).double()

    @cached_property
    def gray(self) -> DEAL:
        return self.model("gray")

    @cached_property
    def weights(self) -> Weights:
        """Of the gray model."""
        with torch.no_grad():
            return self.gray.weights()

    @cached_property
    def denoising(self) -> DenoisedPicture:
        clean = batch_of(shrunk(read_picture("gray", self.image), self.size), self.device)
        noisy = clean + draw_noise(clean, SIGMA).to(clean)
        run = reconstruct(
            noisy,
            model=self.gray,
            sigma=SIGMA / 255,
            tolerance=self.tolerance,
            keep_path=True,
        )
        return DenoisedPicture(self.gray, self.weights, clean, noisy, run)


@dataclass(frozen=True)
class DenoisedPicture:
    """A picture, the same with noise, and how it was denoised. Images are `(1, 1, H, W)`."""

    model: DEAL
    weights: Weights
    clean: Tensor
    noisy: Tensor
    run: Reconstruction  # with its path

    @property
    def x(self) -> Tensor:
        return self.run.x

    @property
    def level(self) -> Tensor:
        return self.noisy.new_tensor([SIGMA])

    @cached_property
    def explanation(self) -> Explanation:
        return explain(self.run)


def batch_of(picture: np.ndarray, device: str) -> Tensor:
    """`(1, C, H, W)`, float64, of a picture `(H, W)` or `(H, W, C)`."""
    pixels = torch.from_numpy(np.ascontiguousarray(picture, dtype=np.float64)).to(device)
    return (pixels if pixels.ndim == 3 else pixels[..., None]).permute(2, 0, 1)[None].contiguous()


def picture_of(batch: Tensor) -> np.ndarray:
    """The inverse of `batch_of`."""
    pixels = batch[0].permute(1, 2, 0).cpu().numpy()
    return pixels[..., 0] if pixels.shape[2] == 1 else pixels


def shrunk(picture: np.ndarray, size: int) -> np.ndarray:
    """`(size, size, ...)`: the means of blocks of a larger picture, so that most of it is seen; then its centre."""
    block = max(min(picture.shape[:2]) // size, 1)
    height, width = (length // block for length in picture.shape[:2])
    blocks = picture[: height * block, : width * block].reshape(height, block, width, block, *picture.shape[2:])
    return fit(blocks.mean((1, 3)), size)


def distances(path: list[Tensor] | tuple[Tensor, ...], target: Tensor) -> list[float]:
    """`||x_k - x*|| / ||x*||` of each iterate."""
    return [float((x - target).norm() / target.norm()) for x in path]
