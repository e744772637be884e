"""Parquet and Arrow files: columns of simple types are read as they are, others are refused by name."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl
from polars.selectors import by_name

from selfcal.errors import DataError
from selfcal.tabular.io.pages import DamagedError, check_pages
from selfcal.tabular.io.source import Opened

MAGIC = b"PAR1"
ARROW_MAGIC = b"ARROW1"
Choose = Callable[[pl.Schema], Sequence[str]]
"""Returns the names of the columns to read, given the schema."""

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, counted from 1970-01-01
_DAY = 86_400_000_000  # microseconds


def parquet_batches(opened: Opened, batch_rows: int, columns: Choose | None = None) -> Iterator[pl.DataFrame]:
    """Yield the table in batches; the first one has no rows.

    Dictionaries become strings, decimals floats, times of other zones UTC; lists, structs, bytes and durations
    are refused.
    """
    if opened.packed:
        raise DataError(
            f"{opened.name} is a Parquet file inside {opened.packed} file; Parquet is compressed already. Unpack it "
            "first."
        )
    source = _whole(opened)
    table = pl.scan_parquet(io.BytesIO(source) if isinstance(source, bytes) else source, glob=False)
    plan = _simple(table, opened.name, columns)
    yield pl.DataFrame(schema=plan.collect_schema())
    try:
        check_pages(source)
    except DamagedError as damage:
        raise DataError(f"{opened.name} is a damaged Parquet file: {damage}. Write it again.") from None
    yield from _collected(plan, opened, batch_rows)


def arrow_batches(opened: Opened, batch_rows: int, columns: Choose | None = None) -> Iterator[pl.DataFrame]:
    """Yield the table in an Arrow (Feather) file in batches, as `parquet_batches` does."""
    source = _whole(opened)
    table = pl.scan_ipc(io.BytesIO(source) if isinstance(source, bytes) else source, glob=False)
    plan = _simple(table, opened.name, columns)
    yield pl.DataFrame(schema=plan.collect_schema())
    yield from _collected(plan, opened, batch_rows)


def _whole(opened: Opened) -> Path | bytes:
    return b"".join(opened.chunks) if opened.path is None or opened.packed else opened.path


def _simple(table: pl.LazyFrame, name: str, columns: Choose | None = None) -> pl.LazyFrame:
    schema = table.collect_schema()
    names = schema.names() if columns is None else columns(schema)
    return table.select(simplified(column, schema[column], name) for column in names)


def _collected(plan: pl.LazyFrame, opened: Opened, batch_rows: int) -> Iterator[pl.DataFrame]:
    opened.size, opened.taken = plan.select(pl.len()).collect().item(), 0
    for part in plan.collect_batches(chunk_size=batch_rows):
        _refuse_odd_dates(part, opened.name)
        opened.taken += part.height
        yield part


def simplified(name: str, dtype: pl.DataType, table: str) -> pl.Expr:
    """Return a column as numbers, text, booleans or dates; an error names one of another type, and its table."""
    column = by_name(name)
    if isinstance(dtype, (pl.Categorical, pl.Enum, pl.Null)):
        return column.cast(pl.String)
    if isinstance(dtype, pl.Decimal):
        return column.cast(pl.Float64)
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if dtype.time_zone else column
        return utc.cast(pl.Datetime("us"))
    if dtype.is_numeric() or isinstance(dtype, (pl.String, pl.Boolean, pl.Date)):
        return column
    raise DataError(
        f"{table} must have columns of numbers, text, booleans or dates; column {name!r} is {dtype}. "
        "Turn it into simple columns, or leave it out."
    )


def _refuse_odd_dates(part: pl.DataFrame, table: str) -> None:
    """Refuse dates outside the years 1 to 9999, which polars cannot print."""
    for column in part.iter_columns():
        if column.dtype not in (pl.Date, pl.Datetime):
            continue
        unit = 1 if column.dtype == pl.Date else _DAY
        if (
            not column.to_physical()
            .drop_nulls()
            .is_between(unit * _FIRST_DAY, unit * (_LAST_DAY + 1), closed="left")
            .all()
        ):
            raise DataError(
                f"{table} must hold dates of the years 1 to 9999; column {column.name!r} goes beyond. Correct it."
            )
