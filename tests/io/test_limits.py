"""Files that ask for too much, or end early: one line, and no memory spent."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image

from torchdeal.io.files import ImageFile, ImageFileError, read, write

SIDE = 60_000


def tiff_bomb(path):
    rows = np.zeros((1, SIDE), np.uint8)
    tifffile.imwrite(path, rows, photometric="minisblack", compression="zlib")
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        for code in (257, 278):  # rows, and rows in a strip
            tag = file.pages[0].tags[code]
            content[tag.valueoffset : tag.valueoffset + 4] = struct.pack("<I" if tag.dtype == 4 else "<HH", SIDE)
    path.write_bytes(content)


def png_bomb(path):
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(99)))]
    packed = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))


def bmp_bomb(path):
    Image.new("L", (4, 4)).save(path)
    content = bytearray(path.read_bytes())
    content[18:26] = struct.pack("<ii", SIDE, SIDE)
    path.write_bytes(content)


def npy_bomb(path):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (SIDE, SIDE)})


BOMBS = {"bomb.tif": tiff_bomb, "bomb.png": png_bomb, "bomb.bmp": bmp_bomb, "bomb.npy": npy_bomb}


@pytest.mark.parametrize("name", BOMBS)
def test_sizes_that_would_fill_the_memory(tmp_path, name):
    BOMBS[name](tmp_path / name)
    tracemalloc.start()
    try:
        with pytest.raises(ImageFileError, match=r"60000 x 60000|3600000000 pixels") as error:
            read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert "cut it into parts" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp", ".tif", ".npy"])
def test_the_limit_can_be_set(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"image{suffix}"
    write(path, ImageFile(np.zeros((20, 30, 3), np.uint8)))
    monkeypatch.setenv("TORCHDEAL_MAX_VALUES", "1800")
    assert read(path).size == (20, 30)
    monkeypatch.setenv("TORCHDEAL_MAX_VALUES", "1799")
    with pytest.raises(ImageFileError, match=r"20 x 30 x 3 values.*set TORCHDEAL_MAX_VALUES"):
        read(path)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
@pytest.mark.parametrize("metadata", [None, {}])
def test_a_stack_that_ends_early_does_not_lose_its_last_pages(tmp_path, share, metadata):
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, np.zeros((5, 20, 17), np.uint16), photometric="minisblack", metadata=metadata)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ImageFileError, match=r"stack.tif"):
        read(path)


def test_an_npy_that_ends_early(tmp_path):
    path = tmp_path / "cut.npy"
    np.save(path, np.zeros((20, 20)))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ImageFileError, match="ends early: 3200 bytes of pixels are promised, 3100 are there"):
        read(path)
