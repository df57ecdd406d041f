"""The folder of a run: what is written to it, and that nothing in it is lost."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from torchdeal.io.checkpoint import last_run, weights_path
from torchdeal.io.overwriting import refuse_overwriting
from torchdeal.training.config import Config
from torchdeal.training.state import CheckpointError, RunState, continues

CHECKPOINT, BEST, LAST, LOG = "checkpoint.safetensors", "best.safetensors", "last.safetensors", "log.jsonl"


def check_run_folder(folder: Path, inputs: Iterable[Path], start: str | None) -> None:
    """Raise if the run cannot write there, or would write over something that it reads.

    Args:
        folder: of the run.
        inputs: files and folders that the run reads.
        start: the weights that it begins with.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file, and a run writes to a folder; choose another --output")
    if not os.access(there, os.W_OK):
        raise PermissionError(f"{there}: no permission to write there; choose another --output")
    refuse_overwriting([folder / name for name in (CHECKPOINT, BEST, LAST, LOG)], inputs)
    if start is not None and folder.resolve() in weights_path(start).resolve().parents:
        raise CheckpointError(f"{start} lies in the folder of the run; choose another --output, so that it is kept")


def check_unused(folder: Path) -> None:
    """Raise if there are weights, which a new run would replace."""
    for name in (CHECKPOINT, BEST, LAST):
        if os.path.lexists(folder / name):  # a link that leads nowhere is something too
            remedy = "go on with --resume, or choose" if name == CHECKPOINT else "choose"
            raise CheckpointError(f"{folder / name} exists: {remedy} another --output, so that nothing is lost")


def check_own(folder: Path, state: RunState, config: Config) -> None:
    """Raise if there are weights that the run, which is to go on, did not make."""
    for path in (folder / name for name in (BEST, LAST)):
        if os.path.lexists(path):
            card = last_run(path) if path.is_file() else {}
            if card.get("started_from") != state.started_from or not continues(card.get("config"), config):
                raise CheckpointError(f"{path} was not made by this run and would be lost; move it elsewhere")
