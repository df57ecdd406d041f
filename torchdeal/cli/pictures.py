"""Tasks from picture files to picture files.

Inside, pictures are tensors `(1, C, H, W)` on the 0..255 scale, whatever their bit depth, as is --sigma: they come to
this scale when they are read, and leave it when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.cli.run import Problem, Simulation, Task, image_range
from torchdeal.estimation import estimate_sigma
from torchdeal.io import files
from torchdeal.io.images import ImageFormat, luma, to_tensor
from torchdeal.operators import Operator
from torchdeal.simulate import measure

WHITE = 255.0
SIMULATED_SIGMA = 2.55  # 1 % of white
LITTLE = 0.3  # share of the scale: what uses less of it is spread to all of it, for the model
LEAST_NOISE = 1e-3  # of the range, where it is estimated: about what rounding to 8 bits adds

PictureKind = tuple[files.ImageFile, ImageFormat]  # what the file was, and its pixels


@dataclass(frozen=True, eq=False)
class PictureTask(Task[Tensor, PictureKind]):
    """Pictures or stacks of them, in gray or colour. A command adds `pose`, by means of `problem`."""

    def read(self, path: Path) -> tuple[Sequence[Tensor], PictureKind]:
        file = files.read(path)
        white = to_tensor(file.pixels, data_range=self.settings.data_range)[1].data_range  # checked, too
        pictures, image_format = to_tensor(file.pixels, data_range=white / WHITE)
        if self.settings.simulate:  # may crop the picture, but not what is transparent in it
            image_format = replace(image_format, alpha=None)
        return pictures.split(1), (file, image_format)

    def problem(
        self,
        picture: Tensor,
        H: Operator,
        *,
        degraded_by: str,
        estimate: Callable[[Tensor], float] = lambda y: estimate_sigma(y, data_range=WHITE)[0],
        look: Callable[[Tensor], Tensor] = lambda y: y,
        keep: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> Problem:
        """The picture as measurements of `H`; in a simulation as the image that is measured.

        Args:
            picture: `(1, C, H, W)`, on the 0..255 scale.
            H: of pictures.
            degraded_by: what happened to a picture that was simulated.
            estimate: the noise level of measurements, for where it is not given.
            look: measurements as a picture of the size of the result.
            keep: the part of the result that is wanted.
        """
        sigma = self.settings.sigma
        if self.settings.simulate:
            noise = SIMULATED_SIGMA if sigma is None else sigma
            y = measure(picture, H, noise, self.settings.seed)
            simulation = Simulation(keep(picture), look(y), degraded_by, WHITE)
            return Problem(y, H, noise, white=self._white(y, H), keep=keep, simulation=simulation)
        white = self._white(picture, H)
        noise = max(estimate(picture), LEAST_NOISE * white) if sigma is None else sigma
        return Problem(picture, H, noise, estimated=sigma is None, white=white, keep=keep)

    def _white(self, y: Tensor, H: Operator) -> float:
        """255, unless the picture uses little of that: then the range of a rough reconstruction."""
        if self.settings.data_range is not None or float(y.max() - y.min()) > LITTLE * WHITE:
            return WHITE
        # What is rough would take a large offset, falling at the border, for a range.
        return image_range(H, y - y.mean())

    def write(self, path: Path, images: Sequence[Tensor], kind: PictureKind) -> None:
        file, image_format = kind
        pictures = torch.cat(list(images))
        pixels = _with_grown_alpha(image_format, pictures.shape[-2:]).restore(pictures)
        files.write(path, replace(file, pixels=pixels, white=self.settings.data_range or 1.0))


@dataclass(frozen=True, eq=False)
class GraySimulation(Task[Tensor, None]):
    """A gray picture `(1, 1, H, W)` in 0..1, to be measured by what knows no colour. A command adds `pose`."""

    def read(self, path: Path) -> tuple[Sequence[Tensor], None]:
        file = files.read(path)
        if file.pixels.ndim == 4:
            raise ValueError(f"{path}: a stack; simulate with one picture")
        picture = to_tensor(file.pixels)[0].float()
        return [picture if picture.shape[1] == 1 else luma(picture)], None

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        write_gray(path, images[0])


def write_gray(path: Path, image: Tensor) -> None:
    """An image `(1, 1, H, W)` in 0..1; .npy and .tif are floating point."""
    files.write(path, files.ImageFile(image[0, 0].float().cpu().numpy()))


def check_kernel_fits(kernel: Tensor, size: Sequence[int]) -> None:
    if any(have < needed for have, needed in zip(size, kernel.shape, strict=True)):
        raise ValueError(
            f"the kernel ({kernel.shape[0]} x {kernel.shape[1]}) is larger than the picture "
            f"({size[0]} x {size[1]}): give a smaller --kernel"
        )


def _with_grown_alpha(image_format: ImageFormat, size: Sequence[int]) -> ImageFormat:
    """Transparency `(..., H, W, 1)` grows with the picture."""
    if image_format.alpha is None:
        return image_format
    old = image_format.alpha.shape[-3:-1]
    rows, columns = (np.arange(new) * length // new for new, length in zip(size, old, strict=True))
    return replace(image_format, alpha=image_format.alpha[..., rows, :, :][..., columns, :])
