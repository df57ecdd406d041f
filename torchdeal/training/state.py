"""Checkpoints of a run: everything that its continuation depends on, in one file that executes nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchdeal.io.checkpoint import write_tensors
from torchdeal.training.config import Config, ConfigError, parse_config

FORMAT = "torchdeal-training-1"
ANEW = "start anew, or from a copy"


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
    metadata = {
        "format": FORMAT,
        "progress": json.dumps(dataclasses.asdict(state)),
        "config": json.dumps(config),
    }
    with writing(path):
        write_tensors(path, tensors, metadata)


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
    state, config = read_progress(path)
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{path}: the checkpoint is damaged ({name} holds NaN or infinite values); {ANEW}")
    return tensors, state, config


def read_progress(path: Path) -> tuple[RunState, dict[str, Any]]:
    """Where the run stands, and its settings: without the tensors."""
    with _opened(path) as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{path}: not a checkpoint of training (weights go to --from, not --resume)")
        known = {field.name for field in dataclasses.fields(RunState)}
        values = {key: value for key, value in json.loads(metadata["progress"]).items() if key in known}
        return RunState(**values), json.loads(metadata["config"])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """What cannot be read is a CheckpointError."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path}: there is no checkpoint to go on from; leave out --resume")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path}: the checkpoint is damaged ({error}); {ANEW}") from None


def check_settings(found: dict[str, Any], config: Config, path: Path) -> None:
    """Raise CheckpointError if the settings of a checkpoint are not those of the run; it may get other `steps`."""
    if continues(found, config):
        return
    try:
        parse_config(found)
    except ConfigError as error:
        raise CheckpointError(f"{path}: its settings are not those of this version ({error}); start anew") from None
    ours = json.loads(json.dumps(dataclasses.asdict(config)))
    differences = (
        f"{section}.{key} was {found.get(section, {}).get(key)!r}, is {value!r}"
        for section, values in ours.items()
        for key, value in values.items()
        if found.get(section, {}).get(key) != value and (section, key) != ("optimiser", "steps")
    )
    raise CheckpointError(
        f"{path}: made with other settings ({next(differences, 'its settings')}). Only optimiser.steps may change: "
        "take the settings that it was made with, or start anew with another --output"
    )


def continues(found: Any, config: Config) -> bool:
    """Whether a run of the settings that were found goes on as one of this config: with more steps, if anything."""
    try:
        before = parse_config(found)
    except ConfigError:
        return False
    return replace(before, optimiser=replace(before.optimiser, steps=config.optimiser.steps)) == config
