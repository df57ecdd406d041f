"""Sinograms in files, made by scikit-image."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from cli.helpers import load, noise, only_result, pixels, psnr
from scipy import ndimage
from skimage.transform import iradon, radon

QUICK = ("--tolerance", "3e-2")
SIZE, ANGLES = 48, 36


def disc():
    """A picture inside the circle."""
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE // 2
    return pixels(size=SIZE) / 255 * (np.hypot(rows, columns) < SIZE // 2 - 2)


def sinogram(image, circle=True, relative=0.01):
    """As scikit-image has it, `(bins, angles)`; noise relative to the maximum."""
    clean = radon(image, np.arange(ANGLES) * 180 / ANGLES, circle=circle)
    return clean + noise(clean.shape, relative * clean.max())


def back_projection(values, circle=True):
    return iradon(values, np.arange(ANGLES) * 180 / ANGLES, circle=circle, output_size=SIZE)


@pytest.mark.parametrize("transposed", [False, True])
def test_either_layout_with_noise_that_is_estimated(deal, transposed):
    values = sinogram(disc())
    tifffile.imwrite("in.tif", (values.T if transposed else values).astype(np.float32))
    code, out, err = deal("ct", "in.tif", "out.tif", "--angles", ANGLES, *QUICK, "--json")
    assert (code, err) == (0, "")
    result = only_result(out)
    assert result["estimated"] is True
    assert result["sigma"] == pytest.approx(0.01 * values.max(), rel=0.5)
    restored = tifffile.imread("out.tif")
    assert restored.dtype == np.float32
    assert psnr(restored, disc(), 1) > psnr(back_projection(values), disc(), 1) + 2.5
    assert not restored[0, 0]  # outside the circle


@pytest.mark.parametrize(("unit", "offset"), [(1.0, 0.0), (2e-5, 0.0), (2000.0, -1000.0)])
def test_in_any_unit(deal, unit, offset):
    """Attenuation per pixel, or Hounsfield units inside a disc of air."""
    image = np.where(disc() > 0, disc() * unit + offset, 0)
    np.save("in.npy", sinogram(image))
    assert deal("ct", "in.npy", "out.npy", "--angles", ANGLES, *QUICK)[0] == 0
    assert psnr(np.load("out.npy"), image, unit) > 24


def test_a_detector_that_sees_the_whole_square(deal):
    image = pixels(size=SIZE) / 255
    values = sinogram(image, circle=False)
    np.save("in.npy", values)
    assert deal("ct", "in.npy", "out.npy", "--angles", ANGLES, "--size", SIZE, *QUICK)[0] == 0
    assert psnr(np.load("out.npy"), image, 1) > psnr(back_projection(values, circle=False), image, 1) + 3


def test_angles_from_a_file_or_a_list(deal):
    degrees = np.arange(0, 180, 5.0)
    np.save("in.npy", sinogram(disc()))
    np.save("angles.npy", degrees)
    Path("angles.txt").write_text("\n".join(map(str, degrees)))
    listed = ",".join(f"{angle:.12f}" for angle in degrees)  # longer than the name of a file can be
    for number, angles in enumerate((ANGLES, "angles.npy", "angles.txt", listed)):
        assert deal("ct", "in.npy", f"{number}.npy", "--angles", angles, "--sigma", 0.2, "--max-iterations", 2)[0] == 0
        np.testing.assert_allclose(np.load(f"{number}.npy"), np.load("0.npy"))


def test_a_picture_spans_black_to_white(deal):
    np.save("in.npy", sinogram(disc()) * 0.01)
    assert deal("ct", "in.npy", "out.png", "--angles", ANGLES, "--tolerance", 0.1)[0] == 0
    assert (load("out.png").min(), load("out.png").max()) == (0, 255)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["square.npy", "out.png", "--angles", "20"], "--layout"),
        (["in.npy", "out.png", "--angles", "30"], "correct --angles"),
        (["in.npy", "out.png", "--angles", "36", "--layout", "angles-bins"], "but --angles says 36"),
        (["in.npy", "out.png", "--angles", "0"], "from 1 to 100000"),
        (["in.npy", "out.png", "--angles", "many"], "not a number of angles"),
        (["in.npy", "out.png", "--angles", "none.npy"], "no such file"),
        (["in.npy", "out.png", "--angles", "none.txt"], "no such file"),
        (["in.npy", "out.png", "--angles", "0,nan"], "finite numbers"),
        (["in.npy", "out.png", "--angles", "36", "--size", "40"], "--size 48"),
        (["in.npy", "out.png", "--angles", "36", "--sigma", "0"], "--sigma must be above 0"),
        (["in.npy", "in.npy", "--angles", "36"], "would overwrite the input"),
        (["in.npy", "no/out.png", "--angles", "36"], "does not exist"),
        (["in.npy", "out.xyz", "--angles", "36"], "unknown format to write"),
        (["missing.npy", "out.png", "--angles", "36"], "missing.npy: no such file"),
        (["nan.npy", "out.png", "--angles", "36"], "NaN"),
        (["zero.npy", "out.png", "--angles", "36"], "zero everywhere"),
        (["stack.npy", "out.png", "--angles", "36"], "there are 3 slices; write .tif, .tiff, .npy, .nii or .nii.gz"),
        (["projections.npy", "out.tif", "--angles", "36"], "numpy.swapaxes(stack, 0, 1)"),
        (["volumes.npy", "out.tif", "--angles", "36"], "(slices, angles, bins); this is (2, 3, 4, 5)"),
        (["complex.npy", "out.tif", "--angles", "36"], "real numbers"),
        (["records.npy", "out.tif", "--angles", "36"], "holds records with the fields a, b, not numbers"),
        (["words.npy", "out.tif", "--angles", "36"], "holds texts, not numbers"),
        (["objects.npy", "out.tif", "--angles", "36"], "holds Python objects"),
        (["huge.npy", "out.tif", "--angles", "36"], "huge.npy: values up to 1.0e+300 are beyond single precision"),
        (["narrow.npy", "out.tif", "--angles", "36"], "cannot be estimated from 2 bins; give --sigma"),
        (["in.npy", "out.tif", "--angles", "36", "--center", "25"], "--center 25 is outside the detector"),
        (["in.npy", "out.tif", "--angles", "12.5"], "which says 1; whole numbers such as 180 are how many"),
        (["in.npy", "out.tif", "--angles", "archive.npz"], "is neither npy nor text"),
        (["cut.npy", "out.tif", "--angles", "36"], "ends early"),
        (["in.npy", "out.tif", "--angles", "in.txt"], "'theta' is not a number"),
        (["in.npy", "out.tif", "--angles", "complex.npy"], "must hold real numbers"),
        (["in.npy", "out.tif", "--angles", "records.npy"], "holds records"),
        (["in.npy", "out.tif", "--angles", "words.npy"], "holds texts"),
        (["in.npy", "out.tif", "--angles", "cut.npy"], "--angles cut.npy"),
        (["in.npy", "out.tif", "--angles", "9" * 5000], "from 1 to 100000"),
        (["in.npy", "out.tif", "--angles", "36", "--center", "left"], "--center must be a number of bins"),
        (["in.npy", "out.tif", "--angles", "36", "--center", "inf"], "--center must be a number of bins"),
        (["in.npy", "out.tif", "--angles", "36", "--fan", "100"], "--fan must be the distances"),
        (["in.npy", "out.tif", "--angles", "36", "--fan", "100,-1"], "--fan must be the distances"),
        (["in.npy", "out.tif", "--angles", "36", "--fan", "20,10"], "is inside the image"),
        (
            ["in.npy", "out.tif", "--angles", "36", "--fan", "90,10", "--center", "auto"],
            "--center auto is for parallel",
        ),
        (["few.npy", "out.tif", "--angles", "0,1,2", "--center", "auto"], "cover too little of a turn"),
        (["leaves.npy", "out.tif", "--angles", "36", "--center", "auto"], "left the detector"),
        (["in.npy", "out.tif", "--angles", "36", "--simulate", "--fan", "90,10"], "leave them out with --simulate"),
    ],
)
def test_bad_input(deal, arguments, message):
    np.save("in.npy", np.ones((48, 36)))
    np.save("square.npy", np.ones((20, 20)))
    np.save("nan.npy", np.full((48, 36), np.nan))
    np.save("zero.npy", np.zeros((48, 36)))
    np.save("stack.npy", np.ones((3, 48, 36)))
    np.save("projections.npy", np.ones((36, 3, 48)))
    np.save("volumes.npy", np.ones((2, 3, 4, 5)))
    np.save("complex.npy", np.ones((48, 36)) + 1j)
    np.save("records.npy", np.ones((48, 36), [("a", "f4"), ("b", "f4")]))
    np.save("words.npy", np.full((48, 36), "a"))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    np.save("huge.npy", np.full((48, 36), 1e300))
    np.save("narrow.npy", np.ones((2, 36)))
    np.savez("archive.npz", np.arange(36))
    np.save("few.npy", np.ones((48, 3)))
    np.save("leaves.npy", np.ones((48, 36)) * np.cos(np.arange(36) / 9))
    Path("cut.npy").write_bytes(Path("in.npy").read_bytes()[:500])
    Path("in.txt").write_text("theta\n1\n2\n")
    before = {name: Path(name).read_bytes() for name in os.listdir(".")}
    code, out, err = deal("ct", *arguments)
    assert code == 1
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {name: Path(name).read_bytes() for name in os.listdir(".")} == before


@pytest.mark.parametrize("option", ["--angles", "--save-degraded"])
def test_what_is_read_is_not_overwritten(deal, option):
    np.save("in.npy", sinogram(disc()))
    np.save("angles.npy", np.arange(0, 180, 5.0))
    np.save("clean.npy", disc())
    os.link("angles.npy", "linked.npy")
    before = Path("angles.npy").read_bytes()
    if option == "--angles":
        code, _, err = deal("ct", "in.npy", "linked.npy", "--angles", "angles.npy")
    else:
        code, _, err = deal(
            "ct", "clean.npy", "out.npy", "--angles", "angles.npy", "--simulate", "--save-degraded", "linked.npy"
        )
    assert code == 1
    assert "linked.npy: would overwrite" in err
    assert Path("angles.npy").read_bytes() == before
    assert not Path("out.npy").exists()


FEW = ("--sigma", 0.3, "--max-iterations", 2)


@pytest.mark.parametrize("name", ["in.npy", "in.tif"])
def test_a_stack_is_its_slices(deal, name):
    """One after the other, with a noise and a range that they share: an empty slice, too."""
    stack = np.stack([sinogram(disc()), 0 * sinogram(disc()), sinogram(disc()[::-1])]).astype(np.float32)
    np.save(name, stack) if name == "in.npy" else tifffile.imwrite(name, stack, photometric="minisblack")
    assert deal("ct", name, "out.npy", "--angles", ANGLES, *FEW)[0] == 0
    assert deal("ct", name, "out.tif", "--angles", ANGLES, *FEW)[0] == 0
    volume = np.load("out.npy")
    assert volume.shape == (3, SIZE, SIZE)
    assert np.array_equal(tifffile.imread("out.tif"), volume)
    assert psnr(volume[2], disc()[::-1], 1) > 25 > psnr(volume[2], disc(), 1)
    assert not volume[1].any()
    np.save("one.npy", stack[0])
    assert deal("ct", "one.npy", "one.tif", "--angles", ANGLES, *FEW)[0] == 0
    np.testing.assert_allclose(tifffile.imread("one.tif"), volume[0], atol=0.01)


def test_empty_slices_do_not_change_the_others(deal):
    """Neither their noise nor their range, in units where both are small."""
    one = 0.01 * sinogram(disc())
    np.save("one.npy", one)
    np.save("stack.npy", np.stack([0 * one, one, 0 * one]))
    results = {}
    for name in ("one", "stack"):
        code, out, _ = deal("ct", f"{name}.npy", f"{name}.tif", "--angles", ANGLES, *QUICK, "--json")
        assert code == 0
        results[name] = only_result(out)
    volume = tifffile.imread("stack.tif")
    assert np.array_equal(volume[1], tifffile.imread("one.tif"))
    assert not volume[[0, 2]].any()
    for key in ("sigma", "status", "iterations", "distance"):  # the empty ones are found at once
        assert results["stack"][key] == results["one"][key]
    assert results["stack"]["not_converged"] == []


def test_a_mapped_file_is_read_without_a_warning(deal):
    np.save("in.npy", sinogram(disc()).T.astype(np.float32, order="C"))
    torch.set_warn_always(True)  # not only once in a process
    try:
        code, _, err = deal("ct", "in.npy", "out.npy", "--angles", ANGLES, "--sigma", 0.3, "--tolerance", 0.5)
    finally:
        torch.set_warn_always(False)
    assert (code, err) == (0, "")


def test_nifti(deal):
    nibabel = pytest.importorskip("nibabel")
    np.save("in.npy", np.stack([sinogram(disc() - 0.5 * (disc() > 0))] * 2))
    np.save("clean.npy", disc())
    for name in ("out.nii.gz", "out.npy"):
        assert deal("ct", "in.npy", name, "--angles", ANGLES, *FEW)[0] == 0
    volume = np.asarray(nibabel.load("out.nii.gz").dataobj)
    assert volume.min() < 0  # no magnitudes
    assert np.array_equal(volume.transpose(2, 1, 0), np.load("out.npy"))
    assert deal("ct", "clean.npy", "simulated.nii", "--angles", ANGLES, "--simulate", "--max-iterations", 1)[0] == 0
    assert nibabel.load("simulated.nii").shape == (SIZE, SIZE, 1)


def moved(values, bins):
    """A sinogram `(bins, angles)` whose rotation axis lies so many bins further."""
    return ndimage.shift(values, (bins, 0), order=1)


def test_a_rotation_axis_that_is_given_or_found(deal):
    values = sinogram(disc() * (np.hypot(*(np.mgrid[:SIZE, :SIZE] - SIZE // 2)) < 17))
    np.save("in.npy", moved(values, 4.5))
    np.save("straight.npy", values)
    quality, clean = {}, disc() * (np.hypot(*(np.mgrid[:SIZE, :SIZE] - SIZE // 2)) < 17)
    for center in ("0", "4.5", "auto"):
        code, out, err = deal("ct", "in.npy", "out.npy", "--angles", ANGLES, "--center", center, *FEW, "--json")
        assert code == 0
        quality[center] = psnr(np.load("out.npy"), clean, 1)
        notes = only_result(out)["notes"]
        assert bool(notes) == (center == "auto")
    assert float(notes[0].rpartition(" ")[2]) == pytest.approx(4.5, abs=0.1)
    assert "Note: out.npy: the rotation axis was found at --center 4." in err
    assert quality["4.5"] > quality["0"] + 8
    assert quality["auto"] == pytest.approx(quality["4.5"], abs=0.3)


def test_fan_beam(deal):
    """Chords of a disc, in closed form, from a source 90 bins away to a detector 60 bins behind the axis."""
    places, distance = np.arange(SIZE) - SIZE // 2, 90 + 60
    x, y, radius = 3.0, -4.0, 9.0  # in bins; a pixel is 90 / 150 of a bin wide
    rows = []
    for angle in np.deg2rad(np.arange(ANGLES) * 360 / ANGLES):
        cos, sin = np.cos(angle), np.sin(angle)
        ray_x, ray_y = places * cos - distance * sin, -places * sin - distance * cos
        aside = ((x - 90 * sin) * ray_y - (y - 90 * cos) * ray_x) / np.hypot(ray_x, ray_y)
        rows.append(2 * np.sqrt(np.maximum(radius**2 - aside**2, 0)))
    np.save("in.npy", np.array(rows))
    code, _, err = deal("ct", "in.npy", "out.npy", "--angles", ANGLES, "--fan", "90,60", "--sigma", 0.1, *QUICK)
    assert code == 0, err
    rows, columns = (np.mgrid[:SIZE, :SIZE] - SIZE // 2) * 0.6
    expected = 0.6 * np.clip((radius - np.hypot(columns - x, rows - y)) / 0.6 + 0.5, 0, 1)  # 0.6 bins of a pixel
    image = np.load("out.npy")
    assert psnr(image, expected, 0.6) > 22
    assert max(psnr(image, expected[::-1], 0.6), psnr(image, expected[:, ::-1], 0.6)) < 12
    assert image[expected == 0.6].mean() == pytest.approx(0.6, rel=0.02)


def test_angles_that_look_like_radians(deal):
    np.save("in.npy", sinogram(disc()))
    np.save("angles.npy", np.arange(ANGLES) * np.pi / ANGLES)
    code, _, err = deal("ct", "in.npy", "out.npy", "--angles", "angles.npy", *FEW)
    assert code == 0
    assert "they are taken for degrees" in err
