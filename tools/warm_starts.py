"""Does it help to begin with the answer for the neighbouring frame? Iterations, time and answers, both ways.

Run as `python tools/warm_starts.py [--frames N] [--size N]`. Scenes of scikit-image: `still`, the camera picture with
other noise in each frame; `shifted`, a window that moves over it by half a pixel per frame; `zoomed`, one that grows by
1 % per frame; `volume`, a part of the retina picture at growing blur, as slices of a microscope that leave the focus;
`other`, frames that have nothing in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from frame import Given, Say, Tool, arguments_of, at_least
from scipy import ndimage
from skimage import data

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.reconstruct import reconstruct
from torchdeal.reconstruction import Reconstruction

TOP, LEFT = 90, 180  # of the part of the camera picture that is shown


@dataclass(frozen=True)
class WarmStart:
    """Means over the frames after the first."""

    scene: str
    sigma: float
    outer: float
    outer_warm: float
    cg: float
    cg_warm: float
    seconds: float
    seconds_warm: float
    psnr: float
    psnr_warm: float
    largest_difference: float  # relative, of the two answers for a frame
    beyond_tolerance: int  # frames whose answers differ by more than the tolerances of both allow


def _window(frame: int, size: int, *, step: float = 0.0, growth: float = 0.0) -> np.ndarray:
    """A part of the camera picture that moves and grows, by cubic interpolation."""
    scale = (1 + growth) ** frame
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    places = [TOP + rows * scale + step * frame, LEFT + columns * scale + step * frame]
    return ndimage.map_coordinates(data.camera() / 255, places, order=3, mode="reflect").clip(0, 1)


def _other(frame: int, size: int) -> np.ndarray:
    names = ("camera", "coins", "moon", "brick", "grass", "gravel")
    return getattr(data, names[frame % len(names)])()[100 : 100 + size, 100 : 100 + size] / 255


def _slice(frame: int, size: int) -> np.ndarray:
    part = data.retina()[500 : 500 + size, 500 : 500 + size, 1] / 255
    return ndimage.gaussian_filter(part, 0.15 * frame)


SCENES: dict[str, Callable[[int, int], np.ndarray]] = {
    "still": lambda frame, size: _window(0, size),
    "shifted": lambda frame, size: _window(frame, size, step=0.5),
    "zoomed": lambda frame, size: _window(frame, size, growth=0.01),
    "volume": _slice,
    "other": _other,
}


def measure(given: Given, say: Say) -> Iterator[list[WarmStart]]:
    """One scene and noise level after the other."""
    model, found = load(given.kind, device=given.device), list[WarmStart]()
    for name in given.scene:
        for sigma in given.sigma:
            say(f"{name}, sigma {sigma:g}")
            found.append(compare(model, name, sigma, given))
            yield found


def compare(model: DEAL, name: str, sigma: float, given: Given) -> WarmStart:
    """The frames of a scene, each from zero and from the answer before."""
    generator = np.random.default_rng(0)
    rows, before = [], None
    for frame in range(given.frames):
        clean = SCENES[name](frame, given.size)
        y = torch.from_numpy(clean + generator.normal(0, sigma / 255, clean.shape)).float()[None, None]
        cold, cold_seconds = _timed(model, y, sigma, given.tolerance, None)
        warm, warm_seconds = _timed(model, y, sigma, given.tolerance, before)
        before = warm
        difference = float((cold.x - warm.x).norm() / cold.x.norm())
        allowed = float(cold.distance[0] + warm.distance[0])
        pairs = [(float(r.iterations[0]), float(r.cg_iterations[0]), _psnr(r.x, clean)) for r in (cold, warm)]
        seconds = cold_seconds, warm_seconds
        numbers = [value for both in (*zip(*pairs, strict=True), seconds) for value in both]
        rows.append([*numbers, difference, difference > allowed])
    outer, outer_warm, cg, cg_warm, psnr, psnr_warm, seconds, seconds_warm = np.mean(rows[1:], 0).tolist()[:8]
    return WarmStart(
        *(name, sigma, outer, outer_warm, cg, cg_warm, seconds, seconds_warm, psnr, psnr_warm),
        largest_difference=max(row[-2] for row in rows),
        beyond_tolerance=sum(row[-1] for row in rows),
    )


def _timed(
    model: DEAL, y: torch.Tensor, sigma: float, tolerance: float, start: Reconstruction | None
) -> tuple[Reconstruction, float]:
    started = time.perf_counter()
    found = reconstruct(y, model=model, sigma=sigma / 255, tolerance=tolerance, start=start, data_range=1.0)
    return found, time.perf_counter() - started


def _psnr(x: torch.Tensor, clean: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((x[0, 0].cpu().numpy().clip(0, 1) - clean) ** 2)))


PARSER = arguments_of("warm_starts", __doc__)
PARSER.add_argument("--kind", default="gray-light", help="weights, gray ones")
PARSER.add_argument("--scene", nargs="+", choices=SCENES, default=list(SCENES))
PARSER.add_argument("--sigma", nargs="+", type=at_least(0.0), default=[10.0, 25.0])
PARSER.add_argument("--frames", type=at_least(2), default=6)
PARSER.add_argument("--size", type=at_least(8), default=96)
PARSER.add_argument("--tolerance", type=at_least(1e-6), default=1e-3)

if __name__ == "__main__":
    Tool(PARSER, measure).main()
