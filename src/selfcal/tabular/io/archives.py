"""Zip archives that hold one table, which is read without being unpacked to disk, and Excel workbooks among them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from selfcal._support.checks import listed
from selfcal.errors import DataError
from selfcal.tabular.io.source import CHUNK, Opened, gunzip_if_packed, peek

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
MAX_UNPACKED = 2**30
MAX_RATIO = 100
"""An archive that unpacks to more than `MAX_UNPACKED` bytes and `MAX_RATIO` times its size is refused as a bomb."""

_CLUTTER = ("__MACOSX/", ".DS_Store")
_WORKBOOK = "xl/workbook.xml"
_OTHERS = {
    "xl/workbook.bin": "an Excel workbook in binary form (.xlsb)",
    "content.xml": "an OpenDocument file",
    "word/document.xml": "a Word document",
}


def seekable(opened: Opened) -> BinaryIO:
    """Return the source as a file to seek in: the file itself, or its bytes in memory."""
    if opened.path is not None and not opened.path.is_fifo():
        return opened._open.enter_context(opened.path.open("rb"))
    return io.BytesIO(b"".join(opened.chunks))


def open_archive(opened: Opened) -> BinaryIO | None:
    """Return an Excel workbook as a file to seek in; of another archive, let `opened` go on with its only member."""
    if opened.packed:
        raise DataError(f"{opened.name} is a zip archive inside {opened.packed} file. Unpack it first.")
    file = seekable(opened)
    with archive_errors(opened.name):
        archive = opened._open.enter_context(zipfile.ZipFile(file))
    members = [one for one in archive.infolist() if not one.is_dir()]
    members = [
        one
        for one in members
        if not one.filename.startswith(_CLUTTER) and not one.filename.endswith(_CLUTTER)
    ]
    names = [one.filename for one in members]
    _refuse_bombs(opened.name, members)
    if _WORKBOOK in names:
        return file
    for name, what in _OTHERS.items():
        if name in names:
            raise DataError(f"{opened.name} is {what}, which cannot be read. Save it as .xlsx or CSV.")
    if len(members) != 1:
        got = f"{len(names):,}: {listed(names, 5)}" if names else "none"
        raise DataError(
            f"{opened.name} must hold one file, the table; it has {got}. Unpack it and pass one of them."
        )
    (member,) = members
    if member.flag_bits & 1:
        raise DataError(f"{opened.name} is encrypted with a password. Unpack it first.")
    opened.size, opened.taken, opened.path, opened.packed = member.file_size, 0, None, "a zip"
    opened.head, rest = peek(_member(archive, member, opened))
    gunzip_if_packed(opened, rest)
    if opened.head.startswith(MAGIC):
        raise DataError(f"{opened.name} is a zip archive inside another one. Unpack it first.")
    return None


def _refuse_bombs(name: str, members: list[zipfile.ZipInfo]) -> None:
    unpacked, packed = sum(one.file_size for one in members), sum(one.compress_size for one in members)
    if unpacked > MAX_UNPACKED and unpacked > MAX_RATIO * packed:
        raise DataError(
            f"{name} must not unpack to more than {MAX_RATIO} times its size; it would be {unpacked / 2**30:.1f} GB. "
            "Unpack it yourself if you trust it."
        )


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, opened: Opened) -> Iterator[bytes]:
    with archive_errors(opened.name), archive.open(member) as file:
        while chunk := file.read(CHUNK):
            opened.taken += len(chunk)
            yield chunk


@contextmanager
def archive_errors(name: str) -> Iterator[None]:
    """A context in which errors of a damaged archive are errors of the data."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        raise DataError(
            f"{name} is a damaged or unusual zip archive ({error}). Fetch or write it again."
        ) from None
