"""Tasks from picture files to picture files.

Inside, pictures are tensors `(1, C, H, W)` on the 0..255 scale, whatever their bit depth, as is --sigma: they come to
this scale when they are read, and leave it when they are written.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, overload

import numpy as np
import torch
from torch import Tensor

from torchdeal.cli.jobs import Job
from torchdeal.cli.options import NoiseKind, NoisePer, Settings
from torchdeal.cli.report import FileReport
from torchdeal.cli.run import Models, Problem, Simulation, Task, image_range
from torchdeal.fidelity import Impulse, NoiseModel, Poisson, measurements_made, without_outliers
from torchdeal.io import files
from torchdeal.io.images import OTHER_INTEGERS, ImageFormat, luma, to_tensor
from torchdeal.model import SIGMA_MAX
from torchdeal.noise import NoiseLevel, noise_levels, pooled_level
from torchdeal.operators import Operator
from torchdeal.scale.local import LocalOperator
from torchdeal.simulate import measure, measure_counts, measure_impulses

if TYPE_CHECKING:
    from torchdeal.scale.cluster import Cluster

WHITE = 255.0
COLOURS = (1, 3)  # that there are models for
SIMULATED_SIGMA = 2.55  # 1 % of white
ROUNDED = 1e-3  # from a whole number: what single precision makes of one
SMALL_KERNEL = 25  # height and width
LITTLE = 0.3  # share of the scale: what uses less of it is spread to all of it, for the model
LEAST_NOISE = 1e-3  # of the range, where it is estimated: about what rounding to 8 bits adds

MOST_POOLED = 24  # frames that the noise of a stack is estimated in
OUTLYING = 1e-3  # share of the values of a scan, at either end, that are not taken for its range: metal, padding
MOST_SEEN = 2**24  # values of a scan, about, that its range is taken from

PictureKind = tuple[files.ImageFile, ImageFormat]  # what the file was, and its pixels


class Frames(Sequence[Tensor]):
    """Pictures `(1, C, H, W)` of a file, with white at 255, each made when it is asked for: a stack may be long.

    So are its channels, one by one, where there are neither 1 nor 3.
    """

    def __init__(self, file: files.ImageFile, white: float) -> None:
        self.pixels = file.pixels if file.pixels.ndim == 4 else file.pixels.reshape(1, *file.size, file.channels)
        self.alpha, self.white, self.of_colours = file.alpha, white, file.colours in COLOURS
        self.parts = 1 if self.of_colours else file.colours  # of a picture

    def __len__(self) -> int:
        return len(self.pixels) * self.parts

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensor]: ...

    def __getitem__(self, index: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        picture, channel = divmod(index % len(self), self.parts)
        tensor = self.converted(picture)[0]
        return tensor if self.of_colours else tensor[:, channel : channel + 1]

    def converted(self, picture: int) -> tuple[Tensor, ImageFormat]:
        """All channels of a picture, and the format that undoes it."""
        pixels = self.pixels[picture : picture + 1]
        return to_tensor(pixels, data_range=self.white / WHITE, name="picture", alpha=self.alpha)

    def image_format(self) -> ImageFormat:
        """Of all pictures."""
        image_format = self.converted(0)[1]
        return replace(image_format, alpha=self.pixels[..., -1:] if self.alpha else None)


@dataclass(frozen=True, eq=False)
class PictureTask(Task[Tensor, PictureKind]):
    """Pictures or stacks of them, in gray or colour. A command adds `pose`, by means of `problem`.

    Each frame is a picture of its own. So is each channel, where there are neither 1 nor 3.
    """

    made: ClassVar[str] = "reconstructed"  # what a scan says that was done to it
    stack_noise: NoiseLevel | None = field(default=None, kw_only=True)  # of all frames of a file, where they share it
    one_range: bool = field(default=False, kw_only=True)  # all frames of a file have the same white

    def read(self, path: Path) -> tuple[Sequence[Tensor], PictureKind]:
        file = files.read(path)
        try:
            return self.frames_of(file)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{path}: {error}") from None

    def frames_of(self, file: files.ImageFile) -> tuple[Sequence[Tensor], PictureKind]:
        """As `read`, of what is in memory already."""
        _check_finite(file)
        frames = Frames(file, self._white_of(file))
        image_format = frames.image_format()
        if self.settings.simulate:  # may crop the picture, but not what is transparent in it
            file = file.without_alpha("transparency: a simulation is without it")
            image_format = replace(image_format, alpha=None)
        return frames, (file, image_format)

    def _white_of(self, file: files.ImageFile) -> float:
        """The value of white in the pixels as they are stored."""
        pixels, white, volume = file.pixels, self.settings.data_range, file.metadata.volume
        if white is not None and volume is not None:
            white = white / abs(volume.slope)
        elif white is None and volume is not None:
            white = _usual_range(pixels)
        elif white is None and pixels.dtype.name in OTHER_INTEGERS:  # that have no white of their own
            white = max(float(pixels.max()) - float(pixels.min()), 1.0)
        if white is None and pixels.dtype.kind == "f":  # all of it must be in 0..1, more or less
            pixels = np.array([[pixels.min(), pixels.max()]], pixels.dtype)
        elif pixels.ndim == 4:
            pixels = pixels[:1]
        pixels = pixels[None] if pixels.ndim == 3 else pixels  # any number of channels
        return to_tensor(pixels, data_range=white, name="picture")[1].data_range

    def for_stack(self, frames: Sequence[Tensor], kind: PictureKind) -> PictureTask:
        """Where one noise is for all frames, estimated in some of them, from the first to the last."""
        is_scan, per = kind[0].is_volume, self.settings.noise_per
        task = replace(self, one_range=is_scan)
        if len(frames) == 1 or not (per is NoisePer.STACK or (per is NoisePer.AUTO and is_scan)):
            return task
        step = -(-len(frames) // MOST_POOLED)
        levels = [task.pose(frames[number]).level for number in range(0, len(frames), step)]
        known = [level for level in levels if level is not None]
        return replace(task, stack_noise=pooled_level(known)) if known else task

    def on_common_scale(self, file: files.ImageFile) -> tuple[Tensor, ImageFormat]:
        """The first picture of a file, `(1, C, H, W)`, with white at 255."""
        return Frames(file, self._white_of(file)).converted(0)

    @property
    def magnification(self) -> int:
        """How many times more pixels the result has, each way."""
        return 1

    def check_target(self, path: Path, frames: Sequence[Tensor], kind: PictureKind) -> None:
        files.check_holds(path, kind[0], self.magnification)

    def local_operator(self, size: tuple[int, int]) -> LocalOperator:
        """What was measured of a picture of this size, as something that can be cut. Raises ValueError if it cannot."""
        raise ValueError("this cannot be done in tiles: use --tile 0")

    def pose_sample(self, picture: Tensor, operator: LocalOperator) -> Problem:
        """Of a picture that is solved in tiles: the problem of parts of it, side by side."""
        return self.pose(picture)

    def in_tiles(self, job: Job, models: Models) -> bool:
        from torchdeal.cli.tiled import wants_tiles

        return wants_tiles(self, job, models)

    def restore_in_tiles(self, job: Job, models: Models, cluster: Cluster | None = None) -> FileReport:
        from torchdeal.cli.tiled import restore_in_tiles

        return restore_in_tiles(self, job, models, cluster)

    def problem(
        self,
        picture: Tensor,
        H: Operator,
        *,
        degraded_by: str,
        estimate: Callable[[Tensor], NoiseLevel] = lambda y: noise_levels(y, data_range=WHITE)[0],
        look: Callable[[Tensor], Tensor] = lambda y: y,
        keep: Callable[[Tensor], Tensor] = lambda x: x,
        leave_clean: bool = False,
    ) -> Problem:
        """The picture as measurements of `H`; in a simulation as the image that is measured.

        Args:
            picture: `(1, C, H, W)`, on the 0..255 scale.
            H: of pictures.
            degraded_by: what happened to a picture that was simulated.
            estimate: the noise of measurements, for where it is not given.
            look: measurements as a picture of the size of the result.
            keep: the part of the result that is wanted.
            leave_clean: leave a picture as it is if it may well have no noise, where that is not given.
        """
        H, settings = H.to(dtype=picture.dtype), self.settings
        y = simulated(picture, H, settings) if settings.simulate else picture
        used, told = self._range(y, H), noise_told(y, H, settings)
        if told is None:
            impulses = settings.noise_model is NoiseKind.IMPULSE
            level = self.stack_noise or estimate(without_outliers(y, measurements_made(H, y)) if impulses else y)
            noise = max(level.sigma, LEAST_NOISE * used)
            leave = leave_clean and not impulses and level.may_be_none(WHITE if _of_eight_bits(y) else used)
            posed = Problem(y, H, noise, estimated=True, level=level, leave=leave)
        else:
            posed = Problem(y, H, told)
            _warn_of_much_noise(y, told, settings)
        if settings.simulate:
            posed = replace(posed, simulation=Simulation(keep(picture), look(y), degraded_by, WHITE))
        kind = noise_kind(y, posed.noise, settings)
        return replace(posed, white=_white(used, posed.noise), keep=keep, noise_kind=kind)

    def _range(self, y: Tensor, H: Operator) -> float:
        """255, unless the picture uses little of that: then the range of a rough reconstruction."""
        given = self.settings.data_range is not None or self.one_range
        if given or float(y.max() - y.min()) > LITTLE * WHITE:
            return WHITE
        # What is rough would take a large offset, falling at the border, for a range.
        return image_range(H, y - y.mean())

    def write(self, path: Path, images: Sequence[Tensor], kind: PictureKind) -> Sequence[str]:
        notes = files.write(path, self.result_of(images, kind), quality=self.settings.quality)
        file, image_format = kind
        if file.metadata.volume is not None:
            white = image_format.data_range * WHITE * abs(file.metadata.volume.slope)
            notes = [*notes, f"on the 0..255 scale of sigma, 255 is {white:.4g} in the units of the scan"]
        return notes

    def result_of(self, images: Sequence[Tensor], kind: PictureKind) -> files.ImageFile:
        """The pixels as they were in the file, and what goes along with them."""
        file, image_format = kind
        pixels = _restored(images, image_format, file.colours)
        pixels = (
            pixels[0]
            if file.pixels.ndim == 3
            else pixels.reshape(pixels.shape[1:3])
            if file.pixels.ndim == 2
            else pixels
        )
        if file.metadata.volume is not None:
            file = replace(file, metadata=replace(file.metadata, volume=replace(file.metadata.volume, made=self.made)))
        written = replace(file, pixels=pixels, white=self.settings.data_range or 1.0)
        if written.size != file.size:
            written = replace(written, metadata=file.metadata.enlarged(self.magnification, written.size))
        return written


def _restored(images: Sequence[Tensor], image_format: ImageFormat, colours: int) -> np.ndarray:
    """Pixels `(B, H, W, C)` of frames or channels `(1, C or 1, H, W)`, one after the other: a stack may be long."""
    parts = colours if images[0].shape[1] != colours else 1
    grown = _with_grown_alpha(image_format, images[0].shape[-2:])
    found = []
    for number in range(len(images) // parts):
        picture = torch.cat(list(images[number * parts : (number + 1) * parts]), 1)
        alpha = None if grown.alpha is None else grown.alpha[number : number + 1]
        found.append(replace(grown, layout="BHWC", alpha=alpha).restore(picture))
    return np.concatenate(found)


def _check_finite(file: files.ImageFile) -> None:
    """Better before the work than in the middle of it."""
    stack = file.pixels if file.pixels.ndim == 4 else file.pixels[None]
    for number, picture in enumerate(stack, 1):
        if picture.dtype.kind == "f" and not np.isfinite(picture).all():
            where = f" (image {number} of {len(stack)})" if len(stack) > 1 else ""
            raise ValueError(f"the picture holds NaN or infinite values{where}: replace them first")


def _usual_range(pixels: np.ndarray) -> float:
    """Of the values of a scan, without the few that lie far away."""
    values = pixels.reshape(-1)[:: max(1, pixels.size // MOST_SEEN)]
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    low, high = np.quantile(values, (OUTLYING, 1 - OUTLYING)) if len(values) else (0.0, 0.0)
    return float(high - low) or 1.0


def simulated(picture: Tensor, H: Operator, settings: Settings) -> Tensor:
    """What would be measured of a picture, with the noise that the settings say."""
    sigma = SIMULATED_SIGMA if settings.sigma is None else settings.sigma
    if settings.noise_model is NoiseKind.POISSON:
        return measure_counts(picture, H, settings.gain or 1.0, settings.read_noise or 0.0, settings.seed)
    if settings.noise_model is NoiseKind.IMPULSE:
        return measure_impulses(picture, H, sigma, white=WHITE, seed=settings.seed)
    return measure(picture, H, sigma, settings.seed)


def noise_told(y: Tensor, H: Operator, settings: Settings) -> float | None:
    """The standard deviation of the noise as the settings have it, where it differs a mean; None: to be estimated."""
    if settings.noise_map is not None or settings.noise_model is NoiseKind.POISSON:
        levels = noise_kind(y, 0.0, settings)
        if isinstance(levels, NoiseModel):
            levels = levels.first_deviation(y, images=True, made=measurements_made(H, y))
        assert levels is not None
        return float(levels.square().mean().sqrt())
    if settings.simulate and settings.sigma is None:
        return SIMULATED_SIGMA
    return settings.sigma


def noise_kind(y: Tensor, sigma: float, settings: Settings) -> Tensor | NoiseModel | None:
    """What `reconstruct` is told about the noise, unless it is white."""
    if settings.noise_model is NoiseKind.POISSON:
        return Poisson(settings.gain or 1.0, settings.read_noise or 0.0)
    if settings.noise_model is NoiseKind.IMPULSE:
        return Impulse(sigma)
    if settings.noise_map is None:
        return None
    levels = read_noise_map(settings.noise_map)
    if levels.shape[-2:] != y.shape[-2:]:
        sizes = [" x ".join(map(str, tensor.shape[-2:])) for tensor in (levels, y)]
        raise ValueError(f"the noise map is {sizes[0]} and the picture {sizes[1]}: they must have the same size")
    return levels


def read_noise_map(path: Path) -> Tensor:
    """`(1, C or 1, H, W)`, finite and at least 0."""
    file = files.read(path).without_alpha()
    if file.pixels.ndim not in (2, 3):
        raise ValueError(f"{path}: a noise map is one picture, this file has {file.pixels.shape}")
    levels = np.atleast_3d(file.pixels.astype(np.float32))
    if not (np.isfinite(levels) & (levels >= 0)).all():
        raise ValueError(f"{path}: the noise map must be finite and at least 0")
    return torch.from_numpy(levels).permute(2, 0, 1)[None]


def _warn_of_much_noise(y: Tensor, sigma: float, settings: Settings) -> None:
    span = float(y.max() - y.min())
    if 0 < span < sigma and settings.sigma is not None and not settings.simulate:  # noise alone would reach further
        warnings.warn(
            f"--sigma {sigma:g} is more noise than the picture can have: its values span {span:.3g} on the 0..255 "
            "scale; check --sigma, or leave it out",
            stacklevel=3,
        )


def _of_eight_bits(picture: Tensor) -> bool:
    """Whether it was rounded to the whole numbers from 0 to 255, whatever it is stored as."""
    return bool(((picture - picture.round()).abs() < ROUNDED).all())


def _white(used: float, noise: float) -> float:
    """What is white to the model: the range that the picture uses, or more, so that the model knows such noise.

    A picture of one colour uses hardly any range. Spread to all of the scale, its noise would be a hundred times
    what the model was trained for.
    """
    return max(used, min(noise * WHITE / SIGMA_MAX, WHITE))


@dataclass(frozen=True, eq=False)
class GraySimulation(Task[Tensor, None]):
    """A gray picture `(1, 1, H, W)` in 0..1, to be measured by what knows no colour. A command adds `pose`."""

    def read(self, path: Path) -> tuple[Sequence[Tensor], None]:
        file = files.read(path)
        if file.frames > 1:
            raise ValueError(f"{path}: a stack; simulate with one picture")
        picture = to_tensor(file.pixels, alpha=file.alpha)[0].float()
        return [luma(picture) if picture.shape[1] == 3 else picture.mean(1, keepdim=True)], None

    def write(self, path: Path, images: Sequence[Tensor], kind: None) -> None:
        write_gray(path, images[0])


def write_gray(path: Path, image: Tensor) -> None:
    """An image `(1, 1, H, W)` in 0..1; .npy and .tif are floating point."""
    files.write(path, files.ImageFile(image[0, 0].float().cpu().numpy()))


def check_kernel_fits(kernel: Tensor, size: Sequence[int]) -> None:
    """A picture in place of a kernel is a mistake. Small kernels are for pictures of any size."""
    if any(max(have, SMALL_KERNEL) < needed for have, needed in zip(size, kernel.shape, strict=True)):
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
