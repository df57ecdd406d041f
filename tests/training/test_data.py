"""Training images: what is read, what is skipped and why, and that patches are what they should be."""

import io
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from torchdeal.io import files
from torchdeal.training import read_images
from torchdeal.training.data import _symmetric_grids

PATCH = 8


def save(path, shape, seed=0, **options):
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def image(images, index):
    begin = int(images.offsets[index])
    shape = images.channels, int(images.heights[index]), int(images.widths[index])
    return images.pixels[begin : begin + np.prod(shape)].view(shape)


def test_folders_are_read_in_order_with_their_subfolders(tmp_path):
    first = save(tmp_path / "a" / "1.png", (20, 30, 3))
    second = save(tmp_path / "b.png", (9, 12, 3), 1)
    images = read_images([tmp_path], channels=3, patch=PATCH)
    assert len(images) == 2
    for index, expected in enumerate((first, second)):
        assert np.array_equal(image(images, index).numpy(), expected.transpose(2, 0, 1))


def test_tar_files_and_single_images(tmp_path):
    pixels = save(tmp_path / "x.png", (10, 11))
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "x.png", "deep/inside/x.png")
    images = read_images([tmp_path / "set.tar.gz", tmp_path / "x.png"], channels=1, patch=PATCH)
    assert len(images) == 2
    assert all(np.array_equal(image(images, i)[0].numpy(), pixels) for i in range(2))


def test_colour_becomes_gray_by_the_standard_luma(tmp_path):
    pixels = save(tmp_path / "c.png", (10, 10, 3)).astype(float)
    gray = image(read_images([tmp_path], channels=1, patch=PATCH), 0)[0].numpy()
    assert np.abs(gray - pixels @ [0.299, 0.587, 0.114]).max() <= 1


def test_what_is_skipped_is_said(tmp_path):
    save(tmp_path / "good.png", (10, 10))
    save(tmp_path / "small.png", (7, 100))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "broken.jpg").write_bytes(b"not a jpeg")
    Image.fromarray(np.zeros((10, 10), np.uint16)).save(tmp_path / "black.png")
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)).save(whole, "png")
    (tmp_path / "truncated.png").write_bytes(whole.getvalue()[:600])
    images = read_images([tmp_path], channels=1, patch=PATCH)
    reasons = {skipped.name.rsplit("/", 1)[-1]: skipped.reason for skipped in images.skipped}
    assert len(images) == 1
    assert set(reasons) == {"small.png", "notes.txt", "broken.jpg", "black.png", "truncated.png"}
    assert reasons["small.png"] == "7 x 100, smaller than a patch of 8 x 8"
    assert "equal" in reasons["black.png"]
    assert "5 files skipped" in str(images)


def deep(shape, seed=0):
    """Of 12 bits, above an offset, as a camera has them."""
    return np.random.default_rng(seed).integers(100, 100 + 2**12, shape, dtype=np.uint16)


def stretched(pixels):
    """In double precision, from 0 to 255."""
    values = pixels.astype(np.float64)
    return (values - values.min()) / (values.max() - values.min()) * 255


def half_precision(values):
    """What float16 may be off by."""
    return np.abs(values).max() * 2**-11


@pytest.mark.parametrize("suffix", ["png", "tif"])
@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_more_than_8_bits_are_stretched_and_kept(tmp_path, suffix, shape, channels):
    pixels = deep(shape)
    files.write(tmp_path / f"a.{suffix}", files.ImageFile(pixels))
    images = read_images([tmp_path], channels=channels, patch=PATCH)
    values = stretched(pixels)
    if values.ndim == 2:
        expected = np.stack([values] * channels)
    else:
        expected = (values @ [0.299, 0.587, 0.114])[None] if channels == 1 else values.transpose(2, 0, 1)
    assert images.skipped == ()
    assert images.pixels.dtype == torch.float16
    assert np.abs(image(images, 0).double().numpy() - expected).max() <= half_precision(expected)
    patches = images.draw(50, torch.Generator().manual_seed(0))
    assert patches.dtype == torch.float32
    assert 0 <= float(patches.min()) < 0.1 < 0.9 < float(patches.max()) <= 1


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
def test_other_numbers_in_tiff(tmp_path, dtype):
    pixels = (np.random.default_rng(0).normal(0, 10000, (20, 20)).round()).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    images = read_images([tmp_path], channels=1, patch=PATCH)
    assert np.abs(image(images, 0)[0].double().numpy() - stretched(pixels)).max() <= half_precision([255])


def test_8_bits_beside_16_stay_what_they_are(tmp_path):
    plain = save(tmp_path / "1.png", (20, 20))
    tifffile.imwrite(tmp_path / "2.tif", deep((20, 20)))
    tifffile.imwrite(tmp_path / "3.tif", plain)
    images = read_images([tmp_path], channels=1, patch=PATCH)
    assert all(np.array_equal(image(images, index)[0].numpy(), plain) for index in (0, 2))
    (tmp_path / "2.tif").unlink()
    assert read_images([tmp_path], channels=1, patch=PATCH).pixels.dtype == torch.uint8


