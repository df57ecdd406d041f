"""The options that the reconstruction commands share, declared once.

They are the fields of `Settings`. A command gets them by `with_settings`, and their values as `settings`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from torchdeal.choice import Choice
from torchdeal.cli.parameters import read_parameters
from torchdeal.cli.shared import Device, DeviceChoice, device_name
from torchdeal.io.checkpoint import BUNDLED
from torchdeal.model import SYMMETRIES
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

NUMBERS = (".npy", ".tif", ".tiff")  # formats that hold numbers of any size
SIMULATION = "Simulation"  # a heading in the help
TILES = ("tile", "overlap", "resume", "dask")  # settings for much: large pictures, many machines
PICTURE_NOISE = ("noise_model", "gain", "read_noise", "noise_map", "noise_per")  # settings for noise in pictures


class NoiseKind(Choice):
    """What noise there is in a picture."""

    GAUSSIAN = "gaussian"  # the same everywhere, or as a map says
    POISSON = "poisson"  # counted photons
    IMPULSE = "impulse"  # Gaussian, and some pixels that have nothing to do with the picture


class NoisePer(Choice):
    """What one estimate of the noise is for."""

    AUTO = "auto"  # as the format suggests
    FRAME = "frame"
    STACK = "stack"  # all frames of a file


_solving = functools.partial(typer.Option, rich_help_panel="Solving")
_tiling = functools.partial(typer.Option, rich_help_panel="Large pictures")
_simulating = functools.partial(typer.Option, rich_help_panel=SIMULATION)

Inputs = Annotated[
    list[Path],
    typer.Argument(metavar="IN... OUT", help="Images or folders, then the output: a file, or a folder for several."),
]


@dataclass(frozen=True)
class Settings:
    """What the shared options say, for every file alike. Raises ValueError for what cannot be."""

    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise in the picture on the 0..255 scale, whatever the bit depth. "
            "Default: estimated; 2.55 with --simulate."
        ),
    ] = None
    noise_model: Annotated[
        NoiseKind,
        typer.Option(
            help="gaussian: white noise. poisson: counted photons, with --gain and --read-noise. impulse: white noise, "
            "and outliers, such as salt and pepper or hot pixels."
        ),
    ] = NoiseKind.GAUSSIAN
    gain: Annotated[
        float | None,
        typer.Option(
            help="With poisson: what one photon adds to a pixel, on the 0..255 scale. 255 / N if N are white."
        ),
    ] = None
    read_noise: Annotated[
        float | None,
        typer.Option(help="With poisson: standard deviation of the Gaussian noise in it, on the 0..255 scale."),
    ] = None
    noise_map: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="In place of --sigma: the standard deviation of the noise in each pixel, on the 0..255 scale. A file "
            "(.npy, .tif, ...) of the size of the pictures, whose values are taken as they are.",
        ),
    ] = None
    noise_per: Annotated[
        NoisePer,
        typer.Option(
            help="Where the noise of a stack is estimated. frame: in each frame. stack: once for all of them, as the "
            "median over frames. auto: stack for scans (NIfTI, DICOM), frame for other files."
        ),
    ] = NoisePer.AUTO
    lam: Annotated[float | None, _solving(help="Strength of the regularisation. Default: found automatically.")] = None
    model_sigma: Annotated[
        float | None,
        _solving(help="Noise level that the model assumes, on the 0..255 scale. Default: found automatically."),
    ] = None
    parameters: Annotated[
        Path | None,
        _solving(metavar="FILE", help="In place of --lam and --model-sigma: a file that deal tune wrote."),
    ] = None
    model: Annotated[
        str | None,
        _solving(help=f"{', '.join(BUNDLED)}, or a weights file (.safetensors, .pth). Default: by the channels."),
    ] = None
    device: DeviceChoice = Device.auto
    tolerance: Annotated[
        float, _solving(help="Stop when the estimated relative distance to the fixed point is below this.")
    ] = DEFAULT_TOLERANCE
    max_iterations: Annotated[int, _solving(min=1, help="Outer iterations at most.")] = DEFAULT_MAX_ITERATIONS
    batch: Annotated[
        int | None,
        _solving(
            min=1,
            help="Pictures or frames of one size that are solved together. Default: as many as fill the GPU; 1 on the "
            "CPU.",
        ),
    ] = None
    symmetries: Annotated[
        int,
        _solving(
            min=1,
            max=SYMMETRIES,
            help="Take the mean of the answers for so many turned and mirrored pictures: a little better, and slower. "
            "8 take five to six times as long.",
        ),
    ] = 1
    certificate: Annotated[
        bool,
        _solving(
            "--certificate",
            help="Also print what is known about the answer: how far the fixed point is, how stable it is, and what is "
            "not proven. Takes about ten times as long as the reconstruction.",
        ),
    ] = False
    channelwise: Annotated[
        bool, _solving("--channelwise", help="Apply a gray model to each channel of a colour image.")
    ] = False
    data_range: Annotated[
        float | None,
        typer.Option(help="The value of white, for files whose white is not that of their bit depth (1.0 if float)."),
    ] = None
    quality: Annotated[int | None, typer.Option(min=1, max=100, help="Quality of JPEG files. Default: 95.")] = None
    error_bars: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the standard deviation of each pixel (.npy, .tif), on the 0..255 scale; of MRI and CT "
            "in the units of the image. Takes about as long as the reconstruction.",
        ),
    ] = None
    tile: Annotated[
        int | None,
        _tiling(
            min=0,
            help="Solve the picture in tiles of so many pixels each way, with an overlap (0: never). Default: where it "
            "is a Zarr store, or too large for the memory (TIFF, npy), in tiles that fit.",
        ),
    ] = None
    overlap: Annotated[
        int | None,
        _tiling(min=0, help="How far a tile looks beyond its border, in pixels. Default: by the noise and the blur."),
    ] = None
    resume: Annotated[
        bool, _tiling("--resume", help="Go on with a run in tiles that was stopped, where OUT.partial is still there.")
    ] = False
    dask: Annotated[
        str | None,
        _tiling(
            metavar="ADDRESS",
            help="Have tiles, or the files of a folder, solved by workers of Dask: the address of a scheduler, such as "
            "tcp://host:8786, or a number of processes on this machine, or local: one for each GPU, or core.",
        ),
    ] = None
    simulate: Annotated[
        bool,
        _simulating(
            "--simulate", help="The input is a clean picture: degrade it first, then compare the result with it."
        ),
    ] = False
    seed: Annotated[int, _simulating(min=0, max=2**63 - 1, help="The same number makes the same simulation again.")] = 0
    save_degraded: Annotated[Path | None, _simulating(metavar="FILE", help="Where to write the degraded picture.")] = (
        None
    )
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Read folders with all that is in them; OUT gets the same folders.")
    ] = False
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Leave out what has its output already.")] = (
        False
    )
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON report instead of text.")] = False

    def __post_init__(self) -> None:
        for option, value in (("--sigma", self.sigma), ("--model-sigma", self.model_sigma)):
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{option} must be finite and at least 0, got {value:g}")
        if self.lam is not None and not 0 < self.lam < math.inf:
            raise ValueError(f"--lam must be finite and above 0, got {self.lam:g}")
        if not 0 < self.tolerance < math.inf:
            raise ValueError(f"--tolerance must be a positive number, got {self.tolerance:g}")
        if self.error_bars and self.error_bars.suffix.lower() not in NUMBERS:
            raise ValueError(f"{self.error_bars}: --error-bars are numbers, not a picture: write .npy or .tif")
        if self.save_degraded and not self.simulate:
            raise ValueError("--save-degraded is what a simulation degrades: use it with --simulate")
        if self.symmetries > 1 and (self.certificate or self.error_bars):
            raise ValueError(
                "--certificate and --error-bars are about one answer, and with --symmetries the result is the mean of "
                "several: leave one of these out"
            )
        if self.parameters is not None and (self.lam is not None or self.model_sigma is not None):
            raise ValueError("--parameters says lam and the sigma of the model: leave out --lam and --model-sigma")
        self._check_noise()
        device_name(self.device)  # raises where it is not there

    def with_parameters_for(self, command: str) -> Settings:
        """With the sigma and lam that the file of --parameters has, if there is one."""
        if self.parameters is None:
            return self
        sigma, lam = read_parameters(self.parameters, command)
        return replace(self, model_sigma=sigma, lam=lam, parameters=None)

    def _check_noise(self) -> None:
        counted = self.noise_model is NoiseKind.POISSON
        if counted and (self.gain is None or not 0 < self.gain < math.inf):
            raise ValueError("--noise-model poisson needs --gain: what one photon adds, above 0, on the 0..255 scale")
        if self.read_noise is not None and not 0 <= self.read_noise < math.inf:
            raise ValueError(f"--read-noise must be finite and at least 0, got {self.read_noise:g}")
        if not counted and (self.gain is not None or self.read_noise is not None):
            raise ValueError("--gain and --read-noise are for counted photons: use them with --noise-model poisson")
        if counted and self.sigma is not None:
            raise ValueError("--sigma is for Gaussian noise: leave it out, or give --read-noise")
        if self.noise_map is not None and (self.sigma is not None or self.simulate):
            raise ValueError("--noise-map says the noise of a noisy picture: leave out --sigma and --simulate")
        if self.noise_map is not None and self.noise_model is not NoiseKind.GAUSSIAN:
            raise ValueError("--noise-map is a map of Gaussian noise: leave out --noise-model")

    @property
    def torch_device(self) -> str:
        return device_name(self.device)


def with_settings(
    *, without: Collection[str] = (), sigma_help: str | None = None, sigma: float | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared options, after its own, and pass what they say on as `settings`.

    Args:
        without: names of settings that this command has no option for: they keep their defaults.
        sigma_help: what --sigma is to this command, if it is something else.
        sigma: its default.
    """
    hints = get_type_hints(Settings, include_extras=True)
    if sigma_help is not None:
        hints["sigma"] = Annotated[float | None, typer.Option(help=sigma_help)]
    defaults = {field.name: field.default for field in fields(Settings)} | {"sigma": sigma}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
        if name not in without
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "settings"]

        @functools.wraps(command)
        def with_shared_options(**values: object) -> None:
            other_noise = values.get("noise_map") is not None or values.get("noise_model") is NoiseKind.POISSON
            if other_noise and values["sigma"] == sigma:  # the default of --sigma, which is not asked for then
                values["sigma"] = None
            settings = Settings(**{parameter.name: values.pop(parameter.name) for parameter in shared})  # type: ignore
            command(**values, settings=settings.with_parameters_for(command.__name__))

        with_shared_options.__signature__ = signature.replace(parameters=own + shared)  # type: ignore
        return with_shared_options

    return decorate
