"""The problems of the comparisons against numpy, scipy and scikit-image."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import convolve
from skimage.transform import radon

from torchdeal.benchmark import ct, deblur, denoising, mri, superres
from torchdeal.benchmark.images import TRAINING_FILE, clean_image
from torchdeal.benchmark.options import BenchmarkOptions
from torchdeal.benchmark.peers.base import Unavailable

GRAY, COLOUR = (40, 44), (40, 44, 3)


@pytest.fixture(scope="module")
def kernels():
    random = np.random.RandomState(1)
    return {f"k{number}": random.uniform(size=(5, 3)).astype(np.float32) / 8 for number in range(4)}


@pytest.fixture(scope="module")
def data(tmp_path_factory, kernels):
    """Pictures of noise, all different, laid out as the data of the paper."""
    path, random = tmp_path_factory.mktemp("protocols"), np.random.RandomState(0)
    names = {"BSD68": ["a"], "Set12": ["01", "02", "03", "04", "05"], "MRI-knee": list("abcdef"), "CT": list("abc")}
    files = {f"test/{folder}/{name}.png": GRAY for folder, found in names.items() for name in found}
    files |= {"test/CBSD68/a.png": COLOUR, "train/b.png": (300, 300, 3)}
    for name, shape in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.randint(0, 256, shape, dtype=np.uint8)).save(path / name)
    (path / "kernels").mkdir()
    for file in ("Levin09.npz", "kernels_12.npz"):
        np.savez(path / "kernels" / file, **kernels)
    with tarfile.open(path / "train" / TRAINING_FILE, "w") as archive:
        archive.add(path / "train" / "b.png", "b.png")
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for module in (denoising, superres):
        monkeypatch.setattr(module, "CROP", 26)
    monkeypatch.setattr(deblur, "TUNING_CROP", 32)
    monkeypatch.setattr(ct, "SIZE", 20)


def find(module, data, name):
    options = BenchmarkOptions(out=Path("unused"), data=data, device="cpu")
    return {cell.name: cell for cell in module.cells(options)}[name]


def pixels(path):
    return np.asarray(Image.open(path)).astype(np.float64) / 255


def centre(picture, size):
    top, left = ((length - size) // 2 for length in picture.shape[:2])
    return picture[top : top + size, left : left + size]


def seeded(sigma, shape):
    np.random.seed(0)
    return np.random.normal(0, sigma / 255, shape)


def test_noise_of_gray_images(data):
    cell = find(denoising, data, "BSD68, sigma 25")
    (problem,) = cell.problems()
    clean = pixels(data / "test/BSD68/a.png")
    assert problem.noise == pytest.approx(25 / 255)
    np.testing.assert_allclose(problem.y[0].numpy(), clean + seeded(25, (1, *GRAY)), atol=1e-6)
    assert cell.score(problem.clean.clamp(0, 1) + 0.1, problem.clean) == pytest.approx(
        -10 * np.log10(np.mean((np.clip(clean + 0.1, 0, 1) - clean) ** 2)), abs=1e-4
    )


def test_noise_of_colour_crops(data):
    (problem,) = find(denoising, data, "CBSD68 crops, sigma 15").problems()
    clean = centre(pixels(data / "test/CBSD68/a.png"), 26)
    expected = clean + seeded(15, (26, 26, 3))
    np.testing.assert_allclose(problem.y[0].permute(1, 2, 0).numpy(), expected, atol=1e-6)


def test_blur_is_rounded_before_the_noise(data, kernels):
    cell = find(deblur, data, "image 01, kernel 3, noise 7.65")
    (problem,) = cell.problems()
    clean = pixels(data / "test/Set12/01.png")
    rounded = np.round(np.clip(convolve(clean, kernels["k3"].astype(float), mode="wrap"), 0, 1) * 255) / 255
    difference = problem.y[0, 0].numpy() - rounded - seeded(7.65, GRAY)
    assert np.abs(difference).max() < 1 / 255 + 1e-6
    assert np.mean(np.abs(difference) > 1e-6) < 0.01  # float32 rounds a few the other way
    shifted = problem.clean + 0.4 / 255
    assert cell.score(shifted, problem.clean) > 120  # 8-bit images are compared


@pytest.mark.parametrize(("scale", "side"), [(2, 26), (3, 24)])
def test_every_second_or_third_pixel(data, kernels, scale, side):
    problems = find(superres, data, f"x{scale}, noise 12.75").problems()
    assert [problem.variant for problem in problems] == [f"kernel {number}" for number in range(4)]
    clean = centre(pixels(data / "test/CBSD68/a.png"), side)
    for number, problem in enumerate(problems):
        kernel = kernels[f"k{number}"].astype(float)[..., None]
        small = convolve(clean, kernel, mode="wrap")[::scale, ::scale]
        expected = small + seeded(12.75, small.shape)
        np.testing.assert_allclose(problem.y[0].permute(1, 2, 0).numpy(), expected, atol=1e-5)


def centered_fft(image):
    axes = (-2, -1)
    spectrum = np.fft.fft2(np.fft.ifftshift(image, axes=axes), norm="ortho")
    return np.fft.fftshift(spectrum, axes=axes)


@pytest.mark.parametrize(("name", "coils", "share"), [("4x single coil", 1, 0.25), ("8x 15 coils", 15, 0.125)])
def test_kspace(data, name, coils, share):
    (problem,) = find(mri, data, f"{name}, knee").problems()
    clean = pixels(data / "test/MRI-knee/f.png")
    clean = clean / clean.max()
    np.testing.assert_allclose(problem.clean[0, 0].numpy(), clean, atol=1e-6)
    y = problem.y[0].numpy()
    sampled = np.abs(y[0]).sum(0) > 0
    assert sampled[GRAY[1] // 2]
    assert 0 < sampled.mean() < 3 * share
    maps = np.ones((1, 1, 1)) if coils == 1 else problem.operator.maps.numpy()
    np.testing.assert_allclose((np.abs(maps) ** 2).sum(0), np.ones_like(maps[0], float), atol=1e-5)
    draws = np.random.RandomState(0).normal(0, 0.002, (2, 1, coils, *GRAY))
    expected = (centered_fft(maps * clean) + draws[0, 0] + 1j * draws[1, 0]) * sampled
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_scans_have_masks_of_their_own(data):
    tuning = find(mri, data, "4x single coil, knee").tuning()
    masks = [tuple(problem.operator.mask[0].tolist()) for problem in tuning]
    assert len(tuning) == 5
    assert len(set(masks)) > 1


def test_projections(data):
    problem = find(ct, data, "60 angles").problems()[0]
    clean = centre(pixels(data / "test/CT/c.png"), 40).reshape(20, 2, 20, 2).mean((1, 3))
    np.testing.assert_allclose(problem.clean[0, 0].numpy(), clean, atol=1e-6)
    expected = radon(clean, theta=np.arange(60) * 3.0, circle=False).T
    exact = problem.operator.forward(problem.clean)[0, 0].numpy()
    inside = np.abs(exact.sum(1) - expected.sum(1))
    assert inside.max() < 0.02 * expected.sum(1).max()  # each projection has the mass of the image
    assert problem.noise == pytest.approx(0.01 * exact.max(), rel=1e-5)
    draws = np.random.RandomState(0).normal(0, problem.noise, exact.shape)
    np.testing.assert_allclose(problem.y[0, 0].numpy(), exact + draws, atol=1e-5)


def test_without_the_files_of_fastmri_there_is_a_reason(data):
    with pytest.raises(Unavailable, match="licensed: put your copy into DATA/fastmri/PD"):
        find(mri, data, "4x single coil, PD").problems()


def test_files_of_fastmri(data, tmp_path):
    h5py = pytest.importorskip("h5py")
    for folder in ("test", "kernels", "train"):
        (tmp_path / folder).symlink_to(data / folder)
    random, stored = np.random.RandomState(3), tmp_path / "fastmri" / "PD"
    stored.mkdir(parents=True)
    slices = random.normal(size=(2, 3, 4, 24, 20)) + 0j  # real and imaginary parts below
    kspace = (slices[0] + 1j * slices[1]).astype(np.complex64)
    for number in range(11):
        with h5py.File(stored / f"file{number:02d}.h5", "w") as file:
            file["kspace"] = kspace * (number + 1)
    cell = find(mri, tmp_path, "4x single coil, PD")
    assert len(cell.tuning()) == 10
    (problem,) = cell.problems()
    assert problem.image == "file10"
    axes = (-2, -1)
    coils = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace[1], axes=axes), norm="ortho"), axes=axes)
    expected = np.sqrt((np.abs(coils) ** 2).sum(0))
    np.testing.assert_allclose(problem.clean[0, 0].numpy(), expected / expected.max(), atol=1e-5)
    assert problem.y.dtype == torch.complex64
    assert cell.centre == 320
    wide = torch.zeros(1, 1, 330, 340)
    wide[..., :5, :] = 1.0  # outside of the centre
    assert cell.score(wide, torch.zeros_like(wide)) == np.inf


def test_without_h5py_the_files_of_fastmri_have_a_reason(data, tmp_path, monkeypatch):
    (tmp_path / "test").symlink_to(data / "test")
    for number in range(11):
        path = tmp_path / "fastmri" / "PDFS" / f"{number:02d}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(Unavailable, match=r"pip install 'torchdeal\[mri\]'"):
        find(mri, tmp_path, "8x 15 coils, PDFS").problems()


def test_columns_are_chosen_at_random(data):
    (problem,) = find(mri, data, "4x single coil, knee").problems()
    width, middle = GRAY[1], round(0.08 * GRAY[1])
    columns = np.random.RandomState(5).uniform(size=width) < (width / 4 - middle) / (width - middle)
    columns[(width - middle + 1) // 2 :][:middle] = True
    assert np.array_equal(problem.operator.mask.numpy() > 0, np.broadcast_to(columns, GRAY))


def test_colour_becomes_gray_by_the_luma_of_pillow(data):
    path = data / "test/CBSD68/a.png"
    found = 255 * clean_image(path, 1)[0, 0].double().numpy()
    colour = np.asarray(Image.open(path)).astype(np.int64)
    # the integers of ITU-R 601-2 as Pillow has them, which are not quite 0.299, 0.587 and 0.114
    exact = colour @ [19595, 38470, 7471] / 65536
    assert np.allclose(found, found.round(), atol=1e-4)
    assert np.abs(found - exact).max() < 0.502
    assert np.mean(found.round() != np.asarray(Image.open(path).convert("L"))) < 0.005


def test_slices_are_reduced_by_averaging():
    pixels = torch.rand(1, 1, 47, 41, generator=torch.Generator().manual_seed(0))
    reduced = ct.reduced(pixels, 20)
    expected = pixels[0, 0, 3:43, :40].numpy().reshape(20, 2, 20, 2).mean((1, 3))
    np.testing.assert_allclose(reduced[0, 0].numpy(), expected, atol=1e-6)
