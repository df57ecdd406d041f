"""Are the competitors what their papers say? Each beside the value of its recipe or paper.

python -m torchdeal.benchmark.peers --peers-dir DIR --data DIR [--methods wcrr dncnn] [--sigmas 25] [--limit 8]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from torchdeal.benchmark.images import draw_noise, list_images, read_image
from torchdeal.benchmark.peers import DENOISERS, PeerDenoiser, Unavailable, find_denoiser
from torchdeal.benchmark.peers.epll import FILE, SIDE, fit_mixture
from torchdeal.benchmark.peers.published import COLOUR, EXPECTED, Expected
from torchdeal.benchmark.reporting.tables import Table
from torchdeal.io.checkpoint import write_tensors
from torchdeal.metrics import decibels
from torchdeal.training.data import read_images

HEAD = ("method", "set", "sigma", "images", "measured", "expected", "source", "difference", "seconds per image")


@dataclass(frozen=True)
class Check:
    """What was measured for an expected value, or why it was not."""

    expected: Expected
    levels: list[float]  # PSNR of each image
    seconds: float  # per image
    reason: str = ""

    def cells(self) -> list[str]:
        """A row of the table."""
        wanted = self.expected
        count = f"{len(self.levels)} of {wanted.images}" if len(self.levels) < wanted.images else str(wanted.images)
        folder = f"{wanted.folder}, crop {wanted.crop}" if wanted.crop else wanted.folder
        known = [wanted.method, folder, str(wanted.sigma), count]
        if self.reason:
            return [*known, self.reason, f"{wanted.value:g}", wanted.source, "", ""]
        measured = fmean(self.levels)
        difference = f"{measured - wanted.value:+.3f}" if len(self.levels) == wanted.images else ""
        return [*known, f"{measured:.3f}", f"{wanted.value:g}", wanted.source, difference, f"{self.seconds:.2f}"]


def checks(
    peers_dir: Path | None, data: Path, expected: Sequence[Expected], limit: int | None, device: str = "cpu"
) -> Iterator[Check]:
    """One for each of these values; of at most so many images."""

    @cache  # several values may be for the same images
    def measured(method: str, folder: str, sigma: int, crop: int | None, index: int) -> tuple[float, float]:
        return measure(made(method, folder), data / "test" / folder, sigma, crop, index, device)

    @cache
    def made(method: str, folder: str) -> PeerDenoiser:
        return find_denoiser(method).make(peers_dir, 3 if folder == COLOUR else 1, device)

    for wanted in expected:
        indices = range(wanted.skip, wanted.skip + min(wanted.images, limit or wanted.images))
        setting = (wanted.method, wanted.folder, wanted.sigma, wanted.crop)
        try:
            results = [measured(*setting, index) for index in indices]
        except Unavailable as error:
            yield Check(wanted, [], 0.0, f"unavailable: {error}")
        else:
            yield Check(wanted, [level for level, _ in results], fmean(seconds for _, seconds in results))


def measure(
    denoiser: PeerDenoiser, folder: Path, sigma: int, crop: int | None, index: int, device: str
) -> tuple[float, float]:
    """PSNR in dB, nothing clipped, and seconds; of one image of a folder."""
    paths = list_images(folder)
    if index >= len(paths):
        raise ValueError(f"{folder}: {index + 1} images are needed, there are {len(paths)}")
    clean = read_image(paths[index])
    noisy = clean + draw_noise(clean, sigma)
    clean, noisy = (centre(image, crop).to(device) for image in (clean, noisy))
    started = time.perf_counter()
    found = denoiser(noisy, sigma).cpu()
    seconds = time.perf_counter() - started
    return decibels(float((found - clean.cpu()).double().square().mean())), seconds


def centre(image: Tensor, crop: int | None) -> Tensor:
    """The square of that side at the centre; all of it if None."""
    if crop is None:
        return image
    top, left = ((length - crop) // 2 for length in image.shape[-2:])
    return image[..., top : top + crop, left : left + crop].contiguous()


def fit_epll(sources: Sequence[str], peers_dir: Path, components: int, patches: int, iterations: int, device: str):
    """Fit the mixture of EPLL to random patches of gray training images, and leave it in the folder of weights."""
    drawn = read_images(sources, channels=1, patch=SIDE).draw(patches, torch.Generator().manual_seed(0))
    mixture = fit_mixture(drawn.flatten(1).to(device), components, iterations)
    about = {"method": "EPLL", "components": str(components), "patches": str(patches), "iterations": str(iterations)}
    tensors = {"log_weights": mixture.log_weights.float(), "covariances": mixture.covariances.float()}
    write_tensors(peers_dir / f"{FILE}.safetensors", tensors, about)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = _parser().parse_args(arguments)
    try:
        if given.fit_epll:
            if given.peers_dir is None:
                raise ValueError("--fit-epll writes to the folder of weights: give --peers-dir")
            fit_epll(given.fit_epll, given.peers_dir, given.components, given.patches, given.iterations, given.device)
            return
        if given.data is None:
            raise ValueError("give the folder that holds test/BSD68 and test/CBSD68 by --data")
        chosen = [one for one in EXPECTED if one.method in given.methods and one.sigma in given.sigmas]
        rows = []
        for check in checks(given.peers_dir, given.data, chosen, given.limit, given.device):
            rows.append(check.cells())
            print(", ".join(filter(None, rows[-1])), file=sys.stderr, flush=True)  # progress
        print(Table(HEAD, rows))
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m torchdeal.benchmark.peers", description=(__doc__ or "").split("\n")[0])
    names = sorted({expected.method for expected in EXPECTED}, key=list(DENOISERS).index)
    parser.add_argument("--peers-dir", type=Path, metavar="DIR", help="the folder of weights")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder that holds test/BSD68 and test/CBSD68")
    parser.add_argument("--methods", nargs="+", choices=names, default=names, help="only these")
    levels = sorted({expected.sigma for expected in EXPECTED})
    parser.add_argument("--sigmas", nargs="+", type=int, choices=levels, default=levels, help="only these noise levels")
    parser.add_argument("--limit", type=_positive, metavar="N", help="at most so many images of each value")
    parser.add_argument("--device", default="cpu", help="of torch (default: cpu)")
    parser.add_argument("--fit-epll", nargs="+", metavar="IMAGES", help="fit the prior of EPLL to folders or tar files")
    parser.add_argument("--components", type=_positive, default=200, help="of that prior (default: 200)")
    parser.add_argument("--patches", type=_positive, default=1_000_000, help="that it is fitted to (default: 1000000)")
    parser.add_argument("--iterations", type=_positive, default=50, help="of the fit (default: 50)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
