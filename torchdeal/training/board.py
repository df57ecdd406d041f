"""TensorBoard logs of a run: numbers, filters, splines, masks, and what is made of a few patches."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchdeal.model.filters import impulse_responses
from torchdeal.training.report import Event, Example, Report, Validated

FILTERS, PATCHES, GAP = 64, 4, 2


class Board:
    """Writes to a folder that `tensorboard --logdir` shows."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("--tensorboard needs TensorBoard: pip install 'torchdeal[training]'") from None
        self._open = partial(SummaryWriter, str(folder))

    @cached_property
    def writer(self) -> Any:
        """Made when there is something to write: a run that does not begin leaves no folder behind."""
        return self._open()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Report):
            self._report(event)
        elif isinstance(event, Validated):
            self._validated(event)
        elif isinstance(event, Example):
            self._example(event)

    def close(self) -> None:
        if "writer" in vars(self):
            self.writer.close()

    def _report(self, report: Report) -> None:
        for name in ("loss", "psnr", "lr", "gradient", "iterations", "cg_iterations", "steps_per_second"):
            self.writer.add_scalar(f"training/{name}", getattr(report, name), report.step)
        if report.contraction is not None:
            self.writer.add_scalar("training/contraction", report.contraction, report.step)

    def _validated(self, found: Validated) -> None:
        for score in found.scores:
            level = f"at sigma {score.sigma:g}"
            self.writer.add_scalar(f"validation/psnr {level}", score.psnr, found.step)
            self.writer.add_scalar(f"validation/outer iterations {level}", score.iterations, found.step)

    @torch.no_grad()
    def _example(self, example: Example) -> None:
        step, batch, x = example.step, example.batch, example.result.x
        weights = example.model.weights()
        for name, bank in (("W", weights.filters), ("W_mask", weights.mask_filters)):
            self.writer.add_image(f"filters of {name}", _tiles(_stretched(impulse_responses(bank)[:FILTERS])), step)
        for name, values in zip(("phi1", "phi2", "phi3"), weights.phi, strict=True):
            self.writer.add_image(f"splines/{name}", _curve(values), step)
        seen = [batch.clean, batch.operator.adjoint(batch.measured), x]
        masks = weights.mask(x[:PATCHES], weights.alpha(batch.sigma[:PATCHES])).mean(1, keepdim=True)
        pictures = [picture[:PATCHES].clamp(0, 1) for picture in seen] + [masks.expand_as(seen[0][:PATCHES])]
        rows = torch.stack(pictures, 1).flatten(0, 1)  # clean, measured, reconstructed, mean mask
        self.writer.add_image("patches, measured, reconstructed, mean mask", _tiles(rows, len(pictures)), step)


def _stretched(filters: Tensor) -> Tensor:
    """Each filter on 0..1, zero in the middle."""
    return 0.5 + 0.5 * filters / filters.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-12)


def _tiles(images: Tensor, columns: int = 8) -> Tensor:
    """`(n, C, h, w)` images in 0..1 as one picture, `(C, H, W)`."""
    padded = torch.nn.functional.pad(images.cpu().float(), (0, GAP, 0, GAP), value=1.0)
    missing = -len(padded) % columns
    padded = torch.cat([padded, padded.new_ones(missing, *padded.shape[1:])])
    rows = [torch.cat(list(row), -1) for row in padded.split(columns)]
    return torch.cat(rows, -2)


def _curve(values: Tensor, size: int = 128) -> Tensor:
    """A drawing of the function from its first to its last knot, its lowest value at the bottom."""
    samples = torch.nn.functional.interpolate(
        values.cpu().float().view(1, 1, -1), size, mode="linear", align_corners=True
    )
    samples = samples.flatten()
    height = (samples - samples.min()) / (samples.max() - samples.min()).clamp_min(1e-12)
    rows = torch.linspace(1, 0, size)[:, None]
    return ((rows - height).abs() < 1.5 / size).float()[None]
