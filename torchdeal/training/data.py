"""Training images: read once, kept on the device, random patches in all eight symmetries."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from torchdeal.io import deep_png
from torchdeal.io.images import LUMA
from torchdeal.training.archive import read_members

TIFF = (".tif", ".tiff")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", *TIFF)
KINDS = "JPEG, PNG, WebP or TIFF"
MODES = {1: "L", 3: "RGB"}  # Pillow's names; colour becomes gray by the standard luma
AT_ONCE = 32  # files that are held while they are decoded
WHITE = 255
_one_tiff = Lock()  # what tifffile only logs is caught for one file at a time


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
    """Images of one number of channels and any size, one after the other in one tensor, white at 255."""

    pixels: Tensor  # all images, each (C, H, W): uint8, or float16 where one of them has more than 8 bits
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
    """Read all JPEG, PNG, WebP and TIFF images from folders, with their subfolders, and from tar files.

    In files of more than 8 bits the darkest value becomes 0 and the brightest 255: cameras use a part of the bits.
    Each picture of a TIFF stack is an image.

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
    """The images of the sources, `(C, H, W)`, height and width at least `smallest`; and what was skipped.

    White is 255. They are uint8, or float16 where a file has more than 8 bits.
    """
    images, skipped = [], []
    entries = ((name, data, channels, smallest) for source in sources for name, data in _files(Path(source)))
    with ThreadPoolExecutor() as pool, warnings.catch_warnings():  # Pillow decodes without holding up other threads
        warnings.simplefilter("ignore")  # what Pillow finds odd in a file that it can read
        while some := list(islice(entries, AT_ONCE)):
            for found in pool.map(_decode, some):
                if isinstance(found, Skipped):
                    skipped.append(found)
                else:
                    images += found
    if not images:
        reasons = "; ".join(map(str, skipped[:3]))
        needed = f"{KINDS} files of at least {smallest} x {smallest} pixels are needed"
        raise ValueError(f"no usable image in {', '.join(map(str, sources))}: {needed}{reasons and f' ({reasons})'}")
    return images, skipped


def _files(source: Path) -> Iterator[tuple[str, bytes | Path | None]]:
    """Names and contents of the files of a source, in an order that does not depend on the file system."""
    if source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            yield str(path), path
    elif not source.is_file():
        raise FileNotFoundError(f"{source}: there is no such folder or file of images; see [data] in the config")
    elif source.suffix.lower() in SUFFIXES:
        yield str(source), source
    else:
        for name, content in read_members(source, SUFFIXES):
            yield f"{source}:{name}", content


def _decode(entry: tuple[str, bytes | Path | None, int, int]) -> list[np.ndarray] | Skipped:
    """The images in a file, or why there is none."""
    name, data, channels, smallest = entry
    if not name.lower().endswith(SUFFIXES):
        return Skipped(name, f"not a {KINDS} file")
    if data is None:
        return Skipped(name, "a link or a device, not a file")
    try:
        found = _read_tiff(data) if name.lower().endswith(TIFF) else _read_bitmap(data, MODES[channels])
        height, width = found.shape[1:3]
        if min(height, width) < smallest:
            return Skipped(name, f"{height} x {width}, smaller than a patch of {smallest} x {smallest}")
        return list(_with_channels(_ranged(found), channels))
    except ImportError:
        raise ImportError(f"{name}: TIFF files need tifffile: pip install tifffile") from None
    except MemoryError:
        raise
    except Exception as error:  # of decoders, which raise whatever they like on damaged files
        return Skipped(name, f"cannot be read ({error})")


def _read_bitmap(data: bytes | Path, mode: str) -> np.ndarray:
    """The picture `(1, H, W, C)`: uint16 as the file has it, or of 8 bits in Pillow's mode."""
    from PIL import Image

    content = data if isinstance(data, bytes) else data.read_bytes()
    with Image.open(io.BytesIO(content)) as picture:
        if deep_png.is_deep(content[:26]):
            pixels = deep_png.decode(content)
            return pixels[None, ..., :-1] if pixels.shape[-1] in (2, 4) else pixels[None]  # without transparency
        pixels = np.asarray(picture.convert(mode))
    return pixels.reshape(1, *pixels.shape[:2], -1)


def _read_tiff(data: bytes | Path) -> np.ndarray:
    """All pictures of the file, `(B, H, W, C)`."""
    from torchdeal.io import files

    if isinstance(data, bytes):
        raise ValueError("a TIFF file in a tar file: unpack it into a folder")
    with _one_tiff:
        file = files.read(data).without_alpha()
    return file.pixels.reshape(file.frames, *file.size, file.colours)


def _ranged(pixels: np.ndarray) -> np.ndarray:
    """White at 255: uint8 as it is, all else stretched to 0..255 as a whole, float32."""
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "iuf" or not np.isfinite(pixels).all():
        raise ValueError(f"pixels of type {pixels.dtype.name}, or NaN or infinite ones: convert it first")
    low, high = float(pixels.min()), float(pixels.max())
    if low == high:
        raise ValueError("all of its pixels are equal")
    precise = pixels.astype(np.float64 if pixels.itemsize > 2 else np.float32)
    return ((precise - low) * (WHITE / (high - low))).astype(np.float32)


def _with_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """`(B, H, W, C)` as `(B, channels, H, W)`, uint8 or float16."""
    given = pixels.shape[-1]
    if given not in MODES:
        raise ValueError(f"{given} channels: gray or RGB is needed")
    if (given, channels) == (3, 1):
        gray = pixels @ np.asarray(LUMA, np.float32)
        pixels = (gray.round().astype(np.uint8) if pixels.dtype == np.uint8 else gray)[..., None]
    kind = np.uint8 if pixels.dtype == np.uint8 else np.float16
    planes = np.moveaxis(pixels, -1, 1).astype(kind)
    return np.array(np.broadcast_to(planes, (len(planes), channels, *planes.shape[2:])))


def _symmetric_grids(size: int, symmetry: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of a patch, `(B, size, size)`: bit 0 mirrors one, bit 1 the other, bit 2 exchanges them."""
    along = torch.arange(size, device=symmetry.device)
    down, right = along.view(1, -1, 1).expand(len(symmetry), -1, size), along.view(1, 1, -1)
    down, right = torch.where(symmetry >= 4, right, down), torch.where(symmetry >= 4, down, right)
    down = torch.where(symmetry % 2 == 1, size - 1 - down, down)
    right = torch.where(symmetry // 2 % 2 == 1, size - 1 - right, right)
    return down, right
