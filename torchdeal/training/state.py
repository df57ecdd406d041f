"""Checkpoints of a run: everything that its continuation depends on, in one file that executes nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from torchdeal.io.atomic import replacing
from torchdeal.training.config import Config, ConfigError, parse_config

FORMAT = "torchdeal-training-1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class RunState:
    """Where a run stands, apart from its tensors."""

    step: int = 0
    seconds: float = 0.0
    best_psnr: float | None = None  # on the validation images
    best_step: int | None = None
    processes: int = 1
    started_from: str | None = None  # the weights that the run began with


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: RunState, config: dict[str, Any]) -> None:
    """All of it or nothing: a checkpoint that is there already survives a full disk."""
    from safetensors.torch import save_file

    metadata = {
        "format": FORMAT,
        "progress": json.dumps(dataclasses.asdict(state)),
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


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], RunState, dict[str, Any]]:
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
        known = {field.name for field in dataclasses.fields(RunState)}
        values = {key: value for key, value in json.loads(metadata["progress"]).items() if key in known}
        return tensors, RunState(**values), json.loads(metadata["config"])
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: the checkpoint is damaged ({error}); start anew, or from a copy") from None


def check_settings(found: dict[str, Any], config: Config, path: Path) -> None:
    """Raise CheckpointError if the settings of a checkpoint are not those of the run."""
    try:
        same = parse_config(found) == config
    except ConfigError as error:
        raise CheckpointError(f"{path}: its settings are not those of this version ({error}); start anew") from None
    if same:
        return
    ours = json.loads(json.dumps(dataclasses.asdict(config)))
    differences = (
        f"{section}.{key} was {found.get(section, {}).get(key)!r}, is {value!r}"
        for section, values in ours.items()
        for key, value in values.items()
        if found.get(section, {}).get(key) != value
    )
    raise CheckpointError(f"{path}: made with other settings ({next(differences, 'its settings')})")
