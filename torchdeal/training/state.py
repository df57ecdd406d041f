"""Checkpoints of a run: everything that its continuation depends on, in one file that executes nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchdeal.io.atomic import replacing

FORMAT = "torchdeal-training-1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands, apart from its tensors."""

    step: int = 0
    seconds: float = 0.0
    best_psnr: float | None = None  # on the validation images
    best_step: int | None = None
    processes: int = 1
    started_from: str | None = None  # the weights that the run began with


def save_checkpoint(path: Path, tensors: dict[str, Tensor], progress: Progress, config: dict[str, Any]) -> None:
    """All of it or nothing: a checkpoint that is there already survives a full disk."""
    from safetensors.torch import save_file

    metadata = {
        "format": FORMAT,
        "progress": json.dumps(dataclasses.asdict(progress)),
        "config": json.dumps(config),
    }
    with writing(path), replacing(path) as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary, metadata)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says which file could not be written, and that the one before it is still there."""
    try:
        yield
    except Exception as error:  # safetensors has its own type for errors of the disk
        raise CheckpointError(
            f"{path}: could not be written ({error}); the one before it, if any, is untouched"
        ) from error


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], Progress, dict[str, Any]]:
    """The tensors, where the run stands, and its settings."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint to go on from")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path}: not a checkpoint of training (weights go to --from, not --resume)")
        known = {field.name for field in dataclasses.fields(Progress)}
        values = {key: value for key, value in json.loads(metadata["progress"]).items() if key in known}
        return tensors, Progress(**values), json.loads(metadata["config"])
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: the checkpoint is damaged ({error}); start anew, or from a copy") from None


def optimiser_tensors(optimiser: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The state of Adam, with the names of the parameters."""
    states = optimiser.state_dict()["state"]
    return {
        f"adam.{names[i]}.{key}": torch.as_tensor(value) for i, state in states.items() for key, value in state.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimiser_tensors`."""
    content = optimiser.state_dict()
    content["state"] = {
        i: {
            key: tensors[f"adam.{name}.{key}"]
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"adam.{name}.{key}" in tensors
        }
        for i, name in enumerate(names)
        if f"adam.{name}.step" in tensors
    }
    optimiser.load_state_dict(content)
