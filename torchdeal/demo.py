"""`make demo`: two pictures that ship with scikit-image, noisy and denoised, side by side.

Run as `python -m torchdeal.demo FOLDER`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from torchdeal.io.files import ImageFile, write
from torchdeal.metrics import psnr
from torchdeal.reconstruct import reconstruct

SIGMA = 25.0
GAP = 8
CAPTION = 34


def side_by_side(panels: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """Pictures in 0..1 of one size beside each other, each under its caption."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = panels[0][1].shape[:2]
    page = Image.new("RGB", (len(panels) * (width + GAP) - GAP, height + CAPTION), "white")
    draw = ImageDraw.Draw(page)
    for index, (caption, picture) in enumerate(panels):
        pixels = (picture.clip(0, 1) * 255).round().astype(np.uint8)
        left = index * (width + GAP)
        page.paste(Image.fromarray(pixels).convert("RGB"), (left, CAPTION))
        draw.text(
            (left + width / 2, CAPTION / 2), caption, fill="black", anchor="mm", font=ImageFont.load_default(size=16)
        )
    return np.asarray(page)


def run(folder: Path) -> None:
    """Denoise both pictures into the folder and say what was gained."""
    try:
        from skimage import data
    except ImportError:
        raise SystemExit("the demo needs scikit-image: pip install 'torchdeal[demo]'") from None

    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"camera": data.camera()[72:264, 144:336], "astronaut": data.astronaut()[8:200, 128:320]}
    for name, pixels in pictures.items():
        clean = pixels / 255.0
        noisy = clean + np.random.default_rng(0).normal(0, SIGMA / 255, clean.shape)
        started = time.perf_counter()
        solution = reconstruct(noisy, sigma=SIGMA / 255)
        seconds = time.perf_counter() - started
        before, after = psnr(noisy, clean), psnr(solution.x, clean)
        panels = [
            ("clean", clean),
            (f"noisy, {before:.2f} dB", noisy),
            (f"DEAL, {after:.2f} dB", solution.x),
        ]
        path = folder / f"{name}.png"
        write(path, ImageFile(side_by_side(panels)))
        print(f"{path}: PSNR {before:.2f} -> {after:.2f} dB in {seconds:.1f} s. {solution}", flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
