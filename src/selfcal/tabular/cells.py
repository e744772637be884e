"""Parsing of cells into numbers, booleans, dates and categories, the same in `fit` and in `predict`.

Text from a CSV file and typed Parquet columns give the same values. A missing cell is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from polars.selectors import by_name

from selfcal._support.checks import shorten, such
from selfcal.errors import DataError
from selfcal.tabular.notation import Notation

MISSING = ("na", "n/a", "#n/a", "nan", "null", "none", "nat", "?", "-", ".")
"""Spellings of a missing value besides an empty cell, case-insensitive, in columns of numbers, booleans and dates.

In a column of categories such a word is a category like any other (a household with "None" for children is not
one of unknown size), and in the target it is a class.
"""

TIMESTAMP = pl.Datetime("us")
COLUMN_GROUP = 256
"""Columns that are converted at a time."""
_TRUE = ("true", "yes", "y", "1", "1.0")
_FALSE = ("false", "no", "n", "0", "0.0")
_TRUTH = dict.fromkeys(_TRUE, 1.0) | dict.fromkeys(_FALSE, 0.0)
_ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f %#z", "%Y-%m-%d %H:%M")


def text_cells(cells: pl.Series, missing: Sequence[str] = MISSING) -> pl.Series:
    """Return the stripped text; null where the cell is empty or spells a missing value."""
    text = cells.cast(pl.String).str.strip_chars()
    gone = text.str.to_lowercase().is_in(["", *(word.lower() for word in missing)])
    return text.set(gone, None)


def read_numbers(
    table: pl.DataFrame,
    missing: Sequence[str] = MISSING,
    *,
    decimal: str = ".",
    notations: Mapping[str, Notation] | None = None,
) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """Return every column as float64, and for columns with unreadable cells the mask of those.

    With `decimal=","`, both 4,5 and 4.5 are read as 4.5. A text column in `notations` is read in that notation.

    Example:
        >>> values, unreadable = read_numbers(pl.DataFrame({"x": ["1", " 2e3", "NA", "two"]}))
        >>> values["x"].to_list(), unreadable["x"].to_list()
        ([1.0, 2000.0, None, None], [False, False, False, True])
    """
    exprs = [_number(name, dtype, decimal) for name, dtype in table.schema.items()]
    # polars plans thousands of expressions much more slowly than many groups of a few
    groups = [
        table[:, i : i + COLUMN_GROUP].select(exprs[i : i + COLUMN_GROUP])
        for i in range(0, len(exprs), COLUMN_GROUP)
    ]
    values = pl.concat(groups, how="horizontal") if groups else table
    for name, notation in (notations or {}).items():
        if table.schema[name] == pl.String:
            read = notation.read(text_cells(table[name], missing))
            values = values.with_columns(read.alias(name))
    unreadable = {}
    lost = (after - before for before, after in zip(_nulls(table), _nulls(values), strict=True))
    for name in (name for name, n in zip(table.columns, lost, strict=True) if n):
        mask = text_cells(table[name], missing).is_not_null() & values[name].is_null()
        if mask.any():
            unreadable[name] = mask
    return values, unreadable


def read_booleans(cells: pl.Series, missing: Sequence[str] = MISSING) -> tuple[pl.Series, pl.Series]:
    """Return 1.0 for true and 0.0 for false, and the mask of the unreadable cells."""
    text = text_cells(cells, missing).str.to_lowercase()
    values = text.replace_strict(_TRUTH, default=None, return_dtype=pl.Float64)
    return values, text.is_not_null() & values.is_null()


def read_dates(
    cells: pl.Series, form: str | None, missing: Sequence[str] = MISSING
) -> tuple[pl.Series, pl.Series]:
    """Return times in UTC without a time zone, and the mask of the unreadable cells.

    A text cell is in the given format, None if the column had dates of its own type in training, or in that of ISO.
    """
    if cells.dtype in (pl.Date, pl.Datetime):
        return cells.cast(TIMESTAMP), cells.is_null() & False
    text = text_cells(cells, missing)
    values = (
        pl.repeat(None, len(text), dtype=TIMESTAMP, eager=True) if form is None else parse_dates(text, form)
    )
    if not (unreadable := text.is_not_null() & values.is_null()).any():
        return values, unreadable
    spaced = text.str.replace(r"^(\d{4}-\d\d-\d\d)T", "$1 ")
    values = pl.select(pl.coalesce(values, *(parse_dates(spaced, iso) for iso in _ISO))).to_series()
    return values.alias(cells.name), text.is_not_null() & values.is_null()


def parse_dates(text: pl.Series, form: str) -> pl.Series:
    """Return times in UTC without a time zone, null where a cell is not in this format."""
    values = text.str.to_datetime(form, strict=False, time_unit="us")
    return (
        values if values.dtype == TIMESTAMP else values.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    )


def read_levels(cells: pl.Series) -> pl.Series:
    """Return categories as stripped text, null where empty; 3.0 in a typed column is "3".

    Example:
        >>> read_levels(pl.Series([" red", "", "NA"])).to_list()
        ['red', None, 'NA']
    """
    return text_cells(as_text(cells), ())


def as_text(cells: pl.Series) -> pl.Series:
    """Return a typed column as a CSV file would spell it: whole floats as integers, NaN as missing."""
    if not cells.dtype.is_float():
        return cells.cast(pl.String)
    values = cells.cast(pl.Float64).fill_nan(None)
    whole = values.cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with(
        (values == values.round()) & (values.abs() < 2.0**53), values.cast(pl.String)
    )


def first_row(mask: pl.Series) -> int:
    """Return the number of the first row in the mask, counted from 1 below the header."""
    return (mask.arg_max() or 0) + 1


def refuse(
    name: str, kind: str, cells: pl.Series, mask: pl.Series, *, remedy: str | None = None
) -> DataError:
    """Return the error that names the first cell that is not of the kind of its column.

    Args:
        name: The column.
        kind: The expected kind of its cells.
        cells: The cells.
        mask: The cells that are not of that kind.
        remedy: How to correct them; by default with the options of `selfcal fit`.
    """
    row = first_row(mask)
    shown = repr(shorten(cells[row - 1]))
    remedy = remedy or (
        f"Correct the cells, add their spelling to the missing values (--missing {shown}), or declare the column: "
        f"--kind {name}=category, or --kind {name}=drop."
    )
    return DataError(
        f"Column {name!r} must hold {kind}; row {row} is {shown} ({such(int(mask.sum()), 'cell')}; row 1 is the "
        f"first below the header). {remedy}"
    )


def _number(name: str, dtype: pl.DataType, decimal: str) -> pl.Expr:
    if dtype.is_numeric() or dtype == pl.Boolean:
        return by_name(name).cast(pl.Float64).fill_nan(None)
    text = by_name(name).cast(pl.String).str.strip_chars()
    if decimal != ".":
        text = text.str.replace(decimal, ".", literal=True)
    return text.cast(pl.Float64, strict=False).fill_nan(None)


def _nulls(table: pl.DataFrame) -> Iterable[int]:
    return table.null_count().row(0) if table.width else ()
