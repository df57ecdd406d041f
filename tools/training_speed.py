"""How fast a training step is, and how far the gradient of the packed engine is from that of the direct one.

Run as `python tools/training_speed.py FOLDER [--device cuda] [--kind color]`, with a folder, or tar file, of
images. Starts from the bundled weights, with the settings that `deal train` has by default.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tables import bundled_weights
from torch import Tensor

from torchdeal.benchmark.frame import Benchmark, Say, Settings
from torchdeal.benchmark.plan import Plan, argument, option
from torchdeal.io.checkpoint import load
from torchdeal.model import DEAL
from torchdeal.precision import full_precision
from torchdeal.training import Config, Event, Report, Trainer, parse_config, read_images
from torchdeal.training.batches import Batch, draw
from torchdeal.training.config import LossConfig
from torchdeal.training.step import TrainingStep

CHANNELS = {"gray": 1, "color": 3}
ITERATIONS = 15  # without gradient, before the step whose gradients are compared


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """Which images, and how many steps."""

    folders: tuple[Path, ...] = argument("folders or tar files of images")
    kind: str = option("gray", "of images and weights", choices=list(CHANNELS))
    batch: int = option(16, "patches in a step")
    patch: int = option(128, "side of a patch")
    steps: int = option(300, "of the run")
    report_every: int = option(50, "steps from one report to the next")

    def config(self) -> Config:
        """The settings of the run: what is not chosen is as in `deal train`."""
        data = {"train": [str(source) for source in self.folders], "batch": self.batch, "patch": self.patch}
        run = {"report_every": self.report_every, "save_every": 10**9, "validate_every": 10**9}
        return parse_config({"model": {"channels": CHANNELS[self.kind]}, "data": data, "run": run})


@dataclass(frozen=True)
class TrainingSpeed:
    """The cosine of the gradients of both engines for each parameter, and what a short run reports."""

    cosines: dict[str, float]
    reports: list[Report] = field(default_factory=list)


def measure(plan: TrainingPlan, say: Say) -> Iterator[list[TrainingSpeed]]:
    """The cosines, then the reports."""
    config, model = plan.config(), load(plan.kind, device=plan.device).requires_grad_(True)
    images = read_images(plan.folders, channels=model.channels, patch=plan.patch).to(plan.device)
    found = TrainingSpeed(cosines(model, draw(images, config.task, plan.batch, seed=0)))
    say(f"cosine {found.cosines['all']:.4f} between the gradients of the packed and the direct engine")
    yield [found]

    def listen(event: Event) -> None:
        if isinstance(event, Report):
            found.reports.append(event)
            say(str(event))

    with tempfile.TemporaryDirectory() as folder:  # nothing of the run is kept
        Trainer(config, Path(folder), images, model=load(plan.kind), listener=listen).run(until=plan.steps)
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


def show(found: list[TrainingSpeed], settings: Settings) -> Iterator[str]:
    """A line for each parameter, and one for each report."""
    for speed in found:
        for name, value in speed.cosines.items():
            yield f"gradient of {name}: cosine {value:.4f} between the packed and the direct engine"
        yield from map(str, speed.reports)


BENCHMARK = Benchmark("training_speed", TrainingPlan, TrainingSpeed, measure, bundled_weights, show, tool=__doc__ or "")

if __name__ == "__main__":
    BENCHMARK.main()
