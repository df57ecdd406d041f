"""Two processes: the gradient of both their batches, the same weights in each, and a run that can be resumed.

As a script this file is one of the two processes: everything that they do is done in one start, which takes seconds.
"""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn.parallel import DistributedDataParallel

import torchdeal as td
from torchdeal.operators import Identity
from torchdeal.training import CheckpointError, Trainer, read_config, read_images
from torchdeal.training.batches import Batch
from torchdeal.training.config import LossConfig
from torchdeal.training.folder import CHECKPOINT, LAST
from torchdeal.training.run import _processes
from torchdeal.training.state import load_checkpoint
from torchdeal.training.step import TrainingStep

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")

STEPS, STOP = 6, 3
TOML = f"""
[model]
features = 4
[data]
train = ["train"]
patch = 16
batch = 1
[iterations]
outer = [[0.0, 1, 2]]
again = [1, 1]
visits = 2
pool = 2
[optimiser]
steps = {STEPS}
lr = 5e-3
warmup = 0
[run]
report_every = 2
"""


def gradient(part=slice(None), wrap=lambda step: step):
    """Of the loss of some samples of a batch of four, by parameter."""
    torch.manual_seed(0)
    model = td.DEAL(features=4).double()
    clean, measured = torch.rand(2, 4, 1, 16, 16, dtype=torch.float64)
    sigma = torch.linspace(5, 35, 4, dtype=torch.float64)
    batch = Batch(clean[part], Identity(), measured[part], sigma[part])
    step = wrap(TrainingStep(model, LossConfig(gamma=0.1, slowness=2.0, contraction=0.0), engine="direct"))
    step(batch, batch.measured).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def make_trainer(folder, name, pictures):
    config = read_config(folder / "config.toml")
    images = read_images([pictures / "train"], channels=1, patch=config.data.patch)
    return Trainer(config, folder / name, images, engine="packed")


def tensors(trainer):
    pool = {f"pool.{slot}": values for slot, values in trainer.pool.items()}
    return {f"model.{name}": value for name, value in trainer.model.state_dict().items()} | pool


def work(folder, pictures):
    """What each process does; what it finds goes to files with its number."""
    torch.set_num_threads(1)
    with _processes("cpu"):
        rank = dist.get_rank()
        found = gradient(slice(2 * rank, 2 * rank + 2), DistributedDataParallel)
        save_file(found, folder / f"gradient{rank}.safetensors")
        whole = make_trainer(folder, "whole", pictures)
        whole.run()
        save_file(tensors(whole), folder / f"whole{rank}.safetensors")
        make_trainer(folder, "stopped", pictures).run(until=STOP)
        resumed = make_trainer(folder, "stopped", pictures)
        resumed.resume(folder / "stopped" / CHECKPOINT)
        if rank == 0:
            shutil.copytree(folder / "stopped", folder / "torchrun")
        assert resumed.state.step == STOP
        resumed.run()
        save_file(tensors(resumed), folder / f"resumed{rank}.safetensors")


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def environment(**others):
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **others}


@pytest.fixture(scope="module")
def done(tmp_path_factory, pictures):
    """A folder with what two processes found."""
    folder, port = tmp_path_factory.mktemp("processes"), free_port()
    (folder / "config.toml").write_text(TOML)
    processes = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, __file__, str(folder), str(pictures)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes.append(subprocess.Popen(command, env=environment(**place), **options))
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    return folder


def test_the_gradient_is_that_of_the_joint_batch(done):
    expected = gradient()
    alone = gradient(slice(2))
    for rank in (0, 1):
        found = load_file(done / f"gradient{rank}.safetensors")
        for name, value in expected.items():
            assert float((found[name] - value).norm() / value.norm()) < 1e-9, name
        assert float((found["phi1"] - alone["phi1"]).norm()) > 1e-3 * float(expected["phi1"].norm())


def test_all_processes_have_the_same_weights_and_other_batches(done):
    first, second = (load_file(done / f"whole{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]) == name.startswith("model."), name


def test_a_resumed_run_is_the_run_that_was_not_stopped(done):
    for rank in (0, 1):
        whole, resumed = (load_file(done / f"{name}{rank}.safetensors") for name in ("whole", "resumed"))
        assert whole.keys() == resumed.keys()
        assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []


def test_the_checkpoint_holds_the_points_of_all_processes(done, pictures):
    values, state, _ = load_checkpoint(done / "whole" / CHECKPOINT)
    assert state.processes == 2
    for rank in (0, 1):
        own = load_file(done / f"whole{rank}.safetensors")
        for slot in (0, 1):
            assert torch.equal(values[f"pool.{rank}.{slot}"], own[f"pool.{slot}"])
    with pytest.raises(CheckpointError, match="made by 2 processes, this run has 1: start as many"):
        make_trainer(done, "alone", pictures).resume(done / "whole" / CHECKPOINT)


def test_torchrun_goes_on_to_the_same_weights(done, pictures):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    folders = [str(done / "config.toml"), "--output", str(done / "torchrun"), "--data", str(pictures)]
    command = [*torchrun, "-m", "torchdeal.training", *folders, "--engine", "packed", "--device", "cpu", "--resume"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(f"going on from step {STOP}") == 1  # only the first process speaks
    found, expected = (load_file(done / name / LAST) for name in ("torchrun", "whole"))
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    assert load_checkpoint(done / "torchrun" / CHECKPOINT)[1].step == STEPS


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