def test_each_picture_of_a_stack_is_an_image_and_all_have_one_range(tmp_path):
    pixels = deep((3, 20, 30)) // np.array([1, 2, 4], np.uint16)[:, None, None]
    tifffile.imwrite(tmp_path / "a.tif", pixels, imagej=True)
    images = read_images([tmp_path], channels=1, patch=PATCH)
    assert len(images) == 3
    for index, expected in enumerate(stretched(pixels)):
        assert np.abs(image(images, index)[0].double().numpy() - expected).max() <= half_precision([255])


def test_tiff_that_cannot_be_used_is_skipped_and_said(tmp_path):
    save(tmp_path / "good.png", (20, 20))
    tifffile.imwrite(tmp_path / "nan.tif", np.full((20, 20), np.nan, np.float32))
    tifffile.imwrite(tmp_path / "five.tif", deep((20, 20, 5)), planarconfig="contig", photometric="rgb")
    (tmp_path / "broken.tif").write_bytes(b"II*\0 no more")
    tifffile.imwrite(tmp_path / "small.tif", deep((7, 20)))
    images = read_images([tmp_path], channels=1, patch=PATCH)
    reasons = {skipped.name.rsplit("/", 1)[-1]: skipped.reason for skipped in images.skipped}
    assert len(images) == 1
    assert "NaN" in reasons["nan.tif"]
    assert "5 channels: gray or RGB" in reasons["five.tif"]
    assert "cannot be read" in reasons["broken.tif"]
    assert reasons["small.tif"] == "7 x 20, smaller than a patch of 8 x 8"


def test_tiff_in_a_tar_file_is_skipped_with_what_to_do(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", deep((20, 20)))
    pack(tmp_path / "set.tar", "1.png")
    with tarfile.open(tmp_path / "set.tar", "a") as archive:
        archive.add(tmp_path / "a.tif", "a.tif")
    (skipped,) = read_images([tmp_path / "set.tar"], channels=1, patch=PATCH).skipped
    assert "unpack it into a folder" in skipped.reason


def test_16_bit_png_in_a_tar_file(tmp_path):
    files.write(tmp_path / "a.png", files.ImageFile(deep((20, 20))))
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        archive.add(tmp_path / "a.png", "a.png")
    images = read_images([tmp_path / "set.tar"], channels=1, patch=PATCH)
    assert np.abs(image(images, 0)[0].double().numpy() - stretched(deep((20, 20)))).max() <= half_precision([255])


def test_without_tifffile_all_else_is_read_and_a_tiff_says_what_to_install(tmp_path):
    save(tmp_path / "a" / "1.png", (20, 20))
    (tmp_path / "b").mkdir()
    tifffile.imwrite(tmp_path / "b" / "2.tif", deep((20, 20)))
    script = (
        "import sys; sys.modules['tifffile'] = None\n"
        "from torchdeal.training import read_images\n"
        "print(len(read_images([sys.argv[1] + '/a'], channels=1, patch=8)))\n"
        "read_images([sys.argv[1] + '/b'], channels=1, patch=8)"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.stdout == "1\n"
    assert run.stderr.splitlines()[-1].endswith("2.tif: TIFF files need tifffile: pip install tifffile")


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        read_images([tmp_path / "nowhere"], channels=1)
    (tmp_path / "notes.txt").write_text("no image")
    needed = r"JPEG, PNG, WebP or TIFF files of at least 128 x 128 pixels are needed \(.*notes.txt: not a JPEG"
    with pytest.raises(ValueError, match=needed):
        read_images([tmp_path], channels=1)
    with pytest.raises(ValueError, match="neither an image nor a readable tar file"):
        read_images([tmp_path / "notes.txt"], channels=1)


def pack(path, *files, mode="w"):
    """An archive of images with these names. Returns where the header of each begins, and where the last one ends."""
    with tarfile.open(path, mode) as archive:
        for number, name in enumerate(files):
            content = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (40, 40), dtype=np.uint8)
            Image.fromarray(pixels).save(content, "png")
            member = tarfile.TarInfo(name)
            member.size = content.tell()
            content.seek(0)
            archive.addfile(member, content)
    with tarfile.open(path) as archive:
        return [*(member.offset for member in archive.getmembers()), archive.offset]


@pytest.mark.parametrize("where", ["at a file", "in a header", "in a file", "in the padding"])
def test_a_tar_file_that_ends_early_is_an_error(tmp_path, where):
    path = tmp_path / "set.tar"
    _, second, third, _ = pack(path, "1.png", "2.png", "3.png")
    assert len(read_images([path], channels=1, patch=PATCH)) == 3
    end = {"at a file": third, "in a header": third + 100, "in a file": second + 900, "in the padding": third - 1}[
        where
    ]
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ValueError, match=r"set\.tar: the tar file is damaged or ends early .*make or get it again"):
        read_images([path], channels=1, patch=PATCH)


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_a_compressed_tar_file_that_ends_early_is_an_error(tmp_path, mode):
    path = tmp_path / "set.tar.z"
    pack(path, *(f"{n}.png" for n in range(40)), mode=mode)
    whole = path.read_bytes()
    assert len(read_images([path], channels=1, patch=PATCH)) == 40
    for share in (0.01, 0.5, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match=r"damaged or ends early|neither an image nor a readable tar"):
            read_images([path], channels=1, patch=PATCH)


