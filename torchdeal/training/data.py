"""Training images: read once, kept on the device as bytes, random patches in all eight symmetries."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.training.archive import read_members

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MODES = {1: "L", 3: "RGB"}  # Pillow's names; colour becomes gray by the standard luma
TOO_DEEP = ("I", "F")  # how the names of Pillow's modes with more than 8 bits begin
AT_ONCE = 32  # files that are held while they are decoded


@dataclass(frozen=True)
class Skipped:
    """A file that is not part of the training images."""

    name: str
    reason: str

    @property
    def is_image(self) -> bool:
        """By its name, or something else that lies beside the images."""
        return self.name.lower().endswith(SUFFIXES)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class ImageSet:
    """Images of one number of channels and any size, one after the other in one tensor of bytes."""

    pixels: Tensor  # uint8, all images, each (C, H, W)
    offsets: Tensor  # where each begins, (N,)
    heights: Tensor
    widths: Tensor
    channels: int
    patch: int  # the side of the patches
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.offsets)

    def __str__(self) -> str:
        text = f"{len(self)} images, {self.pixels.numel() / self.channels / 1e6:.1f} million pixels"
        return f"{text}, {len(self.skipped)} files skipped" if self.skipped else text

    def to(self, device: torch.device | str) -> ImageSet:
        """The images on the device."""
        moved = {name: getattr(self, name).to(device) for name in ("pixels", "offsets", "heights", "widths")}
        return replace(self, **moved)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Random patches `(count, C, patch, patch)` in 0..1, each in one of the eight symmetries of a square.

        Every patch of every image is equally likely. The generator lives where the images do, and nothing has to wait
        for the host.
        """
        device, size = self.pixels.device, self.patch
        rows, columns = self.heights - size + 1, self.widths - size + 1  # where a patch can begin
        chosen = torch.multinomial((rows * columns).double(), count, replacement=True, generator=generator)
        top, left = (
            (torch.rand(count, generator=generator, device=device, dtype=torch.float64) * places[chosen]).long()
            for places in (rows, columns)
        )
        symmetry = torch.randint(8, (count, 1, 1), generator=generator, device=device)
        down, right = _symmetric_grids(size, symmetry)
        plane = (top.view(-1, 1, 1) + down) * self.widths[chosen].view(-1, 1, 1) + left.view(-1, 1, 1) + right
        channel = torch.arange(self.channels, device=device) * (self.heights * self.widths)[chosen, None]
        index = (self.offsets[chosen, None] + channel)[..., None, None] + plane[:, None]
        return self.pixels[index].float() / 255


def read_images(sources: Sequence[str | os.PathLike[str]], *, channels: int, patch: int = 128) -> ImageSet:
    """Read all JPEG, PNG and WebP images from folders, with their subfolders, and from tar files.

    Args:
        sources: folders, tar files (compressed or not) or images.
        channels: 1 converts colour to gray, 3 gray to colour.
        patch: side of the patches; smaller images are skipped.
    """
    images, skipped = read_pictures(sources, channels=channels, smallest=patch)
    sizes = torch.tensor([image.shape[1:] for image in images])
    lengths = torch.tensor([image.size for image in images])
    pixels = torch.from_numpy(np.concatenate([image.ravel() for image in images]))
    return ImageSet(pixels, lengths.cumsum(0) - lengths, sizes[:, 0], sizes[:, 1], channels, patch, tuple(skipped))


def read_pictures(
    sources: Sequence[str | os.PathLike[str]], *, channels: int, smallest: int
) -> tuple[list[np.ndarray], list[Skipped]]:
    """The images of the sources, uint8 `(C, H, W)`, height and width at least `smallest`; and what was skipped."""
    images, skipped = [], []
    entries = ((name, data, channels, smallest) for source in sources for name, data in _files(Path(source)))
    with ThreadPoolExecutor() as pool, warnings.catch_warnings():  # Pillow decodes without holding up other threads
        warnings.simplefilter("ignore")  # what Pillow finds odd in a file that it can read
        while some := list(islice(entries, AT_ONCE)):
            for image in pool.map(_decode, some):
                (skipped if isinstance(image, Skipped) else images).append(image)
    if not images:
        reasons = "; ".join(map(str, skipped[:3]))
        raise ValueError(f"no usable image in {', '.join(map(str, sources))}" + (f" ({reasons})" if reasons else ""))
    return images, skipped


def _files(source: Path) -> Iterator[tuple[str, bytes | Path | None]]:
    """Names and contents of the files of a source, in an order that does not depend on the file system."""
    if source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            yield str(path), path
    elif not source.is_file():
        raise FileNotFoundError(f"{source}: there is no such folder or file of images")
    elif source.suffix.lower() in SUFFIXES:
        yield str(source), source
    else:
        for name, content in read_members(source, SUFFIXES):
            yield f"{source}:{name}", content


def _decode(entry: tuple[str, bytes | Path | None, int, int]) -> np.ndarray | Skipped:
    from PIL import Image

    name, data, channels, patch = entry
    if not name.lower().endswith(SUFFIXES):
        return Skipped(name, "not a JPEG, PNG or WebP file")
    if data is None:
        return Skipped(name, "a link or a device, not a file")
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as picture:
            if picture.mode.startswith(TOO_DEEP):
                return Skipped(name, "more than 8 bits per channel: convert it first")
            if min(picture.size) < patch:
                width, height = picture.size
                return Skipped(name, f"{height} x {width}, smaller than a patch of {patch} x {patch}")
            pixels = np.asarray(picture.convert(MODES[channels]))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return Skipped(name, f"cannot be read ({error})")
    return np.ascontiguousarray(np.moveaxis(pixels.reshape(*pixels.shape[:2], channels), -1, 0))


def _symmetric_grids(size: int, symmetry: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of a patch, `(B, size, size)`: bit 0 mirrors one, bit 1 the other, bit 2 exchanges them."""
    along = torch.arange(size, device=symmetry.device)
    down, right = along.view(1, -1, 1).expand(len(symmetry), -1, size), along.view(1, 1, -1)
    down, right = torch.where(symmetry >= 4, right, down), torch.where(symmetry >= 4, down, right)
    down = torch.where(symmetry % 2 == 1, size - 1 - down, down)
    right = torch.where(symmetry // 2 % 2 == 1, size - 1 - right, right)
    return down, right
