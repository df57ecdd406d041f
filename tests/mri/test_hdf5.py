"""Hostile HDF5 files: nothing but the file itself is read, and not more than fits into memory."""

import re

import h5py
import numpy as np
import pytest

from torchdeal.mri import KSpaceError, read_kspace

SHAPE = (3, 2, 12, 10)
VALUES = (np.arange(np.prod(SHAPE)).reshape(SHAPE) + 1j).astype(np.complex64)
SIZE = "<matrixSize><x>8</x><y>8</y><z>1</z></matrixSize>"
SPACES = f"<encodedSpace>{SIZE}</encodedSpace><reconSpace>{SIZE}</reconSpace>"
CARTESIAN = f"<a><encoding><trajectory>cartesian</trajectory>{SPACES}</encoding></a>"
RECORD = np.dtype([("head", [("flags", "u8")]), ("data", h5py.vlen_dtype(np.float32))])


@pytest.fixture
def file(tmp_path):
    """A file to fill; beside it another one, which must not be read."""
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = VALUES
        other["header"] = b"<a/>"
    (tmp_path / "other.raw").write_bytes(VALUES.tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        yield opened


def refused(file):
    """Why it is."""
    path = file.filename
    file.close()
    with pytest.raises(KSpaceError) as raised:
        read_kspace(path)
    reason = str(raised.value)
    assert reason.startswith(f"{path}: ")
    assert len(reason.splitlines()) == 1
    return reason


def external_link(file, name):
    file[name] = h5py.ExternalLink("other.h5", "/secret")


def link_to_an_external_link(file, name):
    file["hidden"] = h5py.ExternalLink("other.h5", "/secret")
    file[name] = h5py.SoftLink("/hidden")


def link_through_an_external_group(file, name):
    file["hidden"] = h5py.ExternalLink("other.h5", "/")
    file[name] = h5py.SoftLink("hidden/secret")


def external_storage(file, name):
    file.create_dataset(name, SHAPE, "c8", external=[("other.raw", 0, h5py.h5f.UNLIMITED)])


def virtual(file, name):
    layout = h5py.VirtualLayout(SHAPE, "c8")
    layout[:] = h5py.VirtualSource("other.h5", "secret", SHAPE)
    file.create_virtual_dataset(name, layout)


ELSEWHERE = [external_link, link_to_an_external_link, link_through_an_external_group, external_storage, virtual]


@pytest.mark.parametrize("leads_elsewhere", ELSEWHERE)
@pytest.mark.parametrize("name", ["kspace", "mask", "reconstruction_rss", "ismrmrd_header"])
def test_no_other_file_is_read(file, leads_elsewhere, name):
    if name != "kspace":
        file["kspace"] = VALUES
    leads_elsewhere(file, name)
    assert "copy the data into this file" in refused(file)


@pytest.mark.parametrize("leads_elsewhere", ELSEWHERE)
@pytest.mark.parametrize("name", ["xml", "data"])
def test_no_other_file_is_read_for_ismrmrd(file, leads_elsewhere, name):
    group = file.create_group("dataset")
    for other in {"xml", "data"} - {name}:
        group[other] = CARTESIAN
    if leads_elsewhere is link_to_an_external_link:
        external_link(file, "hidden")
        group[name] = h5py.SoftLink("/hidden")
    else:
        leads_elsewhere(group, name)
    assert "copy the data into this file" in refused(file)


def test_a_group_elsewhere(file):
    file["dataset"] = h5py.ExternalLink("other.h5", "/")
    assert "'dataset/data' is a link to another file" in refused(file)


def test_links_inside_the_file_are_followed(file):
    file["scans/first"] = VALUES
    file["scans/alias"] = h5py.SoftLink("first")
    file["kspace"] = h5py.SoftLink("/scans/alias")
    path = file.filename
    file.close()
    assert np.array_equal(read_kspace(path, index=1).kspace, VALUES[1])


def test_links_in_a_circle(file):
    file["kspace"] = h5py.SoftLink("/again")
    file["again"] = h5py.SoftLink("/kspace")
    assert "leads to too many others" in refused(file)


def test_a_link_to_nothing(file):
    file["kspace"] = h5py.SoftLink("/missing")
    assert "neither fastMRI" in refused(file)


def test_references(file):
    file["values"] = VALUES
    file.create_dataset("kspace", SHAPE[1:], h5py.ref_dtype)
    assert "'kspace' must be numbers, got references or texts" in refused(file)


def test_records_are_not_numbers(file):
    file["kspace"] = np.zeros(SHAPE[1:], [("a", "f4"), ("b", "f4"), ("c", "f4")])
    assert "'kspace' must be numbers" in refused(file)


def test_nothing_at_all(file):
    file["kspace"] = h5py.Empty("c8")
    assert "'kspace' is empty" in refused(file)


def test_a_filter_that_is_not_installed(file):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(SHAPE)
    properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL)
    space, kind = h5py.h5s.create_simple(SHAPE), h5py.h5t.py_create(np.dtype("c8"), logical=True)
    h5py.h5d.create(file.id, b"kspace", kind, space, properties)
    assert "'kspace' needs the filter 32999" in refused(file)


@pytest.mark.parametrize("name", ["kspace", "mask", "reconstruction_rss", "ismrmrd_header"])
def test_sizes_that_do_not_fit(file, name):
    if name != "kspace":
        file["kspace"] = VALUES
    text = name == "ismrmrd_header"
    file.create_dataset(name, (len(VALUES), 10**6, 10**6), "S8" if text else "c8", chunks=(1, 64, 64))
    assert re.search(
        "longer than any header" if text else "asks for [13],000,000,000,000 complex numbers", refused(file)
    )


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (np.zeros(3), "a list of records"),
        (np.zeros(3, [("head", "u8"), ("data", "f4")]), "must be a list of float32"),
        (np.zeros((2, 2), RECORD), "a list of records"),
    ],
)
def test_records_of_another_kind(file, records, message):
    file["dataset/xml"] = CARTESIAN
    file.create_dataset("dataset/data", records.shape, records.dtype)
    assert message in refused(file)


def test_names_that_are_long(file):
    file["x" * 5000] = 1
    assert len(refused(file)) < 500
