"""Validation of the counts and sizes inside a Parquet file before polars reads it.

polars reads a negative count in a damaged page header as an enormous one, requests as much memory and aborts the
process, which no handler can catch. The headers are therefore checked first: the footer, then the header of every
page, both structs of Thrift's compact protocol (https://parquet.apache.org/docs/file-format/).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

Buffer = bytes | mmap.mmap

_MAX_DEPTH = 32
_ROW_GROUPS, _COLUMNS, _ROWS = 4, 1, 3  # fields of the footer and of a row group
_META, _VALUES, _DATA, _DICTIONARY = 3, 5, 9, 11  # fields of a column chunk
_UNPACKED, _PACKED, _PAGE, _DICTIONARY_PAGE, _PAGE_V2 = 2, 3, 5, 7, 8  # fields of a page header


class DamagedError(ValueError):
    """The metadata of the file is inconsistent."""


def check_pages(source: Path | bytes) -> None:
    """Raise `DamagedError` if a count or size in a Parquet file of flat columns is impossible."""
    if isinstance(source, bytes):
        _check(source)
    else:
        with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check(data)


def _check(data: Buffer) -> None:
    end = len(data) - 8
    footer = end - int.from_bytes(data[end : end + 4], "little")
    if footer < 4:
        raise DamagedError("its footer is longer than the file")
    try:
        groups = _Thrift(data, footer).struct().get(_ROW_GROUPS, [])
        for group in groups:
            for chunk in group[_COLUMNS]:
                _check_chunk(data, chunk[_META], group[_ROWS])
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise DamagedError("a part of its header is missing") from error


def _check_chunk(data: Buffer, meta: dict[int, Any], rows: int) -> None:
    expected = meta[_VALUES]
    if not 0 <= expected == rows:
        raise DamagedError(f"a column claims {expected} values in {rows} rows")
    at = min(meta[_DATA], meta.get(_DICTIONARY) or meta[_DATA])
    values = 0
    while values < expected:
        reader = _Thrift(data, at)
        header = reader.struct()
        page = header.get(_PAGE) or header.get(_PAGE_V2) or {}
        counts = [
            page.get(1, 0),
            header.get(_DICTIONARY_PAGE, {}).get(1, 0),
            *_lengths(header.get(_PAGE_V2, {})),
        ]
        if min(*counts, header[_UNPACKED], header[_PACKED]) < 0:
            raise DamagedError("a page has a negative size")
        values += counts[0]
        at = reader.at + header[_PACKED]
    if values != expected or at > len(data):
        raise DamagedError(f"the pages of a column hold {values} values instead of {expected}")


def _lengths(page: dict[int, Any]) -> list[int]:
    """Return the counts of nulls and rows and the lengths of the levels of a page of the second version."""
    return [page.get(i, 0) for i in (2, 3, 5, 6)]


class _Thrift:
    """Reads one struct of Thrift's compact protocol into a dictionary by field number."""

    def __init__(self, data: Buffer, at: int) -> None:
        self.data, self.at, self.depth = data, at, 0
        if not 0 <= at < len(data):
            raise DamagedError("a part of it lies outside the file")

    def struct(self) -> dict[int, Any]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise DamagedError("its header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._integer()
            fields[number] = kind & 15 == 1 if kind & 15 in (1, 2) else self._value(kind & 15)
        self.depth -= 1
        return fields

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise DamagedError("a number in its header is too long")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            self.at += 8
            return None
        if kind == 8:
            length = self._varint()
            self.at += length
            return None
        if kind in (9, 10):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            return [self._value(head & 15) for _ in range(min(size, len(self.data)))]
        if kind == 12:
            return self.struct()
        raise DamagedError(f"its header has a field of unknown type {kind}")
