"""Checkpoints: none is lost, and one that cannot be used is refused."""

import contextlib
import resource
from dataclasses import replace

import pytest
import torch

from torchdeal.training import CheckpointError
from torchdeal.training.folder import CHECKPOINT, LAST
from torchdeal.training.state import load_checkpoint, save_checkpoint


def checkpoint(trainer):
    return trainer.folder / CHECKPOINT


@contextlib.contextmanager
def a_disk_that_takes(size):
    """Files of at most that many bytes: what is longer gets as many and then an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", [LAST, CHECKPOINT])
def test_a_full_disk_leaves_the_files_before(make_trainer, name):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    before = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}
    message = rf"{name}: could not be written \(.*too large.* is untouched"
    with a_disk_that_takes(len(before[name]) // 2 + 4096), pytest.raises(CheckpointError, match=message):
        trainer.run(until=2)
    after = {path.name: path.read_bytes() for path in trainer.folder.iterdir()}
    assert after.keys() == before.keys()
    assert after[name] == before[name]
    assert load_checkpoint(checkpoint(trainer))[1].step == 1


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


def test_a_checkpoint_that_holds_nan_is_refused(make_trainer):
    trainer = make_trainer(engine="packed")
    trainer.run(until=1)
    tensors, state, settings = load_checkpoint(checkpoint(trainer))
    tensors["average.kappa"][2] = torch.nan
    save_checkpoint(checkpoint(trainer), tensors, state, settings)
    with pytest.raises(CheckpointError, match=r"damaged \(average\.kappa holds NaN"):
        make_trainer().resume(checkpoint(trainer))


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
