"""`read_table` and `read_batches`: tables from any source, with the same checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import polars as pl
from polars.selectors import by_name

from selfcal._support.checks import positive_int
from selfcal.errors import DataError
from selfcal.tabular.io.delimited import delimited_batches
from selfcal.tabular.io.parquet import MAGIC, Choose, parquet_batches
from selfcal.tabular.io.source import Opened, Source, open_source

MEMORY_BUDGET = 4 * 2**30
"""Default memory limit of `read_table`, in bytes."""


def read_batches(
    source: Source,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    ragged: bool = False,
    batch_rows: int = 65_536,
    allow_empty: bool = False,
    columns: Choose | None = None,
    watch: Callable[[float | None], None] | None = None,
) -> Iterator[pl.DataFrame]:
    r"""Read a table in batches, in memory that does not grow with the file.

    Cells of CSV and similar files are strings, exactly as in the file: an empty cell is null, `""` the empty
    string. Parquet columns keep their type. Every error is a `DataError` that names the line.

    Args:
        source: A path (`-` for standard input), bytes, or an open binary file. Gzip is detected by its first bytes.
        sep: The separator; None detects a comma, tab, semicolon or bar.
        encoding: The encoding of the text; None means UTF-8, or that of the byte order mark.
        ragged: Accept lines with missing fields at the end, which are empty.
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
        for part in _parts(
            opened,
            sep,
            encoding,
            ragged=ragged,
            batch_rows=batch_rows,
            allow_empty=allow_empty,
            columns=columns,
        ):
            yield from part.iter_slices(batch_rows) if part.height else [part]
            if watch is not None:
                watch(opened.fraction_read)


def read_table(
    source: Source,
    *,
    sep: str | None = None,
    encoding: str | None = None,
    ragged: bool = False,
    allow_empty: bool = False,
    budget: int = MEMORY_BUDGET,
) -> pl.DataFrame:
    r"""Read a whole table into memory; see `read_batches` for the rules.

    Args:
        source: A path (`-` for standard input), bytes, or an open binary file.
        sep: The separator; None detects it.
        encoding: The encoding of the text; None means UTF-8, or that of the byte order mark.
        ragged: Accept lines with missing fields at the end, which are empty.
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
        for part in _parts(opened, sep, encoding, ragged=ragged, batch_rows=65_536, allow_empty=allow_empty):
            parts.append(part)
            rows += part.height
            taken += memory_of(part)
            _check_budget(opened, rows, taken, budget)
    # contiguous memory is faster, but rechunking needs the memory twice
    return pl.concat(parts, rechunk=2 * taken <= budget)


def _parts(
    opened: Opened,
    sep: str | None,
    encoding: str | None,
    *,
    ragged: bool,
    batch_rows: int,
    allow_empty: bool,
    columns: Choose | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield batches with rows; one without rows only if the table has none."""
    with _polars_errors_as_ours(opened.name):
        if opened.head.startswith(MAGIC):
            parts = parquet_batches(opened, batch_rows, columns)
        else:
            parts = delimited_batches(opened, sep=sep, encoding=encoding, ragged=ragged)
            if columns is not None:
                parts = _selected(parts, columns)
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
