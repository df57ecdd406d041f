"""K-space files, made here: what is in them comes back, and what is wrong with them is said."""

import sys
import zipfile

import h5py
import numpy as np
import pytest
import torch

from torchdeal.mri import KSpaceError, centre_crop, infer_mask, read_kspace, read_maps
from torchdeal.mri import data as kspace_data

SLICES, COILS, SIZE = 5, 3, (12, 10)
COLUMNS = np.array([0, 0, 1, 0, 1, 1, 1, 0, 1, 0], bool)
HEADER = b"""<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding><reconSpace>
<matrixSize><x>8</x><y>6</y><z>1</z></matrixSize></reconSpace></encoding></ismrmrdHeader>"""


def values(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def fastmri(path, kspace, **datasets):
    with h5py.File(path, "w") as file:
        for name, content in {"kspace": kspace, **datasets}.items():
            file[name] = content
    return path


def test_fastmri_of_several_coils(tmp_path):
    kspace, rss = values(SLICES, COILS, *SIZE) * COLUMNS, np.random.default_rng(1).random((SLICES, 8, 6))
    path = fastmri(tmp_path / "a.h5", kspace, mask=COLUMNS, reconstruction_rss=rss.astype("f4"), ismrmrd_header=HEADER)
    scan = read_kspace(path)
    assert np.array_equal(scan.kspace, kspace[2])
    assert np.array_equal(scan.mask, np.broadcast_to(COLUMNS, SIZE))
    assert (scan.slice_index, scan.slices, scan.image_size, scan.centered) == (2, SLICES, (8, 6), True)
    assert np.allclose(scan.reference, rss[2])
    assert "fastMRI" in scan.source
    assert scan.maps is None
    assert np.array_equal(read_kspace(str(path), index=0).kspace, kspace[0])
    whole = read_kspace(path, index="all")
    assert np.array_equal(whole.kspace, kspace)
    assert whole.slice_index is None
    assert whole.reference.shape == rss.shape


def test_fastmri_of_one_coil(tmp_path):
    kspace = values(SLICES, *SIZE)
    path = fastmri(tmp_path / "a.h5", kspace, reconstruction_esc=np.ones((SLICES, 8, 6)))
    scan = read_kspace(path)
    assert np.array_equal(scan.kspace, kspace[2][None])
    assert bool(scan.mask.all())
    assert scan.reference is not None
    assert read_kspace(path, index="all").kspace.shape == (SLICES, 1, *SIZE)


def test_columns_that_fastmri_filled_with_zeros_were_not_measured(tmp_path):
    kspace = values(SLICES, COILS, *SIZE) * COLUMNS
    kspace[..., 8] = 0
    scan = read_kspace(fastmri(tmp_path / "a.h5", kspace, mask=COLUMNS))
    assert scan.mask[0].tolist() == [column and place != 8 for place, column in enumerate(COLUMNS)]


@pytest.mark.parametrize("shape", [SIZE, (COILS, *SIZE), (SLICES, COILS, *SIZE)])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, ">c8"])
def test_npy(tmp_path, shape, dtype):
    kspace = values(*shape).astype(dtype) * COLUMNS
    np.save(tmp_path / "a.npy", kspace.astype(dtype))
    scan = read_kspace(tmp_path / "a.npy")
    expected = kspace[2] if len(shape) == 4 else kspace[None] if len(shape) == 2 else kspace
    assert np.array_equal(scan.kspace, expected)
    assert scan.kspace.dtype == (torch.complex128 if dtype == np.complex128 else torch.complex64)
    assert np.array_equal(scan.mask, np.broadcast_to(COLUMNS, SIZE))


@pytest.mark.parametrize("mask", [COLUMNS, COLUMNS[None].repeat(12, 0), COLUMNS[None, :, None].astype(np.float32)])
def test_npz(tmp_path, mask):
    kspace, maps = values(SLICES, COILS, *SIZE), values(COILS, *SIZE, seed=1)
    np.savez(tmp_path / "a.npz", kspace=kspace, mask=mask, maps=maps)
    scan = read_kspace(tmp_path / "a.npz", index=4, centered=False)
    assert np.array_equal(scan.kspace, kspace[4])
    assert np.array_equal(scan.mask, np.broadcast_to(COLUMNS, SIZE))
    assert np.array_equal(scan.maps, maps)
    assert not scan.centered


def test_maps_of_every_slice(tmp_path):
    maps = values(SLICES, COILS, *SIZE, seed=1)
    np.savez_compressed(tmp_path / "a.npz", kspace=values(SLICES, COILS, *SIZE), maps=maps)
    assert np.array_equal(read_kspace(tmp_path / "a.npz", index=1).maps, maps[1])
    assert np.array_equal(read_kspace(tmp_path / "a.npz", index="all").maps, maps)