def test_a_damaged_header_in_a_tar_file_is_an_error(tmp_path):
    path = tmp_path / "set.tar"
    _, second, _, _ = pack(path, "1.png", "2.png", "3.png")
    content = bytearray(path.read_bytes())
    content[second : second + 200] = b"\xff" * 200
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or ends early"):
        read_images([path], channels=1, patch=PATCH)


def test_a_huge_file_in_a_tar_file_is_refused_before_it_is_read(tmp_path):
    path, huge = tmp_path / "set.tar", tarfile.TarInfo("huge.png")
    huge.size = 2**40
    path.write_bytes(huge.tobuf() + bytes(1024))
    with pytest.raises(ValueError, match=r"huge\.png in it has 1048576 MiB; at most 256 MiB are read\. Take it out"):
        read_images([path], channels=1, patch=PATCH)


def test_a_huge_header_in_a_tar_file_is_refused_before_it_is_read(tmp_path):
    path, header = tmp_path / "set.tar", tarfile.TarInfo("name")
    _, end = pack(path, "1.png")
    header.type, header.size = tarfile.XHDTYPE, 2**23
    with path.open("r+b") as file:
        file.seek(end)
        file.write(header.tobuf())
        file.truncate(end + 2**24)
    with pytest.raises(ValueError, match=r"ends early \(a header claims a size of 8388608 bytes\)"):
        read_images([path], channels=1, patch=PATCH)


def test_links_in_a_tar_file_are_not_followed(tmp_path):
    save(tmp_path / "secret.png", (20, 20))
    path = tmp_path / "set.tar"
    pack(path, "1.png")
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE):
            link = tarfile.TarInfo(f"{kind.decode()}/link.png")
            link.type, link.linkname = kind, str(tmp_path / "secret.png")
            archive.addfile(link)
    images = read_images([path], channels=1, patch=PATCH)
    assert len(images) == 1
    assert [skipped.reason for skipped in images.skipped] == ["a link or a device, not a file"] * 3


def test_files_that_are_no_images_are_not_read_from_a_tar_file(tmp_path):
    path, film = tmp_path / "set.tar", tarfile.TarInfo("film.mp4")
    _, end = pack(path, "1.png")
    film.size = 2**29
    with path.open("r+b") as file:
        file.seek(end)
        file.write(film.tobuf())
        file.truncate(end + 512 + film.size + 1024)  # a hole, which takes no room on the disk
    images = read_images([path], channels=1, patch=PATCH)
    assert len(images) == 1
    assert [skipped.is_image for skipped in images.skipped] == [False]


def test_the_eight_symmetries_are_eight_and_those_of_the_square():
    patch = torch.arange(9).view(3, 3)
    down, right = _symmetric_grids(3, torch.arange(8).view(-1, 1, 1))
    seen = {tuple(patch[d, r].flatten().tolist()) for d, r in zip(down, right, strict=True)}
    expected = {tuple(torch.rot90(turned, k).flatten().tolist()) for turned in (patch, patch.T) for k in range(4)}
    assert seen == expected
    assert len(seen) == 8


@pytest.mark.parametrize("channels", [1, 3])
def test_patches_come_from_the_images(tmp_path, channels):
    for name, shape in (("a.png", (9, 10, 3)), ("b.png", (12, 8, 3))):
        save(tmp_path / name, shape, len(name) + shape[0])
    images = read_images([tmp_path], channels=channels, patch=PATCH)
    every = {
        (np.rot90(turned, k, (1, 2)).astype(np.uint8)).tobytes()
        for index in range(2)
        for y in range(int(images.heights[index]) - PATCH + 1)
        for x in range(int(images.widths[index]) - PATCH + 1)
        for patch in [image(images, index).numpy()[:, y : y + PATCH, x : x + PATCH]]
        for turned in (patch, patch.transpose(0, 2, 1))
        for k in range(4)
    }
    drawn = images.draw(2000, torch.Generator().manual_seed(0))
    assert drawn.shape == (2000, channels, PATCH, PATCH)
    seen = {(p * 255).round().to(torch.uint8).numpy().tobytes() for p in drawn}
    assert seen == every  # 11 places x 8 symmetries: 2000 draws miss one with a probability below 1e-7


def test_the_same_generator_draws_the_same(tmp_path):
    save(tmp_path / "a.png", (30, 40))
    images = read_images([tmp_path], channels=1, patch=PATCH)
    one, two = (images.draw(5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(images.to("cpu").draw(5, torch.Generator().manual_seed(3)), one)
