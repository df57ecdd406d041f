"""How fast a training step is, and how far the gradient of the packed engine is from that of the direct one.

Run as `python -m torchdeal.benchmark.training FOLDER [--device cuda] [--kind color]`, with a folder, or tar file, of
images. Starts from the bundled weights, with the settings that `deal train` has by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchdeal.benchmark.common import check_device
from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.training import Config, Listener, Report, Trainer, parse_config, read_images
from torchdeal.training.batches import Batch, draw
from torchdeal.training.config import LossConfig
from torchdeal.training.step import TrainingStep

CHANNELS = {"gray": 1, "color": 3}
ITERATIONS = 15  # without gradient, before the step whose gradients are compared


def gradients(model: DEAL, batch: Batch, before: Tensor, engine: str) -> dict[str, Tensor]:
    """Of every parameter, of the loss without its second term, for the step from `before`."""
    model.zero_grad()
    step = TrainingStep(model, LossConfig(gamma=0.0), engine=engine)
    step.approach(batch, before, 0)  # prepares the engine
    step(batch, before, 0.0).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def cosines(model: DEAL, batch: Batch) -> dict[str, float]:
    """Of the gradients of both engines, for each parameter, and for all of them together under the name `all`."""
    start = TrainingStep(model, LossConfig(gamma=0.0), engine="packed").approach(batch, None, ITERATIONS)
    packed = gradients(model, batch, start, "packed")
    with full_precision(start.device):
        direct = gradients(model, batch, start, "direct")
    for found in (packed, direct):
        found["all"] = torch.cat([gradient.flatten() for gradient in found.values()])
    return {name: _cosine(packed[name], direct[name]) for name in direct}


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0))


def reports(config: Config, model: DEAL, sources: Sequence[Path], device: str, steps: int) -> list[Report]:
    """What a run of so many steps reports; nothing of it is kept."""
    found: list[Report] = []
    data = config.data
    images = read_images(sources, channels=config.model.channels, patch=data.patch).to(device)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(config, Path(folder), images, model=model, listener=Listener(report=found.append)).run(until=steps)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the cosines, then the reports of a short run."""
    parser = argparse.ArgumentParser(prog="python -m torchdeal.benchmark.training", description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--kind", choices=list(CHANNELS), default="gray")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--patch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--report-every", type=int, default=50)
    given = parser.parse_args(arguments)
    try:
        check_device(given.device)
        content = {
            "model": {"channels": CHANNELS[given.kind]},
            "data": {"train": [str(s) for s in given.sources], "batch": given.batch, "patch": given.patch},
            "run": {"report_every": given.report_every, "save_every": 10**9, "validate_every": 10**9},
        }
        config = parse_config(content)
        model = load(given.kind, device=given.device).requires_grad_(True)
        images = read_images(given.sources, channels=model.channels, patch=given.patch).to(given.device)
        found = cosines(model, draw(images, config.task, given.batch, seed=0))
        for name, value in found.items():
            print(f"gradient of {name}: cosine {value:.4f} between the packed and the direct engine", flush=True)
        for report in reports(config, load(given.kind), given.sources, given.device, given.steps):
            print(report, flush=True)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
