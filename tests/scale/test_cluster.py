"""Tiles and files on workers of Dask: the same bits as here, whoever dies."""

import os
import signal
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from scale.helpers import LIGHT, differences, noisy
from typer.testing import CliRunner

import torchdeal as td
from torchdeal.cli import app
from torchdeal.operators import Downsample, Mask
from torchdeal.scale.cluster import AHEAD, Cluster, ClusterError, open_cluster
from torchdeal.scale.dask_arrays import reconstruct_blocks
from torchdeal.scale.remote import own_gpu
from torchdeal.scale.tiled import reconstruct_tiled

QUICK = {"model": LIGHT, "sigma": 15, "tile": 24, "overlap": 8, "max_iterations": 1}
WORDS = ["--model", LIGHT, "--sigma", "15", "--tile", "24", "--overlap", "8", "--max-iterations", "1"]


@pytest.fixture(scope="module")
def cluster():
    with open_cluster("2", "cpu") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def image():
    return noisy(48, 96)


@pytest.fixture(scope="module")
def expected(image):
    return reconstruct_tiled(image, **QUICK).x


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def address(cluster):
    return cluster.client.scheduler.address


def deal(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


OPERATORS = {
    "denoising": None,
    "mask": Mask(torch.rand(48, 96, generator=torch.Generator().manual_seed(0)) < 0.7),
    "downsampling": Downsample(2),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_bits_as_without(name, cluster, image):
    knobs = {**QUICK, "lam": 1.0, "max_iterations": 2}
    here, there = (reconstruct_tiled(image, None, OPERATORS[name], cluster=one, **knobs) for one in (None, cluster))
    # A worker has fewer threads; only in denoising do sums not depend on that.
    assert np.abs(there.x.astype(int) - here.x.astype(int)).max() <= (0 if name == "denoising" else 1)
    assert (there.tiles, there.statuses) == (8, here.statuses)


def test_a_worker_says_how_many_tiles_it_solves_together(cluster, image, expected, monkeypatch):
    assert cluster.together(56**2, 48) == 1  # it has no GPU
    sizes, solve = [], cluster.solve

    def seen(works):
        for work, answers in solve(works):
            sizes.append(len(work.tiles))
            yield work, answers

    monkeypatch.setattr(cluster, "_together", {(40**2, td.load(LIGHT).features): 3})
    monkeypatch.setattr(cluster, "solve", seen)
    run = reconstruct_tiled(image, cluster=cluster, **QUICK)
    assert sizes == [3, 3, 2]
    assert np.abs(run.x.astype(int) - expected).max() <= 1


def test_a_killed_worker_loses_nothing(cluster, image, expected):
    killed = []

    def told(done, of):
        if done == 1:
            killed.append(next(iter(cluster.client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    run = reconstruct_tiled(image, cluster=cluster, progress=told, **QUICK)
    assert killed
    assert run.x.tolist() == expected.tolist()


STOPPED = """
import os, signal, sys
import distributed
from torchdeal.scale.cluster import Cluster
from torchdeal.scale.tiled import reconstruct_tiled

def told(done, of):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

cluster = Cluster(distributed.Client(sys.argv[1]), "cpu", 1)
reconstruct_tiled("in.tif", "out.tif", model="gray-light", sigma=15, tile=24, overlap=8, max_iterations=1,
                  progress=told, cluster=cluster)
"""


def test_a_killed_client_is_resumed(cluster, image, expected):
    tifffile.imwrite("in.tif", image)
    ended = subprocess.run([sys.executable, "-c", STOPPED, address(cluster)], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not os.path.exists("out.tif")
    run = reconstruct_tiled("in.tif", "out.tif", resume=True, cluster=cluster, **QUICK)
    assert (run.resumed, run.tiles, sum(run.statuses.values())) == (2, 8, 8)
    assert tifffile.imread("out.tif").tolist() == expected.tolist()


def test_the_command_and_its_files(cluster, image):
    tifffile.imwrite("in.tif", image)
    there = deal("denoise", "in.tif", "there.tif", *WORDS, "--dask", address(cluster))
    assert there.exit_code == 0, there.output
    assert "workers of Dask, to be watched at http" in there.output
    assert deal("denoise", "in.tif", "here.tif", *WORDS).exit_code == 0
    assert tifffile.imread("there.tif").tolist() == tifffile.imread("here.tif").tolist()


def test_files_of_a_folder(cluster, image):
    for folder in ("in", "there", "here"):
        os.mkdir(folder)
    for number in range(3):
        Image.fromarray(image[:, 8 * number : 8 * number + 32]).save(f"in/{number}.png")
    with open("in/bad.png", "w") as file:
        file.write("no picture")
    words = ["--model", LIGHT, "--sigma", "15", "--max-iterations", "1"]
    there = deal("denoise", "in", "there", *words, "--dask", address(cluster))
    here = deal("denoise", "in", "here", *words)
    assert there.exit_code == here.exit_code == 1
    assert "bad.png: not a readable image" in there.output
    assert sorted(os.listdir("there")) == sorted(os.listdir("here")) == ["0.png", "1.png", "2.png"]
    for name in os.listdir("here"):
        assert np.asarray(Image.open(f"there/{name}")).tolist() == np.asarray(Image.open(f"here/{name}")).tolist()


def test_few_are_on_their_way_at_a_time(cluster):
    drawn = []
    items = (drawn.append(number) or number for number in range(100))
    answers = cluster.in_order(lambda number: cluster.submit(abs, -number), items)
    assert next(answers) == (0, 0)
    assert len(drawn) <= AHEAD * 2
    assert [number for number, _ in answers] == list(range(1, 100))


def test_an_error_of_a_task_is_as_it_was(cluster):
    with pytest.raises(ValueError, match="invalid literal"):
        list(cluster.in_order(lambda text: cluster.submit(int, text), ["1", "one"]))


def test_another_version_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(td, "__version__", "9.9")
    with pytest.raises(ClusterError, match=r"a worker has torchdeal .*, and this is 9\.9: install the same"):
        Cluster(cluster.client)


def test_what_is_no_cluster_is_said(monkeypatch):
    tifffile.imwrite("in.tif", noisy(32, 32))
    for wish, message in (("here", "give the address"), ("0", "at least 1 process")):
        assert message in deal("denoise", "in.tif", "out.tif", "--dask", wish).exception.args[0]
    monkeypatch.setattr("torchdeal.scale.cluster.SECONDS_TO_CONNECT", 0.2)
    with pytest.raises(ClusterError, match="no scheduler of Dask answers there"), open_cluster("tcp://127.0.0.1:9"):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'torchdeal\[dask\]'"), open_cluster("2"):
        pass
    assert not os.path.exists("out.tif")


class TestGPUs:
    """None is needed: torch says that there are four."""

    @pytest.fixture(autouse=True)
    def four(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)

    def test_the_number_of_a_worker_says_which(self):
        assert [own_gpu(name, "cuda") for name in ("0", "3", "node-1", "node-5")] == [0, 3, 1, 1]
        assert own_gpu("1", "auto") == 1
        assert own_gpu("1", "cpu") is None

    @pytest.mark.parametrize("name", ["tcp://10.0.0.1:41231", "worker"])
    def test_one_without_a_number_is_refused(self, name):
        with pytest.raises(RuntimeError, match=r"sees 4 GPUs, and its name has no number .*--nworkers 4"):
            own_gpu(name, "cuda")
        assert own_gpu(name, "cpu") is None

    def test_with_one_gpu_any_name_will_do(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        assert own_gpu("worker", "cuda") == 0

    def test_workers_of_dask_cuda_see_their_own_first(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "dask_cuda", os)
        assert [own_gpu(name, "cuda") for name in ("0", "3", "tcp://10.0.0.1:41231")] == [0, 0, 0]

    def test_processes_of_this_machine_have_different_ones(self, cluster):
        """What a worker makes of its own name, if it sees four."""

        def there(dask_worker):
            from unittest.mock import patch

            import torch

            from torchdeal.scale.remote import own_gpu

            with patch.object(torch.cuda, "device_count", lambda: 4):
                return own_gpu(str(dask_worker.name), "cuda")

        assert sorted(cluster.client.run(there).values()) == [0, 1]

    @pytest.mark.parametrize(("device", "processes"), [("cuda", 4), ("auto", 4), ("cpu", 3)])
    def test_one_process_for_each_gpu_or_core(self, device, processes, monkeypatch):
        begun = []
        monkeypatch.setattr("torchdeal.scale.cluster._cores", lambda: 3)
        monkeypatch.setattr("distributed.LocalCluster", lambda **options: begun.append(options) or 1 / 0)
        with pytest.raises(ZeroDivisionError), open_cluster("local", device):
            pass
        assert begun[0]["n_workers"] == processes


class TestBlocks:
    def test_they_fit_together(self, image):
        array = da.from_array(image, chunks=(48, 48))
        lazy = reconstruct_blocks(array, sigma=15, model=LIGHT)
        found = lazy.compute(scheduler="synchronous")
        relative, largest = differences(found, td.denoise(image, sigma=15, model=LIGHT))
        assert (found.shape, found.dtype) == (image.shape, image.dtype)
        assert relative < 3e-3  # two tolerances of 1e-3, and what halos let through
        assert largest < 4

    def test_any_scheduler_gives_the_same(self, image, cluster):
        array = da.from_array(np.stack([image[:32, :32]] * 2), chunks=(1, 32, 16))
        lazy = reconstruct_blocks(array, sigma=15, model=LIGHT, max_iterations=1, overlap=8)
        found = lazy.compute(scheduler="threads")
        assert (found[0] == found[1]).all()
        assert found.tolist() == cluster.client.compute(lazy).result().tolist()

    def test_what_has_no_blocks_is_refused(self):
        stack = da.zeros((2, 32, 32), dtype="u1")
        with pytest.raises(ValueError, match="give sigma"):
            reconstruct_blocks(stack, model=LIGHT)
        with pytest.raises(ValueError, match="reconstruct_tiled with a cluster"):
            reconstruct_blocks(stack[0], Downsample(2), model=LIGHT)
