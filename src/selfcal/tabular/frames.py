"""Data frames of any library, and arrays with text, as polars tables."""

from __future__ import annotations

import datetime
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal._support.checks import listed, plain, shorten
from selfcal.errors import DataError, DataTypeError
from selfcal.tabular.io.parquet import simplified

_CATEGORICAL = (nw.Categorical, nw.Enum)


@dataclass(frozen=True)
class Frame:
    """The cells of a data frame.

    Attributes:
        table: The cells.
        kinds: The kinds of columns that their types determine: a categorical column holds categories.
    """

    table: pl.DataFrame
    kinds: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.table.height


def is_frame(X: object) -> bool:
    """Whether X is a data frame: of pandas, polars, pyarrow, or any other library that narwhals knows."""
    return bool(nw.dependencies.is_into_dataframe(X))


def as_frame(X: Any, name: str = "X") -> Frame:
    """Return a data frame as a polars table of numbers, text, booleans and dates.

    Missing values of every kind (None, NaN, NA, NaT) are null. pandas frames are converted without pyarrow.

    Args:
        X: The data frame.
        name: Its name in errors.

    Example:
        >>> import pandas
        >>> frame = pandas.DataFrame({"size": [1.5, None], "colour": pandas.Categorical(["red", None])})
        >>> given = as_frame(frame)
        >>> given.table.to_dict(as_series=False), given.kinds
        ({'size': [1.5, None], 'colour': ['red', None]}, {'colour': 'category'})
    """
    try:
        given = nw.from_native(X, eager_only=True)
        names = [str(column) for column in given.columns]
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"{name} must name each column once; rename the others. {error}") from None
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{name} must name each column once, by text; {listed(twice)} is there several times. Rename it."
        )
    columns = list(given.iter_columns())
    kinds = {
        column: "category"
        for column, cells in zip(names, columns, strict=True)
        if cells.dtype in _CATEGORICAL
    }
    if nw.dependencies.is_pandas_like_dataframe(X):
        table = pl.DataFrame(
            [_series(cells).alias(column) for column, cells in zip(names, columns, strict=True)]
        )
    else:
        table = pl.DataFrame(X)
    return Frame(table.select(simplified(*column, name) for column in table.schema.items()), kinds)


def is_mixed(X: object) -> bool:
    """Whether X is a table, as an array or as lists, with text or dates besides numbers."""
    try:
        cells = np.asarray(X)
    except (ValueError, TypeError, RuntimeError):  # lists of different lengths; a tensor with a gradient
        return False
    if cells.ndim != 2 or cells.dtype.kind not in "OUS":
        return False
    try:
        cells.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return any(isinstance(value, (str, datetime.date)) for value in _objects(X).flat)
    return False


def mixed_frame(X: object, names: Sequence[str] | None = None, name: str = "X") -> Frame:
    """Return an array of mixed cells as a table; by default its columns are named x0, x1, ...

    Example:
        >>> mixed_frame([[1, "red"], [2.5, None]]).table.to_dict(as_series=False)
        {'x0': [1.0, 2.5], 'x1': ['red', None]}
    """
    cells = _objects(X)
    names = array_names(cells.shape[1]) if names is None else names
    columns = [_cells(values.tolist(), f"{name}, column {place}") for place, values in enumerate(cells.T)]
    return Frame(pl.DataFrame([c.alias(n) for c, n in zip(columns, names, strict=True)]))


def array_names(n_columns: int) -> list[str]:
    """Return the names of the columns of an array, which has none."""
    return [f"x{place}" for place in range(n_columns)]


def _objects(X: object) -> NDArray[np.object_]:
    """Return the cells one by one: NumPy would make lists with text all text."""
    return np.asarray(X, dtype=object)


def _series(cells: Any) -> pl.Series:
    """Return a column of a pandas frame, which polars itself converts only with pyarrow."""
    missing = pl.Series(cells.is_null().to_numpy())
    dtype = cells.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        filled = cells.fill_null(False if dtype == nw.Boolean else 0) if missing.any() else cells
        return pl.Series(filled.to_numpy()).set(missing, None)
    if isinstance(dtype, nw.Datetime):
        utc = cells.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if dtype.time_zone else cells
        return pl.Series(utc.to_numpy().astype("datetime64[us]"))
    values = [None if gone else value for value, gone in zip(cells.to_list(), missing, strict=True)]
    return _cells(values, f"Column {cells.name!r}")


def _cells(values: list[Any], place: str) -> pl.Series:
    """Return Python values as a column: typed if all are of one kind, otherwise as a CSV file would spell them."""
    values = [None if _is_missing(value) else plain(value) for value in values]
    present = [value for value in values if value is not None]
    types = {type(value) for value in present}
    if types <= {bool}:
        return pl.Series(values, dtype=pl.Boolean)
    if types <= {int, float} and all(type(value) is float or abs(value) < 2**53 for value in present):
        return pl.Series(values, dtype=pl.Float64, strict=False)
    if all(isinstance(value, datetime.date) for value in present):
        return pl.Series(
            [None if value is None else _in_utc(value) for value in values], dtype=pl.Datetime("us")
        )
    return pl.Series([_spelling(value, row, place) for row, value in enumerate(values)], dtype=pl.String)


def _in_utc(value: datetime.date) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        return datetime.datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _spelling(value: Any, row: int, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (numbers.Number, datetime.date)):
        return str(value)
    raise DataTypeError(
        f"{place} must hold numbers, text, booleans or dates; row {row} is {shorten(repr(value))}, a "
        f"{type(value).__name__}. Turn it into simple columns, or leave it out."
    )


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 # as NaN and NaT do
    except (TypeError, ValueError):  # pandas.NA is neither equal nor unequal to itself
        return type(value).__name__ == "NAType"
