"""Do two versions of the package give the same answers? Record with one, compare with the other.

    python tools/same_answers.py record before.npz [--device cuda]
    python tools/same_answers.py compare before.npz [--device cuda] [--tolerance 0]

A record holds, for some thirty reconstructions, the image, the residuals, the iterations, the statuses and the
estimated distance. By default `compare` wants the same bits. The pictures are those of scikit-image.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from skimage import data

import torchdeal as td
from torchdeal.operators import Blur, Downsample, Fourier, Identity, Mask, MultiCoilFourier, Radon

Case = Callable[[], td.Solution]


def picture(name: str = "camera", size: int = 96, row: int = 96, column: int = 192) -> torch.Tensor:
    pixels = torch.from_numpy(getattr(data, name)()[row : row + size, column : column + size] / 255).float()
    return pixels.permute(2, 0, 1)[None] if pixels.ndim == 3 else pixels[None, None]


def random(*shape: int, seed: int = 0, complex_numbers: bool = False) -> torch.Tensor:
    dtype = torch.complex64 if complex_numbers else torch.float32
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def noisy(clean: torch.Tensor, sigma: float, seed: int = 0) -> torch.Tensor:
    return clean + sigma / 255 * random(*clean.shape, seed=seed, complex_numbers=clean.is_complex())


def gaussian(std: float, reach: int) -> torch.Tensor:
    profile = torch.exp(-(torch.arange(-reach, reach + 1) ** 2) / (2 * std**2))
    return torch.outer(profile, profile) / profile.sum() ** 2


def columns(size: int) -> torch.Tensor:
    sampled = torch.arange(size) % 4 == 0
    sampled[:4] = sampled[-4:] = True
    return sampled.expand(size, size)


def cases(device: str) -> dict[str, Case]:
    """Names and what to call for them."""
    found: dict[str, Case] = {}

    def add(name: str, y: Any, H: Any = None, **options: Any) -> None:
        if isinstance(y, torch.Tensor):
            y = y.to(device)
        found[name] = lambda: td.reconstruct(y, H, device=device, **options)

    for sigma in (5, 25, 50):
        add(f"gray {sigma}", noisy(picture(), sigma), sigma=sigma / 255)
        add(f"colour {sigma}", noisy(picture("astronaut", 64), sigma), sigma=sigma / 255)
    batch = torch.cat([noisy(picture(size=64, row=row), 5 + 20 * i, i) for i, row in enumerate((0, 96, 200))])
    add("batch", batch, sigma=[5 / 255, 25 / 255, 45 / 255], keep_path=True)
    add("tight", noisy(picture(size=48), 25), sigma=25 / 255, tolerance=1e-5)
    add("from noisy", noisy(picture(size=64), 40), sigma=40 / 255, start=noisy(picture(size=64), 40))
    add("few iterations", noisy(picture(size=64), 40), sigma=40 / 255, max_iterations=7)
    add("direct", noisy(picture(size=48), 15), sigma=15 / 255, backend="direct")
    add("double", noisy(picture(size=48), 15), sigma=15 / 255, model=td.load("gray").double())
    add("channelwise", noisy(picture("astronaut", 48), 25), sigma=25 / 255, channelwise=True)
    add("8 bit", (255 * noisy(picture(size=50), 10)[0, 0]).clamp(0, 255).byte().numpy(), sigma=10)
    add("odd size", noisy(picture(size=77)[..., :50], 25), sigma=25 / 255)
    add("large", noisy(picture(size=300, row=50, column=50), 15), sigma=15 / 255, tolerance=1e-2)

    kernel = gaussian(1.6, 5)
    for boundary in ("circular", "reflect", "zero", "valid"):
        H = Blur(kernel, boundary=boundary)
        add(f"{boundary} blur", noisy(H.forward(picture(size=64)), 2.55), H, noise=2.55 / 255)
    add("blur, paper", noisy(Blur(kernel).forward(picture(size=64)), 2.55), Blur(kernel), sigma=15 / 255, lam=0.5)
    for scale in (2, 3):
        H, clean = Downsample(scale, gaussian(1.2, 4)), picture("astronaut", 48)
        add(f"super-resolution {scale}", noisy(H.forward(clean), 7.65), H, noise=7.65 / 255)
    H = Mask(torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) < 0.4)
    add("inpainting", noisy(H.forward(picture(size=64)), 5), H, noise=5 / 255)
    H, clean = Fourier(columns(64)), picture(size=64)
    add("MRI", noisy(H.forward(clean), 0.5), H, noise=0.5 / 255)
    H = Fourier(columns(64), real=False)
    phase = torch.polar(torch.ones(64), torch.linspace(0, 1, 64))
    add("complex MRI", noisy(H.forward(clean * phase), 0.5), H, noise=0.5 / 255)
    maps = random(4, 64, 64, complex_numbers=True)
    H = MultiCoilFourier(maps / maps.abs().square().sum(0).sqrt(), columns(64))
    add("coils", noisy(H.forward(clean), 0.5), H, noise=0.5 / 255)
    H = Radon(torch.arange(0, 180, 4), (64, 64))
    add("CT", H.forward(clean) + 0.2 * random(1, 1, 45, H.bins), H, noise=0.2)
    add("CT, any range", 3000 * H.forward(clean) + 600 * random(1, 1, 45, H.bins), H, noise=600.0)
    H = Mask(torch.ones(64, 64)) @ Blur(kernel)
    add("composed", noisy(H.forward(clean), 5), H, noise=5 / 255)
    add("scaled", 3 * noisy(Identity().forward(picture(size=48)), 10), 3.0 * Identity(), noise=30 / 255)
    own = (lambda x: x.flip(-1), lambda y: y.flip(-1))
    add("own operator", noisy(picture(size=48), 10).flip(-1), own, noise=10 / 255)
    return found


def run(device: str) -> dict[str, np.ndarray]:
    results: dict[str, np.ndarray] = {}
    for name, case in cases(device).items():
        started = time.perf_counter()
        solution = case()
        print(f"{name:20} {time.perf_counter() - started:6.1f} s  {solution}", flush=True)
        x = solution.x
        results[f"{name}|x"] = x.cpu().numpy() if isinstance(x, torch.Tensor) else x
        for part in ("distance", "iterations", "cg_iterations", "residuals"):
            results[f"{name}|{part}"] = getattr(solution, part).numpy()
        results[f"{name}|statuses"] = np.array([status.name for status in solution.statuses])
        results |= {f"{name}|path {i}": step.cpu().numpy() for i, step in enumerate(solution.path)}
    return results


def difference(before: np.ndarray, after: np.ndarray) -> float:
    """The largest, relative to the largest number; 0 for the same bits, infinite for another shape or text."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return np.inf
    if np.array_equal(before, after, equal_nan=before.dtype.kind in "fc"):
        return 0.0
    if before.dtype.kind not in "fciu" or not np.array_equal(np.isfinite(before), np.isfinite(after)):
        return np.inf
    known = np.isfinite(before)
    gap = np.abs(before[known].astype(complex) - after[known].astype(complex)).max()
    return float(gap / max(np.abs(before[known]).max(), 1e-30))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tolerance", type=float, default=0.0, help="Allowed relative difference of the images.")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = run(given.device)
    if given.action == "record":
        np.savez_compressed(given.file, **results)  # pyright: ignore[reportArgumentType]
        return
    before = dict(np.load(given.file))
    gaps = {name: difference(before[name], results[name]) if name in results else np.inf for name in before}
    changed = {name: gap for name, gap in gaps.items() if gap > given.tolerance}
    for name, gap in changed.items():
        print(f"changed: {name}, by {gap:.1e}")
    print(f"{len(before) - len(changed)} of {len(before)} arrays are the same")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
