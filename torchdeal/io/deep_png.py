"""PNG with 16 bits per channel in colour or with transparency, which Pillow would cut to 8.

PNG filters work byte by byte, each with the byte of the same place in the pixel before, above, or both. So the bytes of
each pixel can be dealt to pictures of 8 bits, which Pillow decodes as any other.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by the type of colour
COLOUR_TYPES = {channels: kind for kind, channels in CHANNELS.items()}
DIFFERENCE_TO_ROW_ABOVE = 2  # a filter
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))  # of Adam7


def is_deep(head: bytes) -> bool:
    """Whether a file that begins so, with 26 bytes, has 16 bits per channel."""
    return head[:8] == SIGNATURE and len(head) >= 26 and head[24] == 16


def decode(data: bytes) -> np.ndarray:
    """The pixels of a file, uint16 `(H, W, C)`; a colour that stands for nothing becomes transparency.

    Raises ValueError where the file ends early or is damaged.
    """
    chunks = dict[bytes, bytes]()
    for kind, content in _chunks(data):
        chunks[kind] = chunks.get(kind, b"") + content
    width, height, _, colour_type, *_, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    channels = CHANNELS[colour_type]
    rows = _rows(width, height, 2 * channels, interlaced)
    expected = sum(count * (1 + length) for count, length in rows)
    unpacked = zlib.decompressobj().decompress(chunks[b"IDAT"], expected)  # not more than the header asks for
    if len(unpacked) < expected:
        raise ValueError("it ends early")
    halves = [_decode_bytes(chunks[b"IHDR"], unpacked, rows, channels, half) for half in (0, 1)]
    pixels = halves[0].astype(np.uint16) << 8 | halves[1]
    if b"tRNS" in chunks and colour_type in (0, 2):
        absent = (pixels == np.frombuffer(chunks[b"tRNS"], ">u2")).all(-1, keepdims=True)
        pixels = np.concatenate([pixels, np.where(absent, 0, 65535).astype(np.uint16)], -1)
    return pixels


def encode(pixels: np.ndarray, **options: object) -> bytes:
    """A PNG of uint16 pixels `(H, W, C)`; the options are those of Pillow: dpi, exif, icc_profile."""
    from PIL import Image

    height, width, channels = pixels.shape
    small = io.BytesIO()  # has all that goes along, in chunks that can be copied
    Image.new("RGB" if channels > 2 else "L", (1, 1)).save(small, "PNG", **options)
    rows = pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    above = np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.concatenate([np.full((height, 1), DIFFERENCE_TO_ROW_ABOVE, np.uint8), rows - above], 1)
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    replaced = {b"IHDR": header, b"IDAT": zlib.compress(filtered.tobytes(), 6)}
    copied = [_chunk(kind, replaced.get(kind, content)) for kind, content in _chunks(small.getvalue())]
    return SIGNATURE + b"".join(copied)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(SIGNATURE)
    while place < len(data):
        length, kind = struct.unpack(">I4s", data[place : place + 8])
        content = data[place + 8 : place + 8 + length]
        if data[place + 8 + length : place + 12 + length] != struct.pack(">I", zlib.crc32(kind + content)):
            raise ValueError("a part of it is damaged, or it ends early")
        yield kind, content
        if kind == b"IEND":
            return
        place += 12 + length
    raise ValueError("it ends early")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content), kind) + content + struct.pack(">I", zlib.crc32(kind + content))


def _rows(width: int, height: int, pixel_bytes: int, interlaced: int) -> list[tuple[int, int]]:
    """How many rows there are, and how many bytes each has, in the file or in each of its passes."""
    passes = PASSES if interlaced else ((0, 0, 1, 1),)
    sizes = [(-((top - height) // down), -((left - width) // right)) for left, top, right, down in passes]
    return [(rows, columns * pixel_bytes) for rows, columns in sizes if rows > 0 and columns > 0]


def _decode_bytes(header: bytes, unpacked: bytes, rows: list[tuple[int, int]], channels: int, half: int) -> np.ndarray:
    """The upper (0) or lower (1) byte of every value, uint8 `(H, W, C)`."""
    from PIL import Image

    parts, place = [], 0
    for count, length in rows:
        lines = np.frombuffer(unpacked, np.uint8, count * (1 + length), place).reshape(count, 1 + length)
        parts += [np.concatenate([lines[:, :1], lines[:, 1 + half :: 2]], 1).tobytes()]
        place += lines.size
    shallow = header[:8] + b"\x08" + header[9:]
    content = [(b"IHDR", shallow), (b"IDAT", zlib.compress(b"".join(parts), 1)), (b"IEND", b"")]
    with Image.open(io.BytesIO(SIGNATURE + b"".join(_chunk(*one) for one in content)), formats=["PNG"]) as image:
        return np.asarray(image).reshape(image.height, image.width, channels)
