"""Checkpoints: none is lost, and one that cannot be used is refused."""

import errno
import os
from dataclasses import replace

import pytest
import safetensors.torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from torchdeal.training import CheckpointError
from torchdeal.training.state import load_checkpoint, save_checkpoint
from torchdeal.training.trainer import CHECKPOINT, LAST


def checkpoint(trainer):
    return trainer.folder / CHECKPOINT


def fail_at(monkeypatch, call, error):
    """From that call on, a file gets half its bytes and the error."""
    calls = []

    def save(tensors, path, metadata=None):
        calls.append(path)
        save_file(tensors, path, metadata)
        if len(calls) >= call:
            os.truncate(path, os.path.getsize(path) // 2)
            raise error

    monkeypatch.setattr(safetensors.torch, "save_file", save)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("No space left")])
@pytest.mark.parametrize(("call", "name"), [(1, CHECKPOINT), (2, LAST)])
def test_a_full_disk_leaves_the_files_before(make_trainer, monkeypatch, error, call, name):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    before = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}
    fail_at(monkeypatch, call, error)
    with pytest.raises(CheckpointError, match=rf"{name}: could not be written \(.*No space left.* is untouched"):
        trainer.run(until=2)
    after = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}
    assert after.keys() == before.keys()
    assert after[name] == before[name]
    assert load_checkpoint(checkpoint(trainer))[1].step == call  # the first file is the checkpoint


def test_a_damaged_checkpoint_is_refused(make_trainer):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    whole = checkpoint(trainer).read_bytes()
    for damage in (whole[: len(whole) // 2], whole[:5], b"", b"\xff" * 1000):
        checkpoint(trainer).write_bytes(damage)
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: the checkpoint is damaged"):
            make_trainer().resume(checkpoint(trainer))


def test_what_is_not_a_checkpoint_is_refused(make_trainer, tmp_path):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    with pytest.raises(CheckpointError, match="weights go to --from"):
        make_trainer().resume(trainer.folder / LAST)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        make_trainer().resume(tmp_path / "nowhere")


def rewrite(trainer, *, drop=None, state=None, config=None):
    """Another checkpoint in the place of the one that is there."""
    tensors, was, settings = load_checkpoint(checkpoint(trainer))
    tensors = {name: value for name, value in tensors.items() if name != drop}
    save_checkpoint(checkpoint(trainer), tensors, replace(was, **(state or {})), settings | (config or {}))


def test_a_checkpoint_of_another_run_is_refused(make_trainer):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    with pytest.raises(CheckpointError, match=r"other settings \(optimiser.lr was 0.005, is 0.25\)"):
        make_trainer(optimiser={"lr": 0.25}).resume(checkpoint(trainer))
    rewrite(trainer, state={"processes": 2})
    with pytest.raises(CheckpointError, match="made by 2 processes, this run has 1"):
        make_trainer().resume(checkpoint(trainer))
    rewrite(trainer, state={"processes": 1}, drop="model.kappa")
    with pytest.raises(CheckpointError, match=r"does not fit the model [^$]*kappa"):
        make_trainer().resume(checkpoint(trainer))
    rewrite(trainer, config={"future": {}})
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: .* no setting future"):
        make_trainer().resume(checkpoint(trainer))
