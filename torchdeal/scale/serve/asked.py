"""What can be asked for: the parameters of each address, checked, and the task of the command line that does it.

Their names and units are those of the commands. No parameter is the name of a file.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from torchdeal.app.uploads import Upload, UploadError
from torchdeal.app.wishes import FORMULA, LIMITS
from torchdeal.choice import Choice
from torchdeal.cli.deblur import Deblurring
from torchdeal.cli.denoise import Denoising
from torchdeal.cli.inpaint import Inpainting, read_mask
from torchdeal.cli.options import NoiseKind, Settings
from torchdeal.cli.pictures import PictureTask
from torchdeal.cli.shared import Device
from torchdeal.cli.upscale import DEFAULT_SIGMA, DEFAULT_STD, Upscaling
from torchdeal.operators import Blur, BlurBoundary
from torchdeal.operators.blur_kernels import gaussian_kernel, parse_kernel, read_kernel
from torchdeal.reconstruct import DEFAULT_MAX_ITERATIONS, DEFAULT_TOLERANCE

MOST_ITERATIONS = 2000


class AnswerKind(Choice):
    """What comes back."""

    IMAGE = "image"
    JSON = "json"


class AnswerFormat(Choice):
    """Of the picture that comes back."""

    SAME = "same"
    PNG = "png"
    TIF = "tif"
    NPY = "npy"


def _number(name: str, description: str, example: float | None = None) -> Any:
    low, high = LIMITS[name]
    return Field(None, ge=low, le=high, description=description, examples=None if example is None else [example])


def _kernel(description: str, example: str) -> Any:
    return Field(None, pattern=f"^{FORMULA.pattern}$", description=description, examples=[example])


class Asked(BaseModel):
    """What all addresses have."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    goal: ClassVar[str]

    sigma: float | None = _number(
        "sigma", "Standard deviation of the noise on the 0..255 scale, whatever the bit depth. Default: estimated.", 25
    )
    noise_model: NoiseKind = Field(
        NoiseKind.GAUSSIAN,
        description="gaussian: white noise. poisson: photons, with gain and read_noise. impulse: outliers, too.",
    )
    gain: float | None = Field(
        None, gt=0, le=255, description="With poisson: what one photon adds, on the 0..255 scale."
    )
    read_noise: float | None = Field(
        None, ge=0, le=255, description="With poisson: standard deviation of the Gaussian part, on the 0..255 scale."
    )
    lam: float | None = _number("lam", "Strength of the regularisation. Default: found.")
    model: Literal["gray", "color", "gray-light", "color-light"] | None = Field(
        None, description="Weights. Default: by the channels of the picture, of the size that the server was told."
    )
    tolerance: float = Field(
        DEFAULT_TOLERANCE,
        ge=LIMITS["tolerance"][0],
        le=LIMITS["tolerance"][1],
        description="Stop when the estimated relative distance to the fixed point is below this.",
    )
    max_iterations: int = Field(
        DEFAULT_MAX_ITERATIONS, ge=1, le=MOST_ITERATIONS, description="Outer iterations at most."
    )
    channelwise: bool = Field(False, description="Apply a gray model to each channel of a colour picture.")
    data_range: float | None = Field(
        None, gt=0, le=1e9, description="The value of white, where it is not that of the bit depth (1.0 if float)."
    )
    answer: AnswerKind = Field(
        AnswerKind.IMAGE, description="image: a file, with the report in headers. json: both in one object."
    )
    format: AnswerFormat = Field(
        AnswerFormat.SAME, description="Of the picture. same: that of the input, where it holds the result, else tif."
    )

    def settings(self, colours: int, weights: str, device: str) -> Settings:
        """As the options of the command would be, for a picture of so many colours.

        Args:
            colours: channels without transparency.
            weights: `"full"` or `"light"`, where the request names no model.
            device: where to compute.
        """
        shared = self.model_dump(include=set(Settings.__dataclass_fields__) & set(type(self).model_fields))
        if self.model is None:
            name = "color" if colours == 3 and not self.channelwise else "gray"
            shared["model"] = f"{name}-light" if weights == "light" else name
        return Settings(**shared, device=Device(device))

    @abstractmethod
    def task(self, settings: Settings, files: dict[str, Upload]) -> PictureTask:
        """What the command of this name would do."""

    @property
    def magnification(self) -> int:
        """How many times more pixels the result has, each way."""
        return 1


class AskedInverse(Asked):
    """What those have where the picture was not only made noisy."""

    model_sigma: float | None = _number(
        "model_sigma", "Noise level that the model assumes, on the 0..255 scale. Default: found."
    )


class AskedDenoise(Asked):
    """Of /v1/denoise."""

    goal = "denoise"

    def task(self, settings: Settings, files: dict[str, Upload]) -> PictureTask:
        return Denoising(settings)


class AskedDeblur(AskedInverse):
    """Of /v1/deblur."""

    goal = "deblur"
    kernel: str | None = _kernel(
        "gaussian:STD, disk:RADIUS (defocus) or motion:LENGTH,ANGLE, in pixels and degrees. Or send kernel_file.",
        "gaussian:1.6",
    )
    boundary: BlurBoundary = Field(
        BlurBoundary.VALID, description="What the blur saw beyond the border. valid, for photos: the scene goes on."
    )

    def task(self, settings: Settings, files: dict[str, Upload]) -> PictureTask:
        return Deblurring(settings, Blur(_kernel_of(self.kernel, files), self.boundary))


class AskedUpscale(AskedInverse):
    """Of /v1/upscale."""

    goal = "upscale"
    sigma: float | None = _number(
        "sigma", f"Standard deviation of the noise on the 0..255 scale. Default: {DEFAULT_SIGMA:g}."
    )
    scale: int = Field(
        ge=LIMITS["scale"][0], le=LIMITS["scale"][1], description="How many times larger, each way.", examples=[2]
    )
    kernel: str | None = _kernel(
        "The blur before the picture was shrunk: gaussian:STD or disk:RADIUS, in pixels of the result. Or send "
        "kernel_file. Default: a Gaussian that fits pictures which common programs shrank.",
        "gaussian:1.2",
    )

    @property
    def magnification(self) -> int:
        return self.scale

    def settings(self, colours: int, weights: str, device: str) -> Settings:
        if self.sigma is None and self.noise_model is not NoiseKind.POISSON:
            return self.model_copy(update={"sigma": DEFAULT_SIGMA}).settings(colours, weights, device)
        return super().settings(colours, weights, device)

    def task(self, settings: Settings, files: dict[str, Upload]) -> PictureTask:
        shift = -(self.scale - 1) / 2  # from the first of the pixels that become one to their middle
        if self.kernel is None and "kernel_file" not in files:
            return Upscaling(settings, self.scale, gaussian_kernel(DEFAULT_STD * self.scale, shift))
        return Upscaling(settings, self.scale, _kernel_of(self.kernel, files, shift))


class AskedInpaint(AskedInverse):
    """Of /v1/inpaint."""

    goal = "inpaint"

    def task(self, settings: Settings, files: dict[str, Upload]) -> PictureTask:
        known = read_mask(files["mask"].path)
        return Inpainting(settings, "The mask", lambda picture: known)


def _kernel_of(formula: str | None, files: dict[str, Upload], shift: float = 0.0) -> Tensor:
    """The one that was sent, or that the formula says."""
    if (formula is None) == ("kernel_file" not in files):
        raise UploadError("Give the kernel once: as kernel, a formula, or as kernel_file, a file.")
    return read_kernel(files["kernel_file"].path) if formula is None else parse_kernel(formula, shift)
