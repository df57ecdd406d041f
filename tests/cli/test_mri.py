"""K-space in files."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.helpers import load, noise, only_result, pixels, psnr

from torchdeal.simulate import random_columns

QUICK = ("--tolerance", "3e-2")
SIZE = 40


def transform(image):
    """Orthonormal, by numpy, the zero frequency in the middle."""
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image, (-2, -1)), norm="ortho"), (-2, -1))


def image_with_phase():
    rows, columns = np.mgrid[:SIZE, :SIZE] / SIZE
    return pixels(size=SIZE) / 255 * np.exp(1j * (rows + columns**2))


def scan(sigma=0.01, coils=1, acceleration=3):
    """Image, k-space `(coils, H, W)`, maps, mask."""
    image, mask = image_with_phase(), random_columns((SIZE, SIZE), acceleration, 0.1).numpy()
    rows, columns = np.mgrid[:SIZE, :SIZE] / SIZE
    maps = np.stack([np.exp(-((rows - c) ** 2 + (columns - 1 + c) ** 2) + 1j * c) for c in np.linspace(0, 1, coils)])
    maps /= np.sqrt((np.abs(maps) ** 2).sum(0))
    kspace = transform(maps * image)
    kspace += noise(kspace.shape, sigma) + 1j * noise(kspace.shape, sigma, seed=1)
    return image, (kspace * mask).astype(np.complex64), maps.astype(np.complex64), mask


def zero_filled(kspace):
    return np.abs(np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace), norm="ortho")))


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_one_coil_in_any_unit(deal, unit):
    image, kspace, _, mask = scan(sigma=0.03)
    np.savez("scan.npz", kspace=kspace * unit, mask=mask)
    code, out, err = deal("mri", "scan.npz", "out.npy", *QUICK, "--json")
    assert (code, err) == (0, "")
    result = only_result(out)
    assert result["estimated"] is True
    assert 0.9 < result["sigma"] / (0.03 * unit) < 2  # the picture is sharp and small: see estimate_noise
    assert result["model"] == "gray"
    restored = np.load("out.npy") / unit
    assert psnr(restored, np.abs(image), 1) > psnr(zero_filled(kspace[0]), np.abs(image), 1) + 3


def test_sigma_is_in_the_units_of_the_kspace(deal):
    image, kspace, _, _ = scan()
    np.save("scan.npy", kspace[0] * 1e-4)  # what was not measured is zero
    code, out, _ = deal("mri", "scan.npy", "out.npy", "--sigma", 1e-6, *QUICK, "--json")
    assert code == 0
    assert only_result(out)["sigma"] == 1e-6
    assert psnr(np.load("out.npy") / 1e-4, np.abs(image), 1) > 25


def test_several_coils_with_maps(deal):
    """Maps from the file, or given; in a picture the maximum is white."""
    image, kspace, maps, mask = scan(coils=4, acceleration=4)
    np.savez("with.npz", kspace=kspace, mask=mask, maps=maps)
    np.savez("without.npz", kspace=kspace, mask=mask)
    np.save("maps.npy", maps)
    options = ("--sigma", 0.01, "--tolerance", 0.1)
    assert deal("mri", "with.npz", "a.npy", *options)[0] == 0
    assert deal("mri", "without.npz", "b.png", "--maps", "maps.npy", *options, "--crop", "30x24")[0] == 0
    a, b = np.load("a.npy"), load("b.png")
    assert psnr(a, np.abs(image), 1) > 28
    middle = a[5:35, 8:32]
    np.testing.assert_allclose(b, middle * 255 / middle.max(), atol=0.6)


def test_maps_are_estimated(deal):
    pytest.importorskip("sigpy")
    image, _, maps, mask = scan(coils=4, acceleration=2)
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    inside = np.hypot(rows, columns) < 15  # coils can be told only by what is surrounded by air
    mask = mask.copy()
    mask[:, 12:28] = True
    np.savez("scan.npz", kspace=(transform(maps * image * inside) * mask).astype(np.complex64), mask=mask)
    assert deal("mri", "scan.npz", "out.npy", "--sigma", 0.005, "--tolerance", 0.1)[0] == 0
    assert psnr(np.load("out.npy"), np.abs(image) * inside, 1) > 25


def test_fastmri_file_and_nifti(deal):
    h5py, nibabel = pytest.importorskip("h5py"), pytest.importorskip("nibabel")
    image, kspace, _, mask = scan()
    with h5py.File("scan.h5", "w") as file:
        file["kspace"] = np.stack([kspace[0]] * 2)
        file["mask"] = mask[0]
    options = ("--slice", "all", "--sigma", 0.01, "--tolerance", 0.3)
    assert deal("mri", "scan.h5", "out.nii.gz", *options)[0] == 0
    volume = nibabel.load("out.nii.gz").get_fdata()
    assert volume.shape == (SIZE, SIZE, 2)
    assert psnr(volume[..., 1].T, np.abs(image), 1) > 22


def test_real_images(deal):
    """A real image has half the unknowns: better from the same data."""
    kspace = transform(np.abs(image_with_phase())) * random_columns((SIZE, SIZE), 4, 0.08).numpy()
    kspace = kspace + noise(kspace.shape, 0.01) * (kspace != 0)
    np.save("scan.npy", kspace.astype(np.complex64))
    results = {}
    for kind in ("--real", "--complex"):
        assert deal("mri", "scan.npy", "out.npy", kind, "--sigma", 0.01, *QUICK)[0] == 0
        results[kind] = psnr(np.load("out.npy"), np.abs(image_with_phase()), 1)
    assert results["--real"] > results["--complex"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy", "out.png"], "missing.npy: no such file"),
        (["scan.txt", "out.png"], "unknown k-space format"),
        (["real.npy", "out.png"], "must be complex"),
        (["nan.npy", "out.png"], "NaN"),
        (["scan.npz", "out.xyz"], "unknown format to write"),
        (["scan.npz", "no/out.png"], "does not exist"),
        (["scan.npy", "scan.npy"], "would overwrite the input"),
        (["scan.npz", "out.png", "--slice", "5"], "there is no slice 5"),
        (["scan.npz", "out.png", "--slice", "first"], "--slice must be"),
        (["scan.npz", "out.png", "--crop", "big"], "--crop must be"),
        (["scan.npz", "out.png", "--crop", "0"], "--crop must be"),
        (["clean.png", "out.png", "--simulate", "--crop", "big"], "--crop must be"),
        (["scan.npz", "out.png", "--maps", "none.npy"], "none.npy: no such file"),
        (["scan.npz", "out.png", "--maps", "real.npy"], "shape of the k-space"),
        (["scan.npz", "out.png", "--maps", "scan.txt"], "scan.txt: not readable as npy"),
        (["scan.npz", "out.png", "--maps", "scan.npz"], "scan.npz: not readable as npy"),
        (["scan.npz", "out.png", "--maps", "records.npy"], "records.npy: holds records"),
        (["huge.npy", "out.png"], "huge.npy: values up to 1.0e+300 are beyond single precision"),
        (["records.npy", "out.png"], "records.npy: holds records with the fields re, im, not numbers"),
        (["scan.npz", "out.png", "--crop", "4x5x6"], "--crop must be HEIGHTxWIDTH"),
        (["scan.npz", "maps.npy", "--maps", "maps.npy"], "maps.npy: would overwrite the input"),
        (["scan.npz", "linked.npy", "--maps", "maps.npy"], "linked.npy: would overwrite the input"),
        (["slices.npy", "out.png", "--slice", "all"], "there are 3 slices; write .tif, .tiff, .npy, .nii or .nii.gz"),
        (["scan.npz", "out.png", "--acceleration", "2"], "use them with --simulate"),
        (["picture.npy", "out.png", "--simulate", "--slice", "2"], "leave them out with --simulate"),
        (["picture.npy", "out.png", "--simulate", "--maps", "maps.npy"], "leave them out with --simulate"),
        (["scan.npz", "out.png", "--sigma", "0"], "--sigma must be above 0"),
        (["picture.npy", "out.png", "--simulate", "--acceleration", "0.5"], "the acceleration must be"),
        (["picture.npy", "out.png", "--simulate", "--centre", "0.9"], "the share in the centre must be"),
    ],
)
def test_bad_input(deal, arguments, message):
    _, kspace, _, mask = scan()
    np.savez("scan.npz", kspace=kspace, mask=mask)
    np.save("scan.npy", kspace)
    np.save("real.npy", np.ones((20, 20)))
    np.save("nan.npy", np.full((20, 20), np.nan + 0j))
    np.save("picture.npy", pixels(size=20) / 255)
    np.save("slices.npy", np.stack([kspace] * 3))
    np.save("huge.npy", np.full((20, 20), 1e300 + 0j))
    np.save("maps.npy", np.ones((1, SIZE, SIZE), np.complex64))
    os.link("maps.npy", "linked.npy")
    np.save("records.npy", np.zeros((20, 20), [("re", "f4"), ("im", "f4")]))
    Path("scan.txt").write_text("hello")
    before = {name: Path(name).read_bytes() for name in os.listdir(".")}
    code, out, err = deal("mri", *arguments)
    assert code == 1
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {name: Path(name).read_bytes() for name in os.listdir(".")} == before


@pytest.mark.parametrize("target", ["out.png", "OUT.PNG"])
def test_slices_that_a_picture_cannot_hold_are_refused_before_the_work(deal, monkeypatch, target):
    _, kspace, _, _ = scan()
    np.save("slices.npy", np.stack([kspace] * 3))
    monkeypatch.setattr("torchdeal.cli.run.reconstruct", lambda *_, **__: pytest.fail("work was done"))
    code, _, err = deal("mri", "slices.npy", target, "--slice", "all", "--sigma", 0.01)
    assert code == 1
    assert "there are 3 slices; write .tif" in err


def test_one_slice_of_one_is_all(deal):
    _, kspace, _, _ = scan()
    np.save("scan.npy", kspace[None])
    assert deal("mri", "scan.npy", "out.png", "--slice", "all", "--sigma", 0.01, "--max-iterations", 1)[0] == 0


def test_a_slice_beyond_the_object(deal):
    """Nothing was measured there, and nothing tells the coils: black, and the others are as they are alone."""
    pytest.importorskip("sigpy")
    image, _, maps, _ = scan(coils=3)
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    kspace = transform(maps * image * (np.hypot(rows, columns) < 15)).astype(np.complex64)
    np.save("scan.npy", np.stack([kspace, 0 * kspace]))
    options = ("--sigma", 0.01, "--max-iterations", 1)
    assert deal("mri", "scan.npy", "out.npy", "--slice", "all", *options)[0] == 0
    assert deal("mri", "scan.npy", "alone.npy", "--slice", 0, *options)[0] == 0
    volume = np.load("out.npy")
    assert not volume[1].any()
    assert np.array_equal(volume[0], np.load("alone.npy"))


def test_the_help_says_which_way_a_crop_goes(deal):
    code, out, _ = deal("mri", "--help")
    assert code == 0
    assert "HEIGHTxWIDTH" in out


def test_a_missing_extra_is_named(deal, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    Path("scan.h5").touch()
    code, _, err = deal("mri", "scan.h5", "out.png")
    assert code == 1
    assert "pip install 'torchdeal[mri]'" in err
