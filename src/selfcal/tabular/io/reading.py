"""`read_table` and `read_batches`: tables from any source, with the same checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import polars as pl
from polars.selectors import by_name

from selfcal._support.checks import positive_int
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io import archives
from selfcal.tabular.io.delimited import delimited_batches
from selfcal.tabular.io.excel import excel_batches
from selfcal.tabular.io.json_lines import json_batches
from selfcal.tabular.io.parquet import ARROW_MAGIC, MAGIC, Choose, arrow_batches, parquet_batches
from selfcal.tabular.io.source import Opened, Source, open_source, peek, refuse_other_texts, utf8_chunks

MEMORY_BUDGET = 4 * 2**30
"""Default memory limit of `read_table`, in bytes."""


def read_batches(
    source: Source,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    ragged: bool = False,
    sheet: str | None = None,
    batch_rows: int = 65_536,
    allow_empty: bool = False,
    columns: Choose | None = None,
    watch: Callable[[float | None], None] | None = None,
) -> Iterator[pl.DataFrame]:
    r"""Read a table in batches, in memory that does not grow with the file.

    Cells of CSV and similar files are strings, exactly as in the file: an empty cell is null, `""` the empty
    string. JSON lines and Excel workbooks give strings, too. Columns of Parquet and Arrow files keep their type.
    Every error is a `DataError` that names the line.

    Args:
        source: A path (`-` for standard input), bytes, or an open binary file. Its first bytes tell the format,
            gzip and zip included.
        sep: The separator; None detects a comma, tab, semicolon or bar.
        encoding: The encoding of the text; None means UTF-8, or that of the byte order mark.
        ragged: Accept lines with missing fields at the end, which are empty.
        sheet: The sheet of an Excel workbook; None takes the only one with cells.
        batch_rows: Maximum rows per batch.
        allow_empty: Yield one batch without rows if there are none, instead of an error.
        columns: Returns the columns to read, given the schema; by default all. Others of a Parquet file take no time.
        watch: Called after each batch with the fraction of the file that was read so far; None if the size is
            unknown.

    Yields:
        Data frames with at least one row each.

    Example:
        >>> for part in read_batches(b"x,y\n1,a\n2,b\n3,a\n", batch_rows=2):
        ...     print(part.rows())
        [('1', 'a'), ('2', 'b')]
        [('3', 'a')]
    """
    positive_int("batch_rows", batch_rows)
    with open_source(source) as opened:
        form = _Format(sep, encoding, ragged, sheet)
        for part in _parts(opened, form, batch_rows=batch_rows, allow_empty=allow_empty, columns=columns):
            yield from part.iter_slices(batch_rows) if part.height else [part]
            if watch is not None:
                watch(opened.fraction_read)


def read_table(
    source: Source,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    ragged: bool = False,
    sheet: str | None = None,
    allow_empty: bool = False,
    budget: int = MEMORY_BUDGET,
) -> pl.DataFrame:
    r"""Read a whole table into memory; see `read_batches` for the rules.

    Args:
        source: A path (`-` for standard input), bytes, or an open binary file.
        sep: The separator; None detects it.
        encoding: The encoding of the text; None means UTF-8, or that of the byte order mark.
        ragged: Accept lines with missing fields at the end, which are empty.
        sheet: The sheet of an Excel workbook; None takes the only one with cells.
        allow_empty: Return a table without rows if there are none, instead of an error.
        budget: Maximum memory of the table, in bytes; a larger table is refused as early as possible.

    Returns:
        A data frame.

    Example:
        >>> read_table(b"size;kind\n4,5;ant\n").to_dict(as_series=False)
        {'size': ['4,5'], 'kind': ['ant']}
    """
    parts: list[pl.DataFrame] = []
    rows = taken = 0
    with open_source(source) as opened:
        form = _Format(sep, encoding, ragged, sheet)
        for part in _parts(opened, form, batch_rows=65_536, allow_empty=allow_empty):
            parts.append(part)
            rows += part.height
            taken += memory_of(part)
            _check_budget(opened, rows, taken, budget)
    # contiguous memory is faster, but rechunking needs the memory twice
    return pl.concat(parts, rechunk=2 * taken <= budget)


@dataclass(frozen=True)
class _Format:
    """What the caller said about the format."""

    sep: str | None
    encoding: str | None
    ragged: bool
    sheet: str | None


def _parts(
    opened: Opened, form: _Format, *, batch_rows: int, allow_empty: bool, columns: Choose | None = None
) -> Iterator[pl.DataFrame]:
    """Yield batches with rows; one without rows only if the table has none."""
    with _polars_errors_as_ours(opened.name):
        parts = _batches(opened, form, batch_rows, columns)
        empty, rows = next(parts), 0
        if empty.width == 0:
            raise DataError(f"{opened.name} must hold a table; it has no columns.")
        for part in parts:
            if part.height:
                rows += part.height
                yield part
        if rows == 0:
            if not allow_empty:
                raise DataError(
                    f"{opened.name} must hold at least one row; it has a header of {empty.width} "
                    f"column{'s' * (empty.width != 1)} and no rows. Check the export."
                )
            yield empty


def _selected(parts: Iterator[pl.DataFrame], columns: Choose) -> Iterator[pl.DataFrame]:
    first = next(parts)
    chosen = by_name(columns(first.schema))
    yield first.select(chosen)
    yield from (part.select(chosen) for part in parts)


def _batches(
    opened: Opened, form: _Format, batch_rows: int, columns: Choose | None
) -> Iterator[pl.DataFrame]:
    """Return the reader for the format, which is detected by the first bytes."""
    archived = opened.head.startswith(archives.MAGIC)
    book = archives.open_archive(opened) if archived else None  # of another archive, the member is opened
    if book is None and form.sheet is not None:
        raise ConfigError(f"sheet is for Excel workbooks; {opened.name} is none. Leave it out.")
    if book is None and opened.head.startswith(MAGIC):
        return parquet_batches(opened, batch_rows, columns)
    if book is None and opened.head.startswith(ARROW_MAGIC):
        return arrow_batches(opened, batch_rows, columns)
    parts = _text_batches(opened, form) if book is None else excel_batches(opened, book, form.sheet)
    return parts if columns is None else _selected(parts, columns)


def _text_batches(opened: Opened, form: _Format) -> Iterator[pl.DataFrame]:
    head, rest = peek(utf8_chunks(opened, form.encoding))
    refuse_other_texts(head, opened.name)
    chunks = chain([head], rest)
    if head.lstrip().startswith(b"{"):
        return json_batches(chunks, opened.name)
    return delimited_batches(chunks, opened.name, sep=form.sep, ragged=form.ragged)


@contextmanager
def _polars_errors_as_ours(name: str) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{name} cannot be read ({reason}). Is it damaged? Write it again.") from error
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}.") from error


def _check_budget(opened: Opened, rows: int, taken: int, budget: int) -> None:
    """Refuse a table that is, or is projected to be, larger than the budget."""
    fraction = 1.0 if opened.fraction_read is None else opened.fraction_read
    expected = max(taken, int(taken / fraction) if fraction > 0 else taken)
    if expected > budget:
        raise DataError(
            f"{opened.name} must fit into {budget / 2**30:.1f} GB of memory; it has about "
            f"{int(rows / fraction):,} rows and would take about {expected / 2**30:.1f} GB. Use fewer rows or "
            "columns, or raise the budget (--memory of selfcal fit)."
        )


def memory_of(part: pl.DataFrame) -> int:
    """Memory of a table, in bytes."""
    strings = sum(dtype == pl.String for dtype in part.dtypes)
    # polars does not count the views of the strings, of 16 bytes each
    return int(part.estimated_size()) + 16 * strings * part.height
