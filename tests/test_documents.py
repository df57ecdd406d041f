"""The examples in the documents run."""

import re
from pathlib import Path

import h5py
import sigpy.mri
import torch
from conftest import picture, relative

import torchdeal as td
from torchdeal.operators import MultiCoilFourier

DOCUMENTS = Path(__file__).parents[1] / "docs"


def write_scan(path, size=48, coils=4):
    """A small fastMRI file, with the scale that such files have."""
    maps = torch.from_numpy(sigpy.mri.birdcage_maps((coils, size, size))).to(torch.complex64)
    columns = torch.arange(size) % 2 == 0
    columns[size // 2 - 8 : size // 2 + 8] = True
    window = torch.hann_window(size, periodic=False)
    image = picture(size=size) * torch.outer(window, window)
    kspace = MultiCoilFourier(maps, columns.expand(size, size), centered=True).forward(image)
    noise = 0.005 * torch.randn(kspace.shape, dtype=kspace.dtype, generator=torch.Generator().manual_seed(0))
    with h5py.File(path, "w") as file:
        file["kspace"] = 1e-4 * (kspace + noise * columns).numpy()
        file["mask"] = columns.numpy()
    return 1e-4 * image


def test_examples_of_mri(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image = write_scan("scan.h5")
    names = {}
    examples = re.findall(r"```python\n(.*?)```", (DOCUMENTS / "mri.md").read_text(), re.DOTALL)
    assert len(examples) == 3
    for number, example in enumerate(examples):
        exec(compile(example, f"mri.md, example {number + 1}", "exec"), names)
        assert names["rec"].converged
        if number == 0:
            assert relative(names["rec"].x.abs(), image) < 0.1
    assert (tmp_path / "image.png").stat().st_size > 0


def test_example_of_an_operator():
    torch.manual_seed(0)
    x = picture(size=64)
    names = {"x": x}
    (example,) = re.findall(r"```python\n(.*?)```", (DOCUMENTS / "operators.md").read_text(), re.DOTALL)
    exec(compile(example, "operators.md", "exec"), names)
    assert td.operators.adjoint_gap(names["H"]) < 1e-5
    assert names["rec"].converged
    enlarged = torch.nn.functional.interpolate(names["y"], scale_factor=2, mode="bicubic")
    assert relative(names["rec"].x, x) < 0.9 * relative(enlarged, x)
