"""PNG with 16 bits per channel, against a slow encoder after the specification, and against Pillow's upper bytes."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from torchdeal.io.deep_png import PASSES
from torchdeal.io.files import ImageFile, ImageFileError, read, write
from torchdeal.io.metadata import Metadata

COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def deep(channels, height=13, width=11):
    return np.random.default_rng(channels).integers(0, 65536, (height, width, channels)).astype(np.uint16)


def paeth(a, b, c):
    distances = [abs(a + b - c - value) for value in (a, b, c)]
    return (a, b, c)[distances.index(min(distances))]


def filtered(pixels):
    """Rows of bytes, with each of the five filters in turn (PNG specification, section 9)."""
    data = bytearray()
    rows = pixels.astype(">u2").view(np.uint8).reshape(len(pixels), -1).astype(int)
    step = 2 * pixels.shape[-1]
    for number, row in enumerate(rows):
        above = rows[number - 1] if number else np.zeros_like(row)
        data.append(number % 5)
        for i, value in enumerate(row):
            a, b = (row[i - step] if i >= step else 0), above[i]
            c = above[i - step] if i >= step else 0
            data.append(int(value - (0, a, b, (a + b) // 2, paeth(a, b, c))[number % 5]) % 256)
    return bytes(data)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(pixels, interlaced=False, extra=b""):
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, interlaced)
    parts = [pixels[top::down, left::right] for left, top, right, down in PASSES] if interlaced else [pixels]
    data = zlib.compress(b"".join(filtered(part) for part in parts if part.size))
    half = len(data) // 2
    chunks = [(b"IHDR", header), (b"IDAT", data[:half]), (b"IDAT", data[half:]), (b"IEND", b"")]
    packed = [chunk(*one) for one in chunks]
    return b"\x89PNG\r\n\x1a\n" + packed[0] + extra + b"".join(packed[1:])


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_read(tmp_path, channels, interlaced):
    pixels = deep(channels)
    (tmp_path / "in.png").write_bytes(png(pixels, interlaced))
    image = read(tmp_path / "in.png")
    assert image.alpha == (channels in (2, 4))
    assert np.array_equal(image.pixels.reshape(pixels.shape), pixels)


@pytest.mark.parametrize("channels", [3, 4])
def test_others_read_what_is_written(tmp_path, channels):
    pixels = deep(channels)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x013B] = "somebody"
    metadata = Metadata(profile, exif.tobytes(), (300.0, 300.0))
    assert write(tmp_path / "out.png", ImageFile(pixels, channels == 4, metadata=metadata)) == []
    with Image.open(tmp_path / "out.png") as image:
        assert np.array_equal(np.asarray(image), (pixels >> 8).astype(np.uint8))
        assert image.info["icc_profile"] == profile
        assert image.info["dpi"] == pytest.approx((300, 300), rel=1e-3)
        assert image.getexif()[0x013B] == "somebody"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_colour_that_stands_for_nothing(tmp_path, channels):
    pixels = deep(channels)
    key = pixels[4, 5]
    (tmp_path / "in.png").write_bytes(png(pixels, extra=chunk(b"tRNS", key.astype(">u2").tobytes())))
    image = read(tmp_path / "in.png")
    assert image.alpha
    assert np.array_equal(image.pixels[..., :-1], pixels)
    assert np.array_equal(image.pixels[..., -1] == 0, (pixels == key).all(-1))


def test_damaged(tmp_path):
    content = png(deep(3))
    for bad in (content[: len(content) // 2], content[:80] + b"x" + content[81:]):
        (tmp_path / "bad.png").write_bytes(bad)
        with pytest.raises(ImageFileError, match=r"bad.png"):
            read(tmp_path / "bad.png")
