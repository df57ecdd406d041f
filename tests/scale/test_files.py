"""From file to file in tiles: formats, what is kept of them, and runs that are stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr
from scale.helpers import LIGHT, noisy

from torchdeal.operators import Downsample
from torchdeal.scale.pyramid import block_means
from torchdeal.scale.tiled import reconstruct_tiled

QUICK = {"model": LIGHT, "sigma": 15, "tile": 48, "overlap": 8, "max_iterations": 1}


@pytest.fixture(scope="module")
def image():
    return noisy(80, 100)


@pytest.fixture(scope="module")
def expected(image):
    return reconstruct_tiled(image, **QUICK).x


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def pyramid(path, image, **options):
    with tifffile.TiffWriter(path, **options) as writer:
        writer.write(image, tile=(32, 32), subifds=1, compression="zlib", resolution=(30, 30), resolutionunit=3)
        writer.write(image[::2, ::2], tile=(32, 32), subfiletype=1)


def test_pyramidal_tiff(image, expected):
    pyramid("in.tif", image, bigtiff=True)
    run = reconstruct_tiled("in.tif", "out.tif", **QUICK)
    with tifffile.TiffFile("out.tif") as file:
        (series,) = file.series
        assert series.levels[0].asarray().tolist() == expected.tolist()
        assert series.levels[1].asarray().tolist() == block_means(expected, (2, 2)).tolist()
        assert file.pages[0].is_tiled
        assert file.pages[0].resolution == (30, 30)
    assert run.notes == []
    assert not os.path.exists("out.tif.partial")


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_numbers_of_other_kinds(image, expected, dtype):
    white = 65535 if dtype == np.uint16 else 1.0
    pixels = (image.astype(np.float64) / 255 * white).astype(dtype)
    tifffile.imwrite("in.tif", pixels)
    reconstruct_tiled("in.tif", "out.npy", **{**QUICK, "sigma": 15 / 255 * white})
    found = np.load("out.npy")
    assert found.dtype == dtype
    assert np.abs(found / white * 255 - expected).max() <= 0.51


def test_block_means_are_those_of_whole_blocks_and_of_parts():
    array = np.arange(15, dtype=np.uint8).reshape(3, 5)
    assert block_means(array, (2, 2)).tolist() == [[3, 5, 6], [10, 12, 14]]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_stores(image, expected, zarr_format):
    stored = zarr.create_array("in.zarr", shape=(2, 80, 100), dtype="u1", chunks=(1, 32, 32), zarr_format=zarr_format)
    stored[0], stored[1] = image, 0
    stored.attrs["instrument"] = "this one"
    reconstruct_tiled("in.zarr", "out.zarr", **QUICK)
    found = zarr.open("out.zarr", mode="r")
    assert found.metadata.zarr_format == zarr_format
    assert found[0].tolist() == expected.tolist()
    assert not found[1].any()
    assert found.attrs["instrument"] == "this one"


def ome_zarr(path, image, version):
    group = zarr.open_group(path, mode="w", zarr_format=2 if version == "0.4" else 3)
    levels = [image, image[:, ::2, ::2]]
    scales = [[1.0, 0.2 * 2**level, 0.2 * 2**level] for level in range(2)]
    units = {"type": "space", "unit": "micrometer"}
    axes = [{"name": "c", "type": "channel"}, {"name": "y", **units}, {"name": "x", **units}]
    datasets = [
        {"path": str(number), "coordinateTransformations": [{"type": "scale", "scale": scale}]}
        for number, scale in enumerate(scales)
    ]
    described = {"multiscales": [{"name": "cells", "axes": axes, "datasets": datasets}]}
    described["omero"] = {"channels": [{"label": "DAPI", "color": "0000FF"}, {"label": "GFP", "color": "00FF00"}]}
    group.update_attributes(described if version == "0.4" else {"ome": {"version": version, **described}})
    for number, level in enumerate(levels):
        group.create_array(str(number), data=level, chunks=(1, 32, 32))
    return described


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_zarr(image, expected, version):
    described = ome_zarr("in.zarr", np.stack([image, image]), version)
    reconstruct_tiled("in.zarr", "out.zarr", **QUICK)
    group = zarr.open("out.zarr", mode="r")
    found = dict(group.attrs) if version == "0.4" else group.attrs["ome"]
    assert {name: found[name] for name in described} == described
    assert group["0"][1].tolist() == expected.tolist()
    assert group["1"][0].tolist() == block_means(expected, (2, 2)).tolist()


def test_pixels_of_an_enlarged_ome_zarr_are_smaller(image):
    ome_zarr("in.zarr", image[None, :48, :48], "0.5")
    reconstruct_tiled("in.zarr", "out.zarr", Downsample(2), **{**QUICK, "lam": 0.5})
    group = zarr.open("out.zarr", mode="r")
    datasets = group.attrs["ome"]["multiscales"][0]["datasets"]
    assert [dataset["coordinateTransformations"][0]["scale"] for dataset in datasets] == [[1, 0.1, 0.1], [1, 0.2, 0.2]]
    assert [group[name].shape for name in "01"] == [(1, 96, 96), (1, 48, 48)]


STOPPED = """
import os, signal, sys
from torchdeal.scale.tiled import reconstruct_tiled

