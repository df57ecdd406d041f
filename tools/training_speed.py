"""How fast a training step is, and how far the gradient of the packed engine is from that of the direct one.

Run as `python tools/training_speed.py FOLDER [--device cuda] [--kind color]`, with a folder, or tar file, of
images. Starts from the bundled weights, with the settings that `deal train` has by default.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from frame import Given, Say, Tool, arguments_of
from torch import Tensor

from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.training import Config, Event, Report, Trainer, parse_config, read_images
from torchdeal.training.batches import Batch, draw
from torchdeal.training.config import LossConfig
from torchdeal.training.step import TrainingStep

CHANNELS = {"gray": 1, "color": 3}
ITERATIONS = 15  # without gradient, before the step whose gradients are compared


@dataclass(frozen=True)
class TrainingSpeed:
    """The cosine of the gradients of both engines for each parameter, and what a short run reports."""

    cosines: dict[str, float]
    reports: list[Report] = field(default_factory=list)


def measure(given: Given, say: Say) -> Iterator[list[TrainingSpeed]]:
    """The cosines, then the reports."""
    config, model = _config(given), load(given.kind, device=given.device).requires_grad_(True)
    images = read_images(given.folders, channels=model.channels, patch=given.patch).to(given.device)
    found = TrainingSpeed(cosines(model, draw(images, config.task, given.batch, seed=0)))
    say(f"cosine {found.cosines['all']:.4f} between the gradients of the packed and the direct engine")
    yield [found]

    def listen(event: Event) -> None:
        if isinstance(event, Report):
            found.reports.append(event)
            say(str(event))

    with tempfile.TemporaryDirectory() as folder:  # nothing of the run is kept
        Trainer(config, Path(folder), images, model=load(given.kind), listener=listen).run(until=given.steps)
    yield [found]


def cosines(model: DEAL, batch: Batch) -> dict[str, float]:
    """Of the gradients of both engines, for each parameter, and for all of them together under the name `all`."""
    start = TrainingStep(model, LossConfig(gamma=0.0), engine="packed").approach(batch, None, ITERATIONS)
    packed = gradients(model, batch, start, "packed")
    with full_precision(start.device):
        direct = gradients(model, batch, start, "direct")
    for found in (packed, direct):
        found["all"] = torch.cat([gradient.flatten() for gradient in found.values()])
    return {name: cosine(packed[name], direct[name]) for name in direct}


def gradients(model: DEAL, batch: Batch, before: Tensor, engine: str) -> dict[str, Tensor]:
    """Of every parameter, of the loss without its second term, for the step from `before`."""
    model.zero_grad()
    step = TrainingStep(model, LossConfig(gamma=0.0), engine=engine)
    step.approach(batch, before, 0)  # prepares the engine
    step(batch, before, 0.0).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def cosine(a: Tensor, b: Tensor) -> float:
    """Of the angle between two tensors."""
    return float(torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0))


def show(found: list[TrainingSpeed]) -> Iterator[str]:
    """A line for each parameter, and one for each report."""
    for speed in found:
        for name, value in speed.cosines.items():
            yield f"gradient of {name}: cosine {value:.4f} between the packed and the direct engine"
        yield from map(str, speed.reports)


def _config(given: Given) -> Config:
    """The settings of the run: what is not chosen is as in `deal train`."""
    data = {"train": [str(source) for source in given.folders], "batch": given.batch, "patch": given.patch}
    run = {"report_every": given.report_every, "save_every": 10**9, "validate_every": 10**9}
    return parse_config({"model": {"channels": CHANNELS[given.kind]}, "data": data, "run": run})


def _arguments() -> argparse.ArgumentParser:
    parser = arguments_of("training_speed", __doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders or tar files of images")
    parser.add_argument("--kind", choices=list(CHANNELS), default="gray", help="of images and weights")
    parser.add_argument("--batch", type=int, default=16, help="patches in a step (default: 16)")
    parser.add_argument("--patch", type=int, default=128, help="side of a patch (default: 128)")
    parser.add_argument("--steps", type=int, default=300, help="of the run (default: 300)")
    parser.add_argument("--report-every", type=int, default=50, help="steps between reports (default: 50)")
    return parser


TOOL = Tool(_arguments(), measure, show)

if __name__ == "__main__":
    TOOL.main()
