"""Tar files of images, of which nothing is taken on trust."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

MIB = 2**20
LARGEST_FILE = 256 * MIB  # that is read into memory
LARGEST_HEADER = MIB  # a name or other words about a file
ABOUT_A_FILE = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
DAMAGES = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)


def read_members(source: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes | None]]:
    """Names and contents of the files in an archive, one by one; nothing is unpacked to disk.

    Only files with these suffixes are read. The content is None for all others, and for links and devices.

    Raises:
        ValueError: it is no archive, it is damaged or ends early, or a file in it is too large.
    """
    try:
        archive = tarfile.open(source, tarinfo=_Member)  # noqa: SIM115 (closed below)
    except DAMAGES:
        raise ValueError(f"{source}: neither an image nor a readable tar file") from None
    try:
        with archive:
            for member in archive:
                if not member.isdir():
                    wanted = member.isfile() and member.name.lower().endswith(suffixes)
                    yield member.name, _content(archive, member, source) if wanted else None
            _check_end(archive)
    except (*DAMAGES, OSError) as error:
        raise ValueError(f"{source}: the tar file is damaged or ends early ({error}); make or get it again") from None


class _Member(tarfile.TarInfo):
    """A header whose size cannot fill the memory, nor lead back to where the archive was read before."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in ABOUT_A_FILE and member.size > LARGEST_HEADER):
            raise tarfile.ReadError(f"a header claims a size of {member.size} bytes")
        return member


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, source: Path) -> bytes:
    if member.size > LARGEST_FILE:
        sizes = f"{member.size / MIB:.0f} MiB; at most {LARGEST_FILE / MIB:.0f} MiB are read"
        raise ValueError(f"{source}: {member.name} in it has {sizes}. Take it out, or unpack the archive into a folder")
    content = archive.extractfile(member)
    assert content is not None  # only for links and devices
    return content.read()


def _check_end(archive: tarfile.TarFile) -> None:
    """`tarfile` stops in silence wherever there is no header. The end of an archive is a block of zeros."""
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its last block is missing")
