import os

import numpy as np
import pytest
import tifffile
from PIL import Image

from torchdeal.io.files import ImageFile, ImageFileError, read, write


def pixels(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max + 1, shape).astype(dtype)


LOSSLESS = [
    (".png", (20, 17), "uint8"),
    (".png", (20, 17), "uint16"),
    (".png", (20, 17, 3), "uint8"),
    (".png", (20, 17, 4), "uint8"),
    (".png", (20, 17, 2), "uint8"),
    *[(".png", (20, 17, c), "uint16") for c in (2, 3, 4)],
    (".bmp", (20, 17), "uint8"),
    (".bmp", (20, 17, 3), "uint8"),
    (".webp", (20, 17, 3), "uint8"),
    (".webp", (20, 17, 4), "uint8"),
    *[(".tif", (20, 17), d) for d in ("uint8", "uint16", "float32")],
    *[(".tiff", (20, 17, 3), d) for d in ("uint8", "uint16", "float32")],
    (".tif", (20, 17, 4), "uint8"),
    (".tif", (20, 17, 2), "uint8"),
    *[(".npy", s, d) for s in ((20, 17), (20, 17, 3), (2, 20, 17, 3)) for d in ("uint8", "uint16", "float64")],
]


@pytest.mark.parametrize(("suffix", "shape", "dtype"), LOSSLESS)
def test_round_trip(tmp_path, suffix, shape, dtype):
    path, array = tmp_path / f"image{suffix}", pixels(shape, dtype)
    image = ImageFile(array, alpha=suffix != ".npy" and shape[-1] in (2, 4))
    assert write(path, image) == []
    back = read(path)
    assert back.pixels.dtype == array.dtype
    assert back.alpha == image.alpha
    assert np.array_equal(back.pixels, array)
    assert os.listdir(tmp_path) == [path.name]


def test_jpeg(tmp_path):
    smooth = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
    for array in (smooth, np.stack([smooth] * 3, -1)):
        write(tmp_path / "image.jpg", ImageFile(array))
        assert np.abs(read(tmp_path / "image.jpg").pixels.astype(int) - array).max() <= 4


def test_tiff_written_by_others(tmp_path):
    stack, planar = pixels((5, 20, 17), "uint16"), pixels((3, 20, 17), "uint8")
    tifffile.imwrite(tmp_path / "stack.tif", stack, photometric="minisblack")
    tifffile.imwrite(tmp_path / "planar.tif", planar, photometric="rgb", planarconfig="separate")
    image = read(tmp_path / "stack.tif")
    assert image.pixels.shape == (5, 20, 17, 1)
    assert np.array_equal(image.pixels[..., 0], stack)
    write(tmp_path / "copy.tif", image)
    assert np.array_equal(tifffile.imread(tmp_path / "copy.tif"), stack)
    assert np.array_equal(read(tmp_path / "planar.tif").pixels, planar.transpose(1, 2, 0))


def test_palette_bilevel_and_orientation(tmp_path):
    rgb = Image.fromarray(pixels((20, 17, 3), "uint8"))
    rgb.quantize(16).save(tmp_path / "palette.png")
    assert read(tmp_path / "palette.png").pixels.shape == (20, 17, 3)
    rgb.convert("1").save(tmp_path / "bilevel.png")
    assert set(np.unique(read(tmp_path / "bilevel.png").pixels)) <= {0, 255}
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    rgb.save(tmp_path / "turned.jpg", exif=exif)
    assert read(tmp_path / "turned.jpg").pixels.shape == (17, 20, 3)


def test_colour_profile_is_kept(tmp_path):
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(pixels((20, 17, 3), "uint8")).save(tmp_path / "in.png", icc_profile=profile)
    write(tmp_path / "out.png", read(tmp_path / "in.png"))
    with Image.open(tmp_path / "out.png") as image:
        assert image.info["icc_profile"] == profile


def test_float_pictures_become_8_bit_where_the_format_has_no_float(tmp_path):
    write(tmp_path / "image.png", ImageFile(np.array([[-0.1, 0.5], [1.0, 1.7]])))
    assert read(tmp_path / "image.png").pixels.tolist() == [[0, 128], [255, 255]]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp", ".tif", ".npy"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "text"])
