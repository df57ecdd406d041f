"""The lines of Python and the command that do what the page did."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePath

from torchdeal.app.uploads import PART, Upload
from torchdeal.app.wishes import BRUSH, FILE, Goal, Wish
from torchdeal.cli.pictures import WHITE
from torchdeal.cli.run import Problem
from torchdeal.cli.upscale import DEFAULT_SIGMA, DEFAULT_STD
from torchdeal.io.images import INTEGER_RANGES
from torchdeal.operators import BlurBoundary
from torchdeal.reconstruct import DEFAULT_TOLERANCE

RESULTS = {
    Goal.DENOISE: "denoised",
    Goal.DEBLUR: "sharp",
    Goal.UPSCALE: "large",
    Goal.INPAINT: "whole",
    Goal.MRI: "image",
    Goal.CT: "slice",
}


@dataclass(frozen=True)
class Recipe:
    """How to do it again without the page."""

    wish: Wish
    picture: Upload
    problem: Problem
    model: str
    suffix: str  # of the result

    @property
    def file(self) -> str:
        """The name of the picture; of a part of it, another one."""
        name = self.picture.name
        return f"part-of-{PurePath(name).stem}.tif" if self.is_part else name

    @property
    def is_part(self) -> bool:
        return self.picture.path.name.startswith(PART)

    @property
    def result(self) -> str:
        return f"{RESULTS[self.wish.goal]}{self.suffix}"

    def command(self) -> str:
        """A line for a shell."""
        wish = self.wish
        words = ["deal", wish.goal.value, self.file]
        words += ["mask.png"] if wish.goal is Goal.INPAINT and wish.mask == BRUSH else []
        words += [self.result, *self._own_options()]
        default = DEFAULT_SIGMA if wish.goal is Goal.UPSCALE else None
        if wish.sigma is not None and wish.sigma != default:
            words += ["--sigma", f"{wish.sigma:g}"]
        if wish.goal is not Goal.DENOISE:
            words += [] if wish.model_sigma is None else ["--model-sigma", f"{wish.model_sigma:g}"]
        words += [] if wish.lam is None else ["--lam", f"{wish.lam:g}"]
        words += ["--model", self.model]
        words += [] if wish.tolerance == DEFAULT_TOLERANCE else ["--tolerance", f"{wish.tolerance:g}"]
        words += ["--simulate"] if wish.simulate else []
        return shlex.join(words)

    def _own_options(self) -> list[str]:
        wish = self.wish
        if wish.goal is Goal.DEBLUR:
            boundary = [] if wish.boundary is BlurBoundary.VALID else ["--boundary", wish.boundary.value]
            return ["--kernel", "kernel.png" if wish.kernel == FILE else wish.kernel, *boundary]
        if wish.goal is Goal.UPSCALE:
            return ["--scale", str(wish.scale)]
        if wish.goal is Goal.INPAINT and wish.mask != BRUSH:
            return ["--mask", f"random:{wish.known:g}"]
        if wish.goal is Goal.MRI and wish.simulate:
            return ["--acceleration", f"{wish.acceleration:g}", "--centre", f"{wish.centre:g}"]
        return ["--angles", str(wish.angles)] if wish.goal is Goal.CT else []

    def python(self) -> str:
        """Lines for a script: the imports, the operator, and the reconstruction."""
        if self.wish.goal in (Goal.MRI, Goal.CT):
            return "\n".join(self._of_measurements())
        return "\n".join(self._of_a_picture())

    def _of_a_picture(self) -> list[str]:
        wish, imports, operator = self.wish, *self._operator()
        lines = ["from pathlib import Path", "import torchdeal as td", "from torchdeal.io import files", *imports]
        lines += ["", f"file = files.read(Path({self.file!r}))", "picture = file.without_alpha().pixels"]
        H = "" if operator is None else ", H"
        lines += [] if operator is None else [f"H = {operator}"]
        white = self._white()
        if wish.simulate:
            lines += self._measured()
            lines += [f"rec = td.reconstruct(y{H}, {self._knobs(WHITE)}, data_range={self.problem.white:g})"]
        else:
            own = self.problem.white != WHITE or white != self._usual_white()
            scale = f", data_range={white / WHITE * (self.problem.white or WHITE):.6g}" if own else ""
            lines += [f"rec = td.reconstruct(picture{H}, {self._knobs(white)}{scale})"]
        return [*lines, "print(rec)  # rec.x is the picture" + self._border()]

    def _measured(self) -> list[str]:
        """Of a simulation: what the command does with a clean picture."""
        operator = "td.operators.Identity()" if self.wish.goal is Goal.DENOISE else "H"
        cut = ""
        if self.wish.goal is Goal.UPSCALE:
            height, width = (side // self.wish.scale * self.wish.scale for side in self._size())
            cut = f"[..., :{height}, :{width}]"
        return [
            f"clean = to_tensor(picture)[0]{cut} * 255",
            f"y = measure(clean, {operator}, {self.problem.noise:.6g}, seed=0)",
        ]

    def _size(self) -> tuple[int, int]:
        assert self.picture.image is not None
        return self.picture.image.size

    def _operator(self) -> tuple[list[str], str | None]:
        """Imports, and how the operator is made; None: the identity."""
        wish = self.wish
        simulated = ["from torchdeal.io.images import to_tensor", "from torchdeal.simulate import measure"]
        shared = simulated if wish.simulate else []
        if wish.goal is Goal.DENOISE:
            return shared, None
        if wish.goal is Goal.DEBLUR:
            kernel = "kernel.png" if wish.kernel == FILE else wish.kernel
            found = f"td.operators.Blur(parse_kernel({kernel!r}), {wish.boundary.value!r})"
            return [*shared, "from torchdeal.operators.blur_kernels import parse_kernel"], found
        if wish.goal is Goal.UPSCALE:
            kernel = f"gaussian_kernel({DEFAULT_STD * wish.scale:g}, {-(wish.scale - 1) / 2:g})"
            found = f"td.operators.Downsample({wish.scale}, {kernel}, 'reflect')"
            return [*shared, "from torchdeal.operators.blur_kernels import gaussian_kernel"], found
        if wish.mask == BRUSH:
            found = "td.operators.Mask(files.read(Path('mask.png')).pixels != 0)"
            return shared, found
        random = f"torch.rand(picture.shape[:2], generator=torch.Generator().manual_seed(0)) < {wish.known:g}"
        return ["import torch", *shared], f"td.operators.Mask({random})"

    def _white(self) -> float:
        """In the units of the file."""
        assert self.picture.image is not None
        pixels = self.picture.image.pixels
        if pixels.dtype.kind == "f" or pixels.dtype.name in INTEGER_RANGES:
            return self._usual_white()
        return max(float(pixels.max()) - float(pixels.min()), 1.0)

    def _usual_white(self) -> float:
        assert self.picture.image is not None
        return INTEGER_RANGES.get(self.picture.image.pixels.dtype.name, 1.0)

    def _knobs(self, white: float) -> str:
        """Noise, sigma and lam in the units of the data, the weights, the tolerance."""
        wish, unit = self.wish, white / WHITE
        knobs = [f"noise={self.problem.noise * unit:.6g}"]
        if wish.goal is not Goal.DENOISE:
            own_white = (self.problem.white or WHITE) / WHITE
            knobs += [] if wish.model_sigma is None else [f"sigma={wish.model_sigma * own_white * unit:.6g}"]
        knobs += [] if wish.lam is None else [f"lam={wish.lam:g}"]
        knobs += [f"model={self.model!r}"]
        knobs += [] if wish.tolerance == DEFAULT_TOLERANCE else [f"tolerance={wish.tolerance:g}"]
        return ", ".join(knobs)

    def _border(self) -> str:
        if self.wish.goal is Goal.DEBLUR and self.wish.boundary is BlurBoundary.VALID:
            return ", with a border that was outside of it"
        return ", where white is 255" if self.wish.simulate else ""

    def _of_measurements(self) -> list[str]:
        wish = self.wish
        if not wish.simulate:
            return self._of_files()
        lines = ["from pathlib import Path", "import torchdeal as td", "from torchdeal.io import files"]
        lines += ["from torchdeal.io.images import luma, to_tensor", "from torchdeal.simulate import measure"]
        if wish.goal is Goal.MRI:
            lines += ["from torchdeal.simulate import random_columns"]
        else:
            lines += ["import numpy as np"]
        colour = self.picture.image is not None and self.picture.image.colours == 3
        gray = "to_tensor(file.without_alpha().pixels)[0].float()"
        lines += ["", f"file = files.read(Path({self.file!r}))", f"clean = {f'luma({gray})' if colour else gray}"]
        if wish.goal is Goal.MRI:
            mask = f"random_columns(tuple(clean.shape[-2:]), {wish.acceleration:g}, {wish.centre:g}, seed=0)"
            lines += [f"H = td.operators.Fourier({mask}, centered=True, real=True)"]
        else:
            degrees = f"np.arange({wish.angles}) * (180 / {wish.angles})"
            lines += [f"H = td.operators.Radon({degrees}, tuple(clean.shape[-2:]))"]
        noise = f"{self.problem.noise:.6g}"
        return [
            *lines,
            f"y = measure(clean, H, {noise}, seed=0)",
            f"rec = td.reconstruct(y, H, {self._measured_knobs()}, data_range=1)",
            "print(rec)  # rec.x is the picture",
        ]

    def _measured_knobs(self) -> str:
        wish = self.wish
        knobs = [f"noise={self.problem.noise:.6g}"]
        white = self.problem.white or 1.0
        knobs += [] if wish.model_sigma is None else [f"sigma={wish.model_sigma / 255 * white:.6g}"]
        knobs += [] if wish.lam is None else [f"lam={wish.lam:g}"]
        knobs += [f"model={self.model!r}"]
        knobs += [] if wish.tolerance == DEFAULT_TOLERANCE else [f"tolerance={wish.tolerance:g}"]
        return ", ".join(knobs)

    def _of_files(self) -> list[str]:
        """Measurements in a file: what one does with them is told in docs/mri.md and docs/operators.md."""
        if self.wish.goal is Goal.MRI:
            lines = ["import torchdeal as td", "from torchdeal.mri import espirit_maps, read_kspace", ""]
            lines += [f"scan = read_kspace({self.file!r}, index='middle')"]
            lines += ["maps = scan.maps if scan.maps is not None else espirit_maps(scan.kspace, scan.mask)"]
            lines += ["H = td.operators.MultiCoilFourier(maps, scan.mask, centered=scan.centered)"]
            return [*lines, f"rec = td.reconstruct(scan.kspace[None], H, {self._measured_knobs()})"]
        lines = ["import numpy as np", "import torchdeal as td", "from torchdeal.sinograms import read_sinograms", ""]
        lines += ["from pathlib import Path", f"sinogram = read_sinograms(Path({self.file!r}))[0]  # (angles, bins)"]
        degrees = f"np.arange({self.wish.angles}) * (180 / {self.wish.angles})"
        lines += [f"H = td.operators.Radon({degrees}, sinogram.shape[-1], circle=True)"]
        return [
            *lines,
            f"rec = td.reconstruct(np.float32(sinogram)[None, None], H, {self._measured_knobs()}, data_range='auto')",
        ]
