"""ISMRMRD files, written by the library of the standard and read by ours."""

import ismrmrd
import numpy as np
import pytest

from torchdeal.mri import KSpaceError, read_kspace

SLICES, COILS, SAMPLES, LINES = 3, 2, 16, 12
HEADER = """<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
<experimentalConditions><H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz></experimentalConditions>
<encoding>
<encodedSpace><matrixSize><x>{samples}</x><y>{lines}</y><z>{partitions}</z></matrixSize>
<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>8</x><y>10</y><z>1</z></matrixSize>
<fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></reconSpace>
<encodingLimits><kspace_encoding_step_1><minimum>0</minimum><maximum>{last}</maximum><center>{centre}</center>
</kspace_encoding_step_1></encodingLimits>
<trajectory>{trajectory}</trajectory>
<parallelImaging><accelerationFactor><kspace_encoding_step_1>2</kspace_encoding_step_1>
<kspace_encoding_step_2>1</kspace_encoding_step_2></accelerationFactor>
<calibrationMode>{calibration}</calibrationMode></parallelImaging>
</encoding></ismrmrdHeader>"""
DEFAULTS = {
    "samples": SAMPLES,
    "lines": LINES,
    "partitions": 1,
    "last": LINES - 1,
    "centre": LINES // 2,
    "trajectory": "cartesian",
    "calibration": "other",
}


def values(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)


def line(data, step, which=0, flags=(), center_sample=None, **header):
    """One acquisition, `(coils, samples)`."""
    acquisition = ismrmrd.Acquisition.from_array(np.ascontiguousarray(data))
    acquisition.center_sample = data.shape[1] // 2 if center_sample is None else center_sample
    acquisition.idx.kspace_encode_step_1 = step
    acquisition.idx.slice = which
    for name, value in header.items():
        setattr(acquisition.idx if hasattr(acquisition.idx, name) else acquisition, name, value)
    for flag in flags:
        acquisition.set_flag(flag)
    return acquisition


def write(path, acquisitions, **header):
    with ismrmrd.Dataset(str(path), mode="w") as dataset:
        dataset.write_xml_header(HEADER.format(**{**DEFAULTS, **header}).encode())
        for acquisition in acquisitions:
            dataset.append_acquisition(acquisition)
    return path


def every_line(kspace, steps=range(LINES)):
    return [line(kspace[which, :, :, step], step, which) for which in range(len(kspace)) for step in steps]


def test_slices_and_skipped_lines(tmp_path):
    kspace = values(SLICES, COILS, SAMPLES, LINES)
    path = write(tmp_path / "a.h5", every_line(kspace, range(0, LINES, 2)))
    expected = kspace * (np.arange(LINES) % 2 == 0)
    scan = read_kspace(path)
    assert np.array_equal(scan.kspace, expected[1])
    assert np.array_equal(scan.mask, np.broadcast_to(np.arange(LINES) % 2 == 0, (SAMPLES, LINES)))
    assert (scan.slice_index, scan.slices, scan.image_size) == (1, SLICES, (8, 10))
    assert "ISMRMRD" in scan.source
    assert np.array_equal(read_kspace(path, index="all").kspace, expected)


