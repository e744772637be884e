"""JSON lines: one object in each line, whose values are read as the cells of a CSV file would be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from selfcal._support.checks import listed, shorten
from selfcal.errors import DataError
from selfcal.tabular.io.records import MAX_RECORD_BYTES

MAX_BLOCK_ROWS = 65_536


def json_batches(chunks: Iterable[bytes], name: str) -> Iterator[pl.DataFrame]:
    """Yield the table in batches of strings and nulls; the first one has no rows.

    The columns are the keys of the first block of lines; a key that a later line leaves out is a missing cell.
    """
    columns: tuple[str, ...] = ()
    for line, texts in _blocks(chunks, name):
        records = [_record(text, line + i, name) for i, text in enumerate(texts) if text.strip()]
        keys = dict.fromkeys(key for record in records for key in record)
        if not columns:
            columns = tuple(keys)
            yield pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
        elif new := [key for key in keys if key not in columns]:
            raise DataError(
                f"{name} must have the same keys in all lines; {listed(new)} first "
                f"{'occurs' if len(new) == 1 else 'occur'} in or after line {line:,}. Write them in the first line "
                "too, as null if unknown."
            )
        cells = {key: [_cell(record.get(key), key, name) for record in records] for key in columns}
        yield pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String))


def _blocks(chunks: Iterable[bytes], name: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield whole lines, with the number of the first."""
    rest, line = b"", 1
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_RECORD_BYTES:
            raise DataError(f"{name}: line {line + len(lines)} is longer than {MAX_RECORD_BYTES:,} bytes.")
        for start in range(0, len(lines), MAX_BLOCK_ROWS):
            yield line + start, lines[start : start + MAX_BLOCK_ROWS]
        line += len(lines)
    if rest:
        yield line, [rest]


def _record(text: bytes, line: int, name: str) -> dict[str, Any]:
    try:
        record = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_without_duplicates
        )
    except _DuplicateKeyError as error:
        raise DataError(
            f"{name} must name each key once; line {line:,} has {error} twice. Rename it."
        ) from None
    except (ValueError, RecursionError) as error:  # ValueError: invalid JSON or UTF-8
        raise DataError(
            f"{name} must be JSON lines, one object in each line; line {line:,} cannot be read "
            f"({shorten(error, 100)}). Write a JSON document as lines, for instance with jq -c '.[]'."
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f"{name} must be JSON lines, one object in each line; line {line:,} is {shorten(text.decode())!r}."
        )
    return record


class _DuplicateKeyError(Exception):
    """An object has a key twice."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        key = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise _DuplicateKeyError(repr(shorten(key)))
    return record


def _cell(value: Any, key: str, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise DataError(
        f"{name} must have columns of numbers, text and booleans; column {key!r} holds "
        f"{'an object' if isinstance(value, dict) else 'a list'}. Turn it into simple columns, or leave it out."
    )
