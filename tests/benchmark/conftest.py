"""Small data for the benchmarks that read a folder, and their commands run as a user would."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from skimage import data


@pytest.fixture(scope="session")
def kernel():
    return np.outer([0.2, 0.5, 0.3], [0.1, 0.2, 0.4, 0.2, 0.1])


@pytest.fixture(scope="session")
def folder(tmp_path_factory, kernel):
    """Small pictures and kernels, laid out as the data of the paper."""
    path = tmp_path_factory.mktemp("data")
    gray, other, colour = data.camera()[96:136, 192:232], data.coins()[60:100, 40:80], data.astronaut()[8:48, 128:168]
    (path / "kernels").mkdir()
    np.savez(path / "kernels" / "Levin09.npz", k1=kernel, k3=kernel.T)
    np.savez(path / "kernels" / "kernels_12.npz", k0=kernel, k1=kernel, k2=kernel, k3=kernel)
    sets = {"Set12/01": gray, "Set12/03": gray, "Set12/04": other, "CBSD68/0000": colour}
    sets |= {"MRI-knee/a": gray // 2, "CT/a": gray, "CT/b": gray}
    for name, pixels in sets.items():
        file = path / "test" / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return path


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """A benchmark in a folder of its own; returns what it wrote, what it printed, and its exit code, or its error."""
    monkeypatch.chdir(tmp_path)

    def command(benchmark, *arguments):
        code = 0
        try:
            benchmark.main([*map(str, arguments), "--device", "cpu", "--save", "a.json"])
        except SystemExit as stop:
            code = stop.code
        path, captured = tmp_path / "a.json", capsys.readouterr()
        return (
            json.loads(path.read_text()) if path.exists() else None,
            captured.out,
            captured.err if code == 1 else code,
        )

    return command


@pytest.fixture
def bare_machine(tmp_path):
    """Run a benchmark as a module, without the packages of the command line and of the pictures."""

    def run(name, *arguments):
        missing = ["typer", "rich", "matplotlib", "skimage", "tifffile", "scipy"]
        script = (
            f"import sys; sys.modules.update(dict.fromkeys({missing})); sys.argv[0] = {name!r};"
            f"import runpy; runpy.run_module('torchdeal.benchmark.{name}', run_name='__main__', alter_sys=True)"
        )
        command = [sys.executable, "-c", script, *map(str, arguments), "--device", "cpu"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run
