"""Opening a table from a path, bytes or a stream; gzip and text encodings are decoded here."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from selfcal._support.checks import did_you_mean
from selfcal.errors import ConfigError, DataError

Source = str | os.PathLike[str] | bytes | BinaryIO
"""A path (`-` is standard input), the bytes themselves, or an open binary stream."""

CHUNK = 4 * 2**20
"""Bytes read at a time."""

_GZIP = b"\x1f\x8b"
SUPPORTED = "CSV, TSV, JSON lines, Parquet, Arrow or Excel (.xlsx)"
_EXPORT = "Export it as CSV or Parquet."
_UNPACK = "Unpack it first."
_OTHER_FORMATS = {
    b"\xd0\xcf\x11\xe0": ("an old (.xls) or encrypted Excel workbook", "Save it as .xlsx or CSV."),
    b"BZh": ("a bzip2 file", _UNPACK),
    b"\xfd7zXZ": ("an xz file", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("a zstd file", _UNPACK),
    b"7z\xbc\xaf": ("a 7z archive", _UNPACK),
    b"Rar!": ("a RAR archive", _UNPACK),
    b"%PDF": ("a PDF document", _EXPORT),
    b"SQLite format 3\0": ("an SQLite database", "Export one of its tables as CSV."),
    b"\x93NUMPY": ("a NumPy array (.npy)", "Write it as CSV with named columns, for instance with polars."),
    b"\x89HDF": ("an HDF5 file", _EXPORT),
    b"FEA1": ("a Feather file of version 1", "Write it again, as Feather of version 2 or Parquet."),
    b"ORC": ("an ORC file", "Convert it to Parquet."),
    b"Obj\x01": ("an Avro file", "Convert it to Parquet."),
    b"$FL2": ("an SPSS file", _EXPORT),
    b"<stata_dta>": ("a Stata file", _EXPORT),
    **{
        bytes([0x80, version]): (
            "a pickle, which can run any program when it is loaded",
            "Write the table as CSV or Parquet where it was made.",
        )
        for version in range(2, 6)
    },
}
_OTHER_TEXTS = {
    rb"(?i)<!doctype|<html|<head|<body|<table": ("an HTML page", "Save the table in it as CSV."),
    rb"<\?xml": ("an XML document", "Export it as CSV."),
    rb"\[\s*[\[{]": (
        "a JSON array",
        "Write one object in each line (JSON lines), for instance with jq -c '.[]'.",
    ),
}
_BOMS = (  # UTF-32 first: its mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
)


@dataclass
class Opened:
    """An open source: its name for messages, its first bytes, and all of its bytes, decompressed.

    Attributes:
        name: Its name in messages.
        head: The first bytes, which identify the format.
        chunks: All bytes, those of `head` included.
        size: Its size on disk or in memory, if known (compressed, if it is). Of a Parquet file, its number of rows.
        taken: The part of that size that was read so far.
        path: The file, if the table is a file that is not packed.
        packed: What the table is packed in: "a gzip" or "a zip", or nothing.
    """

    name: str
    head: bytes
    chunks: Iterator[bytes]
    size: int | None = None
    taken: int = 0
    path: Path | None = None
    packed: str = ""
    _open: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def fraction_read(self) -> float | None:
        """The fraction that was read so far, if that is known."""
        return self.taken / self.size if self.size else None

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def check_source(source: str | os.PathLike[str]) -> None:
    """Raise the error of `open_source` for a path that cannot be opened; a pipe opens only once and is not tried."""
    if source != "-" and not Path(source).is_fifo():
        with Opened("the data", b"", iter(())) as opened:
            _open_path(source, opened)


def open_source(source: Source) -> Opened:
    """Open a source; gzip is detected by its first bytes, whatever the name, and decompressed."""
    opened = Opened("the data", b"", iter(()))
    stream: BinaryIO
    if isinstance(source, (bytes, bytearray, memoryview)):
        stream, opened.size = io.BytesIO(source), len(source)
    elif isinstance(source, (str, os.PathLike)):
        stream = _open_path(source, opened)
    else:
        stream = source
        opened.name = str(getattr(source, "name", "the stream"))
    try:
        _begin(stream, opened)
    except BaseException:
        opened._open.close()
        raise
    return opened


def _begin(stream: BinaryIO, opened: Opened) -> None:
    """Read the first bytes, and refuse formats that are not supported."""
    opened.head, rest = peek(_counted(stream, opened))
    gunzip_if_packed(opened, rest)


def gunzip_if_packed(opened: Opened, rest: Iterator[bytes]) -> None:
    """Let `opened` go on with the first bytes, which it has, and the rest, decompressed if they are gzipped."""
    if opened.head.startswith(_GZIP):
        opened.packed = "a gzip"
        opened.head, rest = peek(_gunzip(chain([opened.head], rest), opened.name))
    opened.chunks = chain([opened.head], rest)
    for magic, (what, remedy) in _OTHER_FORMATS.items():
        if opened.head.startswith(magic):
            raise _another_format(opened.name, what, remedy)


def _another_format(name: str, what: str, remedy: str) -> DataError:
    return DataError(f"{name} must be {SUPPORTED}; it is {what}. {remedy}")


def refuse_other_texts(head: bytes, name: str) -> None:
    """Refuse text that is a document in another format."""
    for pattern, (what, remedy) in _OTHER_TEXTS.items():
        if re.match(pattern, head.lstrip()):
            raise _another_format(name, what, remedy)


def utf8_chunks(opened: Opened, encoding: str | None) -> Iterator[bytes]:
    """Yield the text as UTF-8 without a byte order mark; UTF-8 input is passed on unchecked."""
    marked = next((name for mark, name in _BOMS if opened.head.startswith(mark)), "utf-8")
    actual = marked if encoding is None else text_encoding(encoding)
    chunks = opened.chunks if actual == "utf-8" else _recode(opened.chunks, actual, opened.name)
    head, rest = peek(chunks)
    chunks = chain([head.removeprefix(codecs.BOM_UTF8)], rest)
    if b"\r" in head and b"\n" not in head:  # line ends of Excel for the Mac
        return (chunk.replace(b"\r", b"\n") for chunk in chunks)
    return chunks


def _open_path(source: str | os.PathLike[str], opened: Opened) -> BinaryIO:
    if source == "-":
        opened.name = "standard input"
        return sys.stdin.buffer
    path = Path(source)
    opened.name, opened.path = str(source), path
    try:
        stream = opened._open.enter_context(path.open("rb"))
        opened.size = path.stat().st_size
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        siblings = (
            os.listdir(path.parent) if isinstance(error, FileNotFoundError) and path.parent.is_dir() else []
        )
        hint = did_you_mean(path.name, siblings) or " Check the path."
        raise DataError(f"{source} cannot be opened: {reason}.{hint}") from None
    return stream


def _counted(stream: BinaryIO, opened: Opened) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(CHUNK)
        except OSError as error:
            raise DataError(f"{opened.name} cannot be read: {error.strerror or error}.") from error
        if not chunk:
            return
        opened.taken += len(chunk)
        yield chunk


def peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes (at least sixteen, if there are as many) and the chunks after them."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 16:
            break
    return head, chunks


def _gunzip(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    unzip = zlib.decompressobj(wbits=31)
    try:
        for packed in chunks:
            rest = packed
            while rest:
                if unzip.eof:  # another member, or padding with zeros
                    rest = rest.lstrip(b"\0")
                    if not rest:
                        break
                    unzip = zlib.decompressobj(wbits=31)
                yield unzip.decompress(rest, CHUNK)
                rest = unzip.unconsumed_tail or unzip.unused_data
        while not unzip.eof and (late := unzip.decompress(b"", CHUNK)):
            yield late
    except zlib.error as error:
        raise DataError(f"{name} is a damaged gzip file ({error}). Fetch or write it again.") from None
    if not unzip.eof:
        raise DataError(f"{name} is a gzip file that was cut off. Fetch or write it again.")


def text_encoding(encoding: str) -> str:
    """Return Python's name of a text encoding; an unknown one is an error."""
    try:
        "".encode(encoding)
        return codecs.lookup(encoding).name.removesuffix("-sig")
    except (LookupError, ValueError):  # ValueError: a NUL in the name
        raise ConfigError(
            f"encoding must be a text encoding that Python knows, such as 'utf-8', 'cp1252' or 'utf-16'; "
            f"got {encoding!r}."
        ) from None


def _recode(chunks: Iterable[bytes], encoding: str, name: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    for chunk in chain(chunks, [None]):
        try:
            text = decoder.decode(chunk or b"", final=chunk is None)
            data = text.encode()
        except UnicodeError as error:
            if isinstance(error, UnicodeDecodeError):
                line += error.object[: error.start].decode(encoding, "ignore").count("\n")
            raise DataError(
                f"{name} must be {encoding} text; it is invalid in or near line {line} ({error}). "
                "Pass another encoding with --encoding."
            ) from None
        line += data.count(b"\n")
        yield data