def told(done, of):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

reconstruct_tiled(sys.argv[1], sys.argv[2], model="gray-light", sigma=15, tile=48, overlap=8, max_iterations=1,
                  progress=told)
"""


@pytest.mark.parametrize("target", ["out.tif", "out.zarr"])
def test_a_killed_run_is_resumed(image, expected, target):
    tifffile.imwrite("in.tif", image)
    ended = subprocess.run([sys.executable, "-c", STOPPED, "in.tif", target], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not os.path.exists(target)
    with pytest.raises(ValueError, match="an unfinished run is there: go on with it by --resume"):
        reconstruct_tiled("in.tif", target, **QUICK)
    with pytest.raises(ValueError, match=r"begun with other settings \(sigma 15 is now 20\)"):
        reconstruct_tiled("in.tif", target, resume=True, **{**QUICK, "sigma": 20})
    run = reconstruct_tiled("in.tif", target, resume=True, **QUICK)
    assert (run.resumed, run.tiles, sum(run.statuses.values())) == (2, 6, 6)
    found = tifffile.imread(target) if target.endswith("tif") else zarr.open(target, mode="r")[...]
    assert found.tolist() == expected.tolist()
    assert not os.path.exists(f"{target}.partial")


@pytest.mark.parametrize("source", ["in.tif", "in.zarr", "in.npy"])
def test_an_input_that_changed_is_not_resumed(image, source):
    """Neither is one of which a single pixel changed: the tiles that are done would be those of another picture."""
    store = zarr.create_array("in.zarr", data=image, chunks=(32, 32))
    tifffile.imwrite("in.tif", image)
    np.save("in.npy", image)
    with pytest.raises(RuntimeError, match="stopped"):
        reconstruct_tiled(source, "out.npy", progress=_stop_at_once, **QUICK)
    image = image.copy()
    image[0, 0] ^= 1
    store[0, 0] = image[0, 0]
    tifffile.imwrite("in.tif", image)
    np.save("in.npy", image)
    with pytest.raises(ValueError, match=r"out\.npy\.partial: the input has changed since this run began: remove"):
        reconstruct_tiled(source, "out.npy", resume=True, **QUICK)


def test_a_cut_off_journal_is_read(image):
    tifffile.imwrite("in.tif", image)
    target = Path("out.tif")
    with pytest.raises(RuntimeError):
        reconstruct_tiled("in.tif", target, progress=_stop_at_once, **QUICK)
    with Path("out.tif.partial/tiles.jsonl").open("a") as file:
        file.write('{"plane": 0, "pl')
    assert reconstruct_tiled("in.tif", target, resume=True, **QUICK).tiles == 6


def _stop_at_once(done, of):
    raise RuntimeError("stopped")