def test_damaged_files(tmp_path, suffix, damage):
    path = tmp_path / f"image{suffix}"
    write(path, ImageFile(pixels((64, 64), "uint8") if suffix != ".webp" else pixels((64, 64, 3), "uint8")))
    content = {"empty": b"", "truncated": path.read_bytes()[: path.stat().st_size // 2], "text": b"hello" * 99}
    path.write_bytes(content[damage])
    with pytest.raises(ImageFileError, match=str(path)):
        read(path)


def test_one_channel_is_written_as_gray(tmp_path):
    array = pixels((20, 17, 1), "uint8")
    for suffix in (".tif", ".png"):
        write(tmp_path / f"image{suffix}", ImageFile(array))
        assert np.array_equal(read(tmp_path / f"image{suffix}").pixels, array[..., 0])


@pytest.mark.parametrize("photometric", ["miniswhite", "separated"])
def test_tiff_of_unusual_kinds_is_refused(tmp_path, photometric):
    path = tmp_path / "odd.tif"
    array = pixels((20, 17, 4) if photometric == "separated" else (20, 17), "uint8")
    tifffile.imwrite(path, array, photometric=photometric)
    with pytest.raises(ImageFileError, match=photometric.upper()):
        read(path)


def test_animations_are_refused(tmp_path):
    frames = [Image.fromarray(pixels((20, 17, 3), "uint8", seed)) for seed in (0, 1)]
    frames[0].save(tmp_path / "moving.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(ImageFileError, match="animation"):
        read(tmp_path / "moving.webp")


def test_archives_and_empty_arrays_named_npy(tmp_path):
    with (tmp_path / "archive.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))
    np.save(tmp_path / "nothing.npy", np.zeros((0, 5, 5, 1)))
    for name in ("archive.npy", "nothing.npy"):
        with pytest.raises(ImageFileError, match="one array"):
            read(tmp_path / name)


def test_white_of_floating_point_pictures(tmp_path):
    write(tmp_path / "image.png", ImageFile(np.array([[0.0, 2000.0, 4000.0]]), white=4000))
    assert read(tmp_path / "image.png").pixels.tolist() == [[0, 128, 255]]


def test_an_existing_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "image.png"
    write(path, ImageFile(pixels((4, 4), "uint8")))
    path.chmod(0o600)
    write(path, ImageFile(pixels((4, 4), "uint8")))
    assert path.stat().st_mode & 0o777 == 0o600


def test_pickles_in_npy_are_refused(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ImageFileError, match="evil"):
        read(tmp_path / "evil.npy")


@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        ("image.gif", ImageFile(pixels((4, 4), "uint8")), "unknown format"),
        ("missing/image.png", ImageFile(pixels((4, 4), "uint8")), "does not exist"),
        ("image.jpg", ImageFile(pixels((4, 4, 3), "uint16")), "16 bits per channel; write .png or .tif or .npy"),
        ("image.bmp", ImageFile(pixels((4, 4), "uint16")), "16 bits per channel; write .png or .tif or .npy"),
        ("image.png", ImageFile(pixels((4, 4), "int16")), "int16; write .tif or .npy"),
        ("image.jpg", ImageFile(pixels((4, 4, 4), "uint8"), alpha=True), "transparency; write .png or .webp or .tif"),
        ("image.bmp", ImageFile(pixels((4, 4, 2), "uint8"), alpha=True), "transparency"),
        ("image.png", ImageFile(pixels((4, 4, 4), "uint8")), "4 channels; write .tif or .npy"),
        ("image.png", ImageFile(pixels((2, 4, 4, 3), "uint8")), "a stack of 2 pictures; write .tif or .npy"),
        ("image.webp", ImageFile(pixels((1, 16384), "uint8")), "more than 16383 pixels in a row or column"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, image, message):
    with pytest.raises(ImageFileError, match=message):
        write(tmp_path / name, image)
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "image.png"
    write(path, ImageFile(pixels((4, 4), "uint8")))
    before = path.read_bytes()

    def full(self, file, *args, **kwargs):
        file.write(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(ImageFileError, match="No space left"):
        write(path, ImageFile(pixels((9, 9), "uint8")))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["image.png"]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4), [("r", "u1"), ("g", "u1")]), "the fields r, g"),
        (np.full((4, 4), "text"), "texts, not numbers"),
        (np.zeros(4), r"its shape is \(4,\)"),
        (np.zeros((20, 17, 8)), r"a picture with 8 channels; save a stack as array\[\.\.\., None\]"),
    ],
)
def test_arrays_that_are_no_pictures(tmp_path, array, message):
    np.save(tmp_path / "odd.npy", array)
    with pytest.raises(ImageFileError, match=f"odd.npy: .*{message}"):
        read(tmp_path / "odd.npy")


@pytest.mark.parametrize(
    "shape",
    [(5, 20, 17), (2, 5, 20, 17), (2, 5, 20, 17, 3), (2, 5, 20, 17, 1), (2, 20, 17, 1), (20, 17, 4), (20, 17, 1)],
)
def test_axes_of_arrays(tmp_path, shape):
    array = pixels(shape, "uint16")
    np.save(tmp_path / "in.npy", array)
    image = read(tmp_path / "in.npy")
    assert image.size == (20, 17)
    assert image.channels == (shape[-1] if shape[-1] <= 4 else 1)
    assert not image.alpha
    assert np.array_equal(image.pixels.ravel(), array.ravel())
    write(tmp_path / "out.npy", image)
    assert np.load(tmp_path / "out.npy").shape == shape
    assert np.array_equal(np.load(tmp_path / "out.npy"), array)
    write(tmp_path / "out.tif", image)
    assert np.array_equal(tifffile.imread(tmp_path / "out.tif"), array[..., 0] if shape[-1] == 1 else array)
