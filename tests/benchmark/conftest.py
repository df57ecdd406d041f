"""Small data laid out as that of the paper, `deal benchmark` run in this process, and methods that are quick."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from torchdeal.benchmark import command as benchmark_command
from torchdeal.benchmark import ct, deblur, denoising, images, mri, noise, superres
from torchdeal.benchmark.peers import DENOISERS, SOLVERS
from torchdeal.benchmark.peers.base import Peer, tunable
from torchdeal.benchmark.results import Results

SIDE = 40
SMALL = {
    denoising: {"CROP": 32, "QUICK_CROP": 24},
    superres: {"CROP": 32, "QUICK_CROP": 24},
    deblur: {"TUNING_CROP": 32, "QUICK_CROP": 24},
    mri: {"QUICK_SIDE": 24},
    ct: {"SIZE": 20, "QUICK_SIZE": 20},
    noise: {"SIDE": 32, "SMALL_SIDE": 20},
    images: {"TRAINING_SIDE": SIDE},
}


def crops(picture, count):
    """Different parts of a picture."""
    return [picture[140 + 12 * k :, 150 + 15 * k :][:SIDE, :SIDE] for k in range(count)]


@pytest.fixture(scope="session")
def kernel():
    return np.outer([0.2, 0.5, 0.3], [0.1, 0.2, 0.4, 0.2, 0.1])


@pytest.fixture(scope="session")
def folder(tmp_path_factory, kernel):
    """Pictures of 40 x 40 and kernels, laid out as the data of the paper. No two pictures are the same."""
    path = tmp_path_factory.mktemp("data")
    (path / "kernels").mkdir()
    np.savez(path / "kernels" / "Levin09.npz", k1=kernel, k3=kernel.T)
    kernels = {f"k{number}": np.roll(kernel, number, 1) for number in range(4)}
    np.savez(path / "kernels" / "kernels_12.npz", **kernels)
    sets = {
        "Set12": (["01", "02", "03", "04", "05"], data.camera()),
        "BSD68": (["a", "b", "c"], data.coins()),
        "CBSD68": (["0000", "0001"], data.astronaut()),
        "MRI-knee": ([*"01234", "a", "b"], data.camera() // 2),
        "CT": ([*"abcd"], data.camera()[::-1]),
    }
    for name, (names, picture) in sets.items():
        (path / "test" / name).mkdir(parents=True)
        for image, pixels in zip(names, crops(picture, len(names)), strict=True):
            Image.fromarray(np.ascontiguousarray(pixels)).save(path / "test" / name / f"{image}.png")
    (path / "train").mkdir()
    with tarfile.open(path / "train" / "bsd400.tar", "w") as archive:
        for number, pixels in enumerate(crops(data.coffee(), 5)):
            written = io.BytesIO()
            Image.fromarray(pixels).save(written, "png")
            member = tarfile.TarInfo(f"{number}.png")
            member.size = written.tell()
            archive.addfile(member, io.BytesIO(written.getvalue()))
    return path


@pytest.fixture
def small(monkeypatch):
    """The squares that the protocols cut out fit into the pictures of `folder`."""
    for module, sizes in SMALL.items():
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


@pytest.fixture
def command(small, tmp_path, capsys, monkeypatch):
    """`deal benchmark EXPERIMENT ...` as on a bare machine, `--out out`: exit code, stdout, stderr, and the results."""
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        code = 0
        try:
            benchmark_command.main([name, "--device", "cpu", "--out", "out", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code
        path, captured = tmp_path / "out" / f"{name}.json", capsys.readouterr()
        results = Results.load(path) if code == 0 and path.exists() else None
        return SimpleNamespace(code=code, out=captured.out, err=captured.err, results=results)

    return run


@dataclass(frozen=True, eq=False)
class Scaled:
    """So many times the adjoint of what was measured."""

    calls: list = field(default_factory=list)
    strength: float = tunable(1.0, 0.25, 0.5, 1.0, 2.0)

    def __call__(self, y, *how):
        self.calls.append((y.clone(), *how))
        x = how[0].adjoint(y) if len(how) == 2 else y
        return self.strength * (x.real if x.is_complex() else x)


@pytest.fixture
def scaled(monkeypatch):
    """Register the method `scaled` for all problems; what it was called with is in its `calls`."""
    method = Scaled()
    for registry, problems in ((DENOISERS, ["denoising"]), (SOLVERS, ["deblur", "superres", "mri", "ct"])):
        monkeypatch.setitem(registry, "scaled", Peer(lambda *_: method, "nobody", tuple(problems)))
    return method


@pytest.fixture
def bare_machine(tmp_path):
    """Run `python -m torchdeal.benchmark` without the packages of the command line and of the pictures."""

    def run(*arguments):
        missing = ["typer", "rich", "matplotlib", "skimage", "tifffile", "scipy", "h5py"]
        script = (
            f"import sys; sys.modules.update(dict.fromkeys({missing})); sys.argv[0] = 'benchmark';"
            "import runpy; runpy.run_module('torchdeal.benchmark', run_name='__main__', alter_sys=True)"
        )
        line = [sys.executable, "-c", script, *map(str, arguments), "--device", "cpu"]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(autouse=True)
def threads():
    """A run may change how many there are."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
