"""Delimited text split into whole records, with structural checks.

Reading goes block by block, so that a file of any size needs the memory of one block. Quotes follow RFC 4180:
a field that holds a quote, a separator or a line break is quoted as a whole, and quotes in it are doubled.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Int, listed, such
from selfcal.errors import DataError

MAX_RECORD_BYTES = 64 * 2**20
"""A longer record is assumed to be a quote that was never closed."""

_NEWLINE, _RETURN, _QUOTE = ord("\n"), ord("\r"), ord('"')


@dataclass(frozen=True)
class Block:
    """Whole records, each ended by a newline, and the number of their first line in the file."""

    data: bytes
    line: int

    def line_at(self, offset: int) -> int:
        return self.line + self.data.count(b"\n", 0, offset)


def whole_records(chunks: Iterable[bytes], name: str) -> Iterator[Block]:
    """Split chunks of text at the ends of records."""
    rest, line = b"", 1
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        end = _end_of_records(data)
        if end:
            yield Block(data[:end], line)
            line += data.count(b"\n", 0, end)
        rest = data[end:]
        if len(rest) > MAX_RECORD_BYTES:
            if rest.count(b'"') % 2:
                yield Block(rest, line)  # its check reports the open quote
            raise DataError(f"{name}: line {line} is longer than {MAX_RECORD_BYTES:,} bytes. Is it a table?")
    if rest:
        yield Block(rest + b"\n", line)


def split_header(block: Block) -> tuple[Block, Block]:
    """Return the first record that is not blank, and the rest."""
    data, line = block.data, block.line
    while data.startswith((b"\n", b"\r\n")):
        data, line = data.split(b"\n", 1)[1], line + 1
    ends = _outside(data, _positions(data, _NEWLINE))
    end = int(ends[0]) + 1 if len(ends) else len(data)
    return Block(data[:end], line), Block(data[end:], line + data.count(b"\n", 0, end))


@dataclass(frozen=True)
class Layout:
    """The expected layout of every record.

    Attributes:
        name: The table, in messages.
        sep: The separator.
        columns: The names of the columns.
        ragged: Whether a record may have too few fields.
    """

    name: str
    sep: str
    columns: tuple[str, ...]
    ragged: bool = False

    def check(self, block: Block) -> tuple[bytes, int]:
        """Return the records without blank lines, and their number; the first fault is an error."""
        self.check_characters(block)
        data = block.data
        self.check_quotes(block)
        ends = _outside(data, _positions(data, _NEWLINE))
        if len(self.columns) > 1:  # in a table of one column, a blank line is a missing value
            blank = _blank(data, ends)
            if blank.any():
                self._check_widths(block, ends, blank)
                return _without(data, ends, blank), int(len(ends) - blank.sum())
        self._check_widths(block, ends, None)
        return data, len(ends)

    def check_characters(self, block: Block) -> None:
        """Refuse invalid UTF-8, NUL bytes, and carriage returns inside a line."""
        data = block.data
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self.name} must be UTF-8 text; {self._place(block, error.start)} holds the byte "
                    f"0x{data[error.start]:02X}, which is invalid in UTF-8. Pass the encoding, for instance "
                    "--encoding cp1252 (Windows, Excel) or --encoding latin-1."
                ) from None
        if b"\0" in data:
            raise DataError(
                f"{self.name} must be text; {self._place(block, data.index(0))} holds a NUL byte. If it is UTF-16, "
                "pass --encoding utf-16-le; otherwise write the file again, it is damaged."
            )
        if b"\r" in data:
            returns = _outside(data, _positions(data, _RETURN))
            alone = returns[np.frombuffer(data, np.uint8)[np.minimum(returns + 1, len(data) - 1)] != _NEWLINE]
            if len(alone):
                raise DataError(
                    f"{self.name} must have consistent line ends; {self._place(block, int(alone[0]))} holds a "
                    "carriage return inside a line. Quote the field, or remove the character."
                )

    def check_quotes(self, block: Block) -> None:
        """Refuse a quote that neither begins nor ends a field and is not doubled, and one never closed."""
        if b'"' not in block.data:
            return
        quotes = _positions(block.data, _QUOTE)
        around = np.frombuffer(b"\n" + block.data + b"\n", np.uint8)
        apart = [ord(self.sep), _NEWLINE, _QUOTE]
        opening, closing = quotes[0::2], quotes[1::2]
        stray = opening[~np.isin(around[opening], apart)]
        early = closing[~np.isin(around[closing + 2], [*apart, _RETURN])]
        if len(stray) == 0 and len(early) == 0:
            if len(quotes) % 2:
                raise DataError(
                    f"{self.name}: a quote opened in line {block.line_at(int(quotes[-1]))} is never closed. Close "
                    "it, or double it if it is part of the text."
                )
            return
        remedy = "A field with a quote in it must be quoted as a whole and its quotes doubled."
        if len(early) == 0 or (len(stray) and stray[0] < early[0]):
            raise DataError(
                f"{self.name}: {self._place(block, int(stray[0]))} holds a quote inside a field. {remedy}"
            )
        start = int(opening[np.searchsorted(opening, early[0]) - 1])
        raise DataError(
            f"{self.name}: the quoted field that starts in line {block.line_at(start)} ends in line "
            f"{block.line_at(int(early[0]))}, but text follows its closing quote. Was a quote not closed? {remedy}"
        )

    def _check_widths(self, block: Block, ends: Int, blank: NDArray[np.bool_] | None) -> None:
        separators = _outside(block.data, _positions(block.data, ord(self.sep)))
        fields = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
        expected = len(self.columns)
        wrong = fields > expected if self.ragged else fields != expected
        if blank is not None:
            wrong &= ~blank
        if not wrong.any():
            return
        record = int(np.argmax(wrong))
        line = block.line_at(int(ends[record - 1]) + 1 if record else 0)
        many = fields[record] > expected
        remedy = "Quote fields that hold the separator, or pass another one with --sep."
        if not many:
            remedy = "If missing fields at the end of a line are meant to be empty, pass --ragged."
        raise DataError(
            f"{self.name} must have {expected} field{'s' * (expected != 1)} in every line, as its header has; line "
            f"{line} has {fields[record]}, too {'many' if many else 'few'} ({such(int(wrong.sum()), 'line')} in this "
            f"part of the file). {remedy}"
        )

    def _place(self, block: Block, offset: int) -> str:
        """Describe an offset: its line and, if the columns are known, its column."""
        before = block.data[:offset]
        ends, separators = (_outside(before, _positions(before, b)) for b in (_NEWLINE, ord(self.sep)))
        field = int((separators > (ends[-1] if len(ends) else -1)).sum())
        column = f", column {self.columns[field]!r}," if field < len(self.columns) else ""
        return f"line {block.line_at(offset)}{column}"


def header_names(header: Block, layout: Layout) -> tuple[str, ...]:
    """Return the stripped column names; columns without a name are numbered."""
    layout.check_characters(header)
    layout.check_quotes(header)
    text = header.data.decode().removesuffix("\n").removesuffix("\r")
    try:
        (cells,) = csv.reader(io.StringIO(text, newline=""), delimiter=layout.sep)
    except (csv.Error, ValueError) as error:
        raise DataError(
            f"{layout.name}: the header in line {header.line} cannot be read ({error})."
        ) from None
    return names_of_columns(cells, layout.name, header.line)


def names_of_columns(cells: Sequence[str], table: str, line: int) -> tuple[str, ...]:
    """Return the cells of a header as names, each of which may occur once."""
    names = tuple(cell.strip() or f"column_{i}" for i, cell in enumerate(cells, start=1))
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(
            f"{table} must name each column once; {listed(twice)} "
            f"{'occurs' if len(twice) == 1 else 'occur'} more than once in line {line}. Rename or remove them."
        )
    return names


def _positions(data: bytes, byte: int) -> Int:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == byte)


def _outside(data: bytes, places: Int) -> Int:
    """Return the positions outside quotes."""
    if b'"' not in data:
        return places
    return places[np.searchsorted(_positions(data, _QUOTE), places) % 2 == 0]


def _end_of_records(data: bytes) -> int:
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    ends = _outside(data, _positions(data, _NEWLINE))
    return int(ends[-1]) + 1 if len(ends) else 0


def _blank(data: bytes, ends: Int) -> NDArray[np.bool_]:
    lengths = np.diff(ends, prepend=-1) - 1
    blank = lengths == 0
    one = np.flatnonzero(lengths == 1)
    blank[one] = np.frombuffer(data, np.uint8)[ends[one] - 1] == _RETURN
    return blank


def _without(data: bytes, ends: Int, blank: NDArray[np.bool_]) -> bytes:
    starts = np.concatenate([[0], ends[:-1] + 1])
    keep = np.ones(len(data), dtype=bool)
    for start, end in zip(starts[blank], ends[blank], strict=True):
        keep[start : end + 1] = False
    return np.frombuffer(data, np.uint8)[keep].tobytes()
