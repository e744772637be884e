"""CSV, TSV and similar text, parsed block by block with polars after each block has passed our checks."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

import polars as pl

from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io.records import Block, Layout, header_names, split_header, whole_records

SEPARATORS = (",", "\t", ";", "|")
_SAMPLE = 100  # records used to detect the separator


def delimited_batches(
    chunks: Iterable[bytes], name: str, *, sep: str | None, ragged: bool
) -> Iterator[pl.DataFrame]:
    """Yield the table in UTF-8 text in batches of strings and nulls; only the first batch has no rows.

    An empty cell is null; a quoted empty cell, `""`, is the empty string.
    """
    blocks = whole_records(chunks, name)
    first = next(blocks, None)
    if first is None or not first.data.strip(b"\r\n"):
        raise DataError(f"{name} must hold a table; the file is empty. Check the path and the export.")
    header, body = split_header(first)
    chosen = _separator(header, body, name) if sep is None else checked_separator(sep)
    layout = Layout(name, chosen, (), ragged)
    columns = header_names(header, layout)
    _refuse_data_as_header(columns, name)
    layout = Layout(name, chosen, columns, ragged)
    yield pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    for block in chain([body], blocks):
        frame = _parse(layout, block)
        if frame.height:
            yield frame


def _parse(layout: Layout, block: Block) -> pl.DataFrame:
    data, n_records = layout.check(block)
    schema = dict.fromkeys(layout.columns, pl.String)
    if n_records == 0:
        return pl.DataFrame(schema=schema)
    # polars infers the number of columns from the first record, and drops a byte order mark at its start
    guarded = layout.ragged or data.startswith(codecs.BOM_UTF8)
    if guarded:
        data = layout.sep.encode() * (len(schema) - 1) + b"\n" + data
    frame = pl.read_csv(
        data,
        has_header=False,
        schema=schema,
        separator=layout.sep,
        quote_char='"' if b'"' in data else None,
    )[int(guarded) :]
    if frame.height != n_records:  # never expected: polars and our checks agree on what a record is
        raise DataError(
            f"{layout.name}: the part from line {block.line} on must have {n_records} rows; polars read "
            f"{frame.height}. Look for unusual quotes or line ends there."
        )
    return frame


def _separator(header: Block, body: Block, name: str) -> str:
    """Return the separator that splits the first records into equally many fields."""
    width = {s: _fields(header, s) for s in SEPARATORS}
    possible = [s for s in SEPARATORS if width[s] > 1]
    if len(possible) > 1:
        sample: list[Block] = []
        rest = body
        while rest.data and len(sample) < _SAMPLE:
            record, rest = split_header(rest)
            sample.append(record)
        even = [s for s in possible if all(_fields(r, s) == width[s] for r in sample if r.data.strip())]
        possible = even or [max(possible, key=lambda s: width[s])]
    if len(possible) > 1:
        shown = " or ".join(f"--sep {s!r} ({width[s]} columns)" for s in possible)
        raise DataError(f"{name} must have one separator; several are possible. Pass {shown}.")
    return possible[0] if possible else ","


def _fields(record: Block, sep: str) -> int:
    return record.data.count(sep.encode()) + 1 if b'"' not in record.data else _quoted_fields(record, sep)


def _quoted_fields(record: Block, sep: str) -> int:
    outside = record.data.split(b'"')[0::2]
    return sum(part.count(sep.encode()) for part in outside) + 1


def checked_separator(sep: str) -> str:
    """Return the character for a separator, which may also be the word tab; anything else is an error."""
    word = {"tab": "\t", "\\t": "\t"}.get(sep, sep)
    if len(word) == 1 and word.isascii() and word not in '"\n\r\0':
        return word
    raise ConfigError(f"sep must be one character, such as ',', ';' or 'tab'; got {sep!r}.")


def _refuse_data_as_header(columns: tuple[str, ...], name: str) -> None:
    """Refuse a first line of mostly decimal numbers, which column names rarely are."""
    decimals = [c for c in columns if _is_decimal(c)]
    if 2 * len(decimals) > len(columns):
        raise DataError(
            f"{name} must name its columns in the first line; it looks like data ({', '.join(columns[:4])} ...). "
            "Add a header line with the names."
        )


def _is_decimal(text: str) -> bool:
    try:
        return not float(text).is_integer()
    except (ValueError, OverflowError):
        return False
