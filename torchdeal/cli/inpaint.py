"""`deal inpaint`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from torchdeal.cli.jobs import picture_jobs
from torchdeal.cli.options import Settings, with_settings
from torchdeal.cli.pictures import PictureKind, PictureTask
from torchdeal.cli.run import Problem, run
from torchdeal.io import files
from torchdeal.noise import known_noise_level
from torchdeal.operators import Mask
from torchdeal.scale.holes import holes_of
from torchdeal.scale.large import mosaic
from torchdeal.scale.local import Holes, LocalOperator
from torchdeal.scale.sources import MASK_KINDS, open_source

RANDOM = "random:"
ALPHA = "alpha"  # the mask is the transparency of the picture

EXAMPLES = (
    "Examples:\n\n"
    "[bold]deal inpaint damaged.png mask.png whole.png[/bold]   (white in the mask: known)\n\n"
    "[bold]deal inpaint cutout.png whole.png --mask alpha[/bold]   (what is fully transparent: missing)\n\n"
    "[bold]deal inpaint clean.png whole.png --mask random:0.5 --simulate --save-degraded holes.png[/bold]"
)


@dataclass(frozen=True, eq=False)
class Inpainting(PictureTask):
    made = "inpainted"
    mask_name: str
    mask_for: Callable[[Tensor], Tensor]

    def read(self, path: Path) -> tuple[Sequence[Tensor], PictureKind]:
        """The mask of a picture that brings its own is its last channel; the result has no transparency then."""
        frames, (file, image_format) = super().read(path)
        if self.mask_name != ALPHA:
            return frames, (file, image_format)
        if image_format.alpha is None:
            raise ValueError(f"{path}: has no transparency to be the mask; give the mask as a file")
        known = torch.from_numpy(image_format.alpha != 0).movedim(-1, 1)
        if not bool(known.flatten(1).any(1).all()):
            raise ValueError(f"{path}: all of it is transparent: no pixel is known")
        pairs = [torch.cat([frame, mask[None].to(frame)], 1) for frame, mask in zip(frames, known, strict=True)]
        return pairs, (file.without_alpha(), replace(image_format, alpha=None))

    def pose(self, frame: Tensor) -> Problem:
        if self.mask_name == ALPHA:
            frame, known = frame[:, :-1], frame[0, -1] != 0
        else:
            known = self.mask_for(frame)
        return self._posed(frame, known)

    def _posed(self, frame: Tensor, known: Tensor) -> Problem:
        if known.shape != frame.shape[-2:]:
            raise ValueError(
                f"{self.mask_name}: the mask is {_size(known)}, the picture {_size(frame)}: make them equal"
            )
        if not self.settings.simulate:
            # What stands in the holes does not matter to the result; it must not to the range of the picture either.
            frame = torch.where(known, frame, frame[..., known].mean())
        holes = Mask(known)
        return self.problem(
            frame,
            holes,
            degraded_by="masked",
            estimate=lambda y: known_noise_level(y, known),
            look=holes.forward,
        )

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        """The mask is read part by part, too."""
        if self.mask_name == ALPHA or self.mask_name.startswith(RANDOM):
            raise ValueError(f"--mask {self.mask_name} cannot be done in tiles: give the mask as a file")
        path = Path(self.mask_name)
        _check_kind(path)
        return holes_of(open_source(path, MASK_KINDS), size)

    def pose_sample(self, picture: Tensor, operator: LocalOperator) -> Problem:
        assert isinstance(operator, Holes)
        return self._posed(picture, torch.from_numpy(mosaic(operator.known, operator.size)))


@with_settings(without=("recursive",))
def inpaint(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="IN [MASK] OUT", help="A picture, what is known of it (white or not black: known), the output."
        ),
    ],
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="MASK",
            help="In place of MASK: the file; alpha, the transparency of the picture (fully transparent: missing); or "
            "random:SHARE, a simulation where so much is known.",
        ),
    ] = None,
    *,
    settings: Settings,
) -> None:
    """Fill in missing pixels, in gray or colour."""
    source, mask_name, target = _arguments(paths, mask)
    task = Inpainting(settings, mask_name, masks_for(mask_name, settings))
    is_file = mask_name != ALPHA and not mask_name.startswith(RANDOM)
    run(task, picture_jobs([source, target]), reads=[Path(mask_name)] if is_file else [])


def read_mask(path: Path) -> Tensor:
    """What is not black, bool `(H, W)`."""
    _check_kind(path)
    file = files.read(path)
    if file.pixels.ndim > 3:
        raise ValueError(f"{path}: a mask is one picture, this file has {file.pixels.shape}")
    if np.isnan(file.pixels).any():
        raise ValueError(f"{path}: the mask holds NaN; write 0 where the picture is missing, and 1 where it is known")
    known = file.pixels != 0
    known = torch.from_numpy(known if known.ndim == 2 else known[..., : file.colours].any(-1))
    if not bool(known.any()):
        raise ValueError(f"{path}: the mask is black: no pixel is known")
    return known


def _check_kind(path: Path) -> None:
    if path.suffix.lower() in (".jpg", ".jpeg"):
        raise ValueError(f"{path}: JPEG does not keep black as it is; save the mask as PNG")


def _arguments(paths: list[Path], mask: str | None) -> tuple[Path, str, Path]:
    if len(paths) == 3 and mask is None:
        return paths[0], str(paths[1]), paths[2]
    if len(paths) == 2 and mask is not None:
        return paths[0], mask, paths[1]
    raise ValueError("give a picture, its mask and the output: IN MASK OUT, or IN OUT with --mask")


def masks_for(name: str, settings: Settings) -> Callable[[Tensor], Tensor]:
    """What is known of a picture: by the file, or at random."""
    if name == ALPHA:
        if settings.simulate:
            raise ValueError("--mask alpha is for pictures with holes; simulate with a file or random:SHARE")
        return lambda picture: picture  # it brings its own
    if not name.startswith(RANDOM):
        known = cache(lambda: read_mask(Path(name)))
        return lambda picture: known()
    if not settings.simulate:
        raise ValueError(f"{name}: a random mask is for --simulate")
    share = _share(name)
    generator = torch.Generator().manual_seed(settings.seed)
    return lambda picture: torch.rand(picture.shape[-2:], generator=generator) < share


def _share(text: str) -> float:
    try:
        share = float(text.removeprefix(RANDOM))
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"--mask {text}: give the share of the pixels that is known, such as random:0.5")
    return share


def _size(image: Tensor) -> str:
    return f"{image.shape[-2]} x {image.shape[-1]}"
