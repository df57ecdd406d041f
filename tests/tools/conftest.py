"""Small data for the tools, and their commands run as a developer would."""

import json

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
    np.savez(path / "kernels" / "kernels_12.npz", k2=kernel, k3=kernel)
    pictures = {
        "Set12/01": gray,
        "Set12/03": gray,
        "Set12/04": other,
        "CBSD68/0000": colour,
        "CT/a": gray,
        "CT/b": gray,
    }
    for name, pixels in pictures.items():
        file = path / "test" / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return path


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """A tool in a folder of its own; returns what it saved, what it printed, and its exit code, or what it said."""
    monkeypatch.chdir(tmp_path)

    def command(tool, *arguments):
        code = 0
        try:
            tool.main([*map(str, arguments), "--device", "cpu", "--threads", "1", "--save", "a.json"])
        except SystemExit as stop:
            code = stop.code
        path, captured = tmp_path / "a.json", capsys.readouterr()
        content = json.loads(path.read_text()) if path.exists() else None
        return content, captured.out, captured.err if code == 2 else code

    return command
