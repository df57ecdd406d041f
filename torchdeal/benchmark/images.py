"""Clean images from files, and the noise of the paper's protocol."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchdeal.benchmark.peers.base import Unavailable
from torchdeal.io import files
from torchdeal.io.images import luma, to_tensor

TRAINING_FILE, TRAINING_IMAGES, TRAINING_SIDE = "bsd400.tar", 4, 256
REMOVE = "take it out of the folder"
PICTURES = {"gray": "camera", "color": "astronaut"}  # of scikit-image


def draw_noise(like: Tensor, sigma: float) -> Tensor:
    """The noise of the protocol for an image `(1, C, H, W)`, `sigma` on the 0..255 scale: the same for every image.

    As `numpy.random.seed(0)` and `numpy.random.normal` would, in the order rows, columns, colours.
    """
    channels, height, width = like.shape[1:]
    draws = np.random.RandomState(0).normal(0, sigma / 255, (height, width, channels)).astype(np.float32)
    return torch.from_numpy(draws).permute(2, 0, 1)[None].contiguous()


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder, by name. Raises ValueError where there is none."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give a folder of clean images")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in files.SUFFIXES and p.is_file())
    if not paths:
        raise ValueError(f"{folder}: no images in this folder ({', '.join(files.SUFFIXES)})")
    for one, other in pairwise(sorted(paths, key=lambda path: path.stem)):
        if one.stem == other.stem:  # rows and pictures go by it
            raise ValueError(f"{folder}: {one.name} and {other.name} have the same name; rename one, or {REMOVE}")
    return paths


def reported_images(paths: list[Path], for_tuning: int) -> list[Path]:
    """Those after the first ones, on which parameters are chosen. Raises ValueError where there is none."""
    if len(paths) <= for_tuning:
        folder, tuning = paths[0].parent, f"parameters are chosen on the first {for_tuning}"
        raise ValueError(f"{folder}: more than {for_tuning} images are needed: {tuning}")
    return paths[for_tuning:]


def named_image(folder: Path, name: str) -> Path:
    """The file whose name without its ending is this one."""
    for path in list_images(folder):
        if path.stem == name:
            return path
    raise ValueError(f"{folder}: there is no image {name}")


def read_image(path: Path) -> Tensor:
    """The image in the file, float32 `(1, C, H, W)` in 0..1, without alpha."""
    try:
        file = files.read(path)
        images = to_tensor(file.pixels, alpha=file.alpha)[0].float()
    except files.ImageFileError as error:
        raise files.ImageFileError(f"{error}. Mend it, or {REMOVE}.") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    if len(images) > 1:
        raise ValueError(f"{path}: a stack of {len(images)} images; save them one by one, or {REMOVE}")
    return images


def clean_image(path: Path, channels: int, crop: int | None = None) -> Tensor:
    """The image in the file with so many channels, `(1, C, H, W)`, float32 in 0..1; only its centre if `crop` is given.

    Colour becomes gray in 8 bits.
    """
    image = read_image(path)
    if channels == 1 and image.shape[1] == 3:
        image = luma((image * 255).round()).round() / 255
    if image.shape[1] != channels:
        raise ValueError(f"{path}: the image has {image.shape[1]} channels, {channels} are needed; {REMOVE}")
    height, width = image.shape[2:]
    if crop is None:
        return image
    if min(height, width) < crop:
        raise ValueError(f"{path}: the image is {height} x {width}, at least {crop} x {crop} is needed; {REMOVE}")
    top, left = (height - crop) // 2, (width - crop) // 2
    return image[..., top : top + crop, left : left + crop].contiguous()


@cache
def training_images(folder: Path, channels: int) -> list[Tensor]:
    """Some images `(1, C, H, W)` to choose parameters on, from all over the training set."""
    from torchdeal.training.data import read_pictures

    if not (folder / TRAINING_FILE).is_file():
        raise Unavailable(f"its parameters are chosen on training images: put {TRAINING_FILE} into DATA/train")
    pictures, _ = read_pictures([folder / TRAINING_FILE], channels=channels, smallest=TRAINING_SIDE)
    step = max(1, len(pictures) // TRAINING_IMAGES)
    return [torch.tensor(picture)[None] / 255 for picture in pictures[::step][:TRAINING_IMAGES]]


def read_picture(kind: str, image: Path | None) -> np.ndarray:
    """`(H, W)` or `(H, W, 3)` in 0..1."""
    if image is None:
        try:
            from skimage import data
        except ImportError:
            remedy = "pip install 'torchdeal[demo]', or give a folder by --images"
            raise Unavailable(f"the pictures need scikit-image: {remedy}") from None
        return getattr(data, PICTURES[kind])() / 255.0
    file = files.read(image)
    if file.frames > 1:
        raise ValueError(f"{image}: a stack of images; give one image")
    picture = to_tensor(file.pixels, alpha=file.alpha)[0][0].double()
    if kind == "gray":
        return (picture if len(picture) == 1 else luma(picture))[0].numpy()
    if len(picture) != 3:
        raise Unavailable(f"{image.name}: the image is gray")
    return picture.permute(1, 2, 0).numpy()


def sample_picture(folder: Path | None, channels: int, size: int) -> tuple[str, Tensor]:
    """The name of a picture and its centre, float32 `(1, C, size, size)` in 0..1.

    It is the first one in the folder; without a folder, one of scikit-image.
    """
    kind, path = "gray" if channels == 1 else "color", list_images(folder)[0] if folder else None
    picture = fit(read_picture(kind, path), size)
    return path.stem if path else PICTURES[kind], to_tensor(picture)[0].float()


def fit(picture: np.ndarray, size: int) -> np.ndarray:
    """The centre of the picture, `(size, size, ...)`; a smaller picture is continued by its mirror images."""
    for axis in (0, 1):
        length = picture.shape[axis]
        missing, excess = max(size - length, 0), max(length - size, 0)
        places = np.pad(np.arange(length), (missing // 2, missing - missing // 2), mode="symmetric")
        picture = picture.take(places[excess // 2 : excess // 2 + size], axis)
    return picture