def test_the_centre_goes_to_the_middle(tmp_path):
    """Partial Fourier, and an echo before the middle of the readout: what was not measured is zero."""
    data = values(COILS, SAMPLES - 4)
    lines = [line(data, step, center_sample=SAMPLES // 2 - 4) for step in range(8)]
    scan = read_kspace(write(tmp_path / "a.mrd", lines, centre=2))
    assert np.array_equal(scan.kspace[:, 4:, 4], data)
    assert np.array_equal(scan.mask[4:, 4:], np.ones((12, 8)))
    assert int(scan.mask.sum()) == 12 * 8


def test_repeated_lines_are_averaged_and_other_lines_left_out(tmp_path):
    kspace = values(1, COILS, SAMPLES, LINES)
    first, second, junk = values(3, COILS, SAMPLES, seed=1)
    extra = [
        line(first, 3),
        line(second, 3, average=1),
        line(junk, 4, flags=[ismrmrd.ACQ_IS_NOISE_MEASUREMENT]),
        line(junk, 4, flags=[ismrmrd.ACQ_IS_NAVIGATION_DATA]),
        line(junk, 4, flags=[ismrmrd.ACQ_IS_PARALLEL_CALIBRATION]),
        line(junk, 4, repetition=1),
        line(junk, 4, contrast=1),
        line(junk, 4, encoding_space_ref=1),
        line(values(COILS, 500), 0, flags=[ismrmrd.ACQ_IS_NOISE_MEASUREMENT]),
    ]
    steps = [step for step in range(LINES) if step != 3]
    scan = read_kspace(write(tmp_path / "a.h5", every_line(kspace, steps) + extra))
    assert np.allclose(scan.kspace[:, :, 3], (first + second) / 2)
    assert np.array_equal(scan.kspace[:, :, 4], kspace[0, :, :, 4])


def test_embedded_calibration_lines_belong_to_the_image(tmp_path):
    kspace = values(1, COILS, SAMPLES, LINES)
    calibration = [line(kspace[0, :, :, 5], 5, flags=[ismrmrd.ACQ_IS_PARALLEL_CALIBRATION])]
    lines = every_line(kspace, range(0, LINES, 2)) + calibration
    assert bool(read_kspace(write(tmp_path / "a.h5", lines, calibration="embedded")).mask[0, 5])
    assert not bool(read_kspace(write(tmp_path / "b.h5", lines, calibration="separate")).mask[0, 5])


def test_discarded_samples(tmp_path):
    data = values(COILS, SAMPLES)
    scan = read_kspace(write(tmp_path / "a.h5", [line(data, 6, discard_pre=2, discard_post=3)]))
    assert np.array_equal(scan.kspace[:, 2:13, 6], data[:, 2:13])
    assert int(scan.mask.sum()) == 11


DATA = values(COILS, SAMPLES)
BAD = {
    "radial": ([line(DATA, 0)], {"trajectory": "radial"}, "trajectory is radial: only cartesian"),
    "three-dimensional": ([line(DATA, 0)], {"partitions": 4}, "three-dimensional"),
    "no line": ([line(DATA, 0, flags=[ismrmrd.ACQ_IS_NOISE_MEASUREMENT])], {}, "no line of it"),
    "outside": ([line(DATA, 50)], {}, "outside the 16 x 12 grid"),
    "too long": ([line(values(COILS, 40), 0)], {}, "outside the 16 x 12 grid"),
    "nothing kept": ([line(DATA, 0, discard_pre=10, discard_post=10)], {}, "outside"),
    "coils differ": ([line(DATA, 0), line(values(3, SAMPLES), 1)], {}, "number of coils"),
    "backwards": ([line(DATA, 0, flags=[ismrmrd.ACQ_IS_REVERSE])], {}, "backwards"),
    "no size": ([line(DATA, 0)], {"samples": 0}, "matrix size"),
    "huge": ([line(DATA, 0)], {"samples": 10**9}, "complex numbers"),
    "nan": ([line(DATA * np.nan, 0)], {}, "NaN"),
    "zero": ([line(DATA, 0)], {"centre": "no number"}, "not readable"),
}


@pytest.mark.parametrize(("lines", "header", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_read(tmp_path, lines, header, message):
    path = write(tmp_path / "a.h5", lines, **header)
    with pytest.raises(KSpaceError, match=message) as raised:
        read_kspace(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize("header", [b"<a><b></a>", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", b"\xff\xfe", b""])
def test_damaged_headers(tmp_path, header):
    path = tmp_path / "a.h5"
    with ismrmrd.Dataset(str(path), mode="w") as dataset:
        dataset.write_xml_header(header)
        dataset.append_acquisition(line(DATA, 0))
    with pytest.raises(KSpaceError, match=str(path)):
        read_kspace(path)