def test_mask_of_points_and_of_lines():
    kspace = values(COILS, *SIZE)
    points = np.random.default_rng(0).random(SIZE) < 0.3
    assert np.array_equal(infer_mask(kspace * points), points)
    lines = kspace * COLUMNS
    lines[:, 3, 4] = 0  # a measured zero
    assert np.array_equal(infer_mask(lines), np.broadcast_to(COLUMNS, SIZE))


def corrupt(kspace):
    kspace = kspace.copy()
    kspace[..., 0, 0] = np.nan
    return kspace


BAD_ARRAYS = {
    "real": (values(COILS, *SIZE).real, "complex"),
    "whole numbers": (np.ones(SIZE, int), "complex"),
    "one dimension": (values(7), r"must be \(H, W\)"),
    "five dimensions": (values(1, 1, 1, *SIZE), r"must be \(H, W\)"),
    "empty": (values(0, *SIZE), "empty"),
    "no slices": (values(0, 2, *SIZE), "empty"),
    "nan": (corrupt(values(COILS, *SIZE)), "NaN"),
    "zero": (np.zeros((COILS, *SIZE), np.complex64), "zero everywhere"),
    "objects": (np.array([{"a": 1}], object), "holds Python objects, which could execute code"),
    "texts": (np.array(["a", "b"]), "holds texts, not numbers"),
    "records": (np.zeros(3, [("re", "f4"), ("im", "f4")]), "holds records with the fields re, im"),
    "dates": (np.zeros(3, "datetime64[s]"), r"holds datetime64\[s\] values, not numbers"),
}


