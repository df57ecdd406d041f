"""What a person brings: a file of bounded size, kept under a name of ours and decoded with care."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import numpy as np

from torchdeal.cli.explanation_pictures import in_gray, png
from torchdeal.io import files
from torchdeal.io.arrays import ArrayFileError, read_header
from torchdeal.io.images import INTEGER_RANGES
from torchdeal.io.printable import printable

SCANS = (".h5", ".mrd", ".npz")  # k-space: measurements that are no picture
ROLES = ("picture", "kernel", "mask")
LONGEST_NAME = 80
SMALLEST_SIDE = 8
PART = "part-"  # how files with parts of pictures begin


class UploadError(ValueError):
    """A file that is not taken, and why, in one sentence."""


class TooLargeError(UploadError):
    """More bytes than are taken."""


class TooManyPixelsError(UploadError):
    """More pixels than are taken, or than a file of this size should have."""


@dataclass(frozen=True, eq=False)
class Upload:
    """A file of a person.

    Attributes:
        name: what the person calls it. It is shown and never used as a path.
        path: where it is.
        image: what is in it; None for k-space.
        sample: it is one of ours, and clean.
    """

    name: str
    path: Path
    image: files.ImageFile | None = None
    sample: bool = False

    @property
    def suffix(self) -> str:
        return self.path.suffix

    def about(self) -> dict[str, object]:
        """For the page."""
        known: dict[str, object] = {"name": self.name, "sample": self.sample, "picture": self.image is not None}
        if self.image is not None:
            height, width = self.image.size
            known |= {"height": height, "width": width, "colours": self.image.colours, "alpha": self.image.alpha}
            known |= {"kind": self.image.pixels.dtype.name, "notes": list(self.image.metadata.notes)}
        return known

    def in_words(self, error: str) -> str:
        """An error of the library for the page: with the name that the person knows, and without dashes of options."""
        error = re.sub(re.escape(str(self.path.parent)) + r"[\\/][\w.-]+\.\w+", lambda found: self.name, error)
        error = error.replace(str(self.path.parent), "").replace("--", "")
        first = error[:1] if error.startswith(self.name) else error[:1].upper()
        return first + error[1:] + ("" if error.endswith(".") else ".")

    def middle(self, side: int | None) -> Upload:
        """The middle of the picture, at most so many pixels high and wide; all of it if None. It has no file."""
        if side is None or self.image is None or max(self.image.size) <= side:
            return self
        height, width = self.image.size
        top, left = max(height - side, 0) // 2, max(width - side, 0) // 2
        pixels = self.image.pixels[top : top + side, left : left + side]
        return replace(self, image=replace(self.image, pixels=np.ascontiguousarray(pixels)))

    def part(self, side: int | None) -> Upload:
        """The same, in a file of its own."""
        cut = self.middle(side)
        if cut is self or cut.image is None:
            return self
        path = self.path.with_name(f"{PART}{side}.tif")  # a format that holds pixels of any kind
        files.write(path, cut.image)
        return replace(cut, path=path)

    def preview(self) -> bytes:
        """A PNG."""
        if self.image is None:
            raise UploadError("This file is no picture, so there is nothing to show.")
        pixels = self.image.without_alpha().pixels
        pixels = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels
        low, high = 0.0, INTEGER_RANGES.get(pixels.dtype.name)
        if high is None:
            low, high = float(pixels.min()), float(pixels.max())
            low, high = (0.0, 1.0) if low >= 0 and 0.5 < high <= 1 else (low, high)
        return png(in_gray(pixels.astype(np.float32), low, high))


def suffix_of(name: str, role: str) -> str:
    """The format that a name of a person tells, if it is one that is taken."""
    suffix = PurePath(name.replace("\\", "/")).suffix.lower()
    taken = (*files.SUFFIXES, *(SCANS if role == "picture" else ()))
    if suffix not in taken:
        shown = f"Files of type {printable(suffix)}" if suffix else "Files without a type in their name"
        raise UploadError(f"{shown} are not taken: use one of {', '.join(taken)}.")
    return suffix


def shown_name(name: str) -> str:
    """Without folders and control characters, and short."""
    plain = printable(PurePath(name.replace("\\", "/")).name).strip() or "picture"
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 12]}...{plain[-9:]}"


async def receive(body: AsyncIterable[bytes], folder: Path, suffix: str, most: int) -> Path:
    """Write what comes to a new file in the folder. Raises TooLargeError as soon as it is more than that."""
    path = folder / f"{secrets.token_hex(8)}{suffix}"
    size = 0
    try:
        with path.open("wb") as file:
            async for chunk in body:
                size += len(chunk)
                if size > most:
                    raise TooLargeError(f"The file is larger than the {most / 2**20:.0f} MiB that are taken.")
                file.write(chunk)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if size == 0:
        path.unlink()
        raise UploadError("The file is empty.")
    return path


def opened(path: Path, name: str, role: str = "picture") -> Upload:
    """What is in a file. Raises UploadError where that is neither one picture nor k-space."""
    upload = Upload(shown_name(name), path)
    if path.suffix in SCANS or (path.suffix == ".npy" and _is_complex(path)):
        return upload
    try:
        image = files.read(path)
    except (files.ImageFileError, ValueError) as error:
        kind = TooManyPixelsError if isinstance(error, files.TooManyValuesError) else UploadError
        raise kind(upload.in_words(str(error))) from None
    except MemoryError:
        raise UploadError(f"{upload.name} needs more memory than there is: use a smaller one.") from None
    if image.frames > 1 or image.colours not in (1, 3):
        raise UploadError(
            f"{upload.name} holds several pictures or channels; one picture is taken here, gray or of three colours, "
            "and the commands take all."
        )
    if role == "picture" and min(image.size) < SMALLEST_SIDE:
        raise UploadError(f"{upload.name} is too small: at least {SMALLEST_SIDE} pixels each way are needed.")
    if image.pixels.ndim == 4:
        image = replace(image, pixels=image.pixels[0], dimensions=())
    if image.pixels.dtype.kind == "f" and not np.isfinite(image.pixels).all():
        raise UploadError(f"{upload.name} holds NaN or infinite values: replace them first.")
    return replace(upload, image=image)


def _is_complex(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            return read_header(file)[1].kind == "c"
        except (ArrayFileError, ValueError, EOFError, OSError):
            return False  # the reader of pictures says what is wrong with it