@pytest.mark.parametrize(("array", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_bad_arrays(tmp_path, array, message, suffix):
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, array, allow_pickle=True)
    else:
        np.savez(path, kspace=array)
    with pytest.raises(KSpaceError, match=message) as raised:
        read_kspace(path)
    assert str(raised.value).startswith(f"{path}: ")


BAD_FASTMRI = {
    "two dimensions": ({"kspace": values(*SIZE)}, "slices"),
    "real": ({"kspace": np.ones((SLICES, *SIZE))}, "complex"),
    "nan": ({"kspace": corrupt(values(SLICES, *SIZE))}, "NaN"),
    "mask of another size": ({"kspace": values(SLICES, *SIZE), "mask": np.ones(9)}, "mask must be"),
    "empty mask": ({"kspace": values(SLICES, *SIZE), "mask": np.zeros(10)}, "nothing was measured"),
    "no slices": ({"kspace": values(0, *SIZE)}, "slices"),
    "a group": ({"kspace/inside": values(*SIZE)}, "'kspace' is a group, not a dataset"),
    "something else": ({"image": np.ones(3)}, "neither fastMRI .* it holds image"),
    "nothing": ({}, "it holds nothing"),
}


@pytest.mark.parametrize(("datasets", "message"), BAD_FASTMRI.values(), ids=BAD_FASTMRI)
def test_bad_fastmri(tmp_path, datasets, message):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, content in datasets.items():
            file[name] = content
    with pytest.raises(KSpaceError, match=message) as raised:
        read_kspace(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_a_damaged_header_is_not_needed(tmp_path):
    for header in (b"<a><b></a>", b"\xff\xfe", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", b"<a/>"):
        path = fastmri(tmp_path / "a.h5", values(SLICES, *SIZE), ismrmrd_header=np.void(header))
        assert read_kspace(path).image_size is None


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".npz"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "text"])
def test_damaged_files(tmp_path, suffix, damage):
    path = tmp_path / f"a{suffix}"
    if suffix == ".h5":
        fastmri(path, values(SLICES, COILS, *SIZE))
    else:
        (np.save if suffix == ".npy" else np.savez)(path, **{"arr" if suffix == ".npy" else "kspace": values(*SIZE)})
    content = {"empty": b"", "truncated": path.read_bytes()[: path.stat().st_size // 2], "text": b"hello" * 99}
    path.write_bytes(content[damage])
    with pytest.raises(KSpaceError, match=r"not readable|ends early") as raised:
        read_kspace(path)
    assert str(path) in str(raised.value)


def test_files_that_claim_to_be_huge(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("kspace", (2, 2**16, 2**16), "c8", chunks=(1, 64, 64))
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<c8', 'fortran_order': False, 'shape': (65536, 65536), }"
    (tmp_path / "a.npy").write_bytes(header.ljust(127) + b"\n" + b"\0" * 99)
    for name in ("a.h5", "a.npy"):
        with pytest.raises(KSpaceError, match=r"more than|ends early"):
            read_kspace(tmp_path / name)


def test_archives_that_explode(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", kspace=np.zeros((64, 64), np.complex64))
    monkeypatch.setattr(kspace_data, "LARGEST", 1000)
    with pytest.raises(KSpaceError, match="more than 1,000"):
        read_kspace(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"image": np.ones(3)}, "no array 'kspace'; it holds image"),
        ({"kspace": values(*SIZE), "mask": np.ones(9)}, "'mask' must be"),
        ({"kspace": values(*SIZE), "mask": np.array(["a"] * 10)}, "'mask' holds texts, not numbers"),
        ({"kspace": values(*SIZE), "mask": np.zeros(10)}, "nothing was measured"),
        ({"kspace": values(*SIZE), "maps": values(2, *SIZE)}, "'maps' must be"),
        ({"kspace": values(*SIZE), "maps": np.ones((1, *SIZE))}, "'maps' must be complex"),
    ],
)
def test_bad_archives(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(KSpaceError, match=message):
        read_kspace(tmp_path / "a.npz")


def test_other_archives_named_npz(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("kspace.txt", "hello")
    with pytest.raises(KSpaceError, match="no array 'kspace'"):
        read_kspace(tmp_path / "a.npz")


@pytest.mark.parametrize("index", [SLICES, -1, 10**9])
def test_slices_that_are_not_there(tmp_path, index):
    path = fastmri(tmp_path / "a.h5", values(SLICES, *SIZE))
    with pytest.raises(KSpaceError, match=f"has 5 slices, 0 to 4; there is no slice {index}"):
        read_kspace(path, index=index)


@pytest.mark.parametrize("index", ["first", 1.5, True, None])
def test_what_is_no_slice(tmp_path, index):
    path = fastmri(tmp_path / "a.h5", values(SLICES, *SIZE))
    with pytest.raises(ValueError, match="index must be"):
        read_kspace(path, index=index)


def test_what_is_no_file(tmp_path):
    with pytest.raises(KSpaceError, match="no such file"):
        read_kspace(tmp_path / "missing.h5")
    with pytest.raises(KSpaceError, match=r"unknown k-space format; use one of \.h5"):
        read_kspace(tmp_path / "image.png")


def test_hdf5_without_its_library(tmp_path, monkeypatch):
    path = fastmri(tmp_path / "a.h5", values(SLICES, *SIZE))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"reading HDF5 files needs h5py: pip install 'torchdeal\[mri\]'"):
        read_kspace(path)


@pytest.mark.parametrize(("have", "wanted"), [(7, 4), (8, 4), (8, 3), (7, 3), (5, 5), (4, 9)])
def test_centre_crop_keeps_the_middle_in_the_middle(have, wanted):
    image = torch.zeros(2, have, have)
    image[:, have // 2, have // 2] = 1
    cropped = centre_crop(image, (wanted, wanted))
    size = min(have, wanted)
    assert cropped.shape == (2, size, size)
    assert bool((cropped[:, size // 2, size // 2] == 1).all())
    assert centre_crop(image.numpy(), (wanted, have)).shape == (2, size, have)
    with pytest.raises(ValueError, match="positive"):
        centre_crop(image, (0, 4))


def test_an_archive_that_says_it_has_more_than_it_has(tmp_path):
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<c8', 'fortran_order': False, 'shape': (65536, 65536), }"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("kspace.npy", header.ljust(127) + b"\n" + b"\0" * 99)
    with pytest.raises(KSpaceError, match="'kspace' is damaged: it says that it has 34,359,738,368 bytes"):
        read_kspace(tmp_path / "a.npz")


def test_an_archive_that_unpacks_to_more_than_is_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", kspace=values(*SIZE), unused=np.zeros(10**6))
    monkeypatch.setattr("torchdeal.io.arrays.MOST_BYTES", 2**20)
    with pytest.raises(KSpaceError, match=r"unpacks to 0\.0 GiB, more than"):
        read_kspace(tmp_path / "a.npz")


def test_maps_in_a_file(tmp_path):
    scan = read_kspace(fastmri(tmp_path / "a.h5", values(SLICES, COILS, *SIZE)), index="all")
    maps = values(COILS, *SIZE, seed=1)
    np.save(tmp_path / "maps.npy", maps)
    assert np.array_equal(read_maps(tmp_path / "maps.npy", scan), maps)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (values(COILS, 3, 3), r"must have the shape of the k-space, \(5, 3, 12, 10\), got \(3, 3, 3\)"),
        (corrupt(values(COILS, *SIZE)), "the maps holds? NaN"),
        (np.zeros((COILS, *SIZE), "U4"), "holds texts, not numbers"),
        (np.zeros((COILS, *SIZE), [("a", "f4")]), "holds records"),
        (np.array([{}]), "holds Python objects"),
    ],
)
def test_bad_maps(tmp_path, maps, message):
    scan = read_kspace(fastmri(tmp_path / "a.h5", values(SLICES, COILS, *SIZE)), index="all")
    np.save(tmp_path / "maps.npy", maps, allow_pickle=True)
    with pytest.raises(KSpaceError, match=message) as raised:
        read_maps(tmp_path / "maps.npy", scan)
    assert str(raised.value).startswith(f"{tmp_path / 'maps.npy'}: ")
